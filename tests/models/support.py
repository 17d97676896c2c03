"""Loading for tests, and the slow and obvious way to score a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings

__all__ = ["load", "naive_greedy", "naive_loglikelihood", "one_line_of"]


def load(folder: Path | str, **settings: Any) -> HuggingFaceModel:
    """The model in ``folder`` (or of a hub id), on the CPU unless ``settings`` say otherwise."""
    model = load_model(parse_model_spec(str(folder)), ModelSettings(**{"device": "cpu", **settings}))
    if not isinstance(model, HuggingFaceModel):
        raise TypeError(type(model))
    return model


def naive_loglikelihood(
    model: HuggingFaceModel, context: Sequence[int], continuation: Sequence[int]
) -> tuple[float, bool]:
    """One forward pass over all tokens for every token of the continuation: no batch, padding, mask or shared work."""
    total, is_greedy = 0.0, True
    tokens = list(context)
    with torch.no_grad():
        for token in continuation:
            logits = model.model(torch.tensor([tokens])).logits[0, -1].double()
            total += float(logits[token] - logits.logsumexp(0))
            is_greedy = is_greedy and int(logits.argmax()) == token
            tokens.append(token)
    return total, is_greedy


def naive_greedy(model: HuggingFaceModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Greedy decoding without a cache, ended by the tokenizer's EOS (which is the last token then)."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(max_tokens):
            tokens.append(int(model.model(torch.tensor([tokens])).logits[0, -1].argmax()))
            if tokens[-1] == model.tokenizer.eos_token_id:
                break
    return tokens[len(prompt) :]


def one_line_of(error: BaseException) -> str:
    """The message of an error for users; fails unless it is one line of ours."""
    if not isinstance(error, LLMEvalError):
        raise AssertionError(f"{error!r} is no error for users")
    text = str(error)
    if "\n" in text or not text.strip() or "Traceback" in text:
        raise AssertionError(f"not one line: {text!r}")
    return text
