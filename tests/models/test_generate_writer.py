"""One row while it is written: when it ends, and how its next token is chosen."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.models.huggingface.generation_writer import GenerationPlan, Writer, choose_tokens, seed_of
from pytest_llmeval.text.reasoning import DEFAULT_TAGS, cut_behind_reasoning, split_reasoning
from tests.properties import examples
from tests.tiny_models import make_tokenizer

TOKENIZER = make_tokenizer()
TEXTS = st.text(alphabet="ab \n.é\u4e16\U0001f600", max_size=30)


def writer(**plan: object) -> Writer:
    """A writer for the prompt (1, 2)."""
    settings = {"max_tokens": 1000, "stop": (), "temperature": 0.0, "seed": 0, **plan}
    return Writer(TOKENIZER, (1, 2), GenerationPlan(**settings), frozenset({1}))  # type: ignore[arg-type]


@settings(max_examples=examples(200), deadline=None)
@given(text=TEXTS, stop=st.lists(st.text(alphabet="ab \n.é\u4e16\U0001f600", min_size=1, max_size=5), max_size=3))
def test_ends_with_the_token_that_completes_a_stop_string(text: str, stop: list[str]) -> None:
    """Against decoding all that was written after every token; characters of several bytes are several tokens."""
    tokens = TOKENIZER.encode(text)
    row = writer(stop=tuple(stop))
    expected = len(tokens)
    for n in range(1, len(tokens) + 1):
        if any(s in TOKENIZER.decode(tokens[:n]) for s in stop):
            expected = n
            break
    for token in tokens:
        row.add(token)
    whole = TOKENIZER.decode(tokens[:expected])
    starts = [whole.index(s) for s in stop if s in whole]
    assert row.tokens == tokens[:expected]
    assert row.is_done == bool(starts)
    assert row.result().text == whole[: min(starts, default=None)]
    assert row.result().finish_reason == ("stop" if starts else "length")


def test_does_not_decode_the_whole_text_at_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    decode = TOKENIZER.decode

    def counted(tokens: list[int], **settings: object) -> str:
        lengths.append(len(tokens))
        return str(decode(tokens, **settings))

    row = writer(stop=("Question:",))
    monkeypatch.setattr(TOKENIZER, "decode", counted, raising=False)
    for _ in range(300):
        row.add(40)
    assert len(lengths) == 300
    assert max(lengths) < 30


def test_limit_and_end_of_text() -> None:
    row = writer(max_tokens=2)
    row.add(40)
    assert not row.is_done
    row.add(41)
    row.add(42)
    assert (row.is_done, row.tokens, row.result().finish_reason) == (True, [40, 41], "length")
    row = writer(max_tokens=2)
    row.add(1)
    assert (row.is_done, row.result().text, row.result().finish_reason) == (True, "", "stop")


def test_greedy_rows_draw_nothing() -> None:
    with pytest.raises(ValueError, match="draws nothing"):
        writer().draw()


def test_draws_follow_from_seed_and_prompt() -> None:
    """The standard library's generator, which keeps its numbers across versions."""
    row = writer(temperature=1.0, seed=7)
    expected = random.Random(seed_of(7, (1, 2)))
    assert [row.draw() for _ in range(3)] == [expected.random() for _ in range(3)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies_follow_the_softmax(temperature: float) -> None:
    """20,000 draws: each token's share is within 5 standard errors of ``torch.softmax``."""
    logits = torch.tensor([0.3, -1.0, 2.0, -math.inf, 0.9, -math.inf])
    rows = [writer(temperature=temperature, seed=seed) for seed in range(20000)]
    tokens = choose_tokens(logits.expand(len(rows), -1), rows)
    for token, p in enumerate((logits / temperature).softmax(-1).tolist()):
        assert abs(tokens.count(token) / len(rows) - p) <= 5 * math.sqrt(p * (1 - p) / len(rows)), token


@pytest.mark.parametrize("draw", [0.0, 1 - 2**-53])
def test_the_ends_of_the_distribution(monkeypatch: pytest.MonkeyPatch, draw: float) -> None:
    """What cannot be drawn is not, whatever the number."""
    logits = torch.tensor([[-math.inf, 1.0, 1.0, 1.0, -math.inf, -math.inf]])
    monkeypatch.setattr(Writer, "draw", lambda self: draw)
    assert choose_tokens(logits, [writer(temperature=1.0)]) == [1 if draw == 0 else 3]


@pytest.mark.parametrize("temperature", [1e-320, 1e-9])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    logits = torch.tensor([[0.1, 5.0, 4.999, -3.0]])
    assert choose_tokens(logits, [writer(temperature=temperature)]) == [1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers(bad: float, temperature: float) -> None:
    logits = torch.tensor([[0.1, 5.0, 0.2], [0.1, 0.4, 9.0], [0.1, 0.2, 0.3]])
    logits[0, 2] = bad
    logits[2] = -math.inf
    rows = [writer(temperature=temperature), writer(), writer(temperature=temperature)]
    assert choose_tokens(logits, rows)[1] == 2
    assert [(row.saw_nan, row.is_done) for row in rows] == [(True, True), (False, False), (True, True)]
    assert rows[0].result().saw_nan


def test_a_stop_string_that_is_a_special_token() -> None:
    """Special tokens have no text, so they are looked for among the tokens."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    token = tokenizer.convert_tokens_to_ids("<|end|>")
    for stop, is_done in ((("<|end|>",), True), (("x",), False), ((), False)):
        row = Writer(tokenizer, (1, 2), GenerationPlan(9, stop), frozenset())
        row.add(token)
        assert row.is_done == is_done


PIECES = st.sampled_from(["<think>", "</think>", "\n\n", "\n", " ", "a", "b", "STOP", "é", "<", "think"])


@settings(max_examples=examples(300), deadline=None)
@given(pieces=st.lists(PIECES, max_size=14), opened=st.sampled_from(["", "<think>"]))
def test_stop_strings_behind_reasoning_end_a_text_where_the_whole_of_it_shows_it(
    pieces: list[str], opened: str
) -> None:
    """Against cutting what was written so far after every token. Without tags each of them would end it."""
    text = "".join(pieces)
    stop = ("STOP", "\n\n")
    tokens = TOKENIZER.encode(text)
    row = writer(stop=stop, reasoning=DEFAULT_TAGS, opened=opened)
    expected = len(tokens)
    for n in range(1, len(tokens) + 1):
        if cut_behind_reasoning(opened + TOKENIZER.decode(tokens[:n]), stop, DEFAULT_TAGS)[1]:
            expected = n
            break
    for token in tokens:
        row.add(token)
    assert row.tokens == tokens[:expected]
    whole, was_cut = cut_behind_reasoning(opened + TOKENIZER.decode(tokens[:expected]), stop, DEFAULT_TAGS)
    found = row.result()
    assert (found.text, found.tagged or found.text) == (whole.removeprefix(opened), whole)
    assert found.finish_reason == ("stop" if was_cut else "length")


def test_tags_of_special_tokens_are_kept_beside_the_text() -> None:
    """gpt-oss's: a stop string that is one of its special tokens does not end the reasoning."""
    tokenizer = make_tokenizer()
    names = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in names}
    whole = (
        "<|channel|>analysis<|message|>41?\n\nNo.<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|end|>"
    )
    kept = tuple((ids[name], name) for name in names[:2])
    plan = GenerationPlan(500, ("<|end|>", "\n\n"), reasoning=DEFAULT_TAGS, tag_tokens=kept)
    row = Writer(tokenizer, (1, 2), plan, frozenset())
    for token in tokenizer.encode(f"{whole} 43"):
        row.add(token)
    found = row.result()
    assert row.tokens == tokenizer.encode(whole)
    assert found.tagged == whole.replace("<|end|>", "").replace("<|start|>", "")
    assert found.text == "analysis41?\n\nNo.assistantfinalIt is 42."
    assert split_reasoning(found.tagged, DEFAULT_TAGS) == ("It is 42.", "41?\n\nNo.", False)
    plain = Writer(tokenizer, (1, 2), GenerationPlan(500, ("<|end|>", "\n\n"), tag_tokens=kept), frozenset())
    for token in tokenizer.encode(whole):
        plain.add(token)
    assert plain.result().text == "analysis41?"


def test_long_reasoning_is_not_decoded_at_each_of_its_stop_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    decode = TOKENIZER.decode

    def counted(tokens: list[int], **settings: object) -> str:
        lengths.append(len(tokens))
        return str(decode(tokens, **settings))

    row = writer(stop=("\n",), reasoning=DEFAULT_TAGS, opened="<think>")
    tokens = TOKENIZER.encode("a\n" * 300)
    monkeypatch.setattr(TOKENIZER, "decode", counted, raising=False)
    for token in tokens:
        row.add(token)
    assert not row.is_done
    assert sum(length > 100 for length in lengths) == 0
