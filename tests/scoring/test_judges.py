"""What a scorer says of the model that it asks: a fingerprint beside that of the suite, and no part of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scorers.exact import ExactScorer, ExactSettings
from pytest_llmeval.suites.benchmark import Benchmark, load_benchmark
from pytest_llmeval.suites.loading.loader import load_suite

SEVERAL = "{several: {scorers: {a: {score: exact}, b: {score: mine}, c: {score: other}}}}"


class Callable_:
    def __init__(self, judged_by: object) -> None:
        self.judged_by = judged_by

    def __call__(self, reply: str) -> float:
        return 1.0


def evaluation(folder: Path, score: str, **scorers: Callable[..., Any]) -> Evaluation:
    path = folder / "s.yaml"
    path.write_text(f"suite: s\nsamples: [{{question: a, target: b}}]\nscore: {score}\n", encoding="utf-8")
    return Evaluation(load_suite(path, shown_path="s.yaml", scorers=scorers))


def fingerprint(*judges: str) -> str:
    return hashlib.sha256(json.dumps(list(judges)).encode()).hexdigest()


def test_a_scorer_that_asks_nobody(tmp_path: Path) -> None:
    assert evaluation(tmp_path, "exact").judge is None
    assert evaluation(tmp_path, "mine", mine=lambda reply: 1.0).judge is None


def test_a_function(tmp_path: Path) -> None:
    def mine(reply: str) -> float:
        return 1.0

    before = evaluation(tmp_path, "mine", mine=mine)
    assert before.judge is None
    mine.judged_by = "gpt-x, temperature 0"  # type: ignore[attr-defined]
    after = evaluation(tmp_path, "mine", mine=mine)
    assert after.judge == fingerprint("gpt-x, temperature 0")
    assert after.judged_by == ("gpt-x, temperature 0",)
    assert after.fingerprints() == before.fingerprints()
    assert after.fingerprint_parts() == before.fingerprint_parts()


def test_an_object_that_is_called(tmp_path: Path) -> None:
    first, second = (evaluation(tmp_path, "mine", mine=Callable_(name)) for name in ("one", "two"))
    assert (first.judge, second.judge) == (fingerprint("one"), fingerprint("two"))
    assert first.fingerprints() == second.fingerprints()


def test_a_class_of_the_protocol(tmp_path: Path) -> None:
    class Mine(ExactScorer):
        judged_by = "one"

        def __init__(self) -> None:
            super().__init__(ExactSettings(), ())

    assert evaluation(tmp_path, "mine", mine=Mine).judge == fingerprint("one")


def test_several_and_what_is_around_them(tmp_path: Path) -> None:
    mine, other = Callable_("one"), Callable_("two")
    assert evaluation(tmp_path, SEVERAL, mine=mine, other=other).judge == fingerprint("one", "two")
    text = f"{SEVERAL}\nfilters: [strip]\nepochs: 2\ngenerate: {{temperature: 0.5}}"
    assert evaluation(tmp_path, text, mine=mine, other=lambda reply: 1.0).judge == fingerprint("one")


@pytest.mark.parametrize(("judged_by", "shown"), [(3, "3"), (" ", "' '"), (str, "<class 'str'>")])
def test_what_names_no_judge(tmp_path: Path, judged_by: object, shown: str) -> None:
    with pytest.raises(SuiteError) as caught:
        _ = evaluation(tmp_path, "mine", mine=Callable_(judged_by)).judge
    assert str(caught.value) == (
        f"s.yaml:3: score: the scorer mine: judged_by is {shown}, expected text that names the judge"
    )


def test_a_benchmark() -> None:
    class Judged(Benchmark):
        judged_by = "one"

        def load(self) -> list[dict[str, Any]]:
            return [{"question": "a", "target": "b"}]

    assert Evaluation(load_benchmark(Judged, Path(__file__))).judge == fingerprint("one")
