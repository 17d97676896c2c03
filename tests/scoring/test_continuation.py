"""``score: continuation``: against lm-eval's output type ``loglikelihood`` and its aggregations."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scorers.continuation import ContinuationScorer, ContinuationSettings
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse, Score
from tests.scoring.helpers import GENERATE, a_sample
from tests.scoring.lm_eval_task import evaluation, lm_eval_task, needs_lm_eval

SCORER = ContinuationScorer(ContinuationSettings())
ROWS = [{"text": "The cat sat on the mat"}, {"text": "Ünder the bridge it is naß"}]


def judge(loglikelihood: float, num_tokens: int = 2, *, is_greedy: bool = False, target: Any = " mat") -> Score:
    response = LoglikelihoodResponse(loglikelihood=loglikelihood, num_tokens=num_tokens, is_greedy=is_greedy)
    return SCORER.score(SCORER.present(a_sample(target)), [response])


def test_the_target_is_asked_for_after_the_delimiter() -> None:
    presented = SCORER.present(a_sample("mat"))
    assert (presented.target, SCORER.answer_text(presented)) == ("mat", "mat")
    assert SCORER.requests(presented, "on the", delimiter=" ", generate=GENERATE) == (
        LoglikelihoodRequest("on the", " mat"),
    )


def test_by_hand() -> None:
    right, wrong = judge(-0.5, is_greedy=True), judge(-3.5, 3, target=" naß")
    assert (right.status, right.answer, right.no_answer) == ("correct", " mat", False)
    assert (wrong.status, wrong.answer, wrong.no_answer) == ("wrong", None, False)
    metrics = summarize([right, wrong], SCORER.metrics)
    assert metrics["accuracy"].value == 0.5
    assert metrics["perplexity"].value == pytest.approx(math.exp(4 / 2))
    assert metrics["token_perplexity"].value == pytest.approx(math.exp(4 / 5))
    assert metrics["bits_per_byte"].value == pytest.approx(4 / math.log(2) / 9)  # ß takes two bytes
    assert [metrics[name].kind for name in SCORER.metrics] == ["proportion", "pooled", "pooled", "pooled"]


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@given(st.lists(st.tuples(st.floats(-60, 0), st.booleans()), min_size=1, max_size=20))
def test_metrics_are_those_of_lm_eval(answers: list[tuple[float, bool]]) -> None:
    from lm_eval.api.metrics import mean, perplexity

    scores = [judge(loglikelihood, is_greedy=greedy) for loglikelihood, greedy in answers]
    metrics = summarize(scores, SCORER.metrics)
    assert metrics["perplexity"].value == pytest.approx(perplexity([answer[0] for answer in answers]), rel=1e-12)
    assert metrics["accuracy"].value == pytest.approx(mean([int(answer[1]) for answer in answers]))


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_requests_are_those_of_lm_evals_lambada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template, target = "{{ text.split(' ')[:-1]|join(' ') }}", "{{ ' ' + text.split(' ')[-1] }}"
    task = lm_eval_task(
        monkeypatch,
        ROWS,
        output_type="loglikelihood",
        metrics=("perplexity", "acc"),
        doc_to_text=template,
        doc_to_target=target,
    )
    rows = json.dumps(ROWS, ensure_ascii=False)
    ours = evaluation(
        tmp_path,
        f"suite: s\nsamples: {rows}\nscore: continuation\nprompt: {{template: \"{template}\", delimiter: ''}}\n"
        f'target: "{target}"\n',
    )
    asked = [ours.question(sample).requests for sample in ours.suite.samples]
    assert asked == [(LoglikelihoodRequest(*instance.args),) for instance in task.instances]
    for greedy in (True, False):
        values = judge(-2.0, is_greedy=greedy).values
        theirs = task.process_results(ROWS[0], [(-2.0, greedy)])
        assert theirs == {"perplexity": values["loglikelihood"], "acc": values["accuracy"]}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["a", "b"], "a list of 2 texts; expected one"),
        (" ", "the target ' ' is empty"),
        (None, "has no target"),
        (True, "which is not text"),
    ],
)
def test_what_is_wrong_with_a_target_is_said(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SCORER.present(a_sample(target))


@pytest.mark.parametrize(
    ("value", "num_tokens", "reason"),
    [
        (-math.inf, 1, "the loglikelihood of the target is -inf"),
        (math.nan, 1, "the loglikelihood of the target is nan"),
        (-1.0, 0, "the model reports 0 tokens in the target"),
    ],
)
def test_what_has_no_likelihood_is_unscored(value: float, num_tokens: int, reason: str) -> None:
    score = judge(value, num_tokens, is_greedy=True)
    assert (score.status, score.reason, score.values) == ("unscored", reason, {})
