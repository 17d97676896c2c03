"""``--llm-baseline``: the run fails where the model got worse, and not where it only changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support import clean_environment, fake_model_conftest

NUM_SAMPLES = 60


def suite(*, name: str = "sums", hint: str = "", extra: str = "") -> str:
    samples = [{"id": f"q{n}", "question": f"{hint}{n} + 1 =", "target": n + 1} for n in range(NUM_SAMPLES)]
    return f"suite: {name}\nscore: number\nsamples: {json.dumps(samples)}\n{extra}"


def write_replies(folder: Path, wrong: Iterable[int], file: str) -> str:
    """A file of replies that are right but for those of ``wrong``; returns the model that reads it."""
    all_wrong = set(wrong)
    lines = [{"id": f"q{n}", "response": str(n + 1 + (n in all_wrong))} for n in range(NUM_SAMPLES)]
    (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"--llm-model=replay:{file}.jsonl"


def replies(pytester: pytest.Pytester, wrong: Iterable[int], file: str = "replies") -> str:
    return write_replies(pytester.path, wrong, file)


@pytest.fixture(scope="session")
def main_report(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A report of the suite in which 6 of 60 are wrong; made once, for each test compares with it."""
    folder = tmp_path_factory.mktemp("main")
    (folder / "sums.yaml").write_text(suite())
    model = write_replies(folder, range(6), "main")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", model, "--llm-report=main.json", "sums.yaml"]
    subprocess.run(command, cwd=folder, env=clean_environment(), check=True, capture_output=True)
    return (folder / "main.json").read_bytes()


@pytest.fixture
def project(llm_pytester: pytest.Pytester, main_report: bytes) -> pytest.Pytester:
    """A suite with a baseline, ``main.json``."""
    llm_pytester.makefile(".yaml", sums=suite())
    replies(llm_pytester, range(6), "main")
    (llm_pytester.path / "main.json").write_bytes(main_report)
    return llm_pytester


def gates(pytester: pytest.Pytester) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))["gates"]
    return found


BASELINE = ("--llm-baseline=main.json", "--llm-report=out.json", "sums.yaml")


