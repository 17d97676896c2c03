"""Reports that were tampered with: one of the demo model on real suites, changed in many ways, is refused in each."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.reporting.report.recount import fitting, misfit
from pytest_llmeval.reporting.report.report import Comparison, Report
from pytest_llmeval.reporting.report.summaries import summarize_suite
from pytest_llmeval.reporting.storage.json_form import head_to_json, record_from_json, report_from_json
from tests.commands.saved_reports import info, report_of, sample, samples, saved
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY
from tests.support import REPOSITORY, clean_environment, fake_model_conftest

Document = dict[str, Any]
"""A report as JSON has it: its first suite has options, categories and clusters, its second writes numbers."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """What the demo model found on two of the example suites."""
    folder = tmp_path_factory.mktemp("real")
    suites = REPOSITORY / "example_suites" / "every_key"
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-pno:cacheprovider",
        "-pno:xdist",
        f"--rootdir={suites}",
        str(suites),
    ]
    call += ["--llm-model=demo", f"--llm-report={folder / 'report.json'}"]
    done = subprocess.run(call, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout
    found: Document = json.loads((folder / "report.json").read_text())
    return found


def read(document: Document) -> Report:
    return report_from_json(document, [record_from_json(record) for record in document["records"]])


def first_wrong(document: Document) -> int:
    return next(place for place, record in enumerate(document["records"]) if record["status"] == "wrong")


def remove_record(document: Document) -> None:
    del document["records"][first_wrong(document)]


def remove_record_and_count_less(document: Document) -> None:
    remove_record(document)
    for key in ("num_expected", "num_scored"):
        document["suites"][0][key] -= 1


def remove_record_and_compute_anew(document: Document) -> None:
    """All of the suite's numbers are those of the records that are left; only its fingerprint tells."""
    remove_record(document)
    report = read(document)
    suite = report.suites[0]
    records = [record for record in report.records if record.suite == suite.info.name]
    again = summarize_suite(suite.info, records, num_expected=len(records), num_skipped=0, model="demo")
    made = head_to_json(report_of([], [], suites=(again,)))["suites"]
    assert isinstance(made, list)
    document["suites"][0] = {**document["suites"][0], **made[0], "num_samples": len(records)}  # type: ignore[dict-item]


def copy_record(document: Document) -> None:
    document["records"].append(document["records"][0])


def copy_record_over_a_wrong_one(document: Document) -> None:
    document["records"][first_wrong(document)] = document["records"][0]


