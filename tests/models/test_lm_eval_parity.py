"""The plain path against lm-eval 0.4.13's ``HFLM``: request by request, and text by text."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.models.huggingface.kind import demo_folder
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Message,
)
from tests.models.support import load
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("lm_eval") is None,
        reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'",
    ),
    pytest.mark.filterwarnings("default"),  # lm-eval's own and its libraries'
]

CONTEXTS = [
    "The capital of France is",
    "The capital of France is ",
    "Question: is that so?\nAnswer:\n\n",
    "A\u00a0",
    "<s>Begins with BOS:",
    "</s>Begins with EOS:",
    "",
    "def add(a, b):\n    ",
    "é\u4e16\U0001f600 " * 5,
]
CONTINUATIONS = [" Paris", "Paris", " the quick brown fox jumps over the lazy dog.", "\n", "é", "<s>", " A", " B", " C"]
CHECKPOINTS = ["gpt2", "llama", "llama_bos_in_template", "demo"]


@pytest.fixture(scope="module", params=CHECKPOINTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models with and without BOS, and the model that ships."""
    if request.param == "demo":
        return demo_folder()
    target = tmp_path_factory.mktemp(request.param)
    if request.param == "gpt2":
        return make_checkpoint(target, "gpt2")
    template = "<s>" * (request.param == "llama_bos_in_template") + CHAT_TEMPLATE
    return make_checkpoint(target, "llama", chat_template=template)


@pytest.fixture(scope="module")
def ours(folder: Path) -> HuggingFaceModel:
    """Our model."""
    return load(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    """lm-eval's."""
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=3)


def instance(kind: str, *arguments: Any) -> Any:
    """A request of lm-eval's."""
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def test_loglikelihoods(ours: HuggingFaceModel, theirs: Any) -> None:
    pairs = [(context, continuation) for context in CONTEXTS for continuation in CONTINUATIONS]
    if ours.tokenizer.bos_token == "<s>":
        pairs.remove(("", "<s>"))  # nothing is left to score, and lm-eval's number would be another request's
    expected = theirs.loglikelihood([instance("loglikelihood", *pair) for pair in pairs], disable_tqdm=True)
    responses = ours.loglikelihood([LoglikelihoodRequest(*pair) for pair in pairs])
    for pair, response, (loglikelihood, is_greedy) in zip(pairs, responses, expected, strict=True):
        assert isinstance(response, LoglikelihoodResponse), (pair, response)
        assert response.loglikelihood == pytest.approx(loglikelihood, abs=2e-5, rel=1e-6), pair
        assert response.is_greedy == is_greedy, pair


def test_tokens(ours: HuggingFaceModel, theirs: Any) -> None:
    for context in filter(None, CONTEXTS):
        for continuation in CONTINUATIONS:
            pair = ours._encoder.pair(context, continuation)
            assert (list(pair.context), list(pair.continuation)) == theirs._encode_pair(context, continuation)


def test_the_same_requests_fit(ours: HuggingFaceModel, theirs: Any) -> None:
    """lm-eval truncates where we refuse, at the same length."""
    assert ours.max_length == theirs.max_length


@pytest.mark.parametrize("stop", [(), ("e",), ("\n", "?", "the")])
def test_greedy_texts(ours: HuggingFaceModel, theirs: Any, stop: tuple[str, ...]) -> None:
    # lm-eval looks at the first prompt of a batch alone to decide on BOS: prompts that begin with it go apart
    prompts = [c for c in CONTEXTS if c and not c.startswith("<s>")]
    settings = {"until": list(stop), "max_gen_toks": 16, "do_sample": False}
    requests = [instance("generate_until", prompt, settings) for prompt in prompts]
    responses = ours.generate([GenerateRequest(prompt, max_tokens=16, stop=stop) for prompt in prompts])
    for prompt, response, text in zip(
        prompts, responses, theirs.generate_until(requests, disable_tqdm=True), strict=True
    ):
        assert isinstance(response, GenerateResponse), (prompt, response)
        assert response.text == text, prompt


def test_chats(ours: HuggingFaceModel, theirs: Any) -> None:
    if not theirs.tokenizer.chat_template:
        assert not ours.tokenizer.chat_template
        return
    turns = [{"role": "user", "content": "Is that so?"}]
    text = theirs.apply_chat_template(turns)
    chat = (Message(role="user", content="Is that so?"),)
    assert ours._encoder.render(chat) == text
    ((loglikelihood, _),) = theirs.loglikelihood([instance("loglikelihood", text, " yes")], disable_tqdm=True)
    (response,) = ours.loglikelihood([LoglikelihoodRequest(chat, " yes")])
    assert isinstance(response, LoglikelihoodResponse)
    assert response.loglikelihood == pytest.approx(loglikelihood, abs=2e-5)
