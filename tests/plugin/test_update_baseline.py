"""``--llm-update-baseline``: the file that ``--llm-baseline`` names is written when the session ended well."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.support import fake_model_conftest

NUM_SAMPLES = 30
UPDATE = "--llm-update-baseline"
ACCEPT = "--llm-update-baseline=accept"
BASELINE = "--llm-baseline=base.json"


def suite(name: str = "sums", *, hint: str = "", extra: str = "") -> str:
    samples = [{"id": f"q{n}", "question": f"{hint}{n} + 1 =", "target": n + 1} for n in range(NUM_SAMPLES)]
    return f"suite: {name}\nscore: number\nsamples: {json.dumps(samples)}\n{extra}"


def replies(pytester: pytest.Pytester, wrong: Iterable[int] = (), file: str = "replies") -> str:
    """A file of replies that are right but for those of ``wrong``; returns the option of the model that reads it."""
    all_wrong = set(wrong)
    lines = [{"id": f"q{n}", "response": str(n + 1 + (n in all_wrong))} for n in range(NUM_SAMPLES)]
    (pytester.path / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"--llm-model=replay:{file}.jsonl"


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makefile(".yaml", sums=suite())
    replies(llm_pytester)
    return llm_pytester


RIGHT = "--llm-model=replay:replies.jsonl"


def path_of(project: pytest.Pytester) -> Path:
    return project.path / "base.json"


def told(result: pytest.RunResult) -> str:
    """The line on the baseline."""
    found = [line for line in result.outlines if line.startswith("baseline: ")]
    assert len(found) == 1, result.stdout.str()
    return found[0].removeprefix("baseline: base.json ")


def error(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    lines = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert len(lines) == 1, result.stderr.str()
    return lines[0].removeprefix("ERROR: ")


def test_the_first_run_writes_it_and_the_next_one_compares(project: pytest.Pytester, workers: list[str]) -> None:
    without = project.runpytest(*workers, RIGHT, BASELINE, "sums.yaml")
    assert error(without) == (
        "--llm-baseline: there is no base.json: if this is the first run, add --llm-update-baseline to write it"
    )
    first = project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", "sums.yaml")
    assert first.ret == 0
    assert told(first) == "written: 1 suite, 30 samples"
    first.stdout.fnmatch_lines(["llm-baseline: base.json (not there yet: this session writes it if it ends well)"])
    first.stdout.fnmatch_lines(["skipped: baseline: there is no baseline yet: --llm-update-baseline writes the first*"])
    second = project.runpytest(*workers, RIGHT, BASELINE, "sums.yaml")
    assert second.ret == 0
    second.stdout.fnmatch_lines(["llm-baseline: base.json (replay:replies.jsonl, *, 1 suite)", "gates: 1 passed"])
    worse = project.runpytest(*workers, replies(project, range(9), "worse"), BASELINE, "sums.yaml")
    assert worse.ret == 1
    worse.stdout.fnmatch_lines(["failed: sums, accuracy vs baseline: accuracy 1.000 -> 0.700*"])


def test_it_keeps_what_comparisons_need(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", sums=suite(extra="prompt: {template: 'Add. {{ question }}'}\ncategory: question\n"))
    assert project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    document = json.loads(path_of(project).read_text(encoding="ascii"))
    assert set(document) == {
        *("schema", "is_brief", "created", "seconds", "exit_code", "models", "definitions", "suites", "records"),
        "digest",
    }
    (found,) = document["suites"]
    assert found["asked_with"]["prompt.template"] == "Add. {{ question }}"
    assert set(found["metrics"]) == {"accuracy"}
    assert not {"categories", "seconds", "description", "latency"} & found.keys()
    first = document["records"][0]
    assert first.keys() == {"suite", "id", "status", "fingerprint", "question_fingerprint"}
    assert (first["status"], len(first["fingerprint"])) == ("correct", 16)
    ids = [record["id"] for record in document["records"]]
    assert ids == sorted(ids)


def test_its_size(project: pytest.Pytester) -> None:
    """A line of a sample holds its names, its status, and 16 digits of each of its fingerprints."""
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    lines = [line for line in path_of(project).read_bytes().splitlines() if b'"status"' in line]
    assert len(lines) == NUM_SAMPLES
    assert max(map(len, lines)) < 140


def test_a_rerun_changes_a_few_lines(project: pytest.Pytester, workers: list[str]) -> None:
    """The order does not depend on that of the arguments, nor on the processes."""
    project.makefile(".yaml", other=suite("other"))
    assert project.runpytest("-p", "no:xdist", RIGHT, BASELINE, UPDATE, "--", "sums.yaml", "other.yaml").ret == 0
    before = path_of(project).read_text().splitlines()
    assert project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", "other.yaml", "sums.yaml").ret == 0
    after = path_of(project).read_text().splitlines()
    assert len(before) == len(after)
    changed = {line.split(":")[0].strip() for line, now in zip(before, after, strict=True) if line != now}
    assert changed <= {'"created"', '"seconds"', '"digest"'}


def test_one_sample_that_changes_is_one_line(project: pytest.Pytester) -> None:
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    before = path_of(project).read_text().splitlines()
    assert project.runpytest(replies(project, [3]), BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    after = path_of(project).read_text().splitlines()
    assert sum(line not in before for line in after if '"id"' in line) == 1


def test_a_failed_comparison_is_written_only_if_it_is_accepted(project: pytest.Pytester, workers: list[str]) -> None:
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    before = path_of(project).read_bytes()
    worse = replies(project, range(9), "worse")
    refused = project.runpytest(*workers, worse, BASELINE, UPDATE, "--", "sums.yaml")
    assert refused.ret == 1
    assert told(refused) == (
        "not written: the comparison with the earlier file failed: sums, accuracy vs baseline; "
        "--llm-update-baseline=accept writes it nevertheless"
    )
    assert path_of(project).read_bytes() == before
    accepted = project.runpytest(*workers, worse, BASELINE, ACCEPT, "sums.yaml")
    assert accepted.ret == 1, "what failed has failed"
    accepted.stdout.fnmatch_lines(
        ["baseline: base.json written: 1 suite, 30 samples", "  sums: accuracy 1.000 -> 0.700"], consecutive=True
    )
    assert project.runpytest(*workers, worse, BASELINE, "sums.yaml").ret == 0


def test_another_prompt_is_accepted(project: pytest.Pytester, workers: list[str]) -> None:
    """By questions it is compared, and needs no acceptance."""
    project.makepyfile(
        adds="import re\n\ndef right(prompt):\n    return str(int(re.search(r'[0-9]+', prompt)[0]) + 1)\n"
    )
    asked = "--llm-model=python:adds:right"
    assert project.runpytest(asked, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    project.makefile(".yaml", sums=suite(extra="prompt: {template: 'Add. {{ question }}'}\n"))
    refused = project.runpytest(*workers, asked, BASELINE, UPDATE, "--", "sums.yaml")
    assert told(refused).startswith("not written: the comparison with the earlier file failed: sums, accuracy")
    result = project.runpytest(*workers, asked, BASELINE, "--llm-compare=questions", UPDATE, "--", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*compared by questions: prompt.template changed*", "*+prompt.template: *Add. *"])
    assert told(result) == "written: 1 suite, 30 samples"
    assert project.runpytest(*workers, asked, BASELINE, "sums.yaml").ret == 0


def test_a_threshold_has_to_hold_even_if_the_comparison_is_accepted(
    project: pytest.Pytester, workers: list[str]
) -> None:
    gate = "--llm-gate=accuracy >= 0.9"
    result = project.runpytest(*workers, replies(project, range(9)), gate, BASELINE, ACCEPT, "sums.yaml")
    assert result.ret == 1
    assert told(result) == "not written: a gate failed: sums, accuracy >= 0.9"
    assert not path_of(project).exists()


@pytest.mark.parametrize(
    "selects",
    [["-k", "q1"], ["--deselect=sums.yaml::q3"], ["-m", "smoke"]],
    ids=["-k", "--deselect", "-m"],
)
def test_a_selection_runs_nothing(project: pytest.Pytester, workers: list[str], selects: list[str]) -> None:
    project.makefile(".yaml", other=suite("other", extra="tags: [smoke]\n"))
    result = project.runpytest(*workers, RIGHT, BASELINE, *selects, ACCEPT, ".")
    assert error(result).startswith("--llm-update-baseline is for whole suites, and ")
    assert " of 60 samples are selected: leave out what selects them" in error(result)
    assert not path_of(project).exists()


@pytest.mark.parametrize(
    ("selects", "name"),
    [
        (["--llm-limit=5"], "--llm-limit 5"),
        (["--lf"], "--lf"),
        (["--sw"], "--sw"),
        (["sums.yaml::q1"], "sums.yaml::q1"),
    ],
)
def test_a_selection_that_is_known_before_runs_nothing(
    project: pytest.Pytester, workers: list[str], selects: list[str], name: str
) -> None:
    result = project.runpytest(*workers, RIGHT, BASELINE, ACCEPT, *selects)
    assert error(result) == (
        f"--llm-update-baseline is for whole suites, and {name} selects some samples: leave one of the two out"
    )


def test_a_shard_is_not_kept(project: pytest.Pytester, workers: list[str]) -> None:
    """What is merged of all shards' reports can be the baseline."""
    options = [*workers, RIGHT, "--llm-shard=1/2", "sums.yaml"]
    assert error(project.runpytest(*options, BASELINE, ACCEPT)) == (
        "--llm-update-baseline is for whole suites, and --llm-shard 1/2 runs a part of them: leave "
        "--llm-update-baseline out; llmeval merge makes one report of those of the shards, which can be a baseline as "
        "it is"
    )


