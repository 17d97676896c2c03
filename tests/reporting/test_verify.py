"""Reports that were changed after they were written: a digest tells, and in older reports the records do."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.cli import main
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.report.summaries import summarize_suite
from pytest_llmeval.reporting.report.verify import report_problem, verify_report
from pytest_llmeval.reporting.storage.json_form import head_to_json, record_from_json, report_from_json
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from tests.commands.saved_reports import info, report_of, sample, samples, saved
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY
from tests.properties import examples
from tests.reporting import reports as made
from tests.reporting.reports import sealed
from tests.reporting.test_damaged_reports import places, whole_report
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


TAMPERED: list[tuple[str, Callable[[Document], object], str]] = [
    ("a record is removed", remove_record, "suite 'every_key': num_expected is 32, and its records give 31"),
    ("and the counts with it", remove_record_and_count_less, "every_key': metrics.accuracy.value is 0.90625, and its"),
    (
        "and every number",
        remove_record_and_compute_anew,
        "suite 'every_key': its fingerprint does not match its samples",
    ),
    ("a record is copied", copy_record, "sample 'q01' of suite 'every_key' is in it twice"),
    ("a record is another's copy", copy_record_over_a_wrong_one, "sample 'q01' of suite 'every_key' is in it twice"),
    ("a value", in_metric("accuracy", "value", 0.99), "metrics.accuracy.value is 0.99, and its records give 0.90625"),
    ("no value", in_metric("brier", "value", None), "metrics.brier.value is none, and its records give 0.0"),
    ("an n", in_metric("skill", "n", 320), "metrics.skill.n is 320, and its records give 32"),
    ("a corpus metric", in_metric("ece", "value", 0.0), "metrics.ece.value is 0, and its records give 0.0"),
    (
        "a category",
        set_at("suites", 0, "categories", "job", "metrics", "brier", "value", to=0.01),
        "categories.job.metrics.brier.value is 0.01, and its records give 0.1",
    ),
    ("a category is removed", remove_category, "is only in its records"),
    (
        "a category's count",
        set_at("suites", 0, "categories", "job", "num_scored", to=60),
        "categories.job.num_scored is 60",
    ),
    ("a mean over categories", set_at("suites", 0, "macro", "accuracy", "value", to=1.0), "macro.accuracy.value is 1"),
    ("a bin", set_at("suites", 0, "reliability", 14, "n", to=30), "reliability[14].n is 30, and its"),
    ("an outcome", turn_wrong_into_right, "metrics.accuracy.value is 0.90625, and its records give 0.9375"),
    ("two outcomes", swap_outcomes_over_categories, "suite 'every_key': categories."),
    (
        "a status",
        in_wrong_record("status", to="correct"),
        "' of suite 'every_key' has the status correct and accuracy = 0.0, expected",
    ),
    ("an unscored one", in_wrong_record("status", to="unscored"), "num_scored is 32, and its records give 31"),
    ("a sample's number", in_wrong_record("values", "brier", to=0.0), "metrics.brier.value is 0.0"),
    (
        "a sample's number is gone",
        in_wrong_record("values", "brier", to=None),
        "no metrics can be computed from its records: ",
    ),
    ("a sample's category", in_wrong_record("category", to="place"), "suite 'every_key': categories."),
    ("a sample's model", in_wrong_record("model", to="gpt2"), "models[1] is none, and its records give 'gpt2'"),
    (
        "a sample's fingerprint",
        in_wrong_record("fingerprint", to="0" * 64),
        "its fingerprint does not match its samples",
    ),
    ("the suite's fingerprint", set_at("suites", 0, "fingerprint", to="0" * 64), "its fingerprint does not match its"),
    ("a sample's cluster", in_wrong_record("cluster", to="bedroom"), ".num_clusters is "),
    (
        "reasons that no sample gives",
        set_at("suites", 0, "not_measurable", to={"brier": {"no joke": 3}}),
        "not_measurable.brier is only in its summary",
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
    ("and its records with it", remove_suite_with_its_records, "is among its definitions, and no suite has it"),
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
CHANGED = "it was changed after it was written: its digest is not the one of its contents"
UNCHANGED = "; use the report file that the run wrote, unchanged"


def lowered(document: Document) -> Document:
    """The report as one of schema 2, which has no digest."""
    return {key: value for key, value in document.items() if key not in ("digest", "selection")} | {"schema": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "told"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
def test_what_was_tampered_with(
    real: Document, tamper: Callable[[Document], object], told: str, tmp_path: Path
) -> None:
    document = copy.deepcopy(real)
    tamper(document)
    assert problem_of(document, tmp_path) == f"the report r.json: {CHANGED}{UNCHANGED}"
    found = problem_of(lowered(document), tmp_path)
    assert found is not None
    assert found.startswith("the report r.json: its ")
    assert " do not agree: " in found
    assert told in found
    assert found.endswith(UNCHANGED)
    assert "\n" not in found


def problem_of(document: Document, folder: Path) -> str | None:
    path = folder / "r.json"
    path.write_text(json.dumps(document), encoding="ascii")
    return report_problem(read_report(path), "the report r.json")


@pytest.mark.slow
def test_a_report_as_it_was_written_fits(real: Document) -> None:
    for report in (read(real), read(lowered(real))):
        again = verify_report(report, "r.json", bounds_of=("ece",))
        assert head_to_json(again) == head_to_json(report)
        assert [record.values for record in again.records] == [record.values for record in report.records]
        assert again.records[0].question is None  # what no number is made of is not kept


def changed(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, dict):
        return {**value, "other": 1}
    if isinstance(value, list):
        return [*value, *value[:1]] if value else [1]
    if isinstance(value, str):
        return value + "x"
    return not value if isinstance(value, bool) else 1 if value is None else value + 1


def test_a_change_anywhere_is_noticed(tmp_path: Path) -> None:
    """One place after the other, in a report that has every part; and each of its keys is taken away."""
    whole, path = whole_report(tmp_path / "whole.json"), tmp_path / "r.json"
    assert problem_of(whole, tmp_path) is None
    all_places = [place for place in places(whole) if place not in (("schema",), ("digest",))]
    assert len(all_places) > 250
    for place in all_places:
        for removes in (False, True):
            document = copy.deepcopy(whole)
            part: Any = document
            for key in place[:-1]:
                part = part[key]
            if removes:
                del part[place[-1]]
            else:
                part[place[-1]] = changed(part[place[-1]])
            path.write_text(json.dumps(document), encoding="ascii")
            try:
                report = read_report(path)
            except ReportError:
                continue  # the value is none for its place
            assert report.altered == "its digest is not the one of its contents", (place, removes)


@settings(max_examples=examples(60))
@given(report=made.reports, place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_bit_that_flips_changes_the_digest_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, report: Report, place: int, bit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    write_report(report, path)
    whole = path.read_bytes()
    expected = json.loads(whole)
    path.write_bytes(bytes(byte ^ (1 << bit if at == place % len(whole) else 0) for at, byte in enumerate(whole)))
    try:
        found = read_report(path)
        tuple(found.records)
    except ReportError:
        return
    assert found.altered is not None or json.loads(path.read_bytes()) == expected


@settings(max_examples=examples(60))
@given(report=made.reports)
def test_the_digest_is_that_of_what_json_writes(tmp_path_factory: pytest.TempPathFactory, report: Report) -> None:
    path = tmp_path_factory.getbasetemp() / "digest.json"
    write_report(report, path)
    document = json.loads(path.read_bytes())
    assert document.pop("digest") == hashlib.sha256(json.dumps(document).encode()).hexdigest()


LINES: list[tuple[str, Callable[[list[str]], list[str]]]] = [
    ("a record is removed", lambda lines: [line for line in lines if '"id": "q2"' not in line]),
    ("two change places", lambda lines: [*lines[:-6], lines[-5], lines[-6], *lines[-4:]]),
    ("a text is edited", lambda lines: [line.replace('"answer": "no"', '"answer": "yes"') for line in lines]),
    ("an option is edited", lambda lines: [line.replace('"device": "cpu"', '"device": "gpu"') for line in lines]),
]


@pytest.mark.parametrize("edit", [case[1] for case in LINES], ids=[case[0] for case in LINES])
def test_lines_that_were_edited_in_their_place(edit: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    path = Path(saved(tmp_path, "r.json", report_of(samples("a", "cwcw"), [info("a")])))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines))
    assert report_problem(read_report(path), "r.json") is None
    assert edit(list(lines)) != lines
    path.write_text("".join(edit(list(lines))))
    assert report_problem(read_report(path), "r.json") == f"r.json: {CHANGED}{UNCHANGED}"


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda document: document.pop("digest"), "it has no digest"),
        (set_at("digest", to="0" * 64), "its digest is not the one of its contents"),
        (set_at("digest", to=None), "its digest is not the one of its contents"),
        (set_at("schema", to=2), "its schema is 2, and it has 'digest', which is newer"),
        (set_at("schema", to=1), "its schema is 1, and it has 'digest', which is newer"),
        (
            lambda document: (document.pop("digest"), document.update(schema=2)),
            "its schema is 2, and it has 'selection', which is newer",
        ),
    ],
)
def test_a_report_without_its_digest(edit: Callable[[Document], object], told: str, tmp_path: Path) -> None:
    whole = report_of(samples("a", "cw"), [info("a")])
    document = json.loads(Path(saved(tmp_path, "whole.json", whole)).read_bytes())
    edit(document)
    found = problem_of(document, tmp_path)
    assert found == f"the report r.json: it was changed after it was written: {told}{UNCHANGED}"


@pytest.mark.parametrize("schema", [1, 2])
def test_a_lower_schema_helps_nobody(schema: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither an edited number nor an edited record gets through, and what gates use is what the records give."""
    path = Path(saved(tmp_path, "r.json", report_of(samples("a", "ccww"), [info("a")])))
    document = lowered(json.loads(path.read_bytes())) | {"schema": schema}
    call = ["gate", str(path), "--gate", "accuracy >= 0.6"]
    for change, told in (
        (lambda edited: None, "accuracy 0.500"),
        (in_metric("accuracy", "value", 0.75), "metrics.accuracy.value is 0.75, and its records give 0.5"),
        (turn_wrong_into_right, "metrics.accuracy.value is 0.5, and its records give 0.75"),
    ):
        edited = copy.deepcopy(document)
        change(edited)
        path.write_text(json.dumps(edited))
        assert main(call) == 1
        assert told in "".join(capsys.readouterr())


