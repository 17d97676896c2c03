"""Several ``--llm-judge``: a panel, each judge's numbers, and how far the judges agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmeval.scoring.statistics.raters import krippendorff_alpha

JUDGES = """
import json, re
def verdict(prompt, is_right):
    reply = re.search(r"Reply:\\n```\\n(.*?)\\n```", prompt[-1]["content"], re.S)[1]
    if "tone" in prompt[0]["content"]:
        return json.dumps({"tone": {"reason": "r", "score": is_right(reply) + 1}})
    return json.dumps({"fits": {"reason": "r", "label": "pass" if is_right(reply) else "fail"}})
def long(prompt): return verdict(prompt, lambda reply: len(reply) > 3)
def lower(prompt): return verdict(prompt, str.islower)
def vowel(prompt): return verdict(prompt, lambda reply: reply[0] in "aeiouAEIOU")
def silent(prompt): return "I would rather not."
"""
REPLIES = ["apple", "Iron", "ivy", "Oak", "Cat", "birch"]
BY_JUDGE = {
    "long": [1, 1, 0, 0, 0, 1],
    "lower": [1, 0, 1, 0, 0, 1],
    "vowel": [1, 1, 1, 1, 0, 0],
}
ALL = ["--llm-judge=python:judges:long", "--llm-judge=python:judges:lower", "--llm-judge=python:judges:vowel"]
MAJORITY = [1, 1, 1, 0, 0, 1]
RUBRIC = "{rubric: {criteria: {fits: It fits.}}}"


def suite(score: str = RUBRIC, more: str = "") -> str:
    rows = [{"id": reply, "question": "Which?", "response": reply, "people": True} for reply in REPLIES]
    return f"suite: trees\nscore: {score}\n{more}samples: {json.dumps(rows)}\n"


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text("utf-8"))
    return report


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(judges=JUDGES)
    pytester.makefile(".yaml", trees=text)
    return pytester.runpytest("--llm-report=out.json", *options, "trees.yaml")


def test_a_panel_of_three(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    gates = [
        "--llm-gate=judge.alpha > -1",
        "--llm-gate=judge.2.dissent < 0.5",
        "--llm-gate=ci_low(judge.3.accuracy) > 0",
    ]
    result = run(llm_pytester, suite(), *ALL, *gates, *workers)
    assert result.ret == 0, result.stdout.str()
    report = report_of(llm_pytester)
    records = {record["id"]: record for record in report["records"]}
    assert [records[reply]["status"] == "correct" for reply in REPLIES] == [bool(one) for one in MAJORITY]
    metrics = {name: metric["value"] for name, metric in report["suites"][0]["metrics"].items()}
    alpha = krippendorff_alpha(list(zip(*BY_JUDGE.values(), strict=True))).value
    expected = {"accuracy": 4 / 6, "judge.alpha": alpha}
    for number, ratings in enumerate(BY_JUDGE.values(), 1):
        expected[f"judge.{number}.accuracy"] = sum(ratings) / 6
        dissents = sum(own != whole for own, whole in zip(ratings, MAJORITY, strict=True))
        expected[f"judge.{number}.dissent"] = dissents / 6
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert len(report["suites"][0]["judged_by"]) == 3
    result.stdout.fnmatch_lines(["*judged by judge 1 python:judges:long (*; judge 2 *: 18 requests, *"])
    iron = records["Iron"]
    assert iron["num_judge_requests"] == 3
    assert [one["status"] for one in iron["details"]["judges"]] == ["correct", "wrong", "correct"]
    assert iron["details"]["judges"][0]["details"]["verdicts"], "each judge's verdicts are kept"


def test_numbers_are_averaged(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, suite("{aspects: {aspects: {tone: Calm.}, n_iter: 1}}"), *ALL)
    assert result.ret == 0, result.stdout.str()
    metrics = {name: one["value"] for name, one in report_of(llm_pytester)["suites"][0]["metrics"].items()}
    means = [sum(own) / 3 + 1 for own in zip(*BY_JUDGE.values(), strict=True)]
    assert metrics["aspects"] == pytest.approx(sum(means) / 6)
    far = [abs(own + 1 - mean) for own, mean in zip(BY_JUDGE["vowel"], means, strict=True)]
    assert metrics["judge.3.dissent"] == pytest.approx(sum(far) / 6)


def test_two_that_disagree_are_half_right(llm_pytester: pytest.Pytester) -> None:
    assert run(llm_pytester, suite(), *ALL[:2], "--llm-gate=accuracy > 0.4").ret == 0
    records = {record["id"]: record for record in report_of(llm_pytester)["records"]}
    assert (records["Iron"]["status"], records["Iron"]["values"]["accuracy"]) == ("scored", 0.5)
    assert records["Iron"]["answer"] == "fits: pass | fits: fail"


def test_a_panel_and_people(llm_pytester: pytest.Pytester) -> None:
    """People are compared with the panel."""
    assert run(llm_pytester, suite(more="human: people\n"), *ALL, "-Wdefault").ret == 0
    metrics = report_of(llm_pytester)["suites"][0]["metrics"]
    assert metrics["judge.agreement"]["value"] == pytest.approx(4 / 6)
    assert metrics["corrected_accuracy"]["value"] == 1


def test_without_a_verdict_of_each_there_is_no_score(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, suite(), *ALL[:1], "--llm-judge=python:judges:silent", *workers)
    assert result.ret == 1
    record = report_of(llm_pytester)["records"][0]
    assert record["reason"] == "judge 2: no verdict: the verdict is not one JSON object"
    assert record["details"]["judges"][0]["status"] in ("correct", "wrong"), "what the other said is kept"


def test_a_fixture_gives_a_panel(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(
        """
        import judges, pytest
        from pytest_llmeval.types import GenerateResponse
        class Judge:
            def __init__(self, function): self.function = function
            def generate(self, requests):
                def turns(request): return [{"role": one.role, "content": one.content} for one in request.prompt]
                return [GenerateResponse(text=self.function(turns(request))) for request in requests]
        @pytest.fixture(scope="session")
        def llm_judge():
            return [Judge(judges.long), Judge(judges.lower)]
        """
    )
    result = run(llm_pytester, suite(more="gates: [judge.alpha > -1]\n"), *workers, "-p", "no:cacheprovider")
    assert result.ret == 0, result.stdout.str()
    assert report_of(llm_pytester)["suites"][0]["metrics"]["judge.2.accuracy"]["value"] == 0.5


def test_a_fixture_that_gives_no_judge(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest("import pytest\n@pytest.fixture(scope='session')\ndef llm_judge():\n    return []\n")
    result = run(llm_pytester, suite())
    assert result.ret == 1
    assert report_of(llm_pytester)["records"][0]["reason"] == (
        "the fixture llm_judge gave a list of 0 models, expected 1 to 16"
    )


def test_of_two_that_disagree_people_are_told_a_half(llm_pytester: pytest.Pytester) -> None:
    """The correction is that of the numbers shown: ties count a half in all of them."""
    text = suite(more="human: people\n").replace(
        f'"id": "{REPLIES[1]}", "question": "Which?", "response": "Iron", "people": true',
        f'"id": "{REPLIES[1]}", "question": "Which?", "response": "Iron", "people": false',
    )
    text = text.replace('"response": "birch", "people": true', '"response": "birch", "people": null')
    assert run(llm_pytester, text, *ALL[:2], "-Wdefault").ret == 0
    found = {name: one["value"] for name, one in report_of(llm_pytester)["suites"][0]["metrics"].items()}
    sensitivity, specificity = found["judge.sensitivity"], found["judge.specificity"]
    assert (sensitivity, specificity) == (0.375, 0.5)
    assert found["corrected_accuracy"] is None
    expected = {"accuracy": 0.5, "judge.agreement": 0.4}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_a_fixture_that_gives_what_cannot_judge(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest("import pytest\n@pytest.fixture(scope='session')\ndef llm_judge():\n    return None\n")
    assert run(llm_pytester, suite()).ret == 1
    reason = "the fixture llm_judge gave None, expected an object with the method generate"
    assert report_of(llm_pytester)["records"][0]["reason"] == reason


def test_another_panel_is_another_judge(llm_pytester: pytest.Pytester) -> None:
    assert run(llm_pytester, suite(), *ALL[:2]).ret == 0
    (llm_pytester.path / "out.json").rename(llm_pytester.path / "before.json")
    result = run(llm_pytester, suite(), ALL[0], ALL[2], "--llm-baseline=before.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["failed: trees, accuracy vs baseline: another judge: 'judge 1 python:judges:long *"])


@pytest.mark.parametrize(
    ("judges", "message"),
    [
        (2 * ALL[:1], "*--llm-judge python:judges:long was given twice: a panel is of several judges*"),
        (
            [f"--llm-judge=python:judges:j{number}" for number in range(17)],
            "*--llm-judge was given 17 times, expected at most 16 *",
        ),
    ],
)
def test_panels_that_cannot_be(llm_pytester: pytest.Pytester, judges: list[str], message: str) -> None:
    result = run(llm_pytester, suite(), *judges)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
