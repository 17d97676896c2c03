"""``human``: what people said of replies, and how far the report trusts the judge by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sklearn.metrics import cohen_kappa_score, recall_score

JUDGE = """
import json, re
def judge(prompt):
    reply = re.search(r"Reply:\\n```\\n(.*?)\\n```", prompt[-1]["content"], re.S)[1]
    if "tone" in prompt[0]["content"]:
        score = 5 if "please" in reply else 2
        return json.dumps({"tone": {"reason": "please", "score": score}})
    return json.dumps({"polite": {"reason": "please", "label": "pass" if "please" in reply else "fail"}})
"""

PEOPLE = [True, "right", 1, "no", False, "wrong", "", None, None, None]
"""In all the ways in which people may write it."""
POLITE = [True, True, False, False, False, True, True, False, True, True]

REPLIES = ["sit, please" if polite else "sit" for polite in POLITE]


def suite(score: str, people: list[Any], more: str = "") -> str:
    rows = [
        {"id": f"s{number}", "question": "Say it.", "response": reply, "people": said}
        for number, (reply, said) in enumerate(zip(REPLIES, people, strict=True))
    ]
    for row in rows[-2:]:
        del row["people"]  # a row may lack the column
    return f"suite: manners\nscore: {score}\nhuman: people\n{more}samples: {json.dumps(rows)}\n"


RUBRIC = "{rubric: {criteria: {polite: The reply says please.}}}"
OWN_WORDS = "{rubric: {criteria: {polite: The reply says please.}, prompt: 'They said {{ people }}.'}}"
RATED = "{aspects: {aspects: {tone: Calm.}, n_iter: 1}}"


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text("utf-8"))
    return report


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(manners=JUDGE)
    pytester.makefile(".yaml", manners=text)
    return pytester.runpytest("--llm-judge=python:manners:judge", "--llm-report=out.json", *options, "manners.yaml")


def test_labels(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    gates = ["--llm-gate=judge.kappa >= 0.3", "--llm-gate=ci_low(corrected_accuracy) >= 0"]
    result = run(llm_pytester, suite(RUBRIC, PEOPLE), *workers, *gates)
    assert result.ret == 0, result.stdout.str()
    people, judge = [1, 1, 1, 0, 0, 0], [int(one) for one in POLITE[:6]]
    metrics = report_of(llm_pytester)["suites"][0]["metrics"]
    sensitivity, specificity = (recall_score(people, judge, pos_label=label) for label in (1, 0))
    expected = {
        "accuracy": 0.6,
        "judge.agreement": 4 / 6,
        "judge.base_rate": 0.5,
        "judge.kappa": cohen_kappa_score(people, judge),
        "judge.sensitivity": sensitivity,
        "judge.specificity": specificity,
        "corrected_accuracy": (0.6 + specificity - 1) / (sensitivity + specificity - 1),
    }
    assert {name: metrics[name]["value"] for name in expected} == pytest.approx(expected)
    assert {name: metrics[name]["n"] for name in expected} == {
        **dict.fromkeys(expected, 6),
        "accuracy": 10,
        "corrected_accuracy": 10,
        "judge.sensitivity": 3,
        "judge.specificity": 3,
    }
    assert all(metrics[name]["ci_low"] is not None for name in expected)
    result.stdout.fnmatch_lines(["*judge.kappa 0.333 *"])
    records = report_of(llm_pytester)["records"]
    assert [record["details"].get("human") for record in records] == [1, 1, 1, 0, 0, 0, None, None, None, None]


def test_scores(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    people = [5, "4", 2, 1, 2.5, 3, None, None, None, None]
    result = run(llm_pytester, suite(RATED, people), *workers, "--llm-gate=corrected_aspects > 1")
    assert result.ret == 0, result.stdout.str()
    metrics = report_of(llm_pytester)["suites"][0]["metrics"]
    judge = [5.0, 5, 2, 2, 2, 5]
    given = [5.0, 4, 2, 1, 2.5, 3]
    observed = sum((x - y) ** 2 for x, y in zip(given, judge, strict=True)) / 6
    by_chance = sum((x - y) ** 2 for x in given for y in judge) / 36
    assert metrics["judge.kappa"]["value"] == pytest.approx(1 - observed / by_chance)
    assert metrics["judge.human_mean"]["value"] == pytest.approx(17.5 / 6)
    assert metrics["judge.agreement"]["value"] == pytest.approx(2 / 6)
    assert 1 < metrics["corrected_aspects"]["value"] < 5
    assert "judge.sensitivity" not in metrics


def test_a_judge_that_says_nothing_corrects_nothing(llm_pytester: pytest.Pytester) -> None:
    people = [False, False, True, True, True, False, None, None, None, None]
    result = run(llm_pytester, suite(RUBRIC, people, "gates: [corrected_accuracy > 0.1]\n"))
    assert result.ret == 1
    line = "failed: manners, corrected_accuracy > 0.1: corrected_accuracy has no value, n 10: sensitivity 0.000 and *"
    result.stdout.fnmatch_lines(["*no corrected_accuracy (sensitivity 0.000 and specificity*", line])


def test_people_who_called_no_reply_wrong(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, suite(RUBRIC, [True, True, True, *[None] * 7]))
    result.stdout.fnmatch_lines(["*no judge.specificity (people called no reply wrong)*"])


def test_a_label_is_of_the_reply_that_people_saw(llm_pytester: pytest.Pytester) -> None:
    """Another model writes other replies, of which people said nothing."""
    llm_pytester.makepyfile(writer="def write(prompt): return 'sit, please'")
    result = run(llm_pytester, suite(RUBRIC, PEOPLE), "--llm-model=python:writer:write")
    assert result.ret == 0
    metrics = report_of(llm_pytester)["suites"][0]["metrics"]
    assert metrics["accuracy"]["value"] == 1
    assert metrics["judge.agreement"]["n"] == 3, "of six labels, three are of this reply"
    details = [record["details"].get("human") for record in report_of(llm_pytester)["records"]]
    assert details[:6] == [1, 1, *["people rated another reply"] * 3, 0]


def test_labels_of_other_replies_say_so(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(writer="def write(prompt): return 'stand'")
    gate = "--llm-gate=judge.kappa > 0"
    result = run(llm_pytester, suite(RUBRIC, PEOPLE), "--llm-model=python:writer:write", gate)
    assert result.ret == 1
    line = "failed: manners, judge.kappa > 0: judge.kappa has no value, n 0: people rated none of these replies"
    result.stdout.fnmatch_lines([line])


def test_labels_of_unknown_replies_are_warned_of(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(writer="def write(prompt): return 'sit, please'")
    text = suite(RUBRIC, PEOPLE).replace('"response"', '"said"')
    result = run(llm_pytester, text, "--llm-model=python:writer:write", "-Wdefault")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*manners.yaml:3: human: what people said is taken to be of the replies that*"])
    assert report_of(llm_pytester)["suites"][0]["metrics"]["judge.agreement"]["n"] == 6


@pytest.mark.parametrize(
    ("score", "label", "more", "message"),
    [
        (RUBRIC, "maybe", "", "*sample 's0': human is 'maybe', expected true or false (also 1 or 0, *), or nothing*"),
        (RUBRIC, 0.5, "", "*sample 's0': human is 0.5, expected true or false *"),
        (RATED, "high", "", "*sample 's0': human is 'high', expected a number from 1 to 5, or nothing*"),
        (RATED, [5], "", "*sample 's0': human is [[]5], expected a number from 1 to 5, or nothing*"),
        (OWN_WORDS, True, "", "*manners.yaml:2: *uses people, by which people said what the judge is to find out*"),
        (RATED, 7, "", "*sample 's0': human is 7, expected a number from 1 to 5, or nothing*"),
        (RATED, True, "", "*sample 's0': human is True, expected a number from 1 to 5, or nothing*"),
        (
            RUBRIC,
            True,
            "epochs: 2\n",
            "*manners.yaml:3: human: people rate one reply, and this suite asks for several*",
        ),
        (
            f"{{several: {{scorers: {{one: {{score: exact}}, two: {{score: {RUBRIC}}}}}}}}}",
            True,
            "primary_metric: two.accuracy\n",
            "*manners.yaml:3: human: people rate the suite's own metric, and two.accuracy is of a part*",
        ),
        (
            RUBRIC,
            True,
            "min_measurable: 2\n",
            "*min_measurable: found 2 (a whole number), expected a number of at most 1*",
        ),
    ],
)
def test_bad_labels(llm_pytester: pytest.Pytester, score: str, label: Any, more: str, message: str) -> None:
    result = run(llm_pytester, suite(score, [label, *PEOPLE[1:]], more), "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("primary", ["corrected_accuracy", "judge.kappa"])
def test_a_suite_is_compared_by_what_people_say(llm_pytester: pytest.Pytester, primary: str) -> None:
    """The metric of trust is of the same accuracy as without."""
    own = f"primary_metric: {primary}\n"
    text = suite(RUBRIC, PEOPLE, own)
    assert run(llm_pytester, text, "-p", "no:xdist").ret == 0
    metrics = report_of(llm_pytester)["suites"][0]["metrics"]
    assert metrics["judge.kappa"]["value"] == pytest.approx(1 / 3)
    assert metrics["corrected_accuracy"]["value"] == pytest.approx(0.8)
    (llm_pytester.path / "out.json").rename(llm_pytester.path / "before.json")
    again = run(llm_pytester, text, "-p", "no:xdist", "--llm-baseline=before.json")
    assert again.ret == 0, again.stdout.str()
    again.stdout.fnmatch_lines([f"*{primary}*"])


def test_a_category_that_people_did_not_rate(llm_pytester: pytest.Pytester) -> None:
    text = suite(RUBRIC, PEOPLE, "category: id\n")
    result = run(llm_pytester, text, "-p", "no:xdist", "--llm-gate=category.s9.corrected_accuracy >= 0")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["failed: *category.s9.corrected_accuracy has no value, n 1: people rated*"])


@pytest.mark.parametrize(("metric", "ret"), [("corrected_accuracy", 1), ("accuracy", 0)])
def test_a_correction_by_other_labels_is_not_compared(llm_pytester: pytest.Pytester, metric: str, ret: int) -> None:
    more = f"primary_metric: {metric}\n"
    assert run(llm_pytester, suite(RUBRIC, PEOPLE, more)).ret == 0
    (llm_pytester.path / "out.json").rename(llm_pytester.path / "before.json")
    result = run(llm_pytester, suite(RUBRIC, [False, *PEOPLE[1:]], more), "--llm-baseline=before.json")
    assert result.ret == ret, result.stdout.str()
    if ret:
        line = "failed: manners, corrected_accuracy vs baseline: people rated 1 sample differently in the baseline"
        result.stdout.fnmatch_lines([line])


def test_labels_are_no_part_of_the_fingerprint(llm_pytester: pytest.Pytester) -> None:
    fingerprints = []
    for people in (PEOPLE, [not one for one in POLITE]):
        assert run(llm_pytester, suite(RUBRIC, people)).ret == 0
        fingerprints.append(report_of(llm_pytester)["suites"][0]["fingerprint"])
    assert fingerprints[0] == fingerprints[1]


@pytest.mark.parametrize(
    ("least", "required", "ret"), [("", [], 0), ("", ["--llm-require-gates"], 1), ("0.5", ["--llm-require-gates"], 0)]
)
def test_gates_that_are_required_want_a_measurable_share(
    llm_pytester: pytest.Pytester, least: str, required: list[str], ret: int
) -> None:
    llm_pytester.makeconftest(
        "import pytest_llmeval\n"
        "def some(reply, target):\n"
        "    return pytest_llmeval.NotMeasurable('no claim') if target == 'none' else 1.0\n"
        "def pytest_llmeval_scorers():\n"
        "    return {'some': some}\n"
    )
    rows = [{"question": "q", "response": "r", "target": target} for target in ("a", "b", "c", "none")]
    llm_pytester.makefile(
        ".yaml",
        claims=f"suite: claims\nscore: some\ngates: [score >= 0.5]\nsamples: {json.dumps(rows)}\n"
        + (f"min_measurable: {least}\n" if least else ""),
    )
    result = llm_pytester.runpytest("claims.yaml", *required)
    assert result.ret == ret, result.stdout.str()
    if ret:
        result.stdout.fnmatch_lines(
            ["*score is measurable on 3 of 4 samples, and --llm-require-gates needs a share of 0.9*"]
        )
