"""Models of transformers as backends: causal ones (``HuggingFaceModel``), and encoder-decoder ones such as T5 and BART.

In an encoder-decoder model the encoder reads the context, and the decoder scores the continuation or writes a text. The
rules are lm-eval 0.4.13's for its backend ``seq2seq``: each part is encoded by itself (``SeparateEncoder``), the
decoder is fed the token that starts a text and then the continuation without its last token, and ``max_length`` bounds
encoder and decoder separately. Two things differ: nothing is truncated, and a text has ``max_tokens`` tokens at most,
where lm-eval adds the length of the longest prompt in the batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch

from pytest_llmeval.errors import ContextLengthError, RequestError
from pytest_llmeval.models.base import Backend, Failed, check_settings
from pytest_llmeval.models.encoding import EncodedPair, Encoder, SeparateEncoder, rolling_windows
from pytest_llmeval.models.findings import fingerprint_files
from pytest_llmeval.models.huggingface.batches import (
    BatchRow,
    group_by,
    plan_decoder_rows,
    score_texts,
)
from pytest_llmeval.models.huggingface.checkpoint import ADAPTER_CONFIG, CONFIG, tokenizer_files, weight_files
from pytest_llmeval.models.huggingface.device import Threads
from pytest_llmeval.models.huggingface.forward import Outcome, RowScores, Runner, padded
from pytest_llmeval.models.huggingface.generation import Text, TextEngine, Written, clean_generation_config
from pytest_llmeval.models.huggingface.generation_writer import Generated, GenerationPlan
from pytest_llmeval.models.huggingface.loading import LoadedCheckpoint, explain, quiet
from pytest_llmeval.models.huggingface.loglikelihood import Engine
from pytest_llmeval.models.huggingface.self_check import compare, self_check, self_check_key
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.text.reasoning import DEFAULT_TAGS, Tags, opened_by
from pytest_llmeval.text.redaction import model_error
from pytest_llmeval.types import (
    IS_KNOWN,
    JSON,
    EngineUse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Message,
    ModelIdentity,
    Request,
)

__all__ = ["EncoderDecoderEngine", "HuggingFaceEncoderDecoderModel", "HuggingFaceModel", "resolve_max_length"]


_LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length")
_SHORT_CHAT = (Message(role="user", content="a"),)
_NO_LENGTH = 10**9
"""The bound on a tokenizer's length: transformers writes 1e30 if it is not known."""
_SCORES_BOS = "; the tokenizer's BOS is scored as the first token of each text, as lm-eval does"


def _date_in_prompts(tokenizer: Any) -> dict[str, JSON]:
    """Return the date of today, where the chat template writes it into each prompt, as that of Llama 3.2 does."""
    template = str(getattr(tokenizer, "chat_template", None))
    return {"date_in_prompts": datetime.date.today().isoformat()} if "strftime_now" in template else {}


def resolve_max_length(name: str, config: Any, tokenizer: Any, requested: int | None) -> int | None:
    """Return how many tokens the model's context holds, or None if nothing says so.

    ``requested`` (``--llm-model-arg max_length``), else the (text) config, else the tokenizer's ``model_max_length``;
    the order of lm-eval 0.4.13. Raises ``ModelError`` for a length beyond the positions that the model has learned.
    """
    text_config = getattr(config, "text_config", None) or config
    positions = next((v for key in _LENGTHS if isinstance(v := getattr(text_config, key, None), int) and v > 0), None)
    if requested is not None:
        unlearned = ("rope_parameters", "rope_theta", "relative_attention_num_buckets")
        learned = all(getattr(text_config, key, None) is None for key in unlearned)
        if positions is not None and requested > positions and learned:
            raise model_error(name, f"max_length={requested} is more than the {positions} positions that the model has")
        return requested
    if positions is not None:
        return positions
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if isinstance(length, int | float) and 0 < length < _NO_LENGTH else None


