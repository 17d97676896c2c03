"""Causal models of transformers as a backend: ``HuggingFaceModel``."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from pytest_llmeval.errors import ContextLengthError, RequestError
from pytest_llmeval.models.base import Backend, Failed, ModelIdentity
from pytest_llmeval.models.checkpoint import ADAPTER_CONFIG, CONFIG, tokenizer_files, weight_files
from pytest_llmeval.models.encoding import EncodedPair, Encoder
from pytest_llmeval.models.fingerprint import fingerprint_files
from pytest_llmeval.models.huggingface_device import configure_threads, resolve_device
from pytest_llmeval.models.huggingface_errors import is_out_of_memory
from pytest_llmeval.models.huggingface_generate import (
    Generated,
    GenerationPlan,
    clean_generation_config,
    end_tokens,
    generate_rows,
)
from pytest_llmeval.models.huggingface_load import LoadedCheckpoint, load_checkpoint, quiet
from pytest_llmeval.models.huggingface_loglikelihood import Scored, score_rows
from pytest_llmeval.models.messages import model_error
from pytest_llmeval.models.planning import group_by, plan_batches, plan_rows
from pytest_llmeval.models.registry import ModelSpec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import (
    JSON,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
)

__all__ = ["HuggingFaceModel", "configure_threads", "resolve_device", "resolve_max_length"]

_T = TypeVar("_T")
_MAX_TOKENS = 16384
_MAX_TOKENS_ON_CPU = 1024
"""Measured with models of 1 to 40 million parameters: from 512 to 2048 is fastest, while activations fit the cache."""
_MAX_TOKENS_WRITTEN_ON_CPU = 4096
_MAX_LOGITS = 1 << 29
"""Positions x vocabulary of a batch: 2 GiB in float32, should every position be scored."""
_LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length")
_NO_LENGTH = 10**9
"""transformers writes 1e30 where a tokenizer's length is not known."""


def resolve_max_length(name: str, config: Any, tokenizer: Any, requested: int | None) -> int | None:
    """Tokens that the model's context holds, or None where nothing says so.

    ``requested`` (``--llm-model-arg max_length``), else the (text) config, else the tokenizer's ``model_max_length``;
    the order of lm-eval 0.4.13. Raises ``ModelError`` for a length beyond the positions that the model has learned.
    """
    text_config = getattr(config, "text_config", None) or config
    positions = next((v for key in _LENGTHS if isinstance(v := getattr(text_config, key, None), int) and v > 0), None)
    if requested is not None:
        rotary = any(getattr(text_config, key, None) is not None for key in ("rope_parameters", "rope_theta"))
        if positions is not None and requested > positions and not rotary:
            raise model_error(name, f"max_length={requested} is more than the {positions} positions that the model has")
        return requested
    if positions is not None:
        return positions
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if isinstance(length, int | float) and 0 < length < _NO_LENGTH else None


