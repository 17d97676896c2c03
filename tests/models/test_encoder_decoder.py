"""Encoder-decoder models: against one forward pass per token and greedy decoding by hand, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ContextLengthError, RequestError
from pytest_llmeval.models.encoding import EncodedPair, SeparateEncoder
from pytest_llmeval.models.huggingface.batches import plan_decoder_rows
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.huggingface.prefix_tree import StepBudget
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Message,
)
from tests.models.support import load, one_line_of
from tests.properties import examples
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint, make_t5_tokenizer, make_tokenizer

REQUESTS = [
    LoglikelihoodRequest("The capital of France is", " Paris"),
    LoglikelihoodRequest("The capital of France is", " Rome, and of Japan Tokyo."),
    LoglikelihoodRequest("The capital of France is ", "Rome, and of Italy"),
    LoglikelihoodRequest("Question: is that so? Answer:", " yes"),
    LoglikelihoodRequest("Question: is that so? Answer:", " no"),
    LoglikelihoodRequest("", "One, two"),
    LoglikelihoodRequest(" \n", "One, two"),
    LoglikelihoodRequest("x", "é\u4e16\U0001f600"),
    LoglikelihoodRequest("The capital of France is", " Paris"),
    LoglikelihoodRequest("A", " B" * 30),
]
PROMPTS = ["The capital of France is", "One, two", "Question: is that so?", "A", ""]


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One class with relative positions and one with learned positions, each with its kind of tokenizer."""
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param, chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def model(folder: Path) -> HuggingFaceModel:
    """The model on the CPU."""
    return load(folder)


def scored(response: object) -> LoglikelihoodResponse:
    """The response; fails on an error."""
    assert isinstance(response, LoglikelihoodResponse), response
    return response


def written(response: object) -> GenerateResponse:
    """The response; fails on an error."""
    assert isinstance(response, GenerateResponse), response
    return response


def naive_loglikelihood(model: HuggingFaceModel, pair: EncodedPair) -> tuple[float, bool]:
    """One forward pass for every token of the continuation: no batch, padding, mask or shared encoder."""
    total, is_greedy = 0.0, True
    fed = [model.model.config.decoder_start_token_id]
    with torch.no_grad():
        for token in pair.continuation:
            inputs = {"input_ids": torch.tensor([pair.context]), "decoder_input_ids": torch.tensor([fed])}
            logits = model.model(**inputs).logits[0, -1].double()
            total += float(logits[token] - logits.logsumexp(0))
            is_greedy = is_greedy and int(logits.argmax()) == token
            fed.append(token)
    return total, is_greedy


def naive_greedy(model: HuggingFaceModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Greedy decoding without a cache, ended by the tokenizer's EOS (which is the last token then)."""
    fed = [model.model.config.decoder_start_token_id]
    with torch.no_grad():
        for _ in range(max_tokens):
            inputs = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([fed])}
            fed.append(int(model.model(**inputs).logits[0, -1].argmax()))
            if fed[-1] == model.tokenizer.eos_token_id:
                break
    return fed[1:]


# Encoding


@pytest.mark.parametrize(
    ("context", "continuation", "expected"),
    [
        ("The answer:", " yes", ("The answer:</s>", "yes")),
        ("The answer: ", "yes", ("The answer:</s>", "yes")),
        ("The answer:", " yes</s>", ("The answer:</s>", "yes</s>")),
        ("</s> A", " yes", ("</s> A", "yes")),
        ("", "yes", ("</s>", "yes")),
        ("", "</s> yes", ("</s>", "yes")),
        (" \n", "yes", ("</s>", "yes")),
        (" \n", "</s> yes", ("</s>", "</s> yes")),
    ],
)
def test_each_part_is_encoded_by_itself(context: str, continuation: str, expected: tuple[str, str]) -> None:
    tokenizer = make_t5_tokenizer()
    pair = SeparateEncoder(tokenizer).pair(context, continuation)
    assert (tokenizer.decode(list(pair.context)), tokenizer.decode(list(pair.continuation))) == expected