class HuggingFaceModel(Backend):
    """A causal model of transformers on one device (or spread by ``device_map``).

    Requests are encoded as lm-eval 0.4.13 does it (``models/encoding.py``) and refused, never truncated, when they
    are longer than ``max_length``. Results do not depend on how requests are batched, up to the rounding of the model's
    dtype.
    """

    has_stops_behind_reasoning: ClassVar[bool] = True
    encoder_class: type[Encoder] = Encoder
    scores_plain: ClassVar[bool] = False
    """True if the tree is left aside, even if the engine has one."""
    threads: Threads | None = None
    """The threads of this process, which follow the load of the machine from call to call; None leaves them alone."""

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
        self._encoder = self.encoder_class(
            self.tokenizer,
            add_bos=add_bos if isinstance(add_bos, bool) else None,
            num_embeddings=getattr(embeddings, "num_embeddings", None),
        )
        self._runner = self._make_runner()
        self.model.generation_config = clean_generation_config(self._runner)
        self.engine = self._make_engine()

    def _make_runner(self) -> Runner:
        return Runner(self.model, self.tokenizer, self._settings.batch_size)

    def _make_engine(self) -> Engine:
        return Engine(self._runner, self._settings.engine)

    @property
    def _is_timed(self) -> bool:
        """Return whether requests are computed one by one, so that each has seconds of its own."""
        return self._settings.batch_size == 1

    def _threads_adapt(self) -> None:
        if self.threads is not None:
            self.threads.adapt()

    @functools.cached_property
    def identity(self) -> ModelIdentity:  # type: ignore[override]
        """Return what the report says of this model; its first use reads the checkpoint's files to hash them."""
        return ModelIdentity(
            name=self._spec.name,
            backend="huggingface",
            revision=self._loaded.revision,
            dtype=self._dtype,
            device=str(self.model.device),
            fingerprint=self._fingerprint,
            details={
                "class": type(self.model).__name__,
                "num_parameters": int(self.model.num_parameters()),
                "max_length": self.max_length,
                "engine": f"{self.engine.name}: {self.engine.reason}",
                "transformers": importlib.metadata.version("transformers"),
                "torch": str(torch.__version__),
                **_date_in_prompts(self.tokenizer),
                **({} if self._fingerprint is None else {IS_KNOWN: True}),
                **self._tags_of_reasoning(),
            },
        )

    def _tags_of_reasoning(self) -> dict[str, JSON]:
        """Return the tags of reasoning that the model's texts do not show. Replies that were stored before this was
        looked at say nothing of it, and are not found under this identity.
        """
        try:
            opened = opened_by(self._encoder.render(_SHORT_CHAT), DEFAULT_TAGS)
        except RequestError:  # no chat template, or one that refuses a chat of one turn
            opened = ""
        found = [f"{opened} opened by the chat template"] if opened else []
        found += [f"{text} is a special token" for _, text in self._tag_tokens(DEFAULT_TAGS)]
        return {"tags_of_reasoning": "; ".join(found)} if found else {}

    @property
    def _dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @functools.cached_property
    def _fingerprint(self) -> str | None:
        """Return SHA-256 over the files of model, tokenizer and adapter, and the settings that change responses.

        None if the weights lie in files of other names than transformers gives them. Raises ``ModelError``.
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
            "dtype": self._dtype,
            "max_length": self.max_length,
            **{
                key: arguments[key]
                for key in ("quantization_config", "attn_implementation", "add_bos")
                if key in arguments
            },
        }
        present = [(label, path) for label, path in files if path.is_file()]
        try:
            return fingerprint_files(present, settings, digests=self._loaded.digests)
        except OSError as error:  # a file has gone since it was loaded, or its disk fails
            raise explain(error, self._spec, self._settings) from error

    # Log-likelihoods

    def check_engine(self) -> None:
        """Leave the tree aside if a small one is wrong for this model; a ``ModelError`` if the tree was asked for.

        The result of an earlier check holds as long as nothing has changed (``self_check_key``).
        """
        if self.engine.name != "tree":
            return
        findings, key = self._settings.findings, None
        if findings is not None:
            key = self_check_key(self.model, self._fingerprint, self.max_length, self._settings)
        if findings is None or key is None:
            problem = self._self_check()
        else:
            problem = findings.problem_of_tree(key, self._self_check)
        if problem is None:
            return
        if self._settings.engine == "tree":
            raise model_error(self._spec.name, f"--llm-engine tree: {problem}; use auto or plain")
        self.engine.use_plain(problem)

    def _self_check(self) -> str | None:
        with torch.inference_mode(), quiet():
            return self_check(self.engine, self.model, max_length=self.max_length)

    def audit(self, requests: Sequence[Request]) -> tuple[Backend, EngineUse]:
        """Score some of a suite's requests by the tree and plain: which model is the suite to ask?

        It is this one, or one that scores everything plain, where the two differ by more than the tolerance. Of a text
        that is scored as a whole the first window is compared. Requests for replies are left out.
        """
        engine = self.engine
        is_of_texts = any(isinstance(request, LoglikelihoodRollingRequest) for request in requests)
        note = _SCORES_BOS if is_of_texts and self._encoder.scores_bos else ""
        reason = f"{engine.reason}{note}"
        if engine.name == "plain":
            return self, EngineUse(engine="plain", reason=reason)
        pairs: dict[int, EncodedPair] = {}
        for index, request in enumerate(requests):
            with contextlib.suppress(RequestError, StopIteration):  # its own sample will say so
                if isinstance(request, LoglikelihoodRequest):
                    pairs[index] = self._encode_pair(request)
                elif isinstance(request, LoglikelihoodRollingRequest):
                    pairs[index] = next(self._windows(request))
        found = compare(engine, pairs, self.model.dtype)
        use = EngineUse(
            engine="tree",
            reason=reason,
            num_audited=found.num_requests,
            largest_difference=found.largest_difference,
            tolerance=found.tolerance,
        )
        if found.is_close or self._settings.engine == "tree":
            return self, use if found.num_requests else EngineUse(engine="tree", reason=reason)
        reason = f"the tree differed by {found.largest_difference:.1e} in the audit{note}"
        return self.as_plain(), dataclasses.replace(use, engine="plain", reason=reason)

    def as_plain(self) -> Backend:
        """Return the same model, whose log-likelihoods are all computed plain."""
        return PlainModel(self)

    def run_loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse | Failed]:
        """Score ``requests``; equal inputs are computed once. See ``Backend``."""
        self._threads_adapt()
        listener = self.take_listener()
        responses: dict[int, LoglikelihoodResponse | Failed] = {}
        pairs: dict[int, EncodedPair] = {}
        with self._encoder.encoded(requests):
            for index, request in enumerate(requests):
                try:
                    pairs[index] = self._encode_pair(request)
                except RequestError as error:
                    responses[index] = error
        listener(responses)

        def on_scored(scored: Mapping[int, LoglikelihoodResponse]) -> None:
            responses.update(scored)
            listener(scored)
            if self.on_progress is not None:
                self.on_progress(len(responses), len(requests))

        responses.update(self._score(pairs, on_scored))
        return [responses[index] for index in range(len(requests))]

    def _score(
        self, pairs: Mapping[int, EncodedPair], on_scored: Callable[[Mapping[int, LoglikelihoodResponse]], None]
    ) -> dict[int, LoglikelihoodResponse | Failed]:
        """Return the response to each pair, by its key; ``on_scored`` gets those of each batch as soon as they are
        known.

        It does not get what is not a number, and may be computed again.
        """

        def tell(outcomes: Mapping[int, Outcome | RequestError]) -> None:
            found = {index: self._response(outcome, pairs[index]) for index, outcome in outcomes.items()}
            on_scored({index: one for index, one in found.items() if isinstance(one, LoglikelihoodResponse)})

        outcomes = self.engine.score(pairs, plain=self.scores_plain, on_scored=tell)
        return {index: self._response(outcomes[index], pair) for index, pair in pairs.items()}

    def run_loglikelihood_rolling(
        self, requests: Sequence[LoglikelihoodRollingRequest]
    ) -> list[LoglikelihoodResponse | Failed]:
        """Score whole texts, long ones in windows (``batches.py``). See ``Backend``."""
        self._threads_adapt()
        return score_texts(
            requests,
            encode=self._encoder.text,
            max_length=self.max_length,
            score=self._score,
            on_progress=self.on_progress,
            on_finished=self.take_listener(),
        )

    def _windows(self, request: LoglikelihoodRollingRequest) -> Iterator[EncodedPair]:
        prefix_token, tokens = self._encoder.text(request.text)
        return rolling_windows(tokens, prefix_token=prefix_token, max_length=self.max_length, stride=request.stride)

    def _encode_pair(self, request: LoglikelihoodRequest) -> EncodedPair:
        pair = self._encoder.pair(request.context, request.continuation)
        num_tokens = len(pair.context) + len(pair.continuation) - 1
        if self.max_length is not None and num_tokens > self.max_length:
            raise ContextLengthError(num_tokens=num_tokens, max_tokens=self.max_length)
        return pair

    def _response(self, outcome: Outcome | RequestError, pair: EncodedPair) -> LoglikelihoodResponse | Failed:
        if isinstance(outcome, RequestError):
            return outcome
        if math.isnan(outcome.loglikelihood):
            return self._not_a_number()
        return LoglikelihoodResponse(
            loglikelihood=outcome.loglikelihood,
            num_tokens=len(pair.continuation),
            is_greedy=outcome.is_greedy,
            num_context_tokens=len(pair.context),
            seconds=outcome.seconds,
            is_timed=self._is_timed,
        )

    # Generation

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        """Write texts; equal requests are computed once. See ``Backend``."""
        self._threads_adapt()
        listener = self.take_listener()
        responses: dict[int, GenerateResponse | Failed] = {}
        members: dict[Text, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                prompt, opened = self._encode_prompt(request)
            except RequestError as error:
                responses[index] = error
                continue
            sampling = (request.temperature, request.seed, request.top_p, request.epoch)
            # All epochs of a greedy text are one.
            plan = GenerationPlan(request.max_tokens, request.stop, *(sampling if request.temperature > 0 else ()))
            tags = request.reasoning or DEFAULT_TAGS
            plan = dataclasses.replace(
                plan,
                reasoning=request.reasoning,
                opened=opened,
                tag_tokens=self._tag_tokens(tags),
                top_k=request.top_k if request.temperature > 0 else 0,
                repetition_penalty=request.repetition_penalty,
            )
            members.setdefault(Text(prompt, plan), []).append(index)
        listener(responses)
        texts = list(members)

        def on_finished(place: int, written: Written) -> None:
            text, (outcome, seconds) = texts[place], written
            response = (
                outcome
                if isinstance(outcome, RequestError)
                else self._text_response(outcome, len(text.prompt), seconds, len(members[text]))
            )
            found = dict.fromkeys(members[text], response)
            responses.update(found)
            listener(found)
            if self.on_progress is not None:
                self.on_progress(len(responses), len(requests))

        self.text_engine.write(texts, on_finished=on_finished)
        return [responses[index] for index in range(len(requests))]

    @functools.cached_property
    def text_engine(self) -> TextEngine:
        """Return what writes the texts."""
        return TextEngine(self._runner, self.engine.attention)

    @functools.cached_property
    def _special_tokens(self) -> tuple[tuple[int, str], ...]:
        return tuple((token, self.tokenizer.decode([token])) for token in sorted(set(self.tokenizer.all_special_ids)))

    def _tag_tokens(self, tags: Tags) -> tuple[tuple[int, str], ...]:
        """Return the special tokens of which tags of reasoning are made, with their texts: decoding leaves them out."""
        whole = "\n".join(tag for pair in tags for tag in pair)
        return tuple((token, text) for token, text in self._special_tokens if text.strip() and text in whole)

    def _encode_prompt(self, request: GenerateRequest) -> tuple[tuple[int, ...], str]:
        """Return the tokens of a prompt, and the tag of reasoning with which it ends."""
        check_settings(request)
        text = self._encoder.render(request.prompt, request.tools)
        prompt = self._encoder.prompt(text)
        self._check_room(len(prompt), request.max_tokens)
        return prompt, opened_by(text, request.reasoning or DEFAULT_TAGS)

    def _check_room(self, num_prompt_tokens: int, num_new_tokens: int) -> None:
        num_tokens = num_prompt_tokens + num_new_tokens
        if self.max_length is not None and num_tokens > self.max_length:
            raise ContextLengthError(num_tokens=num_tokens, max_tokens=self.max_length)

    def _text_response(
        self, generated: Generated, num_prompt_tokens: int, seconds: float, num_requests: int
    ) -> GenerateResponse | Failed:
        """Return the response to each of ``num_requests`` equal requests, which share the ``seconds``."""
        if generated.saw_nan:
            return self._not_a_number()
        return GenerateResponse(
            text=generated.text,
            finish_reason=generated.finish_reason,
            num_prompt_tokens=num_prompt_tokens,
            num_tokens=generated.num_tokens,
            seconds=seconds / num_requests,
            is_timed=self._is_timed,
            prefill_seconds=None if generated.prefill_seconds is None else generated.prefill_seconds / num_requests,
            tagged=generated.tagged,
        )

    # Both

    def _not_a_number(self) -> RequestError:
        advice = "" if self._dtype == "float32" else "; --llm-dtype float32 or bfloat16 may help"
        return RequestError(f"the model's logits are not finite numbers in {self._dtype}{advice}")


class PlainModel(HuggingFaceModel):
    """The same causal model with all of its state, whose log-likelihoods are all computed plain."""

    scores_plain = True

    def __init__(self, model: HuggingFaceModel) -> None:
        self.__dict__ = model.__dict__


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

    def _run_plain(self, rows: Sequence[BatchRow]) -> list[list[Outcome]]:
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
