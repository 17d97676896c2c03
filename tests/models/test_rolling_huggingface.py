"""Rolling log-likelihoods of real models: against lm-eval 0.4.13's ``HFLM``, and against one forward pass per token."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface.kind import demo_folder
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse, LoglikelihoodRollingRequest
from tests.models.support import load, naive_loglikelihood
from tests.tiny_models import make_checkpoint

MAX_LENGTH = 24
SENTENCE = "The quick brown fox jumps over the lazy dog. "
TEXTS = [
    "Paris",
    SENTENCE,
    SENTENCE * 7,
    "<s>Begins with BOS: " + SENTENCE * 3,
    "</s>Begins with EOS: " + SENTENCE * 3,
    "é\u4e16\U0001f600 " * 9,
    "\n\n \t",
    "a" * MAX_LENGTH,
    "  white space at both ends  ",
    "",
]


needs_lm_eval = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'"
)


_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("llama_without_bos", "demo")]


@pytest.fixture(scope="module", params=["gpt2", "llama", "t5", *_SLOW])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models whose context is shorter than the texts, with and without BOS, and the model that ships."""
    if request.param == "demo":
        return demo_folder()
    name, _, without = request.param.partition("_")
    target = tmp_path_factory.mktemp(request.param)
    return make_checkpoint(target, name, max_length=MAX_LENGTH, adds_bos=False if without else None)


@pytest.fixture(scope="module")
def model(folder: Path) -> HuggingFaceModel:
    """Our model."""
    return load(folder)


def responses_of(model: HuggingFaceModel, texts: list[str], stride: int | None = None) -> list[LoglikelihoodResponse]:
    responses = model.loglikelihood_rolling([LoglikelihoodRollingRequest(text, stride) for text in texts])
    for text, response in zip(texts, responses, strict=True):
        assert isinstance(response, LoglikelihoodResponse), (text, response)
    return [response for response in responses if isinstance(response, LoglikelihoodResponse)]


@needs_lm_eval
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("add_bos", [None, True, False])
def test_disjoint_windows_are_scored_as_lm_eval_does(folder: Path, add_bos: bool | None) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    settings = {"device": "cpu", "dtype": "float32", "batch_size": 3, "add_bos_token": add_bos}
    # Its cache takes windows of one input that score more and fewer of its tokens for the same request, as repetitive
    # texts have them.
    theirs = HFLM(pretrained=str(folder), logits_cache=False, **settings)
    model = load(folder, model_args={} if add_bos is None else {"add_bos": add_bos})
    assert model.max_length == theirs.max_length
    requests = [Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0) for text in TEXTS]
    expected = theirs.loglikelihood_rolling(requests, disable_tqdm=True)
    for text, response, loglikelihood in zip(TEXTS, responses_of(model, TEXTS), expected, strict=True):
        assert response.loglikelihood == pytest.approx(loglikelihood, abs=1e-4, rel=1e-6), text
        assert response.num_tokens == len(theirs.tok_encode(text)), text


@pytest.mark.parametrize("stride", [1, 7, pytest.param(MAX_LENGTH - 1, marks=pytest.mark.slow), MAX_LENGTH])
def test_a_stride_is_scored_as_one_by_one(model: HuggingFaceModel, stride: int) -> None:
    """One forward pass for each token, after the tokens that its window holds before it."""
    if model.model.config.is_encoder_decoder:
        pytest.skip("the reference is for causal models")
    length = model.max_length
    assert length is not None
    texts = TEXTS[:4] if length == MAX_LENGTH else TEXTS[:2]
    for text, response in zip(texts, responses_of(model, texts, stride), strict=True):
        prefix, tokens = model._encoder.text(text)
        fed = [prefix, *tokens]
        expected, is_greedy = 0.0, True
        end = min(length, len(tokens))
        for place in range(1, len(fed)):
            while place > end:
                end = min(end + stride, len(tokens))
            begin = max(0, end - length)
            loglikelihood, is_top = naive_loglikelihood(model, fed[begin:place], [fed[place]])
            expected += loglikelihood
            is_greedy = is_greedy and is_top
        assert response.loglikelihood == pytest.approx(expected, abs=1e-4, rel=1e-6), text
        assert (response.num_tokens, response.is_greedy) == (len(tokens), is_greedy)


