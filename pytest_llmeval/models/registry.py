"""From what the user wrote after ``--llm-model`` to a model: parse, check cheaply, load.

Parsing and checking import neither torch nor transformers, so that the controller can refuse a run before it starts.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from pytest_llmeval.data.files import Source, open_bytes
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.huggingface.checkpoint import check_adapter, check_checkpoint
from pytest_llmeval.models.huggingface.hub_cache import cached_snapshot, is_offline
from pytest_llmeval.models.python.importing import concurrency_of, missing_module, split_target
from pytest_llmeval.models.settings import ModelSettings, check_settings
from pytest_llmeval.models.spec_arguments import check_names, hide_secrets, parse_arguments, split_arguments
from pytest_llmeval.models.threads import waiting_briefly
from pytest_llmeval.text.redaction import model_error, one_line
from pytest_llmeval.types import JSON

__all__ = ["ModelSpec", "check_model", "demo_folder", "load_model", "parse_model_spec"]

_RESERVED = ("openai",)
_GUESSING = ("random", "majority")
_EXPECTED = (
    "expected demo, a Hugging Face id (org/name), a checkpoint folder, replay:FILE, python:MODULE:NAME, random "
    "or majority"
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?", re.ASCII)
_LONGEST_HUB_ID = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as the user named it.

    ``name`` is the text that the user gave, without secrets, and the key of the model's records. ``location`` is the
    folder, absolute, for ``kind`` folder; the repository's id for ``hub``; the file for ``replay``; ``module:name`` for
    ``python``; ``random`` or ``majority`` for ``guessing``. ``arguments`` are what stands after ``?``.
    """

    name: str
    kind: Literal["folder", "hub", "replay", "python", "guessing"]
    location: str
    arguments: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def runs_here(self) -> bool:
        """Whether it is a checkpoint that a device of this machine runs."""
        return self.kind in ("folder", "hub")


def demo_folder() -> Path:
    """The folder of the checkpoint that ships in the package, which ``demo`` means."""
    return Path(__file__).resolve().parent.parent / "demo_model"


def parse_model_spec(text: str) -> ModelSpec:
    """What ``--llm-model TEXT`` means.

    ``demo``, ``replay:FILE``, ``python:MODULE:NAME``, ``random``, ``majority``, a folder, or a hub id ``org/name`` or
    ``name``.

    A text that names an existing folder, or is written as a path (``./x``, ``/x``, ``~/x``, two separators), is a
    folder; whether it can be loaded is ``check_model``'s to say. Raises ``OptionError`` for anything else that no hub
    id can be.
    """
    name = text.strip()
    if not name:
        raise OptionError(f"--llm-model is empty: {_EXPECTED}")
    if name == "demo":
        return ModelSpec(name=name, kind="folder", location=str(demo_folder()))
    prefix, colon, rest = name.partition(":")
    if colon and prefix in ("replay", "python"):
        return _with_arguments(name, cast("Literal['replay', 'python']", prefix), rest.strip())
    if split_arguments(name)[0] in _GUESSING:
        return _guessing(name)
    if colon and prefix in _RESERVED:
        raise OptionError(f"--llm-model {one_line(name)}: {prefix}: models are not available in this version")
    if _is_path(name):
        return ModelSpec(name=name, kind="folder", location=os.path.abspath(os.path.expanduser(name)))
    if not _HUB_ID.fullmatch(name) or len(name) > _LONGEST_HUB_ID or "--" in name or ".." in name:
        raise OptionError(f"--llm-model {one_line(name)!r}: {_EXPECTED}")
    return ModelSpec(name=name, kind="hub", location=name)


def _with_arguments(text: str, kind: Literal["replay", "python"], rest: str) -> ModelSpec:
    name = hide_secrets(text)
    location, after = split_arguments(rest)
    arguments = parse_arguments(after, text)
    if kind == "python":
        split_target(location, name)
        concurrency_of(arguments, name)
    else:
        if not location:
            raise OptionError(f"--llm-model {name}: expected replay:FILE, such as replay:outputs.jsonl")
        from pytest_llmeval.models.replay.file import ReplayArguments

        ReplayArguments.of(arguments, name)
    return ModelSpec(name=name, kind=kind, location=location, arguments=arguments)


def _guessing(name: str) -> ModelSpec:
    kind, after = split_arguments(name)
    arguments = parse_arguments(after, name)
    check_names(arguments, ("seed",) if kind == "random" else (), name)
    seed = arguments.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise OptionError(f"--llm-model {name}: seed is {seed!r}, expected a whole number")
    return ModelSpec(name=name, kind="guessing", location=kind, arguments={"seed": seed})


