"""Encoding by lm-eval's rules, case by case; ``test_lm_eval_parity.py`` compares with lm-eval itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair, Encoder, SeparateEncoder
from pytest_llmeval.types import LoglikelihoodRequest, Message, Prompt
from tests.tiny_models import CHAT_TEMPLATE, make_tokenizer


@pytest.fixture(scope="module")
def plain() -> Any:
    """Without BOS, as GPT-2's."""
    return make_tokenizer()


@pytest.fixture(scope="module")
def adds_bos() -> Any:
    """With BOS before every text, as Llama's."""
    return make_tokenizer(adds_bos=True, chat_template="<s>" + CHAT_TEMPLATE)


def parts(tokenizer: Any, context: str, continuation: str, **settings: Any) -> tuple[str, str]:
    """Both parts, decoded."""
    pair = Encoder(tokenizer, **settings).pair(context, continuation)
    return tokenizer.decode(list(pair.context)), tokenizer.decode(list(pair.continuation))


@pytest.mark.parametrize(
    ("context", "continuation", "expected"),
    [
        ("The answer:", " yes", ("The answer:", " yes")),
        ("The answer: ", "yes", ("The answer:", " yes")),
        ("The answer:\n\n \t", "yes", ("The answer:", "\n\n \tyes")),
        ("The answer:\u00a0", "yes", ("The answer:", "\u00a0yes")),
        ("", "yes", ("</s>", "yes")),
        ("", "</s>yes", ("</s>", "yes")),
        (" \n", "yes", ("</s>", " \nyes")),
        ("</s>Q", " yes", ("</s>Q", " yes")),
    ],
)
def test_without_bos(plain: Any, context: str, continuation: str, expected: tuple[str, str]) -> None:
    assert parts(plain, context, continuation) == expected


@pytest.mark.parametrize(
    ("context", "continuation", "expected"),
    [
        ("The answer:", " yes", ("<s>The answer:", " yes")),
        ("<s>The answer:", " yes", ("<s>The answer:", " yes")),
        ("<s>", "yes", ("<s>", "yes")),
        ("", "yes", ("<s>", "yes")),
        ("", "<s>yes", ("<s>", "yes")),
    ],
)
def test_with_bos(adds_bos: Any, context: str, continuation: str, expected: tuple[str, str]) -> None:
    assert parts(adds_bos, context, continuation) == expected


def test_both_are_encoded_together(plain: Any) -> None:
    """The continuation is what follows the context's tokens in the encoding of both, whatever it would be alone."""
    text = "The capital of France is what?"
    whole = plain.encode(text)
    differs = 0
    for cut in range(1, len(text)):
        context, continuation = text[:cut].rstrip(), text[len(text[:cut].rstrip()) :]
        context_tokens = plain.encode(context)
        if len(context_tokens) < len(whole):
            pair = Encoder(plain).pair(context, continuation)
            assert pair.context == tuple(context_tokens)
            assert pair.continuation == tuple(whole[len(context_tokens) :])
            differs += list(pair.continuation) != plain.encode(continuation)
    assert differs


def test_add_bos_overrides_the_tokenizer(adds_bos: Any) -> None:
    assert parts(adds_bos, "Q:", " yes", add_bos=False) == ("Q:", " yes")
    assert parts(adds_bos, "Q:", " yes", add_bos=True) == ("<s>Q:", " yes")


@pytest.mark.parametrize("context", ["", "Q: ", "Q"])
def test_empty_continuation(plain: Any, context: str) -> None:
    with pytest.raises(RequestError, match="the continuation is empty"):
        Encoder(plain).pair(context, "")


def test_continuation_without_a_token_of_its_own(plain: Any) -> None:
    merged = "fox"
    assert len(plain.encode(" fox")) == 1 == len(plain.encode(" f"))
    with pytest.raises(RequestError, match="adds no token"):
        Encoder(plain).pair("a f", merged[1:])
    with pytest.raises(RequestError, match="adds no token"):
        Encoder(plain).pair("", "</s>")


