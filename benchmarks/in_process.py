"""What benchmarks share that load models of published shapes in their own process, one after another."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.models_for_bench import SHAPES, ModelShape, make_model
from benchmarks.works_for_bench import DATA, data_problem

if TYPE_CHECKING:
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel

__all__ = ["Loaded", "loaded_models", "parser_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model as the plugin loads it from ``folder``."""

    shape: ModelShape
    folder: Path
    model: HuggingFaceModel


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of all such benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="where models are made and kept; default: a temporary folder"
    )
    parser.add_argument("--model", action="append", choices=list(SHAPES), help="default: gpt2 and llama")
    parser.add_argument("--threads", type=int, metavar="N", default=2)
    parser.add_argument("--repeat", type=int, metavar="N", default=3, help="runs of each")
    return parser


def loaded_models(arguments: argparse.Namespace, **settings: Any) -> Iterator[Loaded]:
    """Each model that is asked for; ``settings`` are ``ModelSettings``. Raises ``SystemExit`` without the data."""
    if (problem := data_problem()) is not None:
        raise SystemExit(problem)
    os.environ |= {"OMP_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "false"}
    import torch

    from pytest_llmeval.models.huggingface.model import HuggingFaceModel
    from pytest_llmeval.models.registry import load_model, parse_model_spec
    from pytest_llmeval.models.settings import ModelSettings

    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.model or ("gpt2", "llama"):
            folder = make_model(SHAPES[name], (arguments.work or Path(temporary)) / "models", DATA)
            model = load_model(parse_model_spec(str(folder.resolve())), ModelSettings(**settings))
            if not isinstance(model, HuggingFaceModel):
                raise TypeError(type(model))
            yield Loaded(shape=SHAPES[name], folder=folder, model=model)
