"""``--llm-model random`` and ``majority``: what guessing gets, through the same path as a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS

MANY = "suite: many\nsamples:\n" + "".join(
    f'  - {{id: q{n}, question: "Which?", choices: [aa, b, cccc, dddddd], target: {n * n % 7 % 4}}}\n'
    for n in range(200)
)


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def metrics(report: Any, suite: str, model: str) -> dict[str, float]:
    found = next(one for one in report["suites"] if one["name"] == suite and one["models"] == [model])
    return {name: metric["value"] for name, metric in found["metrics"].items()}


def test_random_and_majority_side_by_side(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", many=MANY + "score: choice\n")
    models = ["--llm-model=random", "--llm-model=random?seed=1", "--llm-model=majority"]
    result = llm_pytester.runpytest(*workers, *models, "--llm-report=report.json", "many.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["llm-model: random (guessing)", "llm-model: random[?]seed=1 (guessing)"])
    report = report_of(llm_pytester.path)
    targets = [n * n % 7 % 4 for n in range(200)]
    commonest = max(range(4), key=targets.count)
    majority = metrics(report, "many", "majority")
    assert majority["accuracy"] == targets.count(commonest) / 200
    assert majority["brier"] == pytest.approx((0.75**2 + 3 * 0.25**2) / 4)
    for model in ("random", "random?seed=1"):
        found = metrics(report, "many", model)
        assert abs(found["accuracy"] - 0.25) < 5 * (0.25 * 0.75 / 200) ** 0.5
        assert found["brier"] == pytest.approx((0.75**2 + 3 * 0.25**2) / 4)
        names = [f"accuracy_{name}" for name in ("token", "sum", "char", "byte")]
        assert {found[name] for name in names} == {found["accuracy"]}
    first, second = (
        [record["answer"] for record in report["records"] if record["model"] == model]
        for model in ("random", "random?seed=1")
    )
    assert first != second


def test_majority_counts_the_whole_suite(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """The selection does not change what is commonest."""
    llm_pytester.makefile(".yaml", many=MANY + "score: choice\n")
    result = llm_pytester.runpytest(
        *workers, "--llm-model=majority", "--llm-report=report.json", "many.yaml::q0", "many.yaml::q7"
    )
    assert result.ret == 0
    targets = [n * n % 7 % 4 for n in range(200)]
    commonest = ["aa", "b", "cccc", "dddddd"][max(range(4), key=targets.count)]
    assert [record["answer"] for record in report_of(llm_pytester.path)["records"]] == [commonest] * 2


@pytest.mark.parametrize("score", ["letter", "{letter: {labels: digit, shuffle: false}}"])
def test_letters(llm_pytester: pytest.Pytester, score: str) -> None:
    llm_pytester.makefile(".yaml", many=MANY + f"score: {score}\n")
    models = ["--llm-model=random", "--llm-model=majority"]
    result = llm_pytester.runpytest(*models, "--llm-report=report.json", "many.yaml")
    assert result.ret == 0
    report = report_of(llm_pytester.path)
    assert abs(metrics(report, "many", "random")["accuracy"] - 0.25) < 5 * (0.25 * 0.75 / 200) ** 0.5
    shown = [record["target"] for record in report["records"] if record["model"] == "majority"]
    assert metrics(report, "many", "majority")["accuracy"] == max(map(shown.count, shown)) / 200


def test_other_replies(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Numbers are guessed among those of the suite; yes and no are options."""
    sums = SUMS.replace("target: 9", "target: 5.0")
    facts = "suite: facts\nsamples:\n" + "".join(f"  - {{question: x{n}, target: {n % 3 == 0}}}\n" for n in range(30))
    llm_pytester.makefile(".yaml", sums=sums, facts=facts + "score: yes_no\n")
    models = ["--llm-model=random", "--llm-model=majority"]
    result = llm_pytester.runpytest(*workers, *models, "--llm-report=report.json", ".")
    assert result.ret == 0
    report = report_of(llm_pytester.path)
    assert metrics(report, "sums", "majority")["accuracy"] == 0.5  # 5 and 5.0 are one number
    assert metrics(report, "facts", "majority")["accuracy"] == 20 / 30
    assert {r["output"] for r in report["records"] if r["suite"] == "facts" and r["model"] == "random"} == {"yes", "no"}
    outputs = {r["output"] for r in report["records"] if r["suite"] == "sums"}
    assert outputs <= {"2", "5", "8", "5.0"}


def test_nobody_guesses_a_perplexity(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", texts="suite: texts\nsamples: [{question: A text.}]\nscore: perplexity\n")
    result = llm_pytester.runpytest(*workers, "--llm-model=random", "texts.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*not scored: *random: this suite measures how likely a text is*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_names_mean_guessing_even_where_a_folder_has_them(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.mkdir("random")
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    assert llm_pytester.runpytest("--llm-model=random", "capitals.yaml").ret == 0
    result = llm_pytester.runpytest("--llm-model=./random", "capitals.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: model ./random: *config.json*"])


def test_hand_written_tests_cannot_have_guesses(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile("def test_it(llm_model): llm_model.generate('Hello')")
    result = llm_pytester.runpytest("--llm-model=random")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*model random: it answers samples of suites only*"])


def test_json_of_a_schema_has_no_answer_to_guess_and_can_be_replayed(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makefile(".yaml", s="suite: s\nsamples: [{id: c, question: x}]\nscore: json\n")
    (llm_pytester.path / "out.jsonl").write_text('{"id": "c", "response": "{}"}\n')
    result = llm_pytester.runpytest(*workers, "--llm-model=replay:out.jsonl", "s.yaml")
    result.stdout.fnmatch_lines(["s*1  1.000*"])
    assert result.ret == 0
    result = llm_pytester.runpytest(*workers, "--llm-model=random", "s.yaml")
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret in (0, 1)
