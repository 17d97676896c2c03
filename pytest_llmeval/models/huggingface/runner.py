"""A model as the engines run it: with its tokenizer, and what its forward pass takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from pytest_llmeval.models.encoding import Tokenizer

__all__ = ["Runner"]


@dataclass(slots=True)
class Runner:
    """``batch_size`` is the most rows of a batch; None fills batches as far as memory allows.

    ``takes_padding``: padded rows give what they give alone; None asks the model's class whether padding on the left
    does that. ``pads_right``: prompts are padded on the right, where encoders expect it. ``generation_settings`` go
    into the config of transformers' ``generate``. ``ends`` are the tokens that end a text. ``parameters`` are those of
    the model's forward pass.
    """

    model: Any
    tokenizer: Tokenizer
    batch_size: int | None
    takes_padding: bool | None = None
    pads_right: bool = False
    generation_settings: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[int, ...] = field(init=False)
    pad_token: int = field(init=False)
    """A token for padding: it is masked, so any token that the model knows will do."""
    parameters: Mapping[str, inspect.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = tuple(_end_tokens(self.model, self.tokenizer))
        pad = getattr(self.tokenizer, "pad_token_id", None)
        self.pad_token = int(pad) if pad is not None else (self.ends[0] if self.ends else 0)
        self.parameters = inspect.signature(self.model.forward).parameters
        if self.takes_padding is None:  # positions can be given, and only attention, which is masked, reads the past
            self.takes_padding = "position_ids" in self.parameters and not getattr(self.model, "_is_stateful", False)

    @property
    def cache_name(self) -> str:
        """Return the parameter and the output that hold keys and values; empty where the forward pass has no such
        parameter.

        transformers 5.24 has renamed ``past_key_values`` to ``cache``.
        """
        return next((name for name in ("past_key_values", "cache") if name in self.parameters), "")

    @property
    def takes_attention(self) -> bool:
        """Return whether the model's attention function, sdpa, can be replaced by one that reads further arguments."""
        return (
            getattr(self.model.config, "_attn_implementation", None) == "sdpa"
            and bool(getattr(self.model, "_supports_attention_backend", False))
            and any(one.kind is one.VAR_KEYWORD for one in self.parameters.values())
        )

    @contextmanager
    def attending(self, name: str, attention: Callable[..., Any]) -> Iterator[None]:
        """Have the model attend, in this context, by ``attention``, registered with transformers under ``name``."""
        before = self.model.config._attn_implementation
        transformers.AttentionInterface.register(name, attention)
        self.model.set_attn_implementation(name)
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def forget_longest(self) -> None:
        """Let transformers forget the longest text so far, whose rotary angles it would lend to shorter ones.

        It forgets when it reads a text below the length from which the angles change.
        """
        pad = torch.tensor([[self.pad_token]], device=self.model.device)
        self.model(input_ids=pad, use_cache=False)


def _end_tokens(model: Any, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens that end a text: those of the checkpoint's generation config, else config; and the tokenizer's
    EOS.
    """
    declared = getattr(model.generation_config, "eos_token_id", None)
    if declared is None:
        declared = getattr(model.config, "eos_token_id", None)
    found = (*(declared if isinstance(declared, list | tuple) else [declared]), tokenizer.eos_token_id)
    return sorted({token for token in found if isinstance(token, int)})
