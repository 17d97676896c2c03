"""Reasoning in a text: what is told apart, where stop strings apply, and that texts without it stay as they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.text.reasoning import (
    DEFAULT_TAGS,
    NAMED_TAGS,
    Split,
    cut_behind_reasoning,
    holds_tags,
    opened_by,
    split_reasoning,
)
from tests.properties import examples

HARMONY = "<|channel|>analysis<|message|>We add.<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|return|>"
SPLIT: list[tuple[str, str, Split]] = [
    ("It is 42.", "", Split("It is 42.")),
    (" \n", "", Split(" \n")),
    ("<think>6*7</think>\n\nIt is 42. ", "", Split("It is 42. ", "6*7")),
    ("<thinking>6*7</thinking>42", "", Split("42", "6*7")),
    ("<reasoning>\n6*7\n</reasoning>\n<answer>42</answer>", "", Split("<answer>42</answer>", "6*7")),
    ("[THINK]6*7[/THINK]42", "", Split("42", "6*7")),
    ("◁think▷6*7◁/think▷42", "", Split("42", "6*7")),
    ("<THINK>6*7</Think>42", "", Split("42", "6*7")),
    ("[think]a stage direction", "", Split("[think]a stage direction")),
    # gpt-oss, as its tokens are decoded with all special tokens, and with those of the tags alone
    (HARMONY, "", Split("It is 42.", "We add.")),
    (
        "<|channel|>analysis<|message|>We add.assistant<|channel|>final<|message|>It is 42.",
        "",
        Split("It is 42.", "We add."),
    ),
    ("<|channel|>final<|message|>42", "", Split("42", "")),
    ("<|channel|>analysis<|message|>We add", "", Split("", "We add", is_unfinished=True)),
    # gpt-oss behind a server that drops all special tokens
    ("analysisWe add. assistantfinal18", "", Split("18", "We add.")),
    ("analysisWe add.assistantanalysis6*7assistantfinal\n42", "", Split("42", "We add.assistantanalysis6*7")),
    ("analysis of the sum: 18", "", Split("analysis of the sum: 18")),
    ("The analysis says assistantfinal18", "", Split("The analysis says assistantfinal18")),
    # cut off
    ("<think>Maybe 41. Or is the answer 42", "", Split("", "Maybe 41. Or is the answer 42", is_unfinished=True)),
    (" \n<think>", "", Split("", "", is_unfinished=True)),
    ("I try.\n <think>Maybe 41", "", Split("", "I try.\n\nMaybe 41", is_unfinished=True)),
    ("<think>a</think>\n<think>b", "", Split("", "a\n\nb", is_unfinished=True)),
    # opened by the chat template
    ("6*7</think>\n42", "<think>", Split("42", "6*7")),
    ("6*7", "<think>", Split("", "6*7", is_unfinished=True)),
    ("6*7</thinking>", "<think>", Split("", "6*7</thinking>", is_unfinished=True)),
    ("6*7</think>\n42", "", Split("42", "6*7")),
    # several blocks, blocks in the midst, blocks that are empty
    ("<think></think>\n\n42", "", Split("42", "")),
    ("<think>a</think>4<think>b</think>2", "", Split("42", "a\n\nb")),
    ("Well. <think>41?</think> 42", "", Split("Well.  42", "41?")),
    ("<think>a<think>b</think>c</think>42", "", Split("42", "a<think>b\n\nc")),
    ("<think>is it <thinking>?</think>42", "", Split("42", "is it <thinking>?")),
    # what mentions a tag
    ("A reasoning model writes <think> first.", "", Split("A reasoning model writes <think> first.")),
    ('{"reason": "It writes <think>.", "score": 4}', "", Split('{"reason": "It writes <think>.", "score": 4}')),
    ("if a <b: think>", "", Split("if a <b: think>")),
    *(
        (text, "", Split(text))
        for text in (
            "The closing tag is `</think>`. So B.",
            "The closing tag is </think>. So B.",
            "The </think> tag ends it. So B.",
            "Reasoning ends with </think> and the answer follows: B.",
            'It wrote "</think>" first. So B.',
            '{"reason": "It writes </think>.", "score": 4}',
            "Write `<think>` first and `</think>` last: B.",
            "In ```<think>a</think>``` all is quoted. B",
            "It writes\n```\n<think>\n41?\n```\nwhich is cut off. B",
            "It writes\n~~~ xml\n<think>\n41?\n</think>\n~~~\nwhich is whole. B",
        )
    ),
    # what looks like a mention and is none
    ("so it is 42 </think> 42", "", Split("42", "so it is 42")),
    ("It is the\n</think>\n\n42", "", Split("42", "It is the")),
    ('Is it "B"</think>"B"', "", Split('"B"', 'Is it "B"')),
    ("a ```python\nfoo\n</think>\n```python\nx\n```", "", Split("```python\nx\n```", "a ```python\nfoo")),
    ("<think>It writes `</think>`. So B</think>B", "", Split("B", "It writes `</think>`. So B")),
    ("<think>\n```\nfoo</think>B\n```\nx\n```", "", Split("B\n```\nx\n```", "```\nfoo")),
    ("<think>It writes `</think>`. So", "", Split("", "It writes `</think>`. So", is_unfinished=True)),
]


@pytest.mark.parametrize(("text", "opened", "expected"), SPLIT)
def test_reasoning_is_told_apart(text: str, opened: str, expected: Split) -> None:
    assert split_reasoning(text, DEFAULT_TAGS, opened) == expected


def test_tags_of_ones_own_and_none() -> None:
    own = (("<<", ">>"), ("Thoughts:", "Answer:"), ("```thoughts", "```"))
    assert split_reasoning("<<a>> b", own) == Split("b", "a")
    assert split_reasoning("Thoughts: a\nAnswer: b", own) == Split("b", "a")
    assert split_reasoning("Thoughts: a with Answer: b", own) == Split("b", "a with")
    assert split_reasoning("```thoughts\na\n```\nb", own) == Split("b", "a")
    assert split_reasoning("<think>a</think>b", own) == Split("<think>a</think>b")
    assert split_reasoning("<think>a</think>b", ()) == Split("<think>a</think>b")


@pytest.mark.parametrize(
    ("text", "opened", "stop", "expected"),
    [
        ("a\nb\nc", "", ("\n",), "a"),
        ("a\nb\nc", "", ("", "x"), "a\nb\nc"),
        ("abcabc", "", ("bca", "ab"), ""),
        ("<think>a\n\nb</think>\n\nc\n\nd", "", ("\n\n",), "<think>a\n\nb</think>\n\nc"),
        ("<think>a\n\nb", "", ("\n\n",), "<think>a\n\nb"),
        ("a\n\nb</think>c\n\nd", "<think>", ("\n\n",), "a\n\nb</think>c"),
        ("a\n\nb</think>c\n\nd", "", ("\n\n",), "a\n\nb</think>c"),
        ("a\n\nb", "<think>", ("\n\n",), "a\n\nb"),
        ("a STOP <think>b</think>c", "", ("STOP",), "a "),
        ("<think>a</think>b STOP c END", "", ("END", "STOP"), "<think>a</think>b "),
        ("It writes <think> STOP", "", ("STOP",), "It writes <think> "),
        ("<think>a</think>STOP", "", ("STOP",), "<think>a</think>"),
    ],
)
def test_stop_strings_apply_behind_reasoning(text: str, opened: str, stop: tuple[str, ...], expected: str) -> None:
    assert cut_behind_reasoning(text, stop, DEFAULT_TAGS, opened) == (expected, expected != text)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
        ("[/INST][THINK]", "[THINK]"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>analysis"),
        ("assistant\n<Think>", "<think>"),
        ("assistant\n", ""),
        ("", ""),
    ],
)
def test_what_the_prompt_has_opened(prompt: str, opened: str) -> None:
    assert opened_by(prompt, DEFAULT_TAGS) == opened


PIECES = st.sampled_from(
    [
        *(tag for pair in NAMED_TAGS.values() for tag in pair),
        *(
            "<",
            ">",
            "[",
            "think",
            "\n",
            " ",
            "a",
            "STOP",
            "İ",
            "42",
            "`",
            "\n```\n",
            "\0",
            "analysis",
            "assistantfinal",
        ),
    ]
)


def tagged(pieces: list[str]) -> str:
    return "".join(pieces)


@settings(max_examples=examples(500))
@given(st.lists(PIECES, max_size=12).map(tagged), st.sampled_from(["", "<think>", "[THINK]"]))
def test_nothing_is_made_up_and_a_text_without_tags_stays(text: str, opened: str) -> None:
    found = split_reasoning(text, DEFAULT_TAGS, opened)
    if not opened and not holds_tags(text, DEFAULT_TAGS):
        assert found == Split(text)
    if found.reasoning is None:
        assert found == Split(text)
    if found.is_unfinished:
        assert not found.text
    kept = [character for character in text if character.isalnum()]
    both = [character for character in (found.reasoning or "") + found.text if character.isalnum()]
    assert not set(both) - set(kept)
    assert len(both) <= len(kept)


@settings(max_examples=examples(500))
@given(st.lists(PIECES, max_size=12).map(tagged), st.sampled_from(["", "<think>"]))
def test_a_cut_text_is_a_beginning_and_its_answer_holds_no_stop_string(text: str, opened: str) -> None:
    cut, was_cut = cut_behind_reasoning(text, ("STOP",), DEFAULT_TAGS, opened)
    assert text.startswith(cut)
    assert was_cut is (cut != text)
    assert cut_behind_reasoning(cut, ("STOP",), DEFAULT_TAGS, opened) == (cut, False) or not was_cut
    whole, short = (split_reasoning(one, DEFAULT_TAGS, opened) for one in (text, cut))
    if not was_cut:
        assert whole == short
        assert "STOP" not in whole.text or "STOP" not in re.sub(r"<.*?>|\[.*?\]|◁.*?▷", "|", text)


@pytest.mark.parametrize(
    "unit",
    [
        *("<think>", "</think>", "\n<think>", "<think>a</think>", "a <think>", " ", "assistant", "analysis"),
        *("`</think>` ", "`</think>", "``</think>` ", "\n```\n</think>", "\n```a\n</think>", "\n~~~</think>"),
        *("\n" + " " * 9 + "</think>", "the </think> tag ", "assistantfinal analysis"),
    ],
)
def test_long_texts_of_tags_come_to_an_end(unit: str) -> None:
    """In linear time: a square would take minutes."""
    split_reasoning(unit * 20_000, DEFAULT_TAGS)
    cut_behind_reasoning(f"{unit * 20_000}STOP", ("STOP",), DEFAULT_TAGS)