def test_white_space_alone_is_an_empty_text() -> None:
    """The empty context is BOS; the tokenizer makes BOS and EOS of an empty text."""
    tokenizer = make_tokenizer(adds_bos=True, adds_eos=True)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    assert SeparateEncoder(tokenizer).pair("", "x").context == (bos,)
    assert SeparateEncoder(tokenizer).pair(" ", "x").context == (bos, eos)
    assert SeparateEncoder(tokenizer).pair(" ", "x").continuation == tuple(tokenizer.encode(" x")[1:-1])
    assert SeparateEncoder(tokenizer).prompt("") == (bos, eos)
    plain = make_tokenizer()
    assert SeparateEncoder(plain).pair(" ", "x").context == (plain.eos_token_id,) == SeparateEncoder(plain).prompt("")


def test_continuation_without_a_token() -> None:
    encoder = SeparateEncoder(make_t5_tokenizer())
    with pytest.raises(RequestError, match="the continuation is empty"):
        encoder.pair("A", "")
    with pytest.raises(RequestError, match=r"the continuation '\\n' has no token in the model's vocabulary"):
        encoder.pair("A", "\n")


# Log-likelihoods


def test_equals_scoring_one_token_at_a_time(model: HuggingFaceModel) -> None:
    seen = set()
    for request, response in zip(REQUESTS, model.loglikelihood(REQUESTS), strict=True):
        pair = model._encoder.pair(request.context, request.continuation)
        total, is_greedy = naive_loglikelihood(model, pair)
        assert scored(response).loglikelihood == pytest.approx(total, abs=1e-5, rel=1e-6)
        assert scored(response).is_greedy == is_greedy
        assert scored(response).num_tokens == len(pair.continuation)
        assert scored(response).num_context_tokens == len(pair.context)
        seen.add(len(pair.continuation))
    assert len(seen) > 3


def test_greedy_continuations_are_greedy(model: HuggingFaceModel) -> None:
    pairs: dict[int, EncodedPair] = {}
    expected: dict[int, bool] = {}
    for prompt in PROMPTS:
        context = model._encoder.prompt(prompt)
        greedy = naive_greedy(model, context, 4)
        for last, is_greedy in ((greedy[-1], True), (greedy[-1] + 1, False)):
            expected[len(pairs)] = is_greedy
            pairs[len(pairs)] = EncodedPair(context, (*greedy[:-1], last))
    outcomes = model.engine.score(pairs)
    assert {index: getattr(outcome, "is_greedy", None) for index, outcome in outcomes.items()} == expected


_TEXT = st.text(alphabet="ab .\nThePQ?é", max_size=30)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.tuples(_TEXT, _TEXT.filter(bool)), min_size=1, max_size=7),
    batch_size=st.none() | st.integers(1, 4),
)
def test_batching_does_not_change_results(
    model: HuggingFaceModel, texts: list[tuple[str, str]], batch_size: int | None
) -> None:
    batched = type(model)(model._spec, ModelSettings(device="cpu", batch_size=batch_size), model._loaded)
    requests = [LoglikelihoodRequest(*text) for text in [*texts, (texts[0][0], texts[-1][1])]]
    for request, together in zip(requests, batched.loglikelihood(requests), strict=True):
        (alone,) = batched.loglikelihood([request])
        if isinstance(alone, RequestError):
            assert str(together) == str(alone)
        else:
            assert scored(together).loglikelihood == pytest.approx(alone.loglikelihood, abs=2e-5, rel=1e-6)
            assert scored(together).num_tokens == alone.num_tokens


@pytest.mark.parametrize(("num_tokens", "num_scored"), [(1, 1), (40, 1000), (1000, 20), (10**6, 10**6)])
def test_small_batches_give_the_same(
    model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch, num_tokens: int, num_scored: int
) -> None:
    """Whether the tokens read or the logits of the decoder bound a batch; progress ends with all requests."""
    together = [scored(r).loglikelihood for r in model.loglikelihood(REQUESTS)]
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(model, "on_progress", lambda done, total: told.append((done, total)))
    monkeypatch.setattr(model.engine, "_plain_tokens", num_tokens)
    monkeypatch.setattr(model.engine, "_budget", StepBudget(max_tokens=1, max_scored=num_scored, max_rows=None))
    assert [scored(r).loglikelihood for r in model.loglikelihood(REQUESTS)] == pytest.approx(
        together, abs=2e-5, rel=1e-6
    )
    assert told == sorted(told)
    assert told[-1] == (len(REQUESTS), len(REQUESTS))
    assert (len(told) == 1) == (num_tokens == 10**6)


