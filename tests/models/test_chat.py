"""Chats whose last turn the assistant has begun: where the model goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import Encoder, SeparateEncoder
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest, Message
from tests.models.support import load
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint, make_t5_tokenizer, make_tokenizer

STRIPS = CHAT_TEMPLATE.replace("message.content", "message.content | trim")
CLOSES = CHAT_TEMPLATE.replace("\n{% endfor %}", "</s>\n{% endfor %}")
THINKS = CLOSES.replace(
    "<{{ message.role }}>",
    "<{{ message.role }}>{% if loop.last and message.role == 'assistant' %}<think></think>{% endif %}",
)
REFUSES = (
    "{% if messages[-1].role == 'assistant' %}{{ raise_exception('the last turn is the user\\'s') }}{% endif %}"
    + CLOSES
)
HIDES = CLOSES.replace("{{ message.content }}", "{% if message.role != 'assistant' %}{{ message.content }}{% endif %}")
TEMPLATES = {"plain": CHAT_TEMPLATE, "strips": STRIPS, "closes": CLOSES, "thinks": THINKS}
BEGUN = ["Answer:", "The answer is ", " So", "a", "</s>", "<assistant>", "One.\n\nTwo:", "e"]
Role = Literal["system", "user", "assistant"]


def chat(*turns: tuple[Role, str]) -> tuple[Message, ...]:
    return tuple(Message(role=role, content=content) for role, content in turns)


def render(template: str, *turns: tuple[Role, str]) -> str:
    return Encoder(make_tokenizer(chat_template=template)).render(chat(*turns))


@pytest.mark.parametrize("begun", ["Answer:", "The answer is ", "\n A:\n"])
@pytest.mark.parametrize(
    ("template", "before"),
    [
        (CHAT_TEMPLATE, "<assistant>"),
        (CLOSES, "<assistant>"),
        (THINKS, "<assistant><think></think>"),
        (STRIPS, "<assistant>"),
        (REFUSES, "<assistant>"),
        (HIDES, "<assistant>"),
    ],
    ids=["plain", "closes", "thinks", "strips", "refuses", "hides"],
)
def test_the_model_goes_on_right_after_what_was_begun(template: str, before: str, begun: str) -> None:
    text = render(template, ("system", "s"), ("user", "one"), ("assistant", begun))
    assert text.endswith(before + begun)
    assert text.startswith("<system>s")
    assert text.count("<user>one") == 1


def test_the_turns_before_are_closed() -> None:
    turns: list[tuple[Role, str]] = [("user", "1"), ("assistant", "A: x"), ("user", "2"), ("assistant", "A:")]
    expected = "<user>1</s>\n<assistant>A: x</s>\n<user>2</s>\n<assistant>A:"
    assert render(CLOSES, *turns) == expected
    assert render(CLOSES, *turns[:3]) == expected.removesuffix("A:")


@pytest.mark.parametrize("begun", ["", " ", "\n"])
def test_nothing_but_white_space_begun(begun: str) -> None:
    for template in (CLOSES, STRIPS, REFUSES):
        text = render(template, ("user", "1"), ("assistant", begun))
        assert text == render(template, ("user", "1")) + begun


def test_a_template_that_refuses_the_turns_before() -> None:
    with pytest.raises(RequestError, match=r"refuses the prompt: .*system comes first"):
        render(CLOSES, ("user", "1"), ("system", "2"), ("assistant", "A:"))


def test_an_option_follows_what_was_begun() -> None:
    tokenizer = make_tokenizer(chat_template=CLOSES)
    for begun, option in (("Answer:", " yes"), ("Answer: ", "yes")):
        pair = Encoder(tokenizer).pair(chat(("user", "1"), ("assistant", begun)), option)
        assert tokenizer.decode(list(pair.context)) == "<user>1</s>\n<assistant>Answer:"
        assert tokenizer.decode(list(pair.continuation)) == " yes"


def test_an_encoder_reads_what_was_begun() -> None:
    tokenizer = make_t5_tokenizer(chat_template=CHAT_TEMPLATE)
    turns = chat(("user", "what is the answer?"), ("assistant", "The answer is"))
    encoder = SeparateEncoder(tokenizer)
    text = "<user>what is the answer?\n<assistant>The answer is"
    assert encoder.render(turns) == text
    assert encoder.prompt(turns) == tuple(tokenizer.encode(text))
    assert encoder.pair(turns, " yes").context == tuple(tokenizer.encode(text))


@pytest.mark.parametrize("architecture", ["llama", "t5"])
def test_a_model_goes_on_after_what_was_begun(architecture: Literal["llama", "t5"], tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path, architecture, chat_template=CHAT_TEMPLATE))
    turns = chat(("user", "what is the answer?"), ("assistant", "The answer is"))
    text = "<user>what is the answer?\n<assistant>The answer is"
    replies = model.generate([GenerateRequest(prompt, max_tokens=8) for prompt in (turns, text, turns[:1])])
    scores = model.loglikelihood([LoglikelihoodRequest(prompt, " yes") for prompt in (turns, text, turns[:1])])
    for first, second, other in (replies, scores):
        assert not isinstance(first, RequestError)
        assert not isinstance(second, RequestError)
        assert replace(first, seconds=0.0) == replace(second, seconds=0.0)
        assert not isinstance(other, RequestError)
        assert replace(first, seconds=0.0) != replace(other, seconds=0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # lm-eval's own and its libraries'
@pytest.mark.parametrize("begun", BEGUN)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("encoder", [Encoder, SeparateEncoder])
def test_texts_are_lm_evals(name: str, begun: str, encoder: type[Encoder]) -> None:
    pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'")
    from lm_eval.models.huggingface import HFLM

    tokenizer: Any = (make_tokenizer if encoder is Encoder else make_t5_tokenizer)(chat_template=TEMPLATES[name])
    lm = SimpleNamespace(tokenizer=tokenizer, chat_template_args={})
    for turns in (
        [("user", "one")],
        [("system", "s"), ("user", "one "), ("assistant", "two"), ("user", "a")],
    ):
        history = [{"role": role, "content": content} for role, content in turns]
        assert encoder(tokenizer).render(chat(*turns)) == HFLM.apply_chat_template(lm, history)  # type: ignore[arg-type]
        history.append({"role": "assistant", "content": begun})
        theirs = HFLM.apply_chat_template(lm, history, add_generation_prompt=False)
        ours = encoder(tokenizer).render(chat(*turns, ("assistant", begun)))  # type: ignore[arg-type]
        if name == "strips" and begun != begun.strip():
            assert theirs.endswith(begun.strip())  # the white space that the suite wrote is lost
            assert ours == theirs.removesuffix(begun.strip()) + begun
        else:
            assert ours == theirs
