"""Models of published shapes with random weights, and their tokenizers: what a benchmark of speed needs of a model.

Nothing is downloaded. A model is written once into a folder of the caller's and found there again.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["SHAPES", "ModelShape", "make_model", "texts_of", "token_counter"]

END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a checkpoint looks like. ``settings`` go into transformers' config.

    ``vocabulary`` counts embeddings; the tokenizer has as many tokens where the texts yield them. ``spread`` multiplies
    the last norm's weight, so that the distribution over tokens is far from flat. ``from_docstrings``: the tokenizer
    is trained on Python's own documentation too, which takes seconds, and not on the data alone.
    """

    name: str
    architecture: Literal["gpt2", "llama"]
    vocabulary: int
    max_length: int
    spread: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    from_docstrings: bool = True

    @property
    def folder_name(self) -> str:
        """A name that changes with the shape, so that a folder made for another one is not taken for it."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


SHAPES = {
    shape.name: shape
    for shape in (
        ModelShape(  # GPT-2: 124 million parameters, embeddings tied
            name="gpt2",
            architecture="gpt2",
            vocabulary=50257,
            max_length=1024,
            spread=2.5,
            settings={"n_layer": 12, "n_embd": 768, "n_head": 12, "initializer_range": 0.04},
        ),
        ModelShape(  # SmolLM-135M: 135 million parameters, embeddings tied
            name="llama",
            architecture="llama",
            vocabulary=49152,
            max_length=2048,
            spread=2.5,
            settings={
                "num_hidden_layers": 30,
                "hidden_size": 576,
                "num_attention_heads": 9,
                "num_key_value_heads": 3,
                "intermediate_size": 1536,
                "initializer_range": 0.04,
                "rope_theta": 10000.0,
                "tie_word_embeddings": True,
            },
        ),
        ModelShape(  # 7 million parameters: a server on two cores answers hundreds of its requests in a minute
            name="small",
            architecture="llama",
            vocabulary=8192,
            max_length=1024,
            spread=2.5,
            settings={
                "num_hidden_layers": 6,
                "hidden_size": 256,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "intermediate_size": 768,
                "initializer_range": 0.06,
                "rope_theta": 10000.0,
                "tie_word_embeddings": True,
            },
            from_docstrings=False,
        ),
        ModelShape(  # for a test of the scripts
            name="tiny",
            architecture="gpt2",
            vocabulary=2048,
            max_length=1024,
            spread=2.5,
            settings={"n_layer": 2, "n_embd": 64, "n_head": 4, "initializer_range": 0.1},
            from_docstrings=False,
        ),
    )
}
"""The shapes by name."""


def make_model(shape: ModelShape, folder: Path, data: Path) -> Path:
    """The checkpoint (config, float32 safetensors, tokenizer) of ``shape`` under ``folder``; made if it is not there.

    The tokenizer is a byte-level BPE, trained on the texts under ``data`` and on Python's documentation. The weights
    are random, the same each time.
    """
    target = folder / shape.folder_name
    if target.is_dir():
        return target
    unfinished = folder / f"{shape.folder_name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    _train_tokenizer(shape, data).save_pretrained(unfinished)
    _random_model(shape).save_pretrained(unfinished)
    unfinished.rename(target)
    return target


def token_counter(model: Path) -> Callable[[str], int]:
    """Counts the tokens of a text, as the tokenizer in the folder ``model`` makes them."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(model / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text).ids)


def _random_model(shape: ModelShape) -> Any:
    import torch
    import transformers

    logging: Any = transformers.utils.logging
    logging.disable_progress_bar()
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    common = {"vocab_size": shape.vocabulary, **ids, **shape.settings}
    config: Any
    if shape.architecture == "gpt2":
        config = transformers.GPT2Config(n_positions=shape.max_length, **common)
    else:
        config = transformers.LlamaConfig(max_position_embeddings=shape.max_length, **common)
    torch.manual_seed(0)
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32)
    norm = model.transformer.ln_f if shape.architecture == "gpt2" else model.model.norm
    with torch.no_grad():
        norm.weight.fill_(shape.spread)
    return model


def _train_tokenizer(shape: ModelShape, data: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [*texts_of(data), *(_python_documentation() if shape.from_docstrings else ())]
    tokenizer.train_from_iterator(texts, trainer)
    create: Any = PreTrainedTokenizerFast
    return create(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=shape.max_length,
        clean_up_tokenization_spaces=False,
    )


def texts_of(data: Path) -> Iterator[str]:
    """Yield the texts in all JSON and JSONL files under ``data``, in the order of the files' names."""
    for path in sorted([*data.rglob("*.json"), *data.rglob("*.jsonl")]):
        text = path.read_text(encoding="utf-8")
        try:
            values = json.loads(text)
        except json.JSONDecodeError:  # JSON Lines, which some data sets call .json
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        yield from _strings(values)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if " " in value:  # labels and ids are no text
            yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _python_documentation() -> Iterator[str]:
    """Docstrings of the standard library, and the texts of ``help()``."""
    from pydoc_data import topics

    yield from topics.topics.values()
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if {"site-packages", "dist-packages"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # files that test the parser
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield text