def test_rows_of_the_decoder() -> None:
    """A context is encoded once, equal requests and one-token continuations are decoded once."""
    a, b = (5, 1), (6, 1)
    pairs = {
        0: EncodedPair(a, (7,)),
        1: EncodedPair(b, (7,)),
        2: EncodedPair(a, (8,)),
        3: EncodedPair(a, (7, 8)),
        4: EncodedPair(a, (7, 9)),
        5: EncodedPair(a, (7,)),
    }
    rows = plan_decoder_rows(pairs, 0)
    assert [(row.context, row.tokens) for row in rows] == [(a, (0,)), (a, (0, 7)), (b, (0,))]
    assert [row.targets for row in rows] == [
        ((0, (7,)), (2, (8,)), (5, (7,))),
        ((3, (7, 8)), (4, (7, 9))),
        ((1, (7,)),),
    ]


def test_the_encoder_runs_once_for_the_options_of_a_question(folder: Path) -> None:
    model = load(folder)
    seen = []
    model.model.get_encoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    options = [f" {name}, {name}" for name in ("Paris", "Rome", "Tokyo", "yes")]
    model.loglikelihood([LoglikelihoodRequest(text, option) for text in ("One", "One, two") for option in options])
    (shape,) = seen
    assert shape[0] == 2


def test_out_of_memory_halves_the_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(folder)
    expected = [scored(r).loglikelihood for r in model.loglikelihood(REQUESTS)]
    forward, sizes = model.model.forward, []

    def small(**inputs: Any) -> Any:
        rows = len(inputs["decoder_input_ids"])
        if rows > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        sizes.append(rows)
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", small)
    found = [scored(r).loglikelihood for r in model.loglikelihood(REQUESTS)]
    assert found == pytest.approx(expected, abs=2e-5, rel=1e-6)
    assert max(sizes) == 2


def test_logits_that_are_no_numbers(folder: Path) -> None:
    model = load(folder)
    with torch.no_grad():
        model.model.get_output_embeddings().weight.fill_(torch.nan)
    (failed,) = model.loglikelihood([REQUESTS[0]])
    assert "not finite numbers in float32" in str(failed)
    (failed,) = model.generate([GenerateRequest("A", max_tokens=3)])  # type: ignore[assignment]
    assert "not finite numbers in float32" in str(failed)


# Texts


def test_equals_greedy_by_hand(model: HuggingFaceModel) -> None:
    requests = [GenerateRequest(prompt, max_tokens=12) for prompt in PROMPTS]
    texts = set()
    for request, response in zip(requests, model.generate(requests), strict=True):
        prompt = model._encoder.prompt(request.prompt)
        tokens = naive_greedy(model, prompt, 12)
        ended = tokens[-1] == model.tokenizer.eos_token_id
        assert written(response).text == model.tokenizer.decode(tokens, skip_special_tokens=True)
        assert written(response).num_tokens == len(tokens)
        assert written(response).num_prompt_tokens == len(prompt)
        assert written(response).finish_reason == ("stop" if ended else "length")
        texts.add(written(response).text)
    assert len(texts) > 2


def test_a_penalty_of_repetition_counts_what_the_decoder_wrote(model: HuggingFaceModel) -> None:
    for prompt in PROMPTS:
        tokens = torch.tensor([model._encoder.prompt(prompt)])
        start = model.model.config.decoder_start_token_id
        ends = {"eos_token_id": model.tokenizer.eos_token_id, "decoder_start_token_id": start}
        with torch.no_grad():
            made = model.model.generate(tokens, max_new_tokens=12, do_sample=False, repetition_penalty=1.7, **ends)
        expected = model.tokenizer.decode(made[0, 1:], skip_special_tokens=True)
        assert model.generate(prompt, max_tokens=12, repetition_penalty=1.7).text == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_do_not_depend_on_batches(folder: Path, model: HuggingFaceModel, temperature: float) -> None:
    requests = [GenerateRequest(prompt, n, (), temperature, seed=3) for prompt in PROMPTS for n in (4, 12)]
    one_by_one = load(folder, batch_size=1)
    together = [written(r).text for r in model.generate(requests)]
    assert together == [written(r).text for r in model.generate(requests[::-1])][::-1]
    assert together == [written(r).text for r in one_by_one.generate(requests)]
    assert len(set(together)) > 3


