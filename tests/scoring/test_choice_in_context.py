"""``score.choice.continuation``: options end the prompt, and one text is scored after each; against lm-eval."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scorers.choice import ChoiceScorer, ChoiceSettings
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse, Message
from tests.properties import examples
from tests.scoring.helpers import GENERATE, a_sample
from tests.scoring.lm_eval_task import evaluation, lm_eval_task, needs_lm_eval

ROWS = [
    {"sentence": "Ann thanked Bea because _ had helped.", "option1": "Ann", "option2": "Bea", "answer": "2"},
    {
        "sentence": "The cup fits in the bag, for _  is small.",
        "option1": "the cup",
        "option2": "the bag",
        "answer": "1",
    },
    {"sentence": "_ sank, not the Ärger.", "option1": "The ship", "option2": "Die Fähre", "answer": "1"},
]
SHOTS = [
    {"sentence": "Tom beat Tim because _ was strong.", "option1": "Tom", "option2": "Tim", "answer": "1"},
    {"sentence": "Eve called Una since _ was ill.", "option1": "Eve", "option2": "Una", "answer": "2"},
]
FIELDS = """\
dataset:
  path: rows.json
  fields:
    beginning: "{{ sentence.partition('_')[0] }}"
    rest: "{{ sentence.partition('_')[2].strip() }}"
choices: ["{{ beginning }}{{ option1 }}", "{{ beginning }}{{ option2 }}"]
target: "{{ answer | int - 1 }}"
"""
SCORE = 'score: {choice: {normalize: sum, continuation: "{{ rest }}", metrics: [greedy_match]}}\n'
FEWSHOT = 'prompt: {fewshot: {count: 2, path: shots.json, sampler: first_n, template: "{{ choices[target] }}"}}\n'


def write_rows(folder: Path) -> None:
    (folder / "rows.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (folder / "shots.json").write_text(json.dumps(SHOTS), encoding="utf-8")


def requests_of(folder: Path, text: str) -> list[tuple[str, str]]:
    found = evaluation(folder, text)
    asked = []
    for sample in found.suite.samples:
        for request in found.question(sample).requests:
            assert isinstance(request, LoglikelihoodRequest)
            assert isinstance(request.context, str)
            asked.append((request.context, request.continuation))
    return asked


def test_options_end_the_prompt_and_the_text_follows(tmp_path: Path) -> None:
    write_rows(tmp_path)
    assert requests_of(tmp_path, "suite: w\n" + SCORE + FIELDS)[:2] == [
        ("Ann thanked Bea because Ann", " had helped."),
        ("Ann thanked Bea because Bea", " had helped."),
    ]
    text = "suite: w\nprompt: {template: 'Fill in. ', delimiter: '|'}\n" + SCORE + FIELDS
    assert requests_of(tmp_path, text)[2] == ("Fill in. The cup fits in the bag, for the cup", "|is small.")


def winogrande_task(monkeypatch: pytest.MonkeyPatch, *, with_shots: bool) -> Any:
    from lm_eval.tasks.winogrande import preprocess_winogrande

    return lm_eval_task(
        monkeypatch,
        ROWS,
        SHOTS if with_shots else (),
        metrics=("acc", "acc_norm", "acc_bytes", "exact_match", "brier_score"),
        doc_to_text=preprocess_winogrande.doc_to_text,
        doc_to_target=preprocess_winogrande.doc_to_target,
        doc_to_choice=preprocess_winogrande.doc_to_choice,
    )


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("with_shots", [False, True])
def test_requests_are_those_of_lm_evals_winogrande(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_shots: bool
) -> None:
    task = winogrande_task(monkeypatch, with_shots=with_shots)
    write_rows(tmp_path)
    text = "suite: w\n" + (FEWSHOT if with_shots else "") + SCORE + FIELDS
    assert requests_of(tmp_path, text) == [instance.args for instance in task.instances]


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50), deadline=None)
@given(answers=st.lists(st.tuples(st.floats(-60, -0.01), st.booleans()), min_size=2, max_size=2))
def test_metrics_are_those_of_lm_evals_winogrande(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[tuple[float, bool]]
) -> None:
    task = winogrande_task(monkeypatch, with_shots=False)
    write_rows(tmp_path)
    ours = evaluation(tmp_path, "suite: w\n" + SCORE + FIELDS)
    responses = [LoglikelihoodResponse(loglikelihood=ll, num_tokens=3, is_greedy=greedy) for ll, greedy in answers]
    for row, sample in zip(ROWS, ours.suite.samples, strict=True):
        theirs = task.process_results(row, answers)
        gold, probabilities = theirs.pop("brier_score")
        values = ours.score(ours.question(sample), responses).values
        assert theirs == {
            "acc": values["accuracy_sum_first"],
            "acc_norm": values["accuracy_char_first"],
            "acc_bytes": values["accuracy_byte_first"],
            "exact_match": values["greedy_match"],
        }
        assert values["accuracy"] == values["accuracy_sum"]
        assert task.aggregation()["brier_score"]([(gold, probabilities)]) == pytest.approx(values["brier_sum"])


def test_in_a_chat_the_option_ends_the_users_last_turn() -> None:
    scorer = ChoiceScorer(ChoiceSettings(continuation="{{ rest }}"))
    presented = scorer.present(a_sample(1, ["the cup", "the bag"]))
    chat = (Message(role="user", content="Fill in: "), Message(role="assistant", content="So:"))
    with pytest.raises(ValueError, match="continuation is empty"):
        scorer.requests(presented, chat, delimiter="", generate=GENERATE)
    ready = replace(presented, continuation="is small.")
    assert scorer.requests(ready, chat, delimiter="", generate=GENERATE)[1] == LoglikelihoodRequest(
        (Message(role="user", content="Fill in: the bag"), chat[1]), "is small."
    )
    with pytest.raises(ValueError, match="needs a user turn"):
        scorer.requests(ready, chat[1:], delimiter="", generate=GENERATE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{{ rest }}", "{{ rest"), r"suite\.yaml:3: score\.choice\.continuation: line 1 of the template: "),
        (("{{ rest }}", "{{ rset }}"), r"suite\.yaml:3: score\.choice\.continuation: sample '1' .*'rset' is undefined"),
        (("{{ rest }}", " "), r"sample '1': score\.choice\.continuation is empty: there is nothing"),
        (("normalize: sum", "normalize: pmi"), r"suite\.yaml:3: .*found a continuation with normalize 'pmi'"),
        (('template: "{{ choices[target] }}"', "seed: 1"), r"suite\.yaml:2: prompt\.fewshot: found no template; with"),
        (("prompt: {", "prompt: {prefix: 'So:', "), r"suite\.yaml:2: prompt\.prefix: found text, but with"),
        (("[greedy_match]", "[gredy_match]"), r"suite\.yaml:3: .*'gredy_match'"),
    ],
)
def test_what_is_wrong_is_said_at_its_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    write_rows(tmp_path)
    text = "suite: w\n" + FEWSHOT + SCORE + FIELDS
    assert change[0] in text
    with pytest.raises(SuiteError, match=message):
        evaluation(tmp_path, text.replace(*change)).fingerprints()


def test_the_text_that_is_scored_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    write_rows(tmp_path)
    text = "suite: w\n" + SCORE + FIELDS
    other = text.replace("| int - 1", "| int - 1 ").replace(".strip()", "")
    assert evaluation(tmp_path, text).fingerprints()[0] != evaluation(tmp_path, other).fingerprints()[0]