def test_neither_bos_nor_eos() -> None:
    tokenizer = make_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(RequestError, match="neither BOS nor EOS"):
        Encoder(tokenizer).pair("", "a")
    with pytest.raises(RequestError, match="neither BOS nor EOS"):
        Encoder(tokenizer).prompt("")
    assert Encoder(tokenizer).pair("a", "b").context == tuple(tokenizer.encode("a"))


def test_prompts(plain: Any, adds_bos: Any) -> None:
    assert plain.decode(list(Encoder(plain).prompt("Hi "))) == "Hi "
    assert adds_bos.decode(list(Encoder(adds_bos).prompt("Hi"))) == "<s>Hi"
    assert adds_bos.decode(list(Encoder(adds_bos).prompt("<s>Hi"))) == "<s>Hi"
    assert adds_bos.decode(list(Encoder(adds_bos).prompt(""))) == "<s>"
    assert plain.decode(list(Encoder(plain).prompt(""))) == "</s>"


def test_chat_has_one_bos(adds_bos: Any) -> None:
    chat = (
        Message(role="user", content="Hi"),
        Message(role="assistant", content="Yes?"),
        Message(role="user", content="No"),
    )
    text = "<s><user>Hi\n<assistant>Yes?\n<user>No\n<assistant>"
    assert Encoder(adds_bos).render(chat) == text
    assert adds_bos.decode(list(Encoder(adds_bos).prompt(chat))) == text
    assert parts(adds_bos, "", "x")[0] == "<s>"
    pair = Encoder(adds_bos).pair(chat, "x")
    assert adds_bos.decode(list(pair.context)) == text


CHAT = (Message(role="user", content="Hi"),)


@pytest.mark.parametrize("encoder_class", [Encoder, SeparateEncoder])
@pytest.mark.parametrize("name", ["plain", "adds_bos"])
@given(
    contexts=st.lists(st.sampled_from(["", " ", "Q: a\n", "<s>b ", "</s>", "\ud83d", CHAT]), min_size=1),
    continuations=st.lists(st.sampled_from(["", " ", "yes", " no", "</s>yes", "\ud83d"]), min_size=1),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_many_in_one_call_are_encoded_as_each_alone(
    encoder_class: type[Encoder],
    name: str,
    request: pytest.FixtureRequest,
    contexts: list[Prompt],
    continuations: list[str],
) -> None:
    tokenizer = request.getfixturevalue(name)
    requests = [LoglikelihoodRequest(a, b) for a in contexts for b in continuations]

    def encoded(encoder: Encoder) -> list[EncodedPair | str]:
        found: list[EncodedPair | str] = []
        for one in requests:
            try:
                found.append(encoder.pair(one.context, one.continuation))
            except RequestError as error:
                found.append(str(error))
        return found

    encoder = encoder_class(tokenizer)
    with encoder.encoded(requests):
        together = encoded(encoder)
    assert together == encoded(encoder_class(tokenizer)) == encoded(encoder)


def test_many_are_one_call_of_the_tokenizer(adds_bos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(adds_bos)
    requests = [LoglikelihoodRequest(context, choice) for context in ("a", "b", CHAT) for choice in (" x", " y")]
    with encoder.encoded(requests):
        monkeypatch.setattr(adds_bos, "encode", None)
        monkeypatch.setattr(adds_bos, "apply_chat_template", None)
        assert len({encoder.pair(one.context, one.continuation) for one in requests}) == 6


def test_chat_without_template(plain: Any) -> None:
    with pytest.raises(RequestError, match="no chat template"):
        Encoder(plain).prompt((Message(role="user", content="Hi"),))


def test_tokenizer_of_another_model(plain: Any) -> None:
    with pytest.raises(RequestError, match="does not belong to this model"):
        Encoder(plain, num_embeddings=3).prompt("Hi")


def test_lone_surrogate(plain: Any) -> None:
    with pytest.raises(RequestError, match=r"U\+D83D"):
        Encoder(plain).pair("a\ud83d", "b")