def test_the_same_model_passes(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-model=replay:main.jsonl", *BASELINE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["llm-baseline: main.json (replay:main.jsonl, *, 1 suite)", "gates: 1 passed"])
    (gate,) = gates(project)
    assert gate["name"] == "accuracy vs baseline"
    assert (gate["regression"]["p_value"], gate["regression"]["drop"]) == (1.0, 0.0)


def test_a_model_that_got_worse_fails(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, replies(project, range(20)), *BASELINE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED sums.yaml::gate[[]accuracy vs baseline] - accuracy 0.900 -> 0.667*"])
    (gate,) = gates(project)
    regression = gate["regression"]
    assert (regression["num_worse"], regression["num_better"], regression["method"]) == (14, 0, "mcnemar")
    assert regression["p_value"] == pytest.approx(0.5**14)
    assert regression["drop"] == pytest.approx(14 / 60)


def test_a_roll_of_the_dice_passes(project: pytest.Pytester, workers: list[str]) -> None:
    """Eight became wrong and six right: worse by two of sixty, as chance makes it."""
    result = project.runpytest(*workers, replies(project, range(6, 14)), *BASELINE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gates: 1 passed"])


def test_an_improvement_is_reported(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, replies(project, []), *BASELINE)
    assert result.ret == 0
    assert "improved" in result.stdout.str()


def test_a_drop_within_the_margin_passes(project: pytest.Pytester, workers: list[str]) -> None:
    worse = replies(project, range(20))
    assert project.runpytest(*workers, worse, "--llm-max-drop=accuracy=0.3", *BASELINE).ret == 0
    assert project.runpytest(*workers, worse, "--llm-max-drop=sums: accuracy=0.2", *BASELINE).ret == 1


def test_margin_alone(project: pytest.Pytester, workers: list[str]) -> None:
    options = ["--llm-gate-mode=margin", "--llm-max-drop=accuracy=0.01"]
    result = project.runpytest(*workers, replies(project, range(6, 14)), *options, *BASELINE)
    assert result.ret == 1
    (gate,) = gates(project)
    assert 0.2 < gate["regression"]["false_alarm_rate"] < 0.5
    assert "runs in which nothing has changed" in " ".join(result.stdout.str().split())


def test_non_inferiority(project: pytest.Pytester, workers: list[str]) -> None:
    """The same answers over 60 samples exclude a drop of 20 points, and not one of 1 point."""
    options = ["--llm-model=replay:main.jsonl", "--llm-gate-mode=non-inferior"]
    assert project.runpytest(*workers, *options, "--llm-max-drop=accuracy=0.2", *BASELINE).ret == 0
    assert project.runpytest(*workers, *options, "--llm-max-drop=accuracy=0.01", *BASELINE).ret == 1


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ("acuracy=0.2", "there is no metric 'acuracy'; did you mean 'accuracy'? *"),
        ("second=10%", "there is no metric 'second'; did you mean 'seconds'? *"),
        ("sums: costs=1", "there is no metric 'costs'; did you mean 'cost'? *"),
        ("sumz: accuracy=0.2", "there is no suite 'sumz'; did you mean 'sums'?"),
        ("sums@polite: accuracy=0.2", "suite 'sums' has no variants"),
    ],
)
def test_a_margin_of_what_no_suite_has_is_refused_before_a_sample_runs(
    project: pytest.Pytester, workers: list[str], margin: str, message: str
) -> None:
    options = ["--llm-model=replay:main.jsonl", f"--llm-max-drop={margin}"]
    result = project.runpytest(*workers, *options, *BASELINE)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: --llm-max-drop '{margin}': {message}"])
    assert "passed" not in result.stdout.str()


@pytest.mark.parametrize("selecting", ["--llm-shard=1/2", "sums.yaml::q1", "--ignore=other.yaml"])
def test_a_margin_of_a_suite_that_may_not_have_been_collected_is_decided_at_the_end(
    project: pytest.Pytester, workers: list[str], selecting: str
) -> None:
    options = ["--llm-model=replay:main.jsonl", "--llm-max-drop=other: accuracy=0.2"]
    result = project.runpytest(*workers, *options, *BASELINE[:-1], selecting)
    assert result.ret in (0, 1)
    assert "max drop other: accuracy=0.2: there is no suite 'other', only 'sums'" in " ".join(
        result.stdout.str().split()
    )


def test_a_margin_may_name_a_suite_of_the_baseline_that_does_not_run(
    project: pytest.Pytester, workers: list[str]
) -> None:
    project.makefile(".yaml", other=suite(name="other"))
    options = ["--llm-model=replay:main.jsonl", "--llm-max-drop=sums: accuracy=0.2"]
    result = project.runpytest(*workers, *options, *BASELINE[:-1], "other.yaml")
    assert result.ret == 1
    assert "there is no suite" not in result.stdout.str()


def test_a_changed_prompt_is_refused(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", sums=suite(hint="Think. "))
    result = project.runpytest(*workers, "--llm-model=replay:main.jsonl", *BASELINE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED sums.yaml::gate[[]*vs baseline] - *questions*"])


def test_what_has_not_changed_can_be_compared(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", sums=suite().replace("59 + 1 =", "59 plus 1 ="))
    options = ["--llm-model=replay:main.jsonl", "--llm-compare=common"]
    result = project.runpytest(*workers, *options, *BASELINE)
    assert result.ret == 0
    (gate,) = gates(project)
    assert gate["regression"]["n"] == NUM_SAMPLES - 1
    assert "59 of" in result.stdout.str()


def test_a_selection_is_compared(project: pytest.Pytester, workers: list[str]) -> None:
    options = ["--llm-model=replay:main.jsonl", "--llm-limit=20"]
    result = project.runpytest(*workers, *options, *BASELINE)
    assert result.ret == 0
    (gate,) = gates(project)
    assert gate["regression"]["n"] == 20
    assert project.runpytest(*workers, *options, "--llm-require-gates", *BASELINE).ret == 1


def test_a_suite_that_the_baseline_lacks(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", new=suite(name="new"))
    arguments = ["--llm-model=replay:main.jsonl", "--llm-baseline=main.json", "--llm-report=out.json", "."]
    result = project.runpytest(*workers, *arguments)
    assert result.ret == 0
    assert {gate["suite"]: gate["outcome"] for gate in gates(project)} == {"new": "skipped", "sums": "passed"}
    assert project.runpytest(*workers, "--llm-require-gates", *arguments).ret == 1


def test_a_suite_of_the_baseline_that_is_gone(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", other=suite(name="other"))
    both = ["--llm-model=replay:main.jsonl", "--llm-report=both.json", "."]
    assert project.runpytest(*both).ret == 0
    arguments = ["--llm-model=replay:main.jsonl", "--llm-baseline=both.json", "--llm-report=out.json"]
    elsewhere = project.runpytest(*workers, *arguments, "sums.yaml")
    assert elsewhere.ret == 0
    assert {gate["suite"]: gate["outcome"] for gate in gates(project)} == {"other": "skipped", "sums": "passed"}
    (project.path / "other.yaml").unlink()
    gone = project.runpytest(*workers, *arguments, ".")
    assert gone.ret == 1
    assert {gate["suite"]: gate["outcome"] for gate in gates(project)} == {"other": "failed", "sums": "passed"}


def test_unscored_now(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(
        fake_model_conftest(replies={f" {n} + 1": str(n + 1) for n in range(60)}, errors={"59 + 1": "out of order"})
    )
    project.makefile(".yaml", sums=suite())
    result = project.runpytest(*workers, *BASELINE)
    assert result.ret == 1
    (gate,) = gates(project)
    assert gate["outcome"] == "failed"
    assert "unscored" in gate["reason"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99, "suites": [], "records": []}', ""])
def test_a_baseline_that_cannot_be_read(project: pytest.Pytester, workers: list[str], text: str) -> None:
    (project.path / "main.json").write_text(text)
    result = project.runpytest(*workers, "--llm-model=replay:main.jsonl", *BASELINE)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--llm-baseline: *main.json*"])
    assert "Traceback" not in result.stderr.str()


def test_the_report_does_not_take_the_place_of_its_baseline(project: pytest.Pytester, workers: list[str]) -> None:
    """Or a second try would compare the worse model with itself."""
    arguments = ["--llm-baseline=main.json", "--llm-report=./main.json", "sums.yaml"]
    result = project.runpytest(*workers, replies(project, range(20)), *arguments)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--llm-report main.json is also the baseline*"])


def test_samples_that_were_chosen_for_being_wrong_are_not_compared(
    project: pytest.Pytester, workers: list[str]
) -> None:
    """Of equally good models one looks worse on what it got wrong."""
    other = replies(project, range(6, 12))
    assert project.runpytest(*workers, other, *BASELINE).ret == 0
    again = project.runpytest(*workers, other, "--lf", *BASELINE)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gates: 1 skipped", "*selected because they were wrong*"])
    assert project.runpytest(*workers, other, "--lf", "--llm-require-gates", *BASELINE).ret == 1


def test_the_baseline_of_the_ini_file(project: pytest.Pytester, workers: list[str]) -> None:
    """It lies as seen from the ini file, and is for sessions with suites."""
    project.makeini("[pytest]\nllm_baseline = main.json")
    project.makepyfile(test_other="def test_one(): pass")
    worse = replies(project, range(20))
    folder = project.mkdir("folder")
    (folder / "nothing.txt").touch()
    assert project.runpytest(*workers, worse, "sums.yaml").ret == 1
    assert project.runpytest(*workers, "test_other.py").ret == 0
    assert project.runpytest(*workers).ret == 0, "nobody is there to answer"
    (project.path / "main.json").unlink()
    assert project.runpytest(*workers, "test_other.py").ret == 0
    assert project.runpytest(*workers, worse, "sums.yaml").ret == 4


def test_a_suite_is_gone_and_nothing_was_left_out(project: pytest.Pytester, workers: list[str]) -> None:
    """An expression that all tests meet selects nothing away."""
    project.makefile(".yaml", other=suite(name="other"))
    both = ["--llm-model=replay:main.jsonl", "--llm-report=both.json", "."]
    assert project.runpytest(*both).ret == 0
    (project.path / "other.yaml").unlink()
    arguments = ["--llm-model=replay:main.jsonl", "--llm-baseline=both.json", "-m", "not slow", "."]
    assert project.runpytest(*workers, *arguments).ret == 1


def test_several_models_against_one_baseline(project: pytest.Pytester, workers: list[str]) -> None:
    """Each is compared with the one model that the baseline has, all in one family of tests."""
    models = [replies(project, range(6), "same"), replies(project, range(20), "worse")]
    result = project.runpytest(*workers, *models, *BASELINE)
    assert result.ret == 1
    assert [(gate["model"], gate["outcome"]) for gate in gates(project)] == [
        ("replay:same.jsonl", "passed"),
        ("replay:worse.jsonl", "failed"),
    ]
    assert all(gate["regression"]["family"] == 2 for gate in gates(project))
