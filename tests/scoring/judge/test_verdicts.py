"""Verdicts: one JSON object and nothing else, asked for three times at most, and never made of what is not one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.scorers.judging.verdicts import NUM_TRIES, Verdict, json_object, no_verdict, verdict
from pytest_llmeval.types import JSON, Ask, GenerateRequest, GenerateResponse, LoglikelihoodResponse, Response

NO_SURROGATES = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NO_SURROGATES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NO_SURROGATES, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NO_SURROGATES, VALUES, max_size=4)


@given(
    found=OBJECTS,
    is_ascii=st.booleans(),
    indent=st.sampled_from([None, 2]),
    around=st.sampled_from(["{}", "\n {}\t\n", "```\n{}\n```", "```json\n{}\n```", " ```json \n\n{}\n\n```\n"]),
)
def test_any_object_is_read_bare_and_in_a_fence(
    found: dict[str, JSON], is_ascii: bool, indent: int | None, around: str
) -> None:
    text = json.dumps(found, ensure_ascii=is_ascii, indent=indent)
    assert json_object(around.replace("{}", text)) == found


@given(found=OBJECTS.filter(bool), text=st.text(min_size=1, max_size=20), is_before=st.booleans())
def test_nothing_is_read_with_words_around_it(found: dict[str, JSON], text: str, is_before: bool) -> None:
    """Unless what stands around it is white space."""
    written = json.dumps(found)
    text = text.strip("`")
    if not text.strip():
        return
    with pytest.raises(ValueError, match=r"^the verdict "):
        json_object(f"{text} {written}" if is_before else f"{written} {text}")


@given(found=OBJECTS.filter(bool), share=st.floats(0, 1, exclude_max=True))
def test_a_cut_object_is_not_read(found: dict[str, JSON], share: float) -> None:
    text = json.dumps(found)
    with pytest.raises(ValueError, match=r"^the verdict "):
        json_object(text[: int(share * len(text))])


@given(text=st.text(max_size=60) | st.text(alphabet='{}[]":,`\n0e-.tru\\u', max_size=30))
def test_any_text_is_an_object_or_a_value_error_of_one_line(text: str) -> None:
    problem = ""
    found: object = {}
    try:
        found = json_object(text)
    except ValueError as error:
        problem = str(error)
    assert isinstance(found, dict)
    assert len(problem.splitlines()) <= 1


GOOD = '{"reason": "r", "equivalent": true}'

NOT_ONE = "the verdict is not one JSON object"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", NOT_ONE),
        ("I cannot help with that.", NOT_ONE),
        (f"Here is my verdict: {GOOD}", NOT_ONE),
        (f"{GOOD}\nI hope that this helps.", NOT_ONE),
        (f"Sure.\n```json\n{GOOD}\n```", NOT_ONE),
        (f"```json\n{GOOD}\n```\nDone.", NOT_ONE),
        (f"{GOOD}\n{GOOD}", NOT_ONE),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", NOT_ONE),
        (f"```json\n{GOOD}", NOT_ONE),
        (f"```python\n{GOOD}\n```", NOT_ONE),
        (GOOD[:-1], NOT_ONE),
        (GOOD + "}", NOT_ONE),
        (GOOD.replace('"', "'"), NOT_ONE),
        (GOOD[:-1] + ",}", NOT_ONE),
        ("\ufeff" + GOOD, NOT_ONE),
        ("[" + GOOD + "]", "the verdict is not a JSON object"),
        ('"yes"', "the verdict is not a JSON object"),
        ("5", "the verdict is not a JSON object"),
        ("null", "the verdict is not a JSON object"),
        ('{"a": 1, "a": 2}', "the verdict has a name twice"),
        ('{"a": {"score": 1, "score": 1}}', "the verdict has a name twice"),
        ('{"a": 1, "\\u0061": 1}', "the verdict has a name twice"),
        ('{"a": NaN}', "the verdict holds NaN, which is no JSON"),
        ('{"a": [-Infinity]}', "the verdict holds -Infinity, which is no JSON"),
        ("[" * 100_000, NOT_ONE),
        ('{"a":' * 16_000 + "1" + "}" * 16_000, NOT_ONE),
        ("```\n" + "[" * 40_000 + "]" * 40_000 + "\n```", NOT_ONE),
    ],
    ids=lambda text: text[:24],
)
def test_what_is_no_verdict(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is compared as a whole
        json_object(text)
    assert str(caught.value) == problem


def test_megabytes_are_not_read() -> None:
    text = json.dumps({"reason": "x" * 5_000_000, "equivalent": True})
    with pytest.raises(ValueError, match=r"^the verdict has 5,000,\d{3} characters, expected at most 100,000$"):
        json_object(text)
    assert len(json_object(json.dumps({"reason": "x" * 99_000}))["reason"]) == 99_000  # type: ignore[arg-type]
    assert json_object(" " * 5_000_000 + "{}") == {}, "white space around it is not counted"
    with pytest.raises(ValueError, match=NOT_ONE):
        json_object("```\n" * 24_000)


def test_numbers_that_python_does_not_read_are_said_in_words_of_ours() -> None:
    for number in ("1" * 5000, "-" + "9" * 90_000):
        with pytest.raises(ValueError, match=r"^the verdict "):
            json_object(f'{{"a": {number}}}')
    with pytest.raises(ValueError, match=r"^the verdict "):
        json_object('{"a": 1e999}')


def test_lines_may_end_as_windows_ends_them() -> None:
    assert json_object(f"```json\r\n{GOOD}\r\n```") == {"reason": "r", "equivalent": True}


def test_lone_surrogates_are_read_as_text() -> None:
    assert json_object('{"reason": "\\ud83d"}') == {"reason": "\ud83d"}


REQUEST = GenerateRequest("judge this", max_tokens=9, temperature=0.0, seed=40, epoch=2)


def read_word(found: Mapping[str, JSON]) -> str:
    if not isinstance(found.get("word"), str):
        raise ValueError("there is no word")
    return str(found["word"])


def driven(
    answers: Sequence[Response | Failed], request: GenerateRequest = REQUEST
) -> tuple[Verdict[str], list[GenerateRequest]]:
    """The verdict that comes of these answers, each to one asking, and what was asked."""
    asking = verdict(request, read_word)
    asked: list[GenerateRequest] = []
    left = list(answers)
    answer: list[Response | Failed] | None = None
    while True:
        try:
            ask: Ask = next(asking) if answer is None else asking.send(answer)
        except StopIteration as stop:
            assert not left, "what was answered is what was asked"
            found: Verdict[str] = stop.value
            return found, asked
        if ask.unusable:
            assert (ask.requests, ask.unusable) == ((), tuple(asked[: len(answers)][: len(ask.unusable)]))
            answer = []
            continue
        (one,) = ask.requests
        assert ask.role == "judge"
        assert isinstance(one, GenerateRequest)
        asked.append(one)
        answer = [left.pop(0)]


def said(text: str, **fields: Any) -> GenerateResponse:
    return GenerateResponse(text=text, **fields)


def test_the_first_try_is_the_request_itself() -> None:
    found, asked = driven([said('{"word": "yes"}')])
    assert (found.value, found.problem) == ("yes", None)
    assert asked == [REQUEST]


def test_later_tries_are_draws_of_their_own() -> None:
    found, asked = driven([said("no"), said('{"word": 3}'), said('{"word": "third"}')])
    assert (found.value, found.problem, len(found.replies)) == ("third", None, 3)
    assert [(one.seed, one.temperature) for one in asked] == [(40, 0.0), (41, 0.7), (42, 0.7)]
    assert {(one.prompt, one.max_tokens, one.epoch) for one in asked} == {("judge this", 9, 2)}
    assert len(set(asked)) == NUM_TRIES == 3


def test_a_temperature_that_is_higher_stays() -> None:
    warm = GenerateRequest("judge this", max_tokens=9, temperature=1.25, seed=0)
    _, asked = driven([said("")] * 3, warm)
    assert [(one.seed, one.temperature) for one in asked] == [(0, 1.25), (1, 1.25), (2, 1.25)]


def test_after_three_tries_there_is_none() -> None:
    found, asked = driven([said("a"), said("[]"), said("{}")])
    assert found.value is None
    assert found.problem == "there is no word", "the last try's"
    assert len(asked) == 3


@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_a_failed_request_is_not_tried_again(num_before: int) -> None:
    failed = RequestError("too hot\nand more")
    found, asked = driven([*[said("prose")] * num_before, failed])
    assert found.value is None
    assert found.problem == "too hot"
    assert len(asked) == num_before + 1
    assert len(found.replies) == found.shown["tries"] == num_before


def test_a_response_of_another_kind_ends_it() -> None:
    found, asked = driven([LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)])
    assert found.value is None
    assert found.problem == "found a LoglikelihoodResponse, expected a reply"
    assert len(asked) == 1
    assert found.shown == {"raw": None, "num_prompt_tokens": 0, "num_tokens": 0, "seconds": 0.0, "tries": 0}


TRIES = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1000)), min_size=1, max_size=NUM_TRIES
)


@given(tries=TRIES)
def test_what_all_tries_took_is_summed(tries: list[tuple[int, int, float]]) -> None:
    replies = [
        said("prose", num_prompt_tokens=prompt, num_tokens=tokens, seconds=seconds)
        for prompt, tokens, seconds in tries[:-1]
    ]
    prompt, tokens, seconds = tries[-1]
    replies.append(said('{"word": "w"}', num_prompt_tokens=prompt, num_tokens=tokens, seconds=seconds))
    found, _ = driven(replies)
    assert found.shown == {
        "raw": '{"word": "w"}',
        "num_prompt_tokens": sum(one[0] for one in tries),
        "num_tokens": sum(one[1] for one in tries),
        "seconds": pytest.approx(sum(one[2] for one in tries)),
        "tries": len(tries),
    }


def test_no_verdict_is_unscored_with_its_reason() -> None:
    score = no_verdict("there is no word", {"verdicts": []})
    assert (score.status, score.reason, dict(score.values)) == ("unscored", "no verdict: there is no word", {})
    assert score.details == {"verdicts": []}


def test_line_breaks_may_stand_in_a_reason() -> None:
    """Grammars of servers let models write them as they are: llama-cpp-python's does."""
    assert json_object('{"reason": "one\n\ttwo", "label": "a"}') == {"reason": "one\n\ttwo", "label": "a"}