def set_at(*keys: Any, to: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        place = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to(place[keys[-1]]) if callable(to) else to

    return change


def in_metric(name: str, key: str, to: Any) -> Callable[[Document], None]:
    return set_at("suites", 0, "metrics", name, key, to=to)


def in_wrong_record(*keys: str, to: Any) -> Callable[[Document], None]:
    return lambda document: set_at("records", first_wrong(document), *keys, to=to)(document)


def turn_wrong_into_right(document: Document) -> None:
    record = document["records"][first_wrong(document)]
    record["status"] = "correct"
    record["values"] |= {"accuracy": 1.0, "skill": 1.0}


def swap_outcomes_over_categories(document: Document) -> None:
    """Every number of the whole suite stays; those of two categories do not."""
    records = document["records"][:32]
    wrong = next(record for record in records if record["status"] == "wrong")
    right = next(one for one in records if one["status"] == "correct" and one["category"] != wrong["category"])
    for key in ("status", "values", "chance", "cluster"):
        wrong[key], right[key] = right[key], wrong[key]


def remove_metric(document: Document) -> None:
    """From the suite and its categories, and of what the report defines."""
    for suite in document["suites"]:
        for part in (suite, *suite["categories"].values()):
            part["metrics"].pop("accuracy", None)
        suite["macro"].pop("accuracy", None)
    document["definitions"].pop("accuracy")
    document["averages"] = []


def remove_category(document: Document) -> None:
    document["suites"][0]["categories"].popitem()


def move_record(document: Document) -> None:
    document["records"][first_wrong(document)]["suite"] = "every_key_dataset"


def copy_suite(document: Document) -> None:
    document["suites"].append(document["suites"][0])


def remove_suite_with_its_records(document: Document) -> None:
    name = document["suites"].pop(0)["name"]
    document["records"] = [record for record in document["records"] if record["suite"] != name]


TAMPERED: list[tuple[str, Callable[[Document], None], str]] = [
    ("a record is removed", remove_record, "suite 'every_key': num_expected is 32, and its records give 31"),
    ("and the counts with it", remove_record_and_count_less, "every_key': category "),
    (
        "and every number",
        remove_record_and_compute_anew,
        "suite 'every_key': its fingerprint does not match its samples",
    ),
    ("a record is copied", copy_record, "sample 'q01' of suite 'every_key' is in it twice"),
    ("a record is another's copy", copy_record_over_a_wrong_one, "sample 'q01' of suite 'every_key' is in it twice"),
    ("a value", in_metric("accuracy", "value", 0.99), "every_key': accuracy is 0.99, and its records give 0.90625"),
    ("no value", in_metric("brier", "value", None), "every_key': brier is none, and its records give 0.0"),
    ("an n", in_metric("skill", "n", 320), "every_key': skill: n is 320, and its records give 32"),
    ("a corpus metric", in_metric("ece", "value", 0.0), "every_key': ece is 0, and its records give 0.0"),
    (
        "a category",
        set_at("suites", 0, "categories", "job", "metrics", "brier", "value", to=0.01),
        "category job: brier is 0.01, and its records give 0.1",
    ),
    ("a category is removed", remove_category, "suite 'every_key': its categories are "),
    (
        "a category's count",
        set_at("suites", 0, "categories", "job", "num_scored", to=60),
        "category job: num_scored is 60",
    ),
    (
        "a mean over categories",
        set_at("suites", 0, "macro", "accuracy", "value", to=1.0),
        "over categories: accuracy is 1",
    ),
    (
        "a mean over suites",
        set_at("averages", 0, "macro", "accuracy", "value", to=1.0),
        "macro average over suites: accuracy is 1",
    ),
    ("a bin", set_at("suites", 0, "reliability", 14, "n", to=30), "every_key': n of reliability[14] is 30, and its"),
    ("an outcome", turn_wrong_into_right, "suite 'every_key': accuracy is 0.90625, and its records give 0.9375"),
    ("two outcomes", swap_outcomes_over_categories, "suite 'every_key': category "),
    (
        "a status",
        in_wrong_record("status", to="correct"),
        "' of suite 'every_key' has the status correct and accuracy = 0.0, expected",
    ),
    ("an unscored one", in_wrong_record("status", to="unscored"), "num_scored is 32, and its records give 31"),
    ("a sample's number", in_wrong_record("values", "brier", to=0.0), "every_key': brier is 0.0"),
    (
        "a sample's number is gone",
        in_wrong_record("values", "brier", to=None),
        "no metrics can be computed from its records: ",
    ),
    ("a sample's category", in_wrong_record("category", to="place"), "suite 'every_key': category "),
    (
        "a sample's model",
        in_wrong_record("model", to="gpt2"),
        "its models are demo, and those of its records demo, gpt2",
    ),
    (
        "a sample's fingerprint",
        in_wrong_record("fingerprint", to="0" * 64),
        "its fingerprint does not match its samples",
    ),
    ("the suite's fingerprint", set_at("suites", 0, "fingerprint", to="0" * 64), "its fingerprint does not match its"),
    ("a sample's cluster", in_wrong_record("cluster", to="bedroom"), ": num_clusters is "),
    (
        "reasons that no sample gives",
        set_at("suites", 0, "not_measurable", to={"brier": {"no joke": 3}}),
        "suite 'every_key': not_measurable differs from its records",
    ),
    ("a metric is removed", remove_metric, "it has no accuracy, and its records have one"),
    (
        "a definition stays",
        set_at("definitions", "bleu_4", to={"version": 1}),
        "bleu_4 is among its definitions, and no suite has it",
    ),
    ("a record is moved", move_record, "suite 'every_key': num_expected is 32, and its records give 31"),
    ("a suite is copied", copy_suite, "suite 'every_key' is in it twice"),
    (
        "a suite is removed",
        lambda document: document["suites"].pop(0),
        "is of suite 'every_key', which has no summary in it",
    ),
    (
        "and its records with it",
        remove_suite_with_its_records,
        ", … is among its definitions, and no suite has it",
    ),
    ("what is expected", set_at("suites", 0, "num_expected", to=31), "every_key': num_expected is 31"),
    (
        "the whole suite",
        set_at("suites", 0, "num_samples", to=31),
        "every_key': num_samples is 31, and its records give 32",
    ),
    (
        "no answers",
        set_at("suites", 1, "num_no_answer", to=0),
        "every_key_dataset': num_no_answer is 0, and its records",
    ),
    ("tokens", set_at("suites", 0, "num_tokens", to=1), "every_key': num_tokens is 1, and its records give"),
    ("seconds", set_at("suites", 1, "seconds", to=0.0), "every_key_dataset': seconds is 0, and its records give"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "told"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
def test_what_was_tampered_with(real: Document, tamper: Callable[[Document], object], told: str) -> None:
    document = copy.deepcopy(real)
    tamper(document)
    found = misfit(read(document), "the report r.json")
    assert found is not None
    assert found.startswith("the report r.json: its numbers and its records do not agree: ")
    assert told in found
    assert "\n" not in found


@pytest.mark.slow
def test_a_report_as_it_was_written_fits(real: Document) -> None:
    report = read(real)
    again = fitting(report, "r.json", bounds_of=("ece",))
    assert head_to_json(again) == head_to_json(report)
    assert [record.score.values for record in again.records] == [record.score.values for record in report.records]
    assert again.records[0].question is None  # what no number is made of is not kept


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ({"p_value": 0.04}, "suite 'a', other against demo: accuracy: p_value is 0.04, and its records give 0.453125"),
        ({"num_lost": 9}, "suite 'a', other against demo: accuracy: num_lost is 9, and its records give 5"),
    ],
)
def test_flips_of_two_models_are_those_of_the_records(edit: dict[str, Any], told: str) -> None:
    both = [*samples("a", "cccccwwccc"), *samples("a", "wwwwwccccc", model="other")]
    whole = report_of(both, [info("a")], models=({"name": "demo"}, {"name": "other"}))
    assert misfit(whole, "r.json") is None
    (comparison,) = whole.comparisons
    accuracy = comparison.differences["accuracy"]
    old = replace(whole, comparisons=(with_accuracy(comparison, p_value=None),))
    assert accuracy.p_value == pytest.approx(0.453125)
    assert misfit(old, "r.json") is None  # from before there were p-values
    found = misfit(replace(whole, comparisons=(with_accuracy(comparison, **edit),)), "r.json")
    assert found is not None
    assert told in found


@pytest.mark.parametrize("size", [1, 2])
def test_clusters_of_one_sample_are_independent(size: int) -> None:
    both = [*samples("a", "cccccwwccc"), *samples("a", "wwwwwccccc", model="other")]
    both = [replace(one, cluster=f"c{place % 10 // size}") for place, one in enumerate(both)]
    whole = report_of(both, [info("a", cluster="c")], models=({"name": "demo"}, {"name": "other"}))
    assert misfit(whole, "r.json") is None
    (comparison,) = whole.comparisons
    assert comparison.differences["accuracy"].num_clusters == 10 / size
    found = misfit(replace(whole, comparisons=(with_accuracy(comparison, p_value=0.04),)), "r.json")
    assert (found is not None and "p_value is 0.04" in found) is (size == 1)


def with_accuracy(comparison: Comparison, **values: Any) -> Comparison:
    accuracy = replace(comparison.differences["accuracy"], **values)
    return replace(comparison, differences={**comparison.differences, "accuracy": accuracy})


@pytest.fixture
def edited(tmp_path: Path) -> tuple[str, str]:
    """A report, and the same one of which half of the wrong records are gone."""
    whole = report_of(samples("a", "c" * 20 + "w" * 20), [info("a", gates={"accuracy >= 0.4": 3})])
    edited = replace(whole, records=whole.records[:30])
    return saved(tmp_path, "whole.json", whole), saved(tmp_path, "edited.json", edited)


TOLD = (
    "its numbers and its records do not agree: suite 'a': num_expected is 40, and its records give 30; "
    "use the report file that the run wrote, unchanged\n"
)


def test_commands_that_decide_refuse(
    edited: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, other = edited
    merged = str(tmp_path / "merged.json")
    for call in (
        ["gate", other],
        ["gate", whole, "--baseline", other],
        ["compare", whole, other],
        ["compare", other, whole],
        ["merge", other, "-o", merged],
    ):
        assert main(call) == 1
        assert capsys.readouterr() == ("", f"llmeval {call[0]}: the report {other}: {TOLD}")
    assert not Path(merged).exists()
    assert main(["gate", whole]) == 0


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_show_warns(edited: tuple[str, str], form: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole, other = edited
    assert main(["show", other, "--format", form]) == 0
    shown = capsys.readouterr()
    assert shown.out
    assert shown.err == f"llmeval show: the report {other}: {TOLD}"
    assert main(["show", whole, "--format", form]) == 0
    assert capsys.readouterr().err == ""


def test_a_session_refuses_a_baseline_before_it_runs(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    assert llm_pytester.runpytest("-pno:xdist", "--llm-report=out.json", "capitals.yaml").ret == 0
    path = llm_pytester.path / "out.json"
    document = json.loads(path.read_text())
    document["suites"][0]["metrics"]["accuracy"]["value"] = 0.0
    path.write_text(json.dumps(document))
    result = llm_pytester.runpytest("-pno:xdist", "--llm-baseline=out.json", "capitals.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --llm-baseline: the report out.json: its numbers*suite 'capitals': accuracy is 0, and its*0.666*"]
    )


def with_interval(report: Report, metric: str, **values: Any) -> Report:
    """The report of one suite with other numbers in the interval of a metric, and made by the version that reads it."""
    (suite,) = report.suites
    metrics = {**suite.summary.metrics, metric: replace(suite.summary.metrics[metric], **values)}
    return replace(
        report,
        suites=(replace(suite, summary=replace(suite.summary, metrics=metrics)),),
        environment={"versions": {"pytest-llmeval-suites": version("pytest-llmeval-suites")}},
    )


@pytest.mark.parametrize("interval", [None, "bootstrap"])
def test_an_interval_of_another_formula_or_another_numpy_is_computed_anew(interval: str | None) -> None:
    whole = report_of(samples("a", "cccwwccwcc"), [info("a", interval=interval)])
    other = with_interval(whole, "accuracy", ci_low=0.4, ci_high=0.98, stderr=0.16)
    assert misfit(other, "r.json") is None
    assert fitting(other, "r.json").suites == whole.suites


@pytest.mark.parametrize(
    ("metric", "interval"),
    [("accuracy", None), ("accuracy", "bootstrap"), ("f1_macro", None), ("f1_macro", "bootstrap")],
)
def test_no_gate_believes_an_edited_interval(
    metric: str, interval: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [
        {"accuracy": 1.0, "gold": 0.0, "predicted": 0.0},
        {"accuracy": 0.0, "gold": 1.0, "predicted": 0.0},
        {"accuracy": 1.0, "gold": 1.0, "predicted": 1.0},
    ]
    records = [
        sample("a", f"q{place}", "correct" if own["accuracy"] else "wrong", values=own)
        for place, own in enumerate(values * 5)
    ]
    whole = report_of(records, [info("a", metrics=(metric,), scorer="own", interval=interval)])
    found = whole.suites[0].summary.metrics[metric]
    assert found.ci_low is not None
    assert found.ci_low < 0.6
    edited = saved(tmp_path, "edited.json", with_interval(whole, metric, ci_low=0.64, ci_high=0.66))
    assert main(["gate", edited, "--gate", f"ci_low({metric}) > 0.6"]) == 1
    assert f"{found.ci_low:.3f}" in capsys.readouterr().out
    assert main(["gate", edited, "--gate", f"{metric} > 0.6"]) == 0


def test_a_report_of_another_formula_of_intervals_decides(llm_pytester: pytest.Pytester) -> None:
    """Values that are all 0 or 1 had Student's t in an earlier state of the version that they have Wilson's in."""
    llm_pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("i", range(12))
        def test_q(i, llm_record):
            llm_record(suite="s", id=str(i), score=float(i % 3 == 0))
        """
    )
    assert llm_pytester.runpytest("-pno:xdist", "--llm-report=old.json").ret == 0
    path = llm_pytester.path / "old.json"
    document = json.loads(path.read_text())
    document["suites"][0]["metrics"]["score"] |= {
        "kind": "mean",
        "stderr": 0.1421338109037403,
        "ci_low": 0.020498924786929718,
        "ci_high": 0.6461677418797369,
    }
    path.write_text(json.dumps(document))
    assert main(["gate", str(path), "--gate", "score >= 0.3"]) == 0
    assert main(["show", str(path)]) == 0
    assert llm_pytester.runpytest("-pno:xdist", "--llm-baseline=old.json").ret == 0


def test_a_cost_that_is_not_that_of_the_records_is_found() -> None:
    records = [replace(sample("a", f"q{place}", "correct", values={"accuracy": 1.0}), cost=0.5) for place in range(3)]
    whole = report_of(records, [info("a")])
    assert whole.suites[0].cost == 1.5
    assert misfit(whole, "r.json") is None
    cheaper = replace(whole, suites=(replace(whole.suites[0], cost=0.5),))
    assert "cost is 0.5" in str(misfit(cheaper, "r.json"))
