"""Further metrics of ``score: choice``, and ``normalize: pmi``: against lm-eval's task and scikit-learn."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import f1_score, matthews_corrcoef

from pytest_llmeval.scorers.choice import ChoiceMetric, ChoiceScorer, ChoiceSettings
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse, Score
from tests.properties import examples
from tests.scoring.helpers import GENERATE, a_sample
from tests.scoring.lm_eval_task import evaluation, lm_eval_task, needs_lm_eval

CLASSES: tuple[ChoiceMetric, ...] = ("f1_binary", "f1_macro", "f1_micro", "f1_weighted", "mcc")
ROWS = [
    {"q": "Capital of France?", "options": ["Rome", "Paris", "Ürgüp"], "gold": 1},
    {"q": "Capital of Italy? ", "options": ["Rome", "Paris", "Ürgüp"], "gold": 0},
    {"q": "A town?", "options": ["Rome", "Paris", "Ürgüp"], "gold": 2},
]
SUITE = (
    f"suite: s\nsamples: {json.dumps(ROWS, ensure_ascii=False)}\nchoices: options\ntarget: gold\n"
    'prompt: {template: "Q: {{ q }}\\nA:"}\nscore: '
)
ANSWERS = st.lists(st.tuples(st.floats(-60, -0.01), st.booleans()), min_size=6, max_size=6)


def responses_of(answers: list[tuple[float, bool]]) -> list[LoglikelihoodResponse]:
    return [LoglikelihoodResponse(loglikelihood=ll, num_tokens=2, is_greedy=greedy) for ll, greedy in answers]


def judge(settings: ChoiceSettings, target: int | list[int], answers: list[tuple[float, bool]]) -> Score:
    scorer = ChoiceScorer(settings)
    count = len(answers) // (2 if settings.normalize == "pmi" else 1)
    presented = scorer.present(a_sample(target, [f"option {index}" for index in range(count)]))
    return scorer.score(presented, responses_of(answers))


def test_pmi_asks_for_each_option_without_a_prompt_too() -> None:
    scorer = ChoiceScorer(ChoiceSettings(normalize="pmi"))
    presented = scorer.present(a_sample(1, ["Rome", "Paris"]))
    assert scorer.requests(presented, "Capital?", delimiter=" ", generate=GENERATE) == (
        LoglikelihoodRequest("Capital?", " Rome"),
        LoglikelihoodRequest("Capital?", " Paris"),
        LoglikelihoodRequest("", " Rome"),
        LoglikelihoodRequest("", " Paris"),
    )


def test_accuracy_by_pmi_beside_another_one() -> None:
    settings = ChoiceSettings(normalize="sum", metrics=("accuracy_pmi",))
    scorer = ChoiceScorer(settings)
    presented = scorer.present(a_sample(1, ["Rome", "Paris"]))
    asked = scorer.requests(presented, "Capital?", delimiter=" ", generate=GENERATE)
    assert [request.context for request in asked if isinstance(request, LoglikelihoodRequest)] == ["Capital?"] * 2 + [
        ""
    ] * 2
    # As by hand below: the sums say the first, the prompt raises the second.
    score = scorer.score(presented, responses_of([(-2.0, False), (-3.0, False), (-1.0, False), (-5.0, False)]))
    assert (score.status, score.values["accuracy"], score.values["accuracy_pmi"]) == ("wrong", 0.0, 1.0)
    assert score.values["accuracy_pmi_first"] == 1.0
    assert score.details["probabilities"] == pytest.approx(softmax([-2.0, -3.0]))
    assert len(set(scorer.metrics)) == len(scorer.metrics)
    with pytest.raises(ValueError, match="found a continuation with the metric accuracy_pmi"):
        ChoiceSettings(continuation="x", metrics=("accuracy_pmi",))


def test_pmi_by_hand() -> None:
    # Given the prompt -2 and -3; alone -1 and -5: the prompt lowers the first by 1 and raises the second by 2.
    score = judge(ChoiceSettings(normalize="pmi"), 1, [(-2.0, False), (-3.0, False), (-1.0, False), (-5.0, False)])
    assert (score.status, score.answer) == ("correct", "option 1")
    assert (score.values["accuracy_pmi"], score.values["accuracy_sum"]) == (1.0, 0.0)
    assert score.details["probabilities"] == pytest.approx(softmax([-1.0, 2.0]))
    assert score.details["loglikelihoods"] == [-2.0, -3.0]
    assert score.details["loglikelihoods_alone"] == [-1.0, -5.0]


def test_accuracy_by_pmi_is_a_metric_only_where_it_was_asked_for() -> None:
    assert "accuracy_pmi" in ChoiceScorer(ChoiceSettings(normalize="pmi")).metrics
    assert "accuracy_pmi" not in ChoiceScorer(ChoiceSettings()).metrics
    assert "accuracy_pmi" not in judge(ChoiceSettings(), 0, [(-1.0, False), (-2.0, False)]).values


def test_an_option_that_cannot_stand_alone_is_unscored() -> None:
    answers = [(-2.0, False), (-math.inf, False), (-1.0, False), (-math.inf, False)]
    score = judge(ChoiceSettings(normalize="pmi"), 0, answers)
    assert (score.status, score.values) == ("unscored", {})
    assert score.reason == "the loglikelihood of option 'option 1' without a prompt is -inf"


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30), deadline=None)
@given(st.lists(ANSWERS, min_size=3, max_size=3))
def test_requests_and_metrics_are_those_of_lm_eval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[list[tuple[float, bool]]]
) -> None:
    task = lm_eval_task(
        monkeypatch,
        ROWS,
        metrics=("acc", "acc_norm", "acc_bytes", "exact_match", "brier_score", "mcc", "acc_mutual_info"),
        doc_to_text="Q: {{q}}\nA:",
        doc_to_choice="options",
        doc_to_target="gold",
    )
    ours = evaluation(tmp_path, SUITE + "{choice: {normalize: pmi, ties: first, metrics: [mcc, greedy_match]}}\n")
    by_sum = evaluation(tmp_path, SUITE + "{choice: {normalize: sum, ties: first, metrics: [mcc]}}\n")
    questions = [ours.question(sample) for sample in ours.suite.samples]
    asked = [request for question in questions for request in question.requests]
    assert asked == [LoglikelihoodRequest(*instance.args) for instance in task.instances]
    theirs: dict[str, list[object]] = {}
    scores = []
    for row, question, sample, found in zip(ROWS, questions, by_sum.suite.samples, answers, strict=True):
        judged = task.process_results(row, found)
        for name, value in judged.items():
            theirs.setdefault(name, []).append(value)
        values = ours.score(question, responses_of(found)).values
        assert values["accuracy_sum_first"] == judged["acc"]
        assert values["accuracy_char_first"] == judged["acc_norm"]
        assert values["accuracy_byte_first"] == judged["acc_bytes"]
        assert values["accuracy_pmi_first"] == judged["acc_mutual_info"] == values["accuracy"]
        assert values["greedy_match"] == judged["exact_match"]
        scores.append(by_sum.score(by_sum.question(sample), responses_of(found[:3])))
    aggregate = task.aggregation()
    metrics = summarize(scores, by_sum.scorer.metrics)
    assert metrics["brier_sum"].value == pytest.approx(aggregate["brier_score"](theirs["brier_score"]))
    assert metrics["mcc"].value == pytest.approx(aggregate["mcc"](theirs["mcc"]))


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30))
@settings(max_examples=examples(30))
def test_classification_is_that_of_scikit_learn(pairs: list[tuple[bool, bool]]) -> None:
    chosen = ChoiceSettings(metrics=CLASSES)
    scores = [
        judge(chosen, int(gold), [(-2.0, False), (-1.0 if predicted else -3.0, False)]) for gold, predicted in pairs
    ]
    golds, predictions = [int(gold) for gold, _ in pairs], [int(predicted) for _, predicted in pairs]
    metrics = summarize(scores, ChoiceScorer(chosen).metrics)
    assert metrics["f1_binary"].value == pytest.approx(f1_score(golds, predictions, zero_division=0))
    assert metrics["f1_macro"].value == pytest.approx(f1_score(golds, predictions, average="macro", zero_division=0))
    assert metrics["f1_micro"].value == pytest.approx(f1_score(golds, predictions, average="micro"))
    weighted = f1_score(golds, predictions, average="weighted", zero_division=0)
    assert metrics["f1_weighted"].value == pytest.approx(weighted)
    assert metrics["mcc"].value == pytest.approx(matthews_corrcoef(golds, predictions))


def test_classes_and_greedy_matches_are_kept_only_where_they_are_asked_for() -> None:
    answers = [(-1.0, True), (-2.0, False), (-3.0, False)]
    assert {"gold", "predicted", "greedy_match"}.isdisjoint(judge(ChoiceSettings(), 0, answers).values)
    greedy = judge(ChoiceSettings(metrics=("greedy_match",)), 0, answers).values
    assert (greedy["greedy_match"], "gold" in greedy) == (1.0, False)
    several = judge(ChoiceSettings(metrics=("mcc", "greedy_match")), [1, 2], answers).values
    assert (several["gold"], several["predicted"], several["greedy_match"]) == (1.0, 0.0, 0.0)
    predicted = judge(ChoiceSettings(metrics=("mcc",)), [0, 2], answers).values
    assert (predicted["gold"], predicted["predicted"]) == (0.0, 0.0)


def test_of_several_right_options_greedy_decoding_may_write_any() -> None:
    score = judge(ChoiceSettings(metrics=("greedy_match",)), [1, 2], [(-1.0, False), (-2.0, False), (-3.0, True)])
    assert (score.values["greedy_match"], score.status) == (1.0, "wrong")


@pytest.mark.parametrize("target", [3, [0, 3], "Nice", [0, 1, 2]])
def test_what_lm_eval_counts_as_wrong_is_refused(target: object) -> None:
    with pytest.raises(ValueError, match=r"out of range|not among the choices|all 3 choices are right"):
        ChoiceScorer(ChoiceSettings()).present(a_sample(target, ["Rome", "Paris", "Ürgüp"]))