class HuggingFaceModel(Backend):
    """A causal model of transformers on one device (or spread by ``device_map``).

    Requests are encoded as lm-eval 0.4.13 does it (``models/encoding.py``) and refused, never truncated, when they are
    longer than ``max_length``. Results do not depend on how requests are batched, up to the rounding of the model's
    dtype.
    """

    def __init__(self, spec: ModelSpec, settings: ModelSettings, loaded: LoadedCheckpoint) -> None:
        self._spec = spec
        self._settings = settings
        self._loaded = loaded
        self.model = loaded.model
        self.tokenizer = loaded.tokenizer
        arguments = settings.model_args
        max_length, add_bos = arguments.get("max_length"), arguments.get("add_bos")
        self.max_length = resolve_max_length(
            spec.name, self.model.config, self.tokenizer, max_length if isinstance(max_length, int) else None
        )
        embeddings = self.model.get_input_embeddings()
        self._encoder = Encoder(
            self.tokenizer,
            add_bos=add_bos if isinstance(add_bos, bool) else None,
            num_embeddings=getattr(embeddings, "num_embeddings", None),
        )
        self._ends = end_tokens(self.model, self.tokenizer)
        self._pad_token = _pad_token(self.tokenizer, self._ends)
        self.model.generation_config = clean_generation_config(self._ends, self._pad_token)
        parameters = inspect.signature(self.model.forward).parameters
        self._takes_logits_to_keep = "logits_to_keep" in parameters
        # Padding on the left is exact where positions can be given, and nothing but attention (masked) reads the past.
        self._takes_padding = "position_ids" in parameters and not getattr(self.model, "_is_stateful", False)

    @classmethod
    def load(cls, spec: ModelSpec, settings: ModelSettings) -> HuggingFaceModel:
        """Load weights and tokenizer. Raises ``ModelError`` or ``OptionError``, each in one line."""
        return cls(spec, settings, load_checkpoint(spec, settings))

    @functools.cached_property
    def _identity(self) -> ModelIdentity:
        dtype = str(self.model.dtype).removeprefix("torch.")
        return ModelIdentity(
            name=self._spec.name,
            backend="huggingface",
            revision=self._loaded.revision,
            dtype=dtype,
            device=str(self.model.device),
            fingerprint=self._fingerprint(dtype),
            details={
                "class": type(self.model).__name__,
                "num_parameters": int(self.model.num_parameters()),
                "max_length": self.max_length,
                "transformers": importlib.metadata.version("transformers"),
                "torch": str(torch.__version__),
            },
        )

    @property
    def identity(self) -> ModelIdentity:
        """What the report says of this model; its first use reads the checkpoint's files to hash them."""
        return self._identity

    def _fingerprint(self, dtype: str) -> str | None:
        """SHA-256 over the files of model, tokenizer and adapter, and the settings that change responses.

        None where the weights lie in files of other names than transformers gives them.
        """
        folder = self._loaded.folder
        files = [("config", folder / CONFIG), ("generation_config", folder / "generation_config.json")]
        weights = weight_files(folder, allow_pickle=self._settings.allow_pickle)
        files += [(f"weights/{path.name}", path) for path in weights]
        files += [(f"tokenizer/{path.name}", path) for path in tokenizer_files(self._loaded.tokenizer_folder)]
        if not weights:
            return None
        if self._settings.trust_remote_code:
            files += [(f"code/{path.name}", path) for path in folder.glob("*.py")]
        inside = self._loaded.adapter_folder
        if inside is not None:
            files += [
                (f"peft/{path.name}", path) for path in (inside / ADAPTER_CONFIG, *inside.glob("adapter_model.*"))
            ]
        arguments = self._settings.model_args
        settings: dict[str, JSON] = {
            "backend": "huggingface",
            "dtype": dtype,
            **{
                key: arguments[key]
                for key in ("quantization_config", "attn_implementation", "add_bos")
                if key in arguments
            },
        }
        return fingerprint_files([(label, path) for label, path in files if path.is_file()], settings)

    # Log-likelihoods

    def run_loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse | Failed]:
        """Score ``requests``; equal inputs are computed once. See ``Backend``."""
        responses: dict[int, LoglikelihoodResponse | Failed] = {}
        pairs: dict[int, EncodedPair] = {}
        for index, request in enumerate(requests):
            try:
                pairs[index] = self._encode_pair(request)
            except RequestError as error:
                responses[index] = error
        rows = plan_rows(pairs.items())
        batches = plan_batches(
            [len(row.tokens) for row in rows],
            max_rows=self._settings.batch_size,
            max_tokens=self._max_tokens_scored(),
        )

        def score(indices: list[int]) -> list[list[Scored]]:
            batch = [rows[i] for i in indices]
            scored = group_by(
                (s.request, s)
                for s in score_rows(
                    self.model,
                    batch,
                    pad_token=self._pad_token,
                    takes_logits_to_keep=self._takes_logits_to_keep,
                )
            )
            return [[scored[request][0] for request, _ in row.targets] for row in batch]

        for batch in batches:
            for i, outcome, seconds in self._run(batch, score):
                targets = rows[i].targets
                for position, (index, _) in enumerate(targets):
                    responses[index] = (
                        outcome
                        if isinstance(outcome, RequestError)
                        else self._response(outcome[position], pairs[index], seconds / len(targets))
                    )
        return [responses[index] for index in range(len(requests))]

    def _encode_pair(self, request: LoglikelihoodRequest) -> EncodedPair:
        pair = self._encoder.pair(request.context, request.continuation)
        num_tokens = len(pair.context) + len(pair.continuation) - 1
        if self.max_length is not None and num_tokens > self.max_length:
            raise ContextLengthError(num_tokens=num_tokens, max_tokens=self.max_length)
        return pair

    def _response(self, scored: Scored, pair: EncodedPair, seconds: float) -> LoglikelihoodResponse | Failed:
        if math.isnan(scored.loglikelihood):
            return self._not_a_number()
        return LoglikelihoodResponse(
            loglikelihood=scored.loglikelihood,
            num_tokens=len(pair.continuation),
            is_greedy=scored.is_greedy,
            num_context_tokens=len(pair.context),
            seconds=seconds,
        )

    # Generation

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        """Write texts; equal requests are computed once, those above temperature 0 one by one. See ``Backend``."""
        responses: dict[int, GenerateResponse | Failed] = {}
        members: dict[tuple[GenerationPlan, tuple[int, ...]], list[int]] = {}
        for index, request in enumerate(requests):
            try:
                prompt = self._encode_prompt(request)
            except RequestError as error:
                responses[index] = error
                continue
            seed = request.seed if request.temperature > 0 else 0
            plan = GenerationPlan(request.max_tokens, request.stop, request.temperature, seed)
            members.setdefault((plan, prompt), []).append(index)
        for plan, prompts in group_by(members).items():
            for prompt, outcome, seconds in self._generate(plan, prompts):
                indices = members[plan, prompt]
                for index in indices:
                    responses[index] = (
                        outcome
                        if isinstance(outcome, RequestError)
                        else self._text_response(outcome, len(prompt), seconds / len(indices))
                    )
        return [responses[index] for index in range(len(requests))]

    def _generate(
        self, plan: GenerationPlan, prompts: Sequence[tuple[int, ...]]
    ) -> list[tuple[tuple[int, ...], Generated | RequestError, float]]:
        batches = plan_batches(
            [len(prompt) + plan.max_tokens for prompt in prompts],
            max_rows=1 if plan.temperature > 0 else self._settings.batch_size,
            max_tokens=self._max_tokens_written(),
            equal_lengths=not self._takes_padding,
        )

        def write(indices: list[int]) -> list[Generated]:
            return generate_rows(
                self.model,
                self.tokenizer,
                [prompts[i] for i in indices],
                plan,
                ends=self._ends,
                pad_token=self._pad_token,
            )

        return [(prompts[i], outcome, seconds) for batch in batches for i, outcome, seconds in self._run(batch, write)]

    def _encode_prompt(self, request: GenerateRequest) -> tuple[int, ...]:
        if request.max_tokens < 1:
            raise RequestError(f"max_tokens is {request.max_tokens}: expected 1 or more")
        if not (math.isfinite(request.temperature) and request.temperature >= 0):
            raise RequestError(f"temperature is {request.temperature}: expected a number, 0 or more")
        prompt = self._encoder.prompt(request.prompt)
        num_tokens = len(prompt) + request.max_tokens
        if self.max_length is not None and num_tokens > self.max_length:
            raise ContextLengthError(num_tokens=num_tokens, max_tokens=self.max_length)
        return prompt

    def _text_response(self, generated: Generated, num_prompt_tokens: int, seconds: float) -> GenerateResponse | Failed:
        if generated.saw_nan:
            return self._not_a_number()
        return GenerateResponse(
            text=generated.text,
            finish_reason=generated.finish_reason,
            num_prompt_tokens=num_prompt_tokens,
            num_tokens=generated.num_tokens,
            seconds=seconds,
        )

    # Both

    def _run(
        self, batch: list[int], compute: Callable[[list[int]], list[_T]]
    ) -> list[tuple[int, _T | RequestError, float]]:
        """``(member, outcome, seconds)`` of a batch, halved as long as the device runs out of memory."""
        started = time.perf_counter()
        try:
            with torch.inference_mode(), quiet():
                outcomes = compute(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            seconds = (time.perf_counter() - started) / len(batch)
            return [(member, outcome, seconds) for member, outcome in zip(batch, outcomes, strict=True)]
        # Outside of the handler, whose traceback would keep the failed batch's tensors alive.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(batch) == 1:
            return [
                (batch[0], RequestError(f"the device {self.model.device} has too little memory for this request"), 0.0)
            ]
        middle = len(batch) // 2
        return self._run(batch[:middle], compute) + self._run(batch[middle:], compute)

    def _max_tokens_scored(self) -> int:
        """Tokens of a batch of log-likelihoods."""
        tokens = _MAX_TOKENS_ON_CPU if self.model.device.type == "cpu" else _MAX_TOKENS
        vocabulary = getattr(self.model.config.get_text_config(), "vocab_size", None) or 1
        return max(1, min(tokens, _MAX_LOGITS // vocabulary))

    def _max_tokens_written(self) -> int:
        """Tokens of a batch of prompts, with what is to be written after them."""
        return _MAX_TOKENS_WRITTEN_ON_CPU if self.model.device.type == "cpu" else _MAX_TOKENS

    def _not_a_number(self) -> RequestError:
        dtype = str(self.model.dtype).removeprefix("torch.")
        advice = "" if dtype == "float32" else "; --llm-dtype float32 or bfloat16 may help"
        return RequestError(f"the model's logits are not finite numbers in {dtype}{advice}")


def _pad_token(tokenizer: Any, ends: Sequence[int]) -> int:
    """A token for padding; it is masked, so any will do that the model knows."""
    pad = tokenizer.pad_token_id
    return int(pad) if pad is not None else (ends[0] if ends else 0)
