"""``score: pairwise``: two replies in both orders, by a judge or by verdicts that were recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sklearn.metrics import cohen_kappa_score

from tests.support import REPOSITORY

PAIRS = """
suite: pairs
score: {{pairwise: {{against: other, {more}}}}}
{top}
samples:
  - {{id: shorter, question: "1 + 1 =", response: "2", other: "two, two", people: reply, one: reply, two: reply}}
  - {{id: longer, question: "2 + 1 =", response: "It is three", other: "3", people: reply, one: reply, two: other}}
  - {{id: same, question: "2 + 2 =", response: "same", other: "same", people: tie, one: other, two: other}}
"""

SHORTER = """
import json, re
def judge(prompt):
    system, user = (turn["content"] for turn in prompt)
    first, second = (re.search(rf"Reply {name}:\\n```\\n(.*?)\\n```", user, re.S)[1] for name in "AB")
    label = "A" if len(first) <= len(second) else "B"
    return json.dumps({"reason": "the shorter one, else the first", "better": label})
def vague(prompt):
    return json.dumps({"reason": "none", "better": "A or B"})
"""


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text("utf-8"))
    return report


def metrics_of(pytester: pytest.Pytester) -> dict[str, Any]:
    return {name: metric["value"] for name, metric in report_of(pytester)["suites"][0]["metrics"].items()}


def test_both_orders_are_asked(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(shorter=SHORTER)
    llm_pytester.makefile(".yaml", pairs=PAIRS.format(more="criterion: The shorter one is better.", top=""))
    result = llm_pytester.runpytest(
        *workers, "--llm-judge=python:shorter:judge", "--llm-report=out.json", "pairs.yaml", "--llm-gate=win_rate > 0.4"
    )
    assert result.ret == 0, result.stdout.str()
    records = {record["id"]: record for record in report_of(llm_pytester)["records"]}
    assert {name: record["answer"] for name, record in records.items()} == {
        "shorter": "reply",
        "longer": "other",
        "same": "reply, then other",
    }
    assert metrics_of(llm_pytester)["win_rate"] == pytest.approx(0.5)
    assert metrics_of(llm_pytester)["order_consistency"] == pytest.approx(2 / 3)
    kappa = cohen_kappa_score(["reply", "other", "reply"], ["reply", "other", "other"])
    assert metrics_of(llm_pytester)["order_kappa"] == pytest.approx(kappa)
    verdicts = records["same"]["details"]["verdicts"]
    assert [one["order"] for one in verdicts] == [["reply", "other"], ["other", "reply"]]
    assert [one["value"] for one in verdicts] == ["reply", "other"]
    assert records["same"]["num_judge_requests"] == 2
    result.stdout.fnmatch_lines(["pairs: judged by python:shorter:judge (python, *): 6 requests, *"])


def test_a_column_that_rows_lack_is_what_is_wrong(llm_pytester: pytest.Pytester) -> None:
    """Also where there is no target, which pairs do not need."""
    llm_pytester.makepyfile(shorter=SHORTER)
    (llm_pytester.path / "rows.jsonl").write_text('{"question": "q", "response": "r", "old": "o"}\n')
    suite = "suite: pairs\ndataset: {path: rows.jsonl}\nscore: {pairwise: {against: olld}}\n"
    llm_pytester.makefile(".yaml", pairs=suite)
    result = llm_pytester.runpytest_inprocess("--llm-judge=python:shorter:judge", "pairs.yaml")
    result.stdout.fnmatch_lines(["*the sample has no column 'olld'; did you mean 'old'?"])


def test_a_label_that_was_not_offered_is_no_verdict(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(shorter=SHORTER)
    llm_pytester.makefile(".yaml", pairs=PAIRS.format(more="ties: false", top=""))
    result = llm_pytester.runpytest_inprocess("--llm-judge=python:shorter:vague", "--llm-report=out.json", "pairs.yaml")
    assert result.ret == 1
    record = report_of(llm_pytester)["records"][0]
    assert record["reason"] == "no verdict: better is 'A or B', expected A or B"
    assert record["num_judge_requests"] == 6, "each order is asked three times"


def test_recorded_verdicts_are_read(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", pairs=PAIRS.format(more="recorded: [one, two]", top="human: people"))
    assert llm_pytester.runpytest(*workers, "--llm-report=out.json", "pairs.yaml").ret == 0
    assert metrics_of(llm_pytester) == pytest.approx(
        {
            "win_rate": 0.5,
            "order_consistency": 2 / 3,
            "order_kappa": cohen_kappa_score([1, 1, 0], [1, 0, 0]),
            "first_order_right": 2 / 3,
            "second_order_right": 1 / 3,
            "both_orders_right": 1 / 3,
            "judge.agreement": 1 / 3,
            "judge.human_mean": 2.5 / 3,
            "judge.kappa": cohen_kappa_score([2, 2, 1], [2, 1, 0], labels=[0, 1, 2], weights="quadratic"),
            "corrected_win_rate": 2.5 / 3,
        }
    )


@pytest.mark.parametrize("recorded", ["[one]", "one"])
def test_verdicts_in_one_order_have_no_consistency(
    llm_pytester: pytest.Pytester, workers: list[str], recorded: str
) -> None:
    """The verdicts that were recorded are what there is: no other order is made up for them."""
    llm_pytester.makefile(".yaml", pairs=PAIRS.format(more=f"recorded: {recorded}", top=""))
    assert llm_pytester.runpytest(*workers, "--llm-report=out.json", "pairs.yaml").ret == 0
    report = report_of(llm_pytester)
    assert metrics_of(llm_pytester) == pytest.approx({"win_rate": 2 / 3})
    assert {name for record in report["records"] for name in record["values"]} == {"win_rate"}
    assert report["suites"][0]["judged_by"] == ["verdicts recorded in one"]


@pytest.mark.parametrize("absent", ["tie, one: null", "tie"])
def test_a_verdict_that_was_not_recorded_is_none(llm_pytester: pytest.Pytester, absent: str) -> None:
    text = PAIRS.format(more="recorded: [one, two]", top="").replace("tie, one: other", absent)
    llm_pytester.makefile(".yaml", pairs=text)
    assert llm_pytester.runpytest_inprocess("--llm-report=out.json", "pairs.yaml").ret == 1
    assert report_of(llm_pytester)["suites"][0]["num_unscored"] == 1
    assert report_of(llm_pytester)["records"][2]["reason"] == "no verdict: none was recorded in one"


def test_recorded_verdicts_are_no_models(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """They are about the replies in the data, whatever model the session has."""
    llm_pytester.makepyfile(writer="def write(prompt): raise RuntimeError('asked')")
    llm_pytester.makefile(".yaml", pairs=PAIRS.format(more="recorded: [one, two]", top=""))
    models = ["--llm-model=python:writer:write", "--llm-model=random"]
    assert llm_pytester.runpytest(*workers, *models, "--llm-report=out.json", "pairs.yaml").ret == 0
    assert {record["model"] for record in report_of(llm_pytester)["records"]} == {"responses"}
    assert report_of(llm_pytester)["suites"][0]["judged_by"] == ["verdicts recorded in one and two"]


@pytest.mark.parametrize(
    ("more", "top", "message"),
    [
        ("", "human: nobody", "*pairs.yaml:3: human: found no label by people in 3 samples, expected the column *"),
        ("", "human: question", "*pairs.yaml:5: sample 'shorter': human is '1 + 1 =', expected reply, other or tie*"),
        ("ties: false, recorded: [one, people]", "", "*a recorded verdict is 'tie', and ties is false*"),
        ("recorded: [one, one]", "", "*score.pairwise.recorded*twice*"),
        ("recorded: []", "", "*score.pairwise.recorded: found 0 entries, expected two columns, *"),
        ("recorded: [one, two, three]", "", "*score.pairwise.recorded: found 3 entries, expected two columns, *"),
    ],
)
def test_a_column_that_is_not_there(llm_pytester: pytest.Pytester, more: str, top: str, message: str) -> None:
    llm_pytester.makefile(".yaml", pairs=PAIRS.format(more=more, top=top))
    result = llm_pytester.runpytest_inprocess("pairs.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")


LLMBAR = REPOSITORY.parent / "shared" / "data" / "llmbar"
RECORDED = """
suite: llmbar
dataset:
  path: {path}
  fields:
    question: input
    response: output_1
    first: "{{{{ {{'1': 'reply', '2': 'other', none: ''}}[results[0]['swap = False'].winner] }}}}"
    second: "{{{{ {{'1': 'reply', '2': 'other', none: ''}}[results[0]['swap = True'].winner] }}}}"