def test_numbers_of_gates_are_those_of_the_records_also_under_a_right_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody who writes the digest anew has to edit records: the numbers in a report decide nothing."""
    records = [replace(one, category="x" if place % 2 else "y") for place, one in enumerate(samples("a", "ccwwcwww"))]
    path = Path(saved(tmp_path, "r.json", report_of(records, [info("a", gates={"accuracy >= 0.6": 3})])))
    document = json.loads(path.read_bytes())
    suite = document["suites"][0]
    for metrics in (suite["metrics"], suite["macro"], *(part["metrics"] for part in suite["categories"].values())):
        metrics["accuracy"] |= {"value": 0.99, "ci_low": 0.98, "ci_high": 1.0}
    suite["num_scored"] = 8
    path.write_text(json.dumps(sealed(document)))
    assert report_problem(read_report(path), "r.json") is None
    rules = ["accuracy", "ci_low(accuracy)", "ci_high(accuracy)", "category.x.accuracy", "macro.accuracy"]
    for rule in rules:
        assert main(["gate", str(path), "--gate", f"{rule} >= 0.9"]) == 1
        assert "0.99" not in capsys.readouterr().out
    assert main(["gate", str(path)]) == 1


@pytest.mark.parametrize("end", [sealed, lowered])
def test_parts_of_a_suite_without_metrics_have_none(
    end: Callable[[Document], Document], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite's metrics cannot be taken out of a report to have the gate believe what is written of its categories."""
    records = [replace(one, category="x" if place % 2 else "y") for place, one in enumerate(samples("a", "cwww"))]
    path = Path(saved(tmp_path, "r.json", report_of(records, [info("a")])))
    document = json.loads(path.read_bytes()) | {"definitions": {}, "averages": []}
    suite = document["suites"][0]
    for metrics in (suite["macro"], *(part["metrics"] for part in suite["categories"].values())):
        metrics["accuracy"]["value"] = 1.0
    suite["metrics"] = {}
    path.write_text(json.dumps(end(document)))
    for rule in ("category.x.accuracy >= 0.9", "macro.accuracy >= 0.9"):
        assert main(["gate", str(path), "--gate", rule]) == 1
        told = "".join(capsys.readouterr())
        assert "categories.x.metrics" in told if end is lowered else "was not measured" in told


