"""Functions and classes of a user as scorers: what they are asked, what their answers mean, what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pytest
import torch

from pytest_llmeval.errors import LeftOutError, RequestError
from pytest_llmeval.evaluation.part import Part
from pytest_llmeval.evaluation.pipeline import Pipeline
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, Scorer, SettingsError, reply_request
from pytest_llmeval.scoring.custom import CustomSettings, make_custom_scorer
from pytest_llmeval.scoring.epochs import EpochsSpec
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Prompt, Response, Sample, Score

SAMPLE = Sample(id="a", path="x.yaml", line=1, question="q", target="t")


def scorer_of(registered: Callable[..., Any], **settings: Any) -> Scorer:
    return make_custom_scorer(CustomSettings(name="mine", settings=settings), {"mine": registered})


def score(registered: Callable[..., Any], **settings: Any) -> Score:
    scorer = scorer_of(registered, **settings)
    return scorer.score(scorer.present(SAMPLE), [GenerateResponse(text=" some reply ")])


@pytest.mark.parametrize(
    ("value", "status", "values"),
    [
        (np.bool_(True), "correct", {"accuracy": 1.0}),
        (torch.tensor(True), "correct", {"accuracy": 1.0}),
        (torch.tensor(False), "wrong", {"accuracy": 0.0}),
        (np.float32(0.5), "scored", {"score": 0.5}),
        (torch.tensor([0.5]), "scored", {"score": 0.5}),
        ({"words": np.int64(3), "f": torch.tensor(0.25)}, "scored", {"words": 3.0, "f": 0.25}),
        ({"accuracy": np.bool_(True)}, "correct", {"accuracy": 1.0}),
        ({"accuracy": 0, "words": 2}, "wrong", {"accuracy": 0.0, "words": 2.0}),
    ],
)
def test_what_a_value_means(value: object, status: str, values: Mapping[str, float]) -> None:
    found = score(lambda reply: value)
    assert (found.status, found.values) == (status, values)
    assert {type(number) for number in found.values.values()} == {float}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"accuracy": 0.5}, "accuracy is 0.5, expected 1 or 0, *"),
        ({}, "returned an empty mapping, expected True or False, *"),
        ({"": 1}, "'' is not a valid name of a metric, expected text on one line *"),
        ({"x\nb": 1}, r"'x\nb' is not a valid name of a metric, *"),
        ({" x": 1}, "' x' is not a valid name of a metric, *"),
        ({1: 1}, "1 is not a valid name of a metric, *"),
        ({"x": "1"}, "x is '1', expected a finite number"),
        ({"x": np.array([1, 2])}, "x is array[(][[]1, 2[]][)], expected a finite number"),
        ({"x": 10**400}, "x is 1000*, expected a finite number"),
        (float("nan"), "score is nan, expected a finite number"),
        (np.array([1, 2]), "returned a ndarray, expected *"),
        ("yes", "returned a str, expected *"),
    ],
)
def test_values_without_a_meaning(value: object, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        score(lambda reply: value)
    assert "\n" not in str(caught.value)
    assert fnmatch(str(caught.value), f"the scorer mine*{message}"), caught.value


def test_a_message_of_two_lines_is_shown_on_one() -> None:
    def raises(reply: str) -> bool:
        raise RuntimeError("one\n  two\n" + "x" * 1000)

    with pytest.raises(RequestError, match=r"^the scorer mine raised RuntimeError: one two x+…$"):
        score(raises)


def test_a_request_error_of_the_function_names_it() -> None:
    def raises(reply: str) -> bool:
        raise RequestError("no judge")

    with pytest.raises(RequestError, match=r"^the scorer mine: no judge$"):
        score(raises)


# Settings


def needs(reply: str, x: int) -> bool:
    return bool(x)


def by_place(answer: str, expected: str, limit: int) -> bool:
    return (answer, expected, limit) == (" some reply ", "t", 3)


@pytest.mark.parametrize(("function", "name"), [(needs, "x"), (by_place, "limit")])
def test_a_setting_without_a_default_is_required(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(SettingsError, match=f"^the setting '{name}' is missing$") as caught:
        scorer_of(function)
    assert caught.value.keys == ("mine",)
    assert score(function, **{name: 3}).status == "correct"


def test_what_is_offered_is_no_setting() -> None:
    with pytest.raises(ValueError, match=r"unknown key 'reply' in score\.mine"):
        scorer_of(lambda reply, **others: True, reply="x")
    with pytest.raises(ValueError, match=r"unknown key 'answer' in score\.mine"):
        scorer_of(by_place, answer="x", limit=3)


def test_a_function_that_names_nothing_offered() -> None:
    assert score(lambda answer: answer == " some reply ").status == "correct"
    assert score(lambda *both: both == (" some reply ", "t")).status == "correct"
    assert score(lambda answer=None, *, strict=False: bool(answer)).status == "correct"


# Classes of the Protocol


class Whole:
    """A scorer as the Protocol has it."""

    name = "whole"
    version = 1
    metrics = ("accuracy",)
    default_template = "{{ question }}"

    def __init__(self, **raised: Any) -> None:
        self.raised = raised

    def _step(self, name: str, value: Any) -> Any:
        found = self.raised.get(name, value)
        if isinstance(found, Exception):
            raise found
        return found

    def present(self, sample: Sample) -> Any:
        return self._step("present", PreparedSample(sample=sample, target="t"))

    def variables(self, presented: PreparedSample) -> Any:
        return self._step("variables", {"x": 1})

    def answer_text(self, presented: PreparedSample) -> Any:
        return self._step("answer_text", "t")

    def requests(self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec) -> Any:
        return self._step("requests", (reply_request(prompt, generate),))

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Any:
        return self._step("score", Score(status="correct", values={"accuracy": 1.0}))


def run_all(scorer: Scorer) -> Score:
    presented = scorer.present(SAMPLE)
    scorer.variables(presented)
    scorer.answer_text(presented)
    (request,) = scorer.requests(presented, "q", delimiter=" ", generate=GenerateSpec())
    assert isinstance(request, GenerateRequest)
    return scorer.score(presented, [GenerateResponse(text="x")])


def test_a_class_does_what_it_says() -> None:
    assert run_all(scorer_of(Whole)).status == "correct"
    scorer = scorer_of(Whole)
    assert (scorer.name, scorer.version, scorer.metrics, scorer.default_template) == (
        "whole",
        1,
        ("accuracy",),
        "{{ question }}",
    )


@pytest.mark.parametrize(
    ("step", "value", "kind", "message"),
    [
        ("present", KeyError("row"), ValueError, "present raised KeyError: 'row'"),
        ("present", None, ValueError, "present returned a NoneType, expected a PreparedSample"),
        ("present", ValueError("no row"), ValueError, "no row"),
        ("variables", KeyError("row"), SettingsError, "variables raised KeyError: 'row'"),
        ("answer_text", 3, ValueError, "answer_text returned a int, expected a str"),
        ("requests", TypeError("a\nb"), ValueError, "requests raised TypeError: a b"),
        ("requests", ["x"], ValueError, "requests returned a list, expected a tuple"),
        ("requests", ("x",), ValueError, "requests returned a tuple with 'x' in it"),
        ("score", ValueError("oops"), RequestError, "score raised ValueError: oops"),
        ("score", True, RequestError, "score returned a bool, expected a Score"),
        ("score", RequestError("no judge"), RequestError, "no judge"),
    ],
)
def test_what_a_class_does_wrong_names_it(step: str, value: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        run_all(scorer_of(Whole, **{step: value}))
    assert str(caught.value).startswith("the scorer mine: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sample_that_a_class_leaves_out() -> None:
    with pytest.raises(LeftOutError, match=r"^not today$"):
        run_all(scorer_of(Whole, score=LeftOutError("not today")))


class Partial(Whole):
    metrics = "accuracy"  # type: ignore[assignment]


class NoTemplate:
    name, version, metrics = "x", 1, ()
    present = variables = answer_text = requests = score = Whole.score


class Asks(Whole):
    def __init__(self, limit: int) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("registered", "message"),
    [
        (NoTemplate, "score.mine: the class NoTemplate has no default_template, which a scorer has"),
        (Partial, "score.mine: the class Partial has the metrics 'accuracy', expected a tuple of names"),
        (Asks, "the setting 'limit' is missing"),
    ],
)
def test_a_class_that_is_no_scorer(registered: type, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        scorer_of(registered)


class Shortest(Scorer):
    """A class that leaves all but its judgement to the base class."""

    name = "shortest"
    metrics = ("words",)
    better: Mapping[str, Any] = {"words": "lower"}

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        (response,) = responses
        assert isinstance(response, GenerateResponse)
        return Score(status="scored", values={"words": float(len(response.text.split()))})


def test_a_class_of_the_base_class() -> None:
    scorer = scorer_of(Shortest)
    assert (scorer.metrics, scorer.better, scorer.tells_right_from_wrong) == (("words",), {"words": "lower"}, None)
    assert score(Shortest).values == {"words": 2.0}
    (request,) = scorer.requests(scorer.present(SAMPLE), "p", delimiter="", generate=GenerateSpec())
    assert isinstance(request, GenerateRequest)


def test_directions_under_several_scorers_and_epochs() -> None:
    inner = scorer_of(Shortest)
    several = Pipeline((Part("a", inner), Part("b", inner)))
    assert several.better == {"words": "lower", "b.words": "lower"}
    assert Part("", inner, epochs=EpochsSpec(count=3, reduce=("mean", "mode"))).better == {
        "words": "lower",
        "mode.words": "lower",
    }
    reply = GenerateResponse(text="two words")
    for threshold, status in ((2.0, "correct"), (1.0, "wrong")):
        epochs = EpochsSpec(count=1, reduce=("first",), threshold=threshold)
        scorer = Pipeline((Part("", inner, epochs=epochs),))
        assert scorer.score(scorer.present(SAMPLE), [reply]).status == status


def test_the_version_of_a_class_is_its_own_or_that_of_its_sources() -> None:
    class Versioned(Shortest):
        version = 5

    assert scorer_of(Versioned).version == 5
    assert scorer_of(Shortest).version not in (1, 5)


@pytest.mark.parametrize("better", [{"words": "less"}, ["words"], 3])
def test_a_direction_that_is_none(better: object) -> None:
    def judge(reply: str) -> float:
        return 1.0

    judge.better = better  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"^score\.mine: better is .*, expected higher or lower for each metric$"):
        scorer_of(judge)