def test_more_context_is_another_number(model: HuggingFaceModel) -> None:
    if model.max_length != MAX_LENGTH:
        pytest.skip("the text fits into one window")
    (disjoint,) = responses_of(model, [SENTENCE * 7])
    (sliding,) = responses_of(model, [SENTENCE * 7], stride=3)
    assert disjoint.num_tokens == sliding.num_tokens > 3 * MAX_LENGTH
    assert abs(disjoint.loglikelihood - sliding.loglikelihood) > 0.1


def test_neighbours_and_batch_size_change_nothing(folder: Path, model: HuggingFaceModel) -> None:
    together = responses_of(model, TEXTS)
    for batch_size in (1, 3):
        other = load(folder, batch_size=batch_size)
        for text, response in zip(TEXTS, together, strict=True):
            alone = other.loglikelihood_rolling(text)
            assert alone.loglikelihood == pytest.approx(response.loglikelihood, abs=2e-5, rel=1e-6), text
            assert alone.num_tokens == response.num_tokens


def test_a_text_that_cannot_be_scored_fails_alone(model: HuggingFaceModel) -> None:
    requests = [LoglikelihoodRollingRequest("Paris"), LoglikelihoodRollingRequest("lone \ud800 surrogate")]
    good, bad = model.loglikelihood_rolling(requests)
    assert isinstance(good, LoglikelihoodResponse)
    assert isinstance(bad, RequestError)
    with pytest.raises(RequestError, match="lone surrogate"):
        model.loglikelihood_rolling("\ud800")
    with pytest.raises(RequestError, match="the stride is 5000: expected a number from 1 to"):
        model.loglikelihood_rolling("Paris", stride=5000)


def test_a_model_without_a_length_needs_one(bloom: HuggingFaceModel, bloom_folder: Path) -> None:
    with pytest.raises(RequestError, match="--llm-model-arg max_length=N"):
        bloom.loglikelihood_rolling("Paris")
    given = load(bloom_folder, model_args={"max_length": MAX_LENGTH})
    prefix, tokens = given._encoder.text(SENTENCE)
    assert 1 < len(tokens) <= MAX_LENGTH
    expected, _ = naive_loglikelihood(given, [prefix], tokens)
    assert given.loglikelihood_rolling(SENTENCE).loglikelihood == pytest.approx(expected, abs=2e-5)


def test_a_long_text_is_nothing_to_warn_of(
    gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(gpt2_folder)
    monkeypatch.setattr(model.tokenizer, "model_max_length", MAX_LENGTH)
    logger = logging.getLogger("transformers")  # hands nothing on to the root
    logger.addHandler(caplog.handler)
    try:
        assert model.loglikelihood_rolling(SENTENCE * 7).num_tokens > MAX_LENGTH
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.messages == []


def test_a_sequence_takes_no_stride(gpt2: HuggingFaceModel) -> None:
    with pytest.raises(TypeError, match="each request of a sequence carries its own"):
        gpt2.loglikelihood_rolling([LoglikelihoodRollingRequest("a")], stride=3)  # type: ignore[call-overload]
    assert gpt2.loglikelihood_rolling([]) == []


@pytest.mark.parametrize("add_bos", [True, False])
def test_that_bos_is_scored_is_said_beside_the_number(folder: Path, add_bos: bool) -> None:
    model = load(folder, model_args={"add_bos": add_bos})
    _, use = model.audit([LoglikelihoodRollingRequest("Paris")])
    with_bos = len(model.tokenizer("Paris", add_special_tokens=False)["input_ids"]) + 1
    has_bos = model.tokenizer.bos_token is not None  # T5's has none, and ends texts with EOS
    is_scored = has_bos and responses_of(model, ["Paris"])[0].num_tokens == with_bos
    said = "; the tokenizer's BOS is scored as the first token of each text, as lm-eval does"
    assert use.reason.endswith(said) == is_scored
    assert said not in model.audit([LoglikelihoodRequest("Paris", " is")])[1].reason
