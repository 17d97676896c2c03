"""What the folder of a sentence-embedding model holds, read from its files alone: no torch.

Such a model is a chain of modules (a transformer, pooling, …). ``modules.json`` names them, each with its class and the
folder in which it lies: the first often the model's own.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

from pytest_llmeval.models.huggingface.checkpoint import ALLOW_PICKLE, tokenizer_files, weight_files
from pytest_llmeval.text.redaction import model_error, one_line
from pytest_llmeval.text.wording import quoted

__all__ = ["UNUSED", "check_embedder", "check_library", "deciding_files"]

UNUSED = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.md", "*.png")
"""What is not downloaded: the same weights for other libraries, and texts for people."""

_MODULES = "modules.json"
_OURS = "sentence_transformers."
_WEIGHTS = (".safetensors", ".bin")
_DECIDING = (*_WEIGHTS, ".json", ".txt", ".model", ".py")
_CONFIGS = (_MODULES, "config.json", "config_sentence_transformers.json", "preprocessor_config.json")


def check_library(name: str) -> None:
    """Raise ``ModelError`` where the library that runs such models is not installed."""
    if importlib.util.find_spec("sentence_transformers") is None:
        raise model_error(
            name, "needs the package sentence-transformers: pip install 'pytest-llmeval-suites[embeddings]'"
        )


def check_embedder(name: str, folder: Path, *, allow_pickle: bool, trust_remote_code: bool) -> None:
    """Raise ``ModelError`` unless ``folder`` holds a sentence-embedding model that may be loaded."""
    if not folder.is_dir():
        raise model_error(name, f"there is no folder {folder}")
    for kind, part in _modules(name, folder):
        if not kind.startswith(_OURS) and not trust_remote_code:
            raise model_error(
                name,
                f"{one_line(kind)} is Python code that comes with the model; read it in {folder}, and allow it with "
                "--llm-trust-remote-code",
            )
        pickles = sorted(path.name for path in part.glob("*.bin"))
        if pickles and not any(part.glob("*.safetensors")) and not allow_pickle:
            raise model_error(
                name, f"the weights in {part} are pickles ({pickles[0]}), which can run code; {ALLOW_PICKLE}"
            )


def deciding_files(name: str, folder: Path) -> list[tuple[str, Path]]:
    """The files that decide the embeddings, each with its path in the folder; those of no other copy or library."""
    found = {folder / config for config in _CONFIGS} | {*folder.glob("sentence_*_config.json"), *folder.glob("*.py")}
    found |= {*weight_files(folder, allow_pickle=True), *tokenizer_files(folder)}
    for _, part in _modules(name, folder):
        if part != folder:
            found |= {path for path in part.rglob("*") if path.suffix in _DECIDING}
    return sorted((path.relative_to(folder).as_posix(), path) for path in found if path.is_file())


def _modules(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The class and the folder of each module."""
    path = folder / _MODULES
    try:
        modules = json.loads(path.read_text("utf-8"))
        found = [(str(module["type"]), Path(str(module["path"]))) for module in modules]
    except FileNotFoundError:
        raise model_error(name, f"{folder} is no sentence-embedding model: it has no {_MODULES}") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise model_error(name, f"cannot read {path}: {type(error).__name__}: {one_line(str(error))}") from None
    for kind, part in found:
        if part.is_absolute() or ".." in part.parts:
            raise model_error(name, f"{path}: the path {quoted(str(part))} leads out of the model's folder")
        yield kind, folder / part
