"""Scorers around a scorer pass on all that a scorer has: one part forgotten is lost without a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.evaluation.part import Part
from pytest_llmeval.evaluation.pipeline import Pipeline, make_scorer
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, Scorer, SuiteView, reply_request
from pytest_llmeval.scoring.custom import CheckedScorer, CustomSettings
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import Ask, GenerateRequest, GenerateResponse, Prompt, Response, Sample, Score

PARTS = sorted(name for name in vars(Scorer) if not name.startswith("_"))
SAMPLE = Sample(id="a", path="x.yaml", line=1, question="q", target="t")


class Mine(Scorer):
    """A scorer with something of its own in every place."""

    name = "mine"
    version = 7
    metrics = ("accuracy", "words")
    better = {"words": "lower"}  # noqa: RUF012
    default_template = "{{ target }}"
    extra_template = ("{{ question }}!", ("score",))
    tells_right_from_wrong = False
    roles = frozenset(("judge",))
    scores_recorded_replies = True
    reads_documents = True

    def present(self, sample: Sample) -> PreparedSample:
        return PreparedSample(sample=sample, target="mine")

    def variables(self, presented: PreparedSample) -> dict[str, object]:
        return {"mine": 1}

    def answer_text(self, presented: PreparedSample) -> str:
        return f"answer {presented.target}"

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[GenerateRequest, ...]:
        return (reply_request(f"{prompt}{presented.continuation}", generate, max_tokens=3),)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        return Score(status="wrong", answer=presented.continuation, values={"accuracy": 0.0, "words": 3.0})

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        (answer,) = yield Ask("judge", (GenerateRequest("own"),))
        return Score(status="correct", answer=answer.text if isinstance(answer, GenerateResponse) else None)

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        return "not this suite", ("score",)

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        return [("few samples", ("mine",))]

    def options(self, presented: PreparedSample) -> tuple[tuple[str, ...], tuple[int, ...]]:
        return ("x", "y"), (1,)

    def judges(self) -> list[str]:
        return ["a judge"]

    def versions(self) -> list[Any]:
        return ["mine", 99]


def _score(scorer: Any, presented: PreparedSample) -> str:
    """The status; of several, which ask where one of them does, that of the answer to what they ask."""
    if isinstance(scorer, Pipeline):
        return str(scorer.parts[0].scorer.score(presented, [GenerateResponse(text="r")]).status)
    return str(scorer.score(presented, [GenerateResponse(text="r")]).status)


def asked(asking: JudgeSteps) -> tuple[Ask, str]:
    """What it asks, and its score's answer."""
    ask = next(asking)
    with pytest.raises(StopIteration) as stop:
        asking.send([GenerateResponse(text="said")])
    return ask, stop.value.value.answer


WAYS_TO_USE: dict[str, Callable[[Any, PreparedSample], object]] = {
    "present": lambda scorer, presented: scorer.present(SAMPLE).target,
    "variables": lambda scorer, presented: scorer.variables(presented),
    "answer_text": lambda scorer, presented: scorer.answer_text(presented),
    "requests": lambda scorer, presented: scorer.requests(presented, "p", delimiter="", generate=GenerateSpec()),
    "score": lambda scorer, presented: _score(scorer, presented),
    "asking": lambda scorer, presented: asked(scorer.asking(presented, [GenerateResponse(text="r")])),
    "suite_problem": lambda scorer, presented: scorer.suite_problem(None),
    "warnings": lambda scorer, presented: [text for text, _ in scorer.warnings([SAMPLE])],
    "options": lambda scorer, presented: scorer.options(presented),
    "judges": lambda scorer, presented: scorer.judges(),
    "versions": lambda scorer, presented: "99" in str(scorer.versions()),
}
UNLIKE = {("several", "name"), ("several", "version"), ("several", "suite_problem")}
"""A scorer of several has a name and version of its own, and its scorers' keys stand below its own."""


def checked() -> Scorer:
    return make_scorer(CustomSettings(name="mine", settings={}), {"mine": Mine})


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("outer", ["checked", "pipeline", "several"])
def test_every_part_of_a_scorer_is_passed_on(outer: str, part: str) -> None:
    made: dict[str, Scorer] = {
        "checked": checked(),
        "pipeline": Pipeline((Part("", Mine()),)),
        "several": Pipeline((Part("a", Mine()),)),
    }
    found = []
    for scorer in (Mine(), made[outer]):
        use = WAYS_TO_USE.get(part)
        found.append(getattr(scorer, part) if use is None else use(scorer, scorer.present(SAMPLE)))
    assert (found[0] == found[1]) is ((outer, part) not in UNLIKE)
    assert part in WAYS_TO_USE or not callable(getattr(Mine, part)), "a method that this test does not call"


def test_what_the_class_has_of_its_own_differs_from_the_base_class() -> None:
    assert isinstance(checked(), CheckedScorer)
    assert set(PARTS) <= set(vars(Mine))


def evaluation(folder: Path, kind: type, score: str = "mine") -> Evaluation:
    path = folder / "s.yaml"
    path.write_text(f"suite: s\nsamples: [{{question: q, target: t}}]\nscore: {score}\n")
    return Evaluation(load_suite(path, scorers={"mine": kind}))


class Usable(Mine):
    suite_problem = Scorer.suite_problem
    asking = Scorer.asking
    roles = Scorer.roles


SEVERAL = "{several: {scorers: {a: {score: mine}, b: {score: mine}}}}"


@pytest.mark.parametrize("score", ["mine", SEVERAL])
def test_a_suite_uses_what_a_class_says(tmp_path: Path, score: str) -> None:
    made = evaluation(tmp_path, Usable, score)
    question = made.question(made.suite.samples[0])
    assert question.requests[0].prompt == "tq!"  # type: ignore[union-attr]
    assert made.score(question, [GenerateResponse(text="r")]).answer == "q!"
    assert made.warnings()[0].endswith("few samples")
    with pytest.raises(SuiteError, match=r"s\.yaml:3: score(\.several\.scorers\.a\.score)?: not this suite$"):
        evaluation(tmp_path, Mine, score)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("suite_problem", lambda self, suite: "no", "suite_problem raised TypeError: expected a text and a tuple of"),
        ("extra_template", ("{{ nosuch", ("score",)), "score: .*"),
        ("extra_template", "{{ question }}", "extra_template raised TypeError: expected a text and a tuple of keys, "),
        ("versions", lambda self: [object()], "versions raised TypeError: Object of type object is not JSON"),
        ("warnings", lambda self, samples: ["few"], "warnings raised TypeError: expected a text and a tuple of keys, "),
        ("variables", property(lambda self: 1 / 0), "ZeroDivisionError"),
    ],
)
def test_what_a_class_says_wrongly_is_an_error_of_the_suite(
    tmp_path: Path, name: str, value: object, message: str
) -> None:
    kind = type("Wrong", (Usable,), {name: value})

    def use() -> None:
        made = evaluation(tmp_path, kind)
        made.fingerprints()
        made.warnings()

    with pytest.raises(SuiteError, match=rf"s\.yaml:\d: .*{message}"):
        use()


def test_two_scorers_of_different_continuations(tmp_path: Path) -> None:
    class Other(Usable):
        extra_template = ("{{ target }}", ("score",))

    path = tmp_path / "s.yaml"
    several = SEVERAL.replace("b: {score: mine", "b: {score: other")
    path.write_text(f"suite: s\nsamples: [{{question: q, target: t}}]\nscore: {several}\n")
    with pytest.raises(SuiteError, match=r"scorers\.b: scores another text after the options than a$"):
        Evaluation(load_suite(path, scorers={"mine": Usable, "other": Other}))