def _is_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    if name in {".", ".."} or name[0] in {"~", *separators}:
        return True
    if "://" in name:
        return False
    if any(name.startswith((f".{s}", f"..{s}")) or name.endswith(s) for s in separators):
        return True
    if sum(name.count(s) for s in separators) > 1:
        return True
    return os.path.exists(name)


def check_model(spec: ModelSpec, settings: ModelSettings) -> None:
    """Refuse, within milliseconds, a model that cannot be loaded.

    Raises ``OptionError`` for settings that no model can have, and ``ModelError`` for a folder, a snapshot in the
    hub's cache or an adapter that cannot be loaded, a file of replies that is not there, a Python module that is not
    found. A hub model that is not in the cache passes, unless the hub is switched off (``HF_HUB_OFFLINE=1``).
    """
    check_settings(settings)
    try:
        match spec.kind:
            case "replay":
                _check_replay(spec)
            case "python":
                problem = missing_module(split_target(spec.location, spec.name)[0])
                if problem is not None:
                    raise model_error(spec.name, problem)
            case "folder" | "hub":
                _check_files(spec, settings)
    except OSError as error:
        raise model_error(spec.name, f"cannot read its files: {error}") from None


def _check_replay(spec: ModelSpec) -> None:
    from pytest_llmeval.models.replay.file import ReplyProblem, replay_format

    source = _replies_source(spec)
    try:
        replay_format(source)
        with open_bytes(source, max_bytes=sys.maxsize, too_large=""):
            pass
    except (ReplyProblem, SuiteError) as problem:
        raise model_error(spec.name, str(problem)) from None


def _replies_source(spec: ModelSpec) -> Source:
    return Source(Path(spec.location).expanduser(), spec.location)


def _check_files(spec: ModelSpec, settings: ModelSettings) -> None:
    if spec.kind == "folder":
        if settings.revision is not None:
            raise OptionError(
                f"--llm-revision {settings.revision}: {spec.name} is a folder, and revisions are the hub's"
            )
        folder = Path(spec.location)
        if folder.is_dir():
            folder = _with_subfolder(folder, settings)
        _check(spec, folder, settings)
    else:
        snapshot = cached_snapshot(spec.location, settings.revision)
        if snapshot is None and is_offline():
            at = f" at revision {one_line(settings.revision)}" if settings.revision else ""
            raise model_error(
                spec.name,
                f"not in the hub's cache{at}, and HF_HUB_OFFLINE forbids to download it; "
                f"unset it, or give a folder (./{spec.name} does not exist)",
            )
        if snapshot is not None and is_offline():
            _check(spec, _with_subfolder(snapshot, settings), settings)
    adapter = settings.model_args.get("peft")
    if isinstance(adapter, str) and (_is_path(adapter) or not _HUB_ID.fullmatch(adapter)):
        check_adapter(spec.name, Path(adapter).expanduser(), allow_pickle=settings.allow_pickle)


def _with_subfolder(folder: Path, settings: ModelSettings) -> Path:
    subfolder = settings.model_args.get("subfolder")
    return folder / subfolder if isinstance(subfolder, str) else folder


def _check(spec: ModelSpec, folder: Path, settings: ModelSettings) -> None:
    check_checkpoint(
        spec.name,
        folder,
        allow_pickle=settings.allow_pickle,
        trust_remote_code=settings.trust_remote_code,
        needs_tokenizer="tokenizer" not in settings.model_args,
    )


def load_model(spec: ModelSpec, settings: ModelSettings) -> Model:
    """Load the model. Raises ``ModelError`` or ``OptionError``, in one line unless code of the user's failed.

    A checkpoint takes seconds, and imports torch; nothing else does.
    """
    check_model(spec, settings)
    match spec.kind:
        case "replay":
            from pytest_llmeval.models.replay.file import ReplayArguments
            from pytest_llmeval.models.replay.model import load_replay

            arguments = ReplayArguments.of(spec.arguments, spec.name)
            try:
                return load_replay(spec.name, _replies_source(spec), arguments)
            except SuiteError as error:
                raise model_error(spec.name, str(error)) from None
        case "python":
            from pytest_llmeval.models.python.model import load_python

            return load_python(spec.name, *split_target(spec.location, spec.name), spec.arguments)
        case "guessing":
            from pytest_llmeval.models.guessing import GuessingModel

            seed = spec.arguments["seed"]
            return GuessingModel(spec.name, cast("Literal['random', 'majority']", spec.location), cast("int", seed))
    with (
        waiting_briefly(),
        warnings.catch_warnings(),
    ):  # under -W error, what a library warns of at its import would end the run
        warnings.simplefilter("ignore")
        from pytest_llmeval.models.huggingface.model import HuggingFaceModel

    return HuggingFaceModel.load(spec, settings)