score: {{pairwise: {{against: output_2, recorded: [first, second]}}}}
human: "{{{{ ['', 'reply', 'other'][label] }}}}"
"""


@pytest.mark.skipif(not LLMBAR.is_dir(), reason="the published verdicts are not here")
@pytest.mark.parametrize("part", ["Natural", "GPTOut"])
@pytest.mark.parametrize("judge", ["GPT-4.CoT", "GPT-4.Vanilla", "ChatGPT.CoT", "ChatGPT.Vanilla"])
def test_the_authors_figures_of_llmbar(llm_pytester: pytest.Pytester, part: str, judge: str) -> None:
    """From their own files of verdicts, as their files of statistics give them.

    Where their judge gave no verdict, they count it as wrong, and as a label of its own in kappa; here there is none.
    """
    statistics = json.loads((LLMBAR / part / f"{judge}.statistics.json").read_text("utf-8"))
    llm_pytester.makefile(".yaml", llmbar=RECORDED.format(path=LLMBAR / part / f"{judge}.json"))
    ret = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.json", "llmbar.yaml").ret
    found, metrics = report_of(llm_pytester)["suites"][0], metrics_of(llm_pytester)
    shares = {
        "correct_False": metrics["first_order_right"],
        "correct_True": metrics["second_order_right"],
        "correct_both": metrics["both_orders_right"],
        "equal": metrics["order_consistency"],
    }
    for name, share in shares.items():
        right, _, total = statistics[name].partition(" = ")[0].partition(" / ")
        missing = int(right) - round(share * found["num_scored"])
        assert 0 <= missing <= found["num_unscored"], name
        assert found["num_scored"] + found["num_unscored"] == int(total)
    assert (ret, found["num_unscored"]) == ((1, 1) if judge == "ChatGPT.CoT" else (0, 0))
    if ret == 0:
        assert metrics["order_kappa"] == pytest.approx(statistics["kappa_agreement"], abs=1e-12)