@pytest.fixture
def edited(tmp_path: Path) -> tuple[str, str]:
    """A report, and the same one of which half of the wrong records are gone."""
    whole = saved(tmp_path, "whole.json", report_of(samples("a", "c" * 20 + "w" * 20), [info("a", gates=GATES)]))
    document = json.loads(Path(whole).read_bytes())
    del document["records"][30:]
    (tmp_path / "edited.json").write_text(json.dumps(document))
    return whole, str(tmp_path / "edited.json")


GATES = {"accuracy >= 0.4": 3}
TOLD = f"{CHANGED}{UNCHANGED}\n"


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
    result.stderr.fnmatch_lines([f"ERROR: --llm-baseline: the report out.json: {CHANGED}{UNCHANGED}"])


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
    assert report_problem(other, "r.json") is None
    assert verify_report(other, "r.json").suites == whole.suites


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


@pytest.mark.parametrize("schema", [2, 3])
def test_corpus_metrics_of_samples_in_clusters_fit(schema: int) -> None:
    """Their intervals are not computed again, and what belongs to these stays as it is."""
    records = [
        replace(
            one, cluster=f"c{place % 3}", category="x" if place % 2 else "y", values={**one.values, "confidence": 0.7}
        )
        for place, one in enumerate(samples("a", "ccwccwccwc"))
    ]
    whole = report_of(records, [info("a", metrics=("accuracy", "ece"), scorer="choice", cluster="c")])
    assert whole.suites[0].summary.metrics["ece"].num_clusters == 3
    assert verify_report(replace(whole, schema=schema), "r.json").suites == whole.suites


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
    path.write_text(json.dumps(sealed(document)))
    assert main(["gate", str(path), "--gate", "score >= 0.3"]) == 0
    assert main(["show", str(path)]) == 0
    assert llm_pytester.runpytest("-pno:xdist", "--llm-baseline=old.json").ret == 0


def test_a_cost_that_is_not_that_of_the_records_is_found() -> None:
    records = [replace(sample("a", f"q{place}", "correct", values={"accuracy": 1.0}), cost=0.5) for place in range(3)]
    whole = report_of(records, [info("a")])
    assert whole.suites[0].cost == 1.5
    assert report_problem(replace(whole, schema=2), "r.json") is None
    cheaper = replace(whole, suites=(replace(whole.suites[0], cost=0.5),), schema=2)
    assert "cost is 0.5" in str(report_problem(cheaper, "r.json"))