def test_an_unscored_sample_is_not_kept(project: pytest.Pytester, workers: list[str]) -> None:
    known = {f"{n} + 1": str(n + 1) for n in range(NUM_SAMPLES)}
    project.makeconftest(fake_model_conftest(replies=known, errors={"29 + 1": "out of order"}))
    result = project.runpytest(*workers, BASELINE, "--llm-allow-unscored=1", ACCEPT, "sums.yaml")
    assert result.ret == 1
    assert told(result) == "not written: 1 of 30 samples of 'sums' unscored"


def test_skipped_samples_are_not_kept(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(
        "import pytest\n@pytest.fixture(autouse=True)\ndef some(request):\n"
        "    if request.node.name == 'q3':\n        pytest.skip('not today')\n"
    )
    result = project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", "sums.yaml")
    assert result.ret == 1
    assert told(result) == "not written: a selection: 29 of 30 samples of 'sums'"


def test_a_session_that_was_stopped(project: pytest.Pytester, workers: list[str]) -> None:
    wrong = replies(project, [5])
    result = project.runpytest(*workers, wrong, BASELINE, "--llm-strict", "-x", ACCEPT, "sums.yaml")
    assert result.ret != 0
    assert told(result).startswith("not written: the session stopped early: stopping after 1 failures")
    project.makeconftest(
        "def pytest_runtest_setup(item):\n    if item.name == 'q7':\n        raise KeyboardInterrupt\n"
    )
    result = project.runpytest_subprocess("-p", "no:xdist", RIGHT, BASELINE, ACCEPT, "sums.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert told(result).startswith("not written: the session stopped early: interrupted")
    assert not path_of(project).exists()


def test_a_test_beside_the_suites_failed(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile(test_other="def test_one(): assert False")
    result = project.runpytest(*workers, RIGHT, BASELINE, ACCEPT, ".")
    assert told(result) == "not written: 1 test failed"


def test_wrong_answers_that_fail(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, replies(project, [3]), "--llm-strict", BASELINE, ACCEPT, "sums.yaml")
    assert result.ret == 1
    assert told(result) == "not written: the session ended with exit code 1: --llm-strict fails wrong answers"


def test_a_suite_that_cannot_be_collected(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", broken="suite: broken\nscore: nonsense\nsamples: []\n")
    options = ["--continue-on-collection-errors", RIGHT, BASELINE, ACCEPT, "."]
    result = project.runpytest(*workers, *options)
    assert told(result).startswith("not written: the session has problems: 'broken.yaml could not be collected:")


def test_nothing_ran(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile(test_other="def test_one(): pass")
    result = project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", "test_other.py")
    assert result.ret == 1
    assert told(result) == "not written: no sample ran"


def test_a_suite_does_not_vanish_unless_that_is_accepted(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", other=suite("other"))
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", ".").ret == 0
    before = path_of(project).read_bytes()
    result = project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", "sums.yaml")
    assert result.ret == 1
    assert told(result) == (
        "not written: it would lose what did not run: 'other' (30 samples); --llm-update-baseline=accept writes it "
        "nevertheless"
    )
    worse = replies(project, range(9), "worse")
    both = told(project.runpytest(*workers, worse, BASELINE, UPDATE, "--", "sums.yaml"))
    assert both.endswith("--llm-update-baseline=accept writes it nevertheless, and removes 'other' (30 samples)")
    assert path_of(project).read_bytes() == before
    accepted = project.runpytest(*workers, RIGHT, BASELINE, ACCEPT, "sums.yaml")
    assert accepted.ret == 0
    assert told(accepted) == "written: 1 suite, 30 samples; removes 'other' (30 samples)"
    assert read_report(path_of(project)).suite_names == ("sums",)


def test_several_models(project: pytest.Pytester, workers: list[str]) -> None:
    models = [replies(project, file="first"), replies(project, [1], file="second")]
    assert project.runpytest(*workers, *models, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    kept = read_report(path_of(project))
    assert [suite.models for suite in kept.suites] == [("replay:first.jsonl",), ("replay:second.jsonl",)]
    worse = [models[0], replies(project, range(12), file="second")]
    result = project.runpytest(*workers, *worse, BASELINE, "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gates: 1 failed, 1 passed"])
    fewer = project.runpytest(*workers, models[0], BASELINE, UPDATE, "--", "sums.yaml")
    assert fewer.ret == 1
    assert "it would lose what did not run: 'sums' on 'replay:second.jsonl'" in told(fewer)


def test_a_new_suite_is_added(project: pytest.Pytester, workers: list[str]) -> None:
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", ".").ret == 0
    project.makefile(".yaml", other=suite("other"))
    result = project.runpytest(*workers, RIGHT, BASELINE, UPDATE, "--", ".")
    assert result.ret == 0
    assert told(result) == "written: 2 suites, 60 samples"


def test_the_metrics_that_margins_name_are_kept(project: pytest.Pytester, workers: list[str]) -> None:
    rows = [{"id": f"s{n}", "question": f"{n}", "choices": ["a", "b"], "target": n % 2} for n in range(12)]
    project.makefile(".yaml", sums=f"suite: letters\nscore: choice\nsamples: {json.dumps(rows)}\n")
    model = "--llm-model=random"
    assert project.runpytest(*workers, model, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    brier = "--llm-max-drop=brier=0.1"
    result = project.runpytest(*workers, model, brier, BASELINE, "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["failed: letters, brier vs baseline: the baseline does not keep brier:*"])
    assert project.runpytest(*workers, model, brier, BASELINE, ACCEPT, "sums.yaml").ret == 1
    assert set(read_report(path_of(project)).suites[0].summary.metrics) == {"accuracy", "brier"}
    assert project.runpytest(*workers, model, brier, BASELINE, "sums.yaml").ret == 0


def test_the_baseline_of_the_ini_file(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeini("[pytest]\nllm_baseline = base.json\n")
    folder = project.mkdir("folder")
    (folder / "sums.yaml").write_text(suite())
    assert error(project.runpytest(*workers, RIGHT, "sums.yaml")).startswith("llm_baseline: there is no ")
    assert project.runpytest(*workers, RIGHT, UPDATE, "--", "sums.yaml").ret == 0
    assert path_of(project).exists()
    project.makeini("[pytest]\nllm_baseline = base.json\nllm_update_baseline = accept\n")
    assert "would replace the baseline in every run" in error(project.runpytest(*workers, RIGHT, "sums.yaml"))


@pytest.mark.parametrize("value", ["passed", "accept"])
@pytest.mark.parametrize("place", ["ini", "environment", "addopts", "PYTEST_ADDOPTS"])
def test_no_standing_order_writes_it(
    project: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch, place: str, value: str
) -> None:
    """Neither an ini file nor the environment of a CI job: a run after another, the baseline would follow a decline."""
    told = {
        "ini": "llm_update_baseline in the ini file",
        "environment": "PYTEST_LLM_UPDATE_BASELINE",
        "addopts": "--llm-update-baseline in addopts in the ini file",
        "PYTEST_ADDOPTS": "--llm-update-baseline in PYTEST_ADDOPTS",
    }
    match place:
        case "ini":
            project.makeini(f"[pytest]\nllm_update_baseline = {value}\n")
        case "environment":
            monkeypatch.setenv("PYTEST_LLM_UPDATE_BASELINE", value)
        case "addopts":
            project.makeini(f"[pytest]\naddopts = {UPDATE}={value}\n")
        case _:
            monkeypatch.setenv("PYTEST_ADDOPTS", f"{UPDATE}={value}")
    why = "would replace the baseline in every run: give --llm-update-baseline on the command line when it is meant"
    assert error(project.runpytest(*workers, RIGHT, BASELINE, "sums.yaml")) == f"{told[place]} {why}"
    assert not path_of(project).exists()


def test_gates_that_are_required(project: pytest.Pytester, workers: list[str]) -> None:
    """There is nothing to compare with at first: that is accepted, or is not."""
    required = [RIGHT, BASELINE, "--llm-require-gates"]
    result = project.runpytest(*workers, *required, UPDATE, "--", "sums.yaml")
    assert result.ret == 1
    assert told(result).startswith("not written: there is no earlier file to compare with, and --llm-require-gates ")
    assert told(project.runpytest(*workers, *required, ACCEPT, "sums.yaml")) == "written: 1 suite, 30 samples"
    assert project.runpytest(*workers, *required, UPDATE, "--", "sums.yaml").ret == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([UPDATE, "--"], "--llm-update-baseline writes the file of --llm-baseline: give --llm-baseline REPORT.json"),
        (["--llm-baseline=runs/*.json", ACCEPT], "writes one file, and --llm-baseline runs/*.json may be several"),
        (["--llm-baseline=base.txt", ACCEPT], "expected FILE.json, found base.txt"),
        (["--llm-baseline=sums.yaml/base.json", ACCEPT], "cannot write the report sums.yaml/base.json: "),
        ([BASELINE, ACCEPT, "--llm-report=./base.json"], "--llm-report base.json is also the baseline"),
        (
            [BASELINE, UPDATE],
            "--llm-update-baseline: expected accept, or passed, which is the same as no value; name paths before the "
            "option, found 'sums.yaml'",
        ),
    ],
)
def test_what_cannot_be_meant(project: pytest.Pytester, options: list[str], words: str) -> None:
    assert words in error(project.runpytest(RIGHT, *options, "sums.yaml"))


def test_nothing_is_written_where_nothing_runs(project: pytest.Pytester) -> None:
    assert project.runpytest(RIGHT, BASELINE, ACCEPT, "--collect-only", "sums.yaml").ret == 0
    assert not path_of(project).exists()


def test_the_report_says_what_the_session_ended_with(project: pytest.Pytester, workers: list[str]) -> None:
    """Also if nothing but the baseline failed it, and where pytest prints no summary."""
    project.makefile(".yaml", other=suite("other"))
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", ".").ret == 0
    arguments = [RIGHT, BASELINE, "--no-summary", "--llm-report=out.json", UPDATE, "--", "sums.yaml"]
    result = project.runpytest(*workers, *arguments)
    assert result.ret == 1
    assert told(result).startswith("not written: it would lose what did not run: 'other' (30 samples);")
    report = json.loads((project.path / "out.json").read_text())
    assert (report["exit_code"], report["problems"]) == (1, [])
    assert "is_brief" not in report


def test_commands_read_it(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    worse = replies(project, range(9), "worse")
    assert project.runpytest(worse, "--llm-report=worse.json", "sums.yaml").ret == 0
    assert project.runpytest(worse, "--llm-baseline=other.json", UPDATE, "--", "sums.yaml").ret == 0
    capsys.readouterr()
    for now in ("worse.json", "other.json"):
        assert main(["compare", "base.json", now]) == 1
        assert "accuracy 1.000 -> 0.700" in capsys.readouterr().out
        assert main(["gate", now, "--baseline", "base.json"]) == 1
        capsys.readouterr()
    assert main(["show", "other.json"]) == 0
    shown = capsys.readouterr().out
    assert "0.700 [" in shown
    assert "a baseline of --llm-update-baseline: it has the metrics that are compared, and no texts" in shown
    assert main(["show", "other.json", "--samples", "wrong"]) == 0
    assert "9 samples" in capsys.readouterr().out
    assert main(["view", "other.json", "--no-open", "-o", "page.html"]) == 0
    assert "a baseline of --llm-update-baseline" in (project.path / "page.html").read_text()
    assert main(["export", "other.json", "--to", "csv", "-o", "out.csv"]) == 0
    assert len((project.path / "out.csv").read_text().splitlines()) == NUM_SAMPLES + 1
    assert main(["merge", "other.json", "-o", "all.json"]) == 1
    assert "other.json is a kept baseline (--llm-update-baseline)" in capsys.readouterr().err
    again = project.runpytest("--llm-model=replay:base.json", "sums.yaml")
    assert again.ret != 0
    assert "Traceback" not in again.stdout.str()


def test_a_baseline_that_was_edited_is_refused(project: pytest.Pytester) -> None:
    assert project.runpytest(RIGHT, BASELINE, UPDATE, "--", "sums.yaml").ret == 0
    text = path_of(project).read_text()
    path_of(project).write_text(text.replace('"status": "correct"', '"status": "wrong"', 1))
    assert "it was changed after it was written" in error(project.runpytest(RIGHT, BASELINE, "sums.yaml"))


MODELS = """
import json, re

def old(prompt):
    return "good"

def new(prompt):
    return "better" if int(prompt.split()[-1]) % 4 else "bad"

def judge(prompt):
    system, user = (turn["content"] for turn in prompt)
    first, second = (re.search(rf"Reply {name}:\\n```\\n(.*?)\\n```", user, re.S)[1] for name in "AB")
    worth = ["bad", "good", "better"].index
    label = "tie" if first == second else "A" if worth(first) > worth(second) else "B"
    return json.dumps({"reason": "by its worth", "better": label})
"""
JUDGE = "--llm-judge=python:models:judge"


def test_replies_are_kept_of_suites_that_are_compared_with_them(project: pytest.Pytester, workers: list[str]) -> None:
    rows = json.dumps([{"id": f"s{n}", "question": f"Question {n}", "target": "good"} for n in range(12)])
    pairs = f"suite: pairs\nsamples: {rows}\nscore: {{pairwise: {{against: {{baseline: true}}}}}}\n"
    project.makefile(".yaml", pairs=pairs)
    project.makepyfile(models=MODELS)
    old, new = "--llm-model=python:models:old", "--llm-model=python:models:new"
    alone = project.runpytest(*workers, old, JUDGE, BASELINE, UPDATE, "--", "pairs.yaml")
    assert "pairs.yaml compares its replies with those of a baseline: give --llm-baseline a report that" in error(alone)
    exact = "--llm-set=pairs: score=exact"
    assert project.runpytest(*workers, old, exact, BASELINE, UPDATE, "--", "pairs.yaml").ret == 0
    for opponent, rate in (("good", 0.75), ("better", 0.5)):
        records = read_report(path_of(project)).records
        assert {record.output for record in records} >= {opponent}
        assert all(record.question for record in records)
        result = project.runpytest(*workers, new, JUDGE, BASELINE, "--llm-report=out.json", UPDATE, "--", "pairs.yaml")
        assert result.ret == 0, result.stdout.str()
        report: dict[str, Any] = json.loads((project.path / "out.json").read_text())
        assert report["suites"][0]["metrics"]["win_rate"]["value"] == pytest.approx(rate)
    sums = project.runpytest(*workers, RIGHT, "--llm-baseline=sums.json", UPDATE, "--", "sums.yaml")
    assert sums.ret == 0
    assert all(record.output is None for record in read_report(project.path / "sums.json").records)


def test_replies_of_a_store_are_known_again(project: pytest.Pytester, workers: list[str]) -> None:
    """Identity and time of each reply stay, so that a comparison knows which are the baseline's own."""
    project.makepyfile(models="def new(prompt):\n    return str(int(prompt.split()[0]) + 1)\n")
    options = ["--llm-model=python:models:new", "--llm-store=store", "--llm-store-max-age=1d", BASELINE]
    assert project.runpytest(*workers, *options, UPDATE, "--", "sums.yaml").ret == 0
    assert all(record.kept_as and record.asked_at for record in read_report(path_of(project)).records)
    result = project.runpytest(*workers, *options, "sums.yaml")
    assert "are judged on the baseline's own replies" in " ".join(result.stdout.str().split())


def test_hand_written_tests(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile(
        test_tone="import pytest\n@pytest.mark.parametrize('n', range(12))\n"
        "def test_tone(llm_record, n):\n    llm_record(suite='tone', id=str(n), correct=True)\n"
    )
    assert project.runpytest(*workers, BASELINE, UPDATE, "--", "test_tone.py").ret == 0
    assert read_report(path_of(project)).records[0].nodeid == "test_tone.py::test_tone[0]"
    assert project.runpytest(*workers, BASELINE, "test_tone.py").ret == 0
    part = project.runpytest(*workers, BASELINE, "-k", "test_tone and 1", UPDATE, "--", "test_tone.py")
    assert told(part) == "not written: a selection: 'tone' (-k test_tone and 1)"
