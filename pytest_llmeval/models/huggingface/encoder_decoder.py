"""Encoder-decoder models (T5, BART, …) as a backend: the context is read by the encoder, the continuation scored, or a
text written, by the decoder.

The rules are lm-eval 0.4.13's for its backend ``seq2seq``: each part is encoded by itself (``SeparateEncoder``), the
decoder is fed the token that starts a text and then the continuation without its last token, and ``max_length`` bounds
encoder and decoder separately. What differs: nothing is truncated, and a text has ``max_tokens`` tokens at most, where
lm-eval adds the length of the longest prompt in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from pytest_llmeval.errors import ContextLengthError
from pytest_llmeval.models.encoding import EncodedPair, SeparateEncoder
from pytest_llmeval.models.huggingface.batches import BatchRow, group_by, plan_decoder_rows
from pytest_llmeval.models.huggingface.forward import RowScores, Runner, Scored, padded
from pytest_llmeval.models.huggingface.loading import LoadedCheckpoint
from pytest_llmeval.models.huggingface.loglikelihood import Engine
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.specs import ModelSettings, ModelSpec
from pytest_llmeval.text.redaction import model_error
from pytest_llmeval.types import LoglikelihoodRequest

__all__ = ["EncoderDecoderEngine", "HuggingFaceEncoderDecoderModel"]

_TAKES_PADDING = """
bart blenderbot blenderbot-small led longt5 m2m_100 marian mbart mt5 mvp nllb-moe pegasus pegasus_x plbart
switch_transformers t5 t5gemma umt5
"""
"""``model_type`` of models that padding on the right does not disturb, on either side, and whose encoder's output can
be shared by several rows of the decoder. Measured; of the others, ProphetNet and FSMT are known not to bear one or the
other. They run one row at a time."""

_BROKEN_CACHE = frozenset({"prophetnet"})
"""``model_type`` of models that raise when they read their own cache, in transformers 5.23."""

_GENERATION_SETTINGS = ("forced_bos_token_id", "bad_words_ids")
"""Settings that are kept of the checkpoint's generation config: the token of the language to write, tokens that are not
text.
"""


class EncoderDecoderEngine(Engine):
    """Scores the encoded requests of one encoder-decoder model, plain: there is no tree of tokens to share.

    Requests of one context in a batch share the encoder's work; equal requests, and one-token continuations of one
    context, the decoder's too.
    """

    def __init__(self, runner: Runner, requested: str | None, start_token: int) -> None:
        super().__init__(runner, requested)
        self._start_token = start_token

    def _plan(self, pairs: Mapping[int, EncodedPair]) -> list[BatchRow]:
        return plan_decoder_rows(pairs, self._start_token)

    def _lengths(self, rows: Sequence[BatchRow]) -> list[int]:
        longest = {
            context: max(lengths) for context, lengths in group_by((r.context, len(r.tokens)) for r in rows).items()
        }
        # All that the decoder reads gets logits, which may weigh more than the tokens do.
        weight = math.ceil(self._plain_tokens / self._budget.max_scored)
        return [max(len(row.context) + longest[row.context], weight * longest[row.context]) for row in rows]

    def _plain_parts(self, rows: Sequence[BatchRow]) -> list[tuple[list[BatchRow], bool]]:
        return super()._plain_parts(rows) if self._runner.takes_padding else [([row], False) for row in rows]

    def _run_plain(self, rows: Sequence[BatchRow]) -> list[list[Scored]]:
        found = [RowScores(row) for row in rows]
        for row, row_logits, scores in zip(rows, self._logits(rows), found, strict=True):
            scores.read(row_logits[: len(row.tokens)])
        return [scores.scored() for scores in found]

    def _logits(self, rows: Sequence[BatchRow]) -> torch.Tensor:
        """Return the decoder's logits (rows, positions, vocabulary), padded on the right."""
        contexts = list(dict.fromkeys(row.context for row in rows))
        device = self._model.device
        input_ids, mask = (tensor.to(device) for tensor in padded(contexts, self._runner.pad_token))
        decoder_input_ids, _ = padded([row.tokens for row in rows], self._runner.pad_token)
        inputs: dict[str, Any] = {"input_ids": input_ids}
        if len(contexts) < len(rows):
            # What ``generate`` does for beams: the encoder runs once, and its output is dealt out to the rows.
            encoded = self._model.get_encoder()(input_ids=input_ids, attention_mask=mask, return_dict=True)
            place = {context: i for i, context in enumerate(contexts)}
            order = torch.tensor([place[row.context] for row in rows], device=device)
            encoded.last_hidden_state = encoded.last_hidden_state[order.to(encoded.last_hidden_state.device)]
            mask = mask[order]
            inputs = {"encoder_outputs": encoded}
        logits: torch.Tensor = self._model(
            **inputs, attention_mask=mask, decoder_input_ids=decoder_input_ids.to(device), use_cache=False
        ).logits
        return logits


class HuggingFaceEncoderDecoderModel(HuggingFaceModel):
    """An encoder-decoder model of transformers; see the module's docstring for its rules, and ``HuggingFaceModel``."""

    encoder_class = SeparateEncoder

    def __init__(self, spec: ModelSpec, settings: ModelSettings, loaded: LoadedCheckpoint) -> None:
        self._start_token = _start_token(spec, loaded.model)
        super().__init__(spec, settings, loaded)

    def _make_runner(self) -> Runner:
        takes_padding = self.model.config.model_type in _TAKES_PADDING.split()
        settings = {"decoder_start_token_id": self._start_token, **_generation_settings(self.model)}
        return Runner(self.model, self.tokenizer, self._settings.batch_size, takes_padding, True, settings)

    def _make_engine(self) -> Engine:
        return EncoderDecoderEngine(self._runner, self._settings.engine, self._start_token)

    def _encode_pair(self, request: LoglikelihoodRequest) -> EncodedPair:
        pair = self._encoder.pair(request.context, request.continuation)
        self._check_room(len(pair.context), len(pair.continuation))
        return pair

    def _check_room(self, num_prompt_tokens: int, num_answer_tokens: int) -> None:
        """Check that a text fits. The decoder reads as many tokens as it predicts: the one that starts a text, and all
        but the last.
        """
        parts: tuple[tuple[Literal["encoder", "decoder"], int], ...] = (
            ("encoder", num_prompt_tokens),
            ("decoder", num_answer_tokens),
        )
        for part, num_tokens in parts:
            positions = getattr(self.model.config, f"max_{part}_position_embeddings", None)  # LED has two lengths
            limits = [limit for limit in (self.max_length, positions) if isinstance(limit, int)]
            if limits and num_tokens > min(limits):
                raise ContextLengthError(num_tokens=num_tokens, max_tokens=min(limits), part=part)


def _start_token(spec: ModelSpec, model: Any) -> int:
    """Return the token that the decoder is fed first. Raises ``ModelError`` where the checkpoint names none."""
    config, decoder = model.config, getattr(model.config, "decoder", None)
    for holder, key in (
        (config, "decoder_start_token_id"),
        (decoder, "bos_token_id"),  # T5Gemma
        (model.generation_config, "decoder_start_token_id"),
    ):
        token = getattr(holder, key, None)
        if isinstance(token, int):
            return token
    problem = "the token that starts the decoder's output is not known; add decoder_start_token_id to config.json"
    raise model_error(spec.name, problem)


def _generation_settings(model: Any) -> dict[str, Any]:
    found = {key: getattr(model.generation_config, key, None) for key in _GENERATION_SETTINGS}
    if model.config.model_type in _BROKEN_CACHE:
        found["use_cache"] = False
    return {key: value for key, value in found.items() if value is not None}