def test_stop_strings(model: HuggingFaceModel) -> None:
    whole = model.generate(PROMPTS[0], max_tokens=12).text
    stop = whole[3:5]
    response = model.generate(PROMPTS[0], max_tokens=12, stop=["\x00", stop])
    assert (response.text, response.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_language_of_the_checkpoint_is_kept(folder: Path, tmp_path: Path) -> None:
    """The first token that a checkpoint forces (a language), and no penalty, beam or length of its author's."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "generation_config.json").read_text())
    author = {"num_beams": 3, "no_repeat_ngram_size": 1, "repetition_penalty": 9.0, "max_length": 3, "min_length": 9}
    (tmp_path / "generation_config.json").write_text(json.dumps(config | author))
    requests = [GenerateRequest(prompt, max_tokens=9) for prompt in PROMPTS]
    expected = [written(r).text for r in load(folder).generate(requests)]
    assert [written(r).text for r in load(tmp_path).generate(requests)] == expected
    (tmp_path / "generation_config.json").write_text(json.dumps(config | author | {"forced_bos_token_id": 25}))
    forced = load(tmp_path)
    first = forced.tokenizer.decode([25])
    assert not any(text.startswith(first) for text in expected)
    assert all(written(r).text.startswith(first) for r in forced.generate(requests))


# What is said of the model, and what is refused


def test_identity(model: HuggingFaceModel) -> None:
    assert model.identity.details["class"] in ("T5ForConditionalGeneration", "BartForConditionalGeneration")
    assert model.identity.details["max_length"] == 128
    assert model.identity.fingerprint is not None


def test_chats(model: HuggingFaceModel) -> None:
    chat = (Message(role="user", content="Is that so?"),)
    text = "<user>Is that so?\n<assistant>"
    assert model.generate(chat, max_tokens=5).text == model.generate(text, max_tokens=5).text
    assert model.loglikelihood(chat, " yes").loglikelihood == pytest.approx(
        model.loglikelihood(text, " yes").loglikelihood
    )


def test_encoder_and_decoder_have_their_own_limits(folder: Path) -> None:
    model = load(folder, model_args={"max_length": 12})
    end = len(model.tokenizer.encode(""))  # BOS and EOS
    fits = model.loglikelihood("z " * ((12 - end) // 2), "yes")
    assert 10 <= fits.num_context_tokens <= 12
    with pytest.raises(ContextLengthError) as encoder:
        model.loglikelihood("Question: " * 20, "yes")
    assert (encoder.value.max_tokens, encoder.value.part) == (12, "encoder")
    assert one_line_of(encoder.value).startswith(
        f"the prompt needs {encoder.value.num_tokens} tokens and the model's enc"
    )
    with pytest.raises(ContextLengthError) as decoder:
        model.loglikelihood("A", " yes" * 20)
    assert decoder.value.part == "decoder"
    assert "the model's decoder holds 12" in one_line_of(decoder.value)
    assert model.generate("A", max_tokens=12).num_tokens <= 12
    with pytest.raises(
        ContextLengthError, match="the answer needs 13 tokens and the model's decoder holds 12: 1 too many"
    ):
        model.generate("A", max_tokens=13)
    with pytest.raises(ContextLengthError, match="the model's encoder holds 12"):
        model.generate("Question: " * 20, max_tokens=1)


def test_relative_positions_have_no_end(folder: Path) -> None:
    """T5 can be given more than it was trained with, BART has no more positions than it has learned."""
    if "bart" in folder.name:
        with pytest.raises(Exception, match="max_length=300 is more than the 128 positions"):
            load(folder, model_args={"max_length": 300})
    else:
        long = load(folder, model_args={"max_length": 300}).loglikelihood("z " * 100, " yes")
        assert long.num_context_tokens > 128


def test_checkpoint_that_does_not_say_how_a_text_starts(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        config["decoder_start_token_id"] = None
        (tmp_path / name).write_text(json.dumps(config))
    with pytest.raises(Exception, match=r"add decoder_start_token_id to config\.json") as error:
        load(tmp_path)
    assert one_line_of(error.value)


def test_the_tree_is_refused(folder: Path) -> None:
    with pytest.raises(Exception, match="the tree cannot compute this model") as error:
        load(folder, engine="tree")
    assert one_line_of(error.value)
    assert load(folder, engine="plain").engine.name == load(folder).engine.name == "plain"
