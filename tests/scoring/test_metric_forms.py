"""Which metrics of one name are one metric."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmeval.scorers.bleu import BleuSettings
from pytest_llmeval.scorers.chrf import ChrfSettings
from pytest_llmeval.scorers.exact import ExactSettings
from pytest_llmeval.scorers.meteor import MeteorSettings
from pytest_llmeval.scorers.rouge import RougeSettings
from pytest_llmeval.scoring.metrics.definitions import metric_form, metric_limits
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import Score


def settings_of(spec: Any) -> dict[str, Any]:
    settings: dict[str, Any] = spec.model_dump(mode="json", exclude={"kind"})
    return settings


def test_bleu_is_defined_by_tokens_and_smoothing_and_not_by_the_orders_beside_it() -> None:
    one, other = (settings_of(BleuSettings(k=k)) for k in ((4,), (1, 2, 3, 4)))
    assert metric_form("bleu_4", "bleu", one) == metric_form("bleu_4", "bleu", other)
    assert metric_form("bleu_4", "bleu", one) == "tokenize 13a, smoothing exp, lowercase false"
    for changed in (BleuSettings(tokenize="zh"), BleuSettings(smoothing="none"), BleuSettings(lowercase=True)):
        assert metric_form("sentence_bleu_2", "bleu", settings_of(changed)) != metric_form("bleu_4", "bleu", one)


@pytest.mark.parametrize(
    ("name", "scorer", "one", "other"),
    [
        ("chrf_pp", "chrf", ChrfSettings(), ChrfSettings(beta=3)),
        ("rouge_lsum", "rouge", RougeSettings(), RougeSettings(stemmer=True)),
        ("meteor", "meteor", MeteorSettings(), MeteorSettings(synonyms=False)),
    ],
)
def test_what_changes_a_formula_changes_the_metric(name: str, scorer: str, one: Any, other: Any) -> None:
    assert metric_form(name, scorer, settings_of(one)) != metric_form(name, scorer, settings_of(other))


def test_how_an_answer_is_found_is_no_part_of_accuracy() -> None:
    assert metric_form("accuracy", "exact", settings_of(ExactSettings())) == ""
    assert metric_form("accuracy", "choice", {"normalize": "char", "filters": [{"kind": "lower"}]}) == ""


def test_of_several_scorers_it_is_the_one_that_gives_the_metric() -> None:
    settings: dict[str, Any] = {
        "decides": "zh",
        "scorers": {
            "plain": {"score": {"kind": "bleu", **settings_of(BleuSettings())}},
            "zh": {"score": {"kind": "bleu", **settings_of(BleuSettings(tokenize="zh"))}},
        },
    }
    assert metric_form("bleu_4", "several", settings).startswith("tokenize zh")
    assert metric_form("plain.bleu_4", "several", settings).startswith("tokenize 13a")


def test_a_metric_of_the_users_own_is_its_scorers() -> None:
    assert metric_form("rating", "within", {"tolerance": 0.1}) == "within, tolerance 0.1"
    assert metric_form("score", "within", {"tolerance": 0.1}) != metric_form("score", "near", {"tolerance": 0.1})
    assert metric_form("rating", None, {}) == "", "hand-written tests that give one name mean one thing"


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("aspects", (2.0, 7.0)),
        ("aspect_clarity", (2.0, 7.0)),
        ("judge.1.aspects", (2.0, 7.0)),
        ("corrected_aspects", (2.0, 7.0)),
        ("judge.human_mean", (2.0, 7.0)),
        ("accuracy", None),
        ("judge.1.dissent", None),
    ],
)
def test_ratings_lie_on_their_scale(name: str, limits: tuple[float, float] | None) -> None:
    assert metric_limits(name, "aspects", {"scale": [2, 7]}) == limits
    assert metric_limits(name, "aspects", {"scale": None}) is None
    several: dict[str, Any] = {"scorers": {"b": {"score": {"kind": "aspects", "scale": [2, 7]}}}}
    assert metric_limits(f"b.{name}", "several", several) == (None if name.startswith("judge") else limits)


def test_an_interval_of_ratings_ends_where_their_scale_does() -> None:
    scores = [Score(status="scored", values={"aspects": value}) for value in (5.0, 5.0, 4.0, 1.0)]
    free, held = summarize(scores, ["aspects"]), summarize(scores, ["aspects"], limits={"aspects": (1.0, 5.0)})
    assert free["aspects"].ci_high is not None
    assert free["aspects"].ci_high > 5
    assert held["aspects"].ci_high == 5
    equal = summarize(scores[:3], ["aspects"], limits={"aspects": (1.0, 5.0)})["aspects"]
    assert equal.ci_low is not None
    assert (1 < equal.ci_low < 5, equal.ci_high) == (True, 5)
