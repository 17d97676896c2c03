"""What the stub server answers with: the demo model, or a table of numbers over its tokenizer that costs no time."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jinja2
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from tests.support import REPOSITORY

__all__ = ["BOS", "DEMO", "DemoModel", "Generated", "InstantModel", "LanguageModel", "Softened", "Words", "generate"]

DEMO = REPOSITORY / "pytest_llmeval" / "demo_model"
BOS = EOS = 0

Rows = npt.NDArray[np.float64]
"""Of shape (positions, tokens of the vocabulary): the logits after each position."""


class Words:
    """The demo model's tokenizer and chat template."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
        self._template = jinja2.Template((DEMO / "chat_template.jinja").read_text(encoding="utf-8"))
        self.num_tokens = int(self._tokenizer.get_vocab_size())

    def encode(self, text: str, *, bos: bool = False) -> list[int]:
        """The tokens of ``text``, in which the name of a special token is that token; ``bos`` puts one before them."""
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [BOS, *tokens] if bos else tokens

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> str:
        """The text of ``tokens``; special tokens by their names, or left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=not special))

    def render(self, messages: Sequence[dict[str, Any]]) -> str:
        """A chat as the template writes it: BOS, and the turns with an empty line between them."""
        turns = [{**turn, "content": _plain(turn["content"])} for turn in messages]
        return str(self._template.render(messages=turns, bos_token="<|endoftext|>"))


def _plain(content: Any) -> str:
    """A turn's content, which some clients send as a list of parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


class LanguageModel(Protocol):
    """Gives logits. Safe to use from several threads."""

    def rows(self, tokens: Sequence[int]) -> Rows:
        """The logits after each of ``tokens``."""

    def start(self, tokens: Sequence[int]) -> Callable[[int], npt.NDArray[np.float64]]:
        """What takes the next token and returns the logits after it, after ``tokens`` without their last."""


class DemoModel:
    """The demo model through plain transformers, in float32."""

    def __init__(self) -> None:
        import torch  # where the instant model is used, it is not loaded
        import transformers
        from transformers.utils import logging

        torch.set_num_threads(1)
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._torch = torch
        self._lock = threading.Lock()
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32)
        self.rows = functools.lru_cache(maxsize=64)(self._rows)  # type: ignore[method-assign]

    def rows(self, tokens: Sequence[int]) -> Rows:
        """The logits after each of ``tokens``, a tuple."""
        raise NotImplementedError  # set in __init__, so that the cache goes with the object

    def _rows(self, tokens: tuple[int, ...]) -> Rows:
        with self._lock, self._torch.inference_mode():
            return np.asarray(self._model(self._torch.tensor([list(tokens)])).logits[0].double())

    def start(self, tokens: Sequence[int]) -> Callable[[int], npt.NDArray[np.float64]]:
        """Continues ``tokens`` without their last, with a key/value cache."""
        from transformers import DynamicCache

        cache = DynamicCache()
        takes = inspect.signature(self._model.forward).parameters
        name = "cache" if "cache" in takes else "past_key_values"  # until transformers 5.23

        def step(new: Sequence[int]) -> npt.NDArray[np.float64]:
            with self._lock, self._torch.inference_mode():
                output = self._model(self._torch.tensor([list(new)]), use_cache=True, **{name: cache})
                return np.asarray(output.logits[0, -1].double())

        if len(tokens) > 1:
            step(tokens[:-1])
        return lambda token: step([token])


class InstantModel:
    """One of 61 fixed rows of logits after each position, chosen by the last three tokens."""

    def __init__(self, num_tokens: int) -> None:
        self._table = np.random.default_rng(7).normal(scale=2.0, size=(61, num_tokens))

    def _index(self, tokens: Sequence[int], end: int) -> int:
        first, second, third = ([-1, -1, *tokens[max(0, end - 3) : end]])[-3:]
        return (third * 31 + second * 17 + first * 7) % len(self._table)

    def rows(self, tokens: Sequence[int]) -> Rows:
        """The logits after each of ``tokens``."""
        return np.asarray(self._table[[self._index(tokens, end) for end in range(1, len(tokens) + 1)]])

    def start(self, tokens: Sequence[int]) -> Callable[[int], npt.NDArray[np.float64]]:
        """Continues ``tokens`` without their last."""
        seen = list(tokens[:-1])

        def step(token: int) -> npt.NDArray[np.float64]:
            seen.append(token)
            return np.asarray(self._table[self._index(seen, len(seen))])

        return step


class Softened:
    """Another model that is nearly the same: all logits are a little smaller."""

    def __init__(self, model: LanguageModel, scale: float = 0.9) -> None:
        self._model = model
        self._scale = scale

    def rows(self, tokens: Sequence[int]) -> Rows:
        """The logits after each of ``tokens``."""
        return self._scale * self._model.rows(tokens)

    def start(self, tokens: Sequence[int]) -> Callable[[int], npt.NDArray[np.float64]]:
        """Continues ``tokens`` without their last."""
        step = self._model.start(tokens)
        return lambda token: self._scale * step(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """``rows`` holds the logits that each of ``tokens`` was chosen from; ``text`` ends before the stop string.

    ``reason`` is ``eos``, ``word`` or ``limit``, and ``stop`` the string that was met.
    """

    tokens: list[int]
    rows: list[npt.NDArray[np.float64]]
    text: str
    reason: str
    stop: str | None = None


def generate(
    model: LanguageModel,
    words: Words,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    stop: Sequence[str] = (),
    temperature: float = 0.0,
    seed: int | None = None,
    bias: dict[int, float] | None = None,
    keep_end: bool = False,
) -> Generated:
    """Continue ``prompt``, greedily where ``temperature`` is 0. ``bias`` is added to the logits of some tokens.

    ``keep_end`` counts the end-of-text token among the reply's, which has no text.
    """
    step, token = model.start(prompt), prompt[-1]
    random = np.random.default_rng(0 if seed is None else abs(seed))
    tokens: list[int] = []
    rows: list[npt.NDArray[np.float64]] = []
    for _ in range(max_tokens):
        row = step(token)
        chosen_from = row.copy()
        for index, value in (bias or {}).items():
            chosen_from[index] += value
        if temperature > 0:
            weights = np.exp((chosen_from - chosen_from.max()) / temperature)
            token = int(random.choice(len(weights), p=weights / weights.sum()))
        else:
            token = int(chosen_from.argmax())
        if token == EOS and not bias:
            text = words.decode(tokens)
            if keep_end:
                tokens, rows = [*tokens, token], [*rows, row]
            return Generated(tokens=tokens, rows=rows, text=text, reason="eos")
        tokens.append(token)
        rows.append(row)
        text = words.decode(tokens)
        met = min((string for string in stop if string in text), key=text.index, default=None)
        if met is not None:
            return Generated(tokens=tokens, rows=rows, text=text[: text.index(met)], reason="word", stop=met)
    return Generated(tokens=tokens, rows=rows, text=words.decode(tokens), reason="limit")
