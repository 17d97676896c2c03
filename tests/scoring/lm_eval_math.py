"""lm-eval's own functions for hendrycks_math, minerva_math and aime, loaded from their files."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest import mock

__all__ = ["AIME", "HENDRYCKS", "MINERVA"]


def _version(name: str, real: Callable[[str], str] = importlib.metadata.version) -> str:
    """The module asks for ANTLR 4.11 by name before it defines anything, whether or not it will parse."""
    return "4.11" if name == "antlr4-python3-runtime" else real(name)


def _load(task: str) -> ModuleType:
    package = importlib.util.find_spec("lm_eval")
    if package is None or package.origin is None:
        raise ImportError("lm_eval is not installed")
    path = Path(package.origin).parent / "tasks" / task / "utils.py"
    spec = importlib.util.spec_from_file_location(f"lm_eval_{task}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings(), mock.patch("importlib.metadata.version", _version):
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


AIME = _load("aime")
HENDRYCKS = _load("hendrycks_math")
MINERVA = _load("minerva_math")
