"""``load_report``: the scores of a saved report as a table, and their means by subject."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_llmeval
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.storage.journal import Journal
from pytest_llmeval.reporting.storage.report_file import write_report
from pytest_llmeval.reporting.writers.exports import LoadedReport
from tests.commands.saved_reports import info, report_of
from tests.reporting.reports import make_record, make_report
from tests.support import clean_environment

WRONG: dict[str, Any] = {"status": "wrong", "values": {"accuracy": 0.0, "brier": 0.5}}
RECORDS = [
    make_record("capitals", "q1", category="west", values={"accuracy": 1.0, "brier": 0.25}),
    make_record("capitals", "q2", category="south", **WRONG),
    make_record("capitals", "q3", category="west", **WRONG),
    make_record("capitals", "q4", category="north", status="unscored", values={}),
    make_record("texts", "q1", status="scored", values={"score": 0.25, "sentence_bleu": 30.0}),
    make_record("texts", "q5", status="scored", values={"score": 0.75, "sentence_bleu": 10.0}),
]


def loaded(folder: Path, records: list[Record]) -> LoadedReport:
    write_report(make_report(records), folder / "out.json")
    return pytest_llmeval.load_report(folder / "out.json")


@pytest.fixture
def report(tmp_path: Path) -> LoadedReport:
    return loaded(tmp_path, RECORDS)


def rows(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The table's rows, with None for NaN."""
    return [
        tuple(None if isinstance(value, float) and math.isnan(value) else value for value in row)
        for row in table[list(columns)].itertuples(index=False, name=None)
    ]


def test_one_row_for_each_sample(report: LoadedReport) -> None:
    table = report.scores()
    assert list(table.columns) == [
        *("suite", "model", "subject", "item", "status", "score"),
        *("accuracy", "brier", "metric.score", "sentence_bleu"),
    ]
    assert rows(table, "suite", "model", "subject", "item", "status", "score") == [
        ("capitals", "fake", "west", "q1", "correct", 1.0),
        ("capitals", "fake", "south", "q2", "wrong", 0.0),
        ("capitals", "fake", "west", "q3", "wrong", 0.0),
        ("capitals", "fake", "north", "q4", "unscored", None),
        ("texts", "fake", "texts", "q1", "scored", 0.25),
        ("texts", "fake", "texts", "q5", "scored", 0.75),
    ]
    assert rows(table, "brier", "metric.score", "sentence_bleu")[3:5] == [(None, None, None), (None, 0.25, 30.0)]


@pytest.mark.parametrize(
    ("subjects", "items"),
    [
        ("west", ["q1", "q3"]),
        (["south", "west"], ["q1", "q2", "q3"]),
        ("capitals", ["q1", "q2", "q3", "q4"]),
        (("texts", "north"), ["q4", "q1", "q5"]),
        ([], []),
    ],
)
def test_subjects(report: LoadedReport, subjects: Any, items: list[str]) -> None:
    assert [item for (item,) in rows(report.scores(subjects), "item")] == items


def test_items_are_in_the_order_asked_for_and_absent_ones_are_nan(report: LoadedReport) -> None:
    table = report.scores(items=["q3", "nowhere", "q1"])
    assert rows(table, "suite", "subject", "item", "status", "score", "brier") == [
        ("capitals", "west", "q3", "wrong", 0.0, 0.5),
        (None, None, "nowhere", None, None, None),
        ("capitals", "west", "q1", "correct", 1.0, 0.25),
        ("texts", "texts", "q1", "scored", 0.25, None),
    ]
    assert rows(report.scores("south", ["q1", "q2"]), "subject", "item") == [(None, "q1"), ("south", "q2")]
    assert rows(report.scores(items="nowhere"), "item", "score") == [("nowhere", None)]
    assert rows(report.scores(items=7), "item", "score") == [("7", None)]


def test_an_empty_report_has_a_table(tmp_path: Path) -> None:
    table = loaded(tmp_path, []).scores()
    assert (len(table), list(table.columns)[-1]) == (0, "score")
    assert loaded(tmp_path, []).mean_scores() == {}


def test_a_suite_alone(report: LoadedReport) -> None:
    assert rows(report.scores(items="q1", suite="texts"), "suite", "item") == [("texts", "q1")]
    assert report.mean_scores(suite="texts") == {"texts": 0.5}


def test_means(report: LoadedReport) -> None:
    found = report.mean_scores()
    assert list(found) == ["west", "south", "north", "texts"]
    assert math.isnan(found.pop("north"))
    assert found == {"west": 0.5, "south": 0.0, "texts": 0.5}
    assert list(report.mean_scores(["texts", "capitals"]).items()) == [("texts", 0.5), ("capitals", 1 / 3)]
    assert report.mean_scores("west", ["q1", "nowhere"]) == {"west": 1.0}
    assert math.isnan(report.mean_scores("west", ["q2"])["west"])


def test_subjects_that_are_metrics(report: LoadedReport) -> None:
    """Users of a package whose subjects are metrics get columns; a name that is a category or a suite stays one."""
    table = report.scores(subjects=["sentence_bleu", "accuracy"], items=["q5", "q1", "q9"])
    assert list(table.columns[6:]) == ["sentence_bleu", "accuracy"]
    assert rows(table, "item", "sentence_bleu", "accuracy") == [
        ("q5", 10.0, None),
        ("q1", None, 1.0),
        ("q1", 30.0, None),
        ("q9", None, None),
    ]
    mixed = report.scores(["west", "brier"])
    assert mixed.equals(report.scores("west", metrics="brier"))
    assert rows(mixed, "item", "brier") == [("q1", 0.25), ("q3", 0.5)]
    assert list(report.scores(metrics=["score"]).columns[6:]) == ["metric.score"]


def test_means_of_metrics_leave_out_what_is_missing(report: LoadedReport) -> None:
    assert report.mean_scores(["sentence_bleu", "brier"]) == {"sentence_bleu": 20.0, "brier": pytest.approx(1.25 / 3)}
    assert report.mean_scores("west", metrics="brier") == {"brier": 0.375}
    assert math.isnan(report.mean_scores("west", metrics="sentence_bleu")["sentence_bleu"])
    assert report.mean_scores(metrics="accuracy") == {"accuracy": pytest.approx(1 / 3)}, "without the unscored one"


def test_means_are_those_of_the_table(report: LoadedReport) -> None:
    """Against pandas, whose means leave NaN out."""
    expected = report.scores().groupby("subject")["score"].mean().to_dict()
    assert report.mean_scores() == pytest.approx(expected, nan_ok=True)


def test_a_subject_of_two_metrics_has_no_mean(tmp_path: Path) -> None:
    easy = [
        make_record("sums", "s1", category="easy"),
        make_record("capitals", "c1", category="easy", **WRONG),
        make_record("texts", "t1", category="easy", status="scored", values={"sentence_bleu_4": 30.0}),
        make_record("texts", "t2", category="hard", status="scored", values={"sentence_bleu_4": 10.0}),
    ]
    assert loaded(tmp_path, easy[:2]).mean_scores() == {"easy": 0.5}, "accuracy is accuracy in both suites"
    report = loaded(tmp_path, easy)
    with pytest.raises(ReportError) as refused:
        report.mean_scores()
    assert str(refused.value) == (
        "the subject 'easy' has accuracy of suite 'sums' and sentence_bleu_4 of suite 'texts': "
        "choose one with suite=…, since a mean over two metrics means nothing"
    )
    assert report.mean_scores(suite="texts") == {"easy": 30.0, "hard": 10.0}
    assert report.mean_scores("easy", ["s1", "c1"]) == {"easy": 0.5}


def test_a_score_is_the_first_metric_that_its_suite_has_values_of(tmp_path: Path) -> None:
    """BLEU is made of all samples at once: a sample has a sentence's."""
    values = [{"bleu.sys_len": 4.0, "sentence_bleu": 20.0}, {"bleu.sys_len": 5.0, "sentence_bleu": 40.0}]
    records = [make_record("texts", f"t{n}", status="scored", values=value) for n, value in enumerate(values)]
    report = loaded(tmp_path, records)
    suite = report.report.suites[0].info
    first = next(name for name in suite.metrics if name in values[0])
    assert [score for (score,) in rows(report.scores(), "score")] == [value[first] for value in values]
    judged = loaded(tmp_path, [make_record("own", "a", values={}), make_record("own", "b", status="wrong", values={})])
    assert [score for (score,) in rows(judged.scores(), "score")] == [1.0, 0.0]


def test_several_models(tmp_path: Path) -> None:
    report = loaded(tmp_path, [make_record(id_="s1", model="one"), make_record(id_="s1", model="two", **WRONG)])
    assert rows(report.scores(), "model", "score") == [("one", 1.0), ("two", 0.0)]
    assert rows(report.scores(model="two"), "model", "score") == [("two", 0.0)]
    assert report.mean_scores(model="two") == {"sums": 0.0}
    with pytest.raises(ReportError) as caught:
        report.mean_scores()
    assert str(caught.value) == (
        "the report is on 'one' and 'two': choose one with model=…, since a mean over models means nothing"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"subjects": "wset"}, "the report has no subject or metric 'wset'; did you mean 'west'?"),
        (
            {"subjects": ["west", "xyz"]},
            "the report has no subject or metric 'xyz'; expected one of west, capitals, south, north, texts, accuracy, "
            "brier, score, sentence_bleu",
        ),
        (
            {"subjects": "west", "suite": "texts"},
            "the report has no subject or metric 'west'; expected one of texts, score, sentence_bleu",
        ),
        ({"metrics": "birer"}, "the report has no metric 'birer'; did you mean 'brier'?"),
        ({"suite": "capitls"}, "the report has no suite 'capitls'; did you mean 'capitals'?"),
        ({"model": "gpt2"}, "the report has no model 'gpt2'; expected one of fake"),
    ],
)
def test_names_that_the_report_does_not_have(report: LoadedReport, arguments: dict[str, Any], message: str) -> None:
    for method in (report.scores, report.mean_scores):
        with pytest.raises(ReportError) as caught:
            method(**arguments)
        assert str(caught.value) == message


def test_without_pandas(report: LoadedReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ReportError) as caught:
        report.scores()
    assert str(caught.value) == "scores as a table need the package pandas: pip install 'pytest-llmeval-suites[pandas]'"
    assert report.mean_scores("texts") == {"texts": 0.5}


def test_a_journal_and_a_path_as_text(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "out.json.journal", {"created": ""})
    for record in RECORDS:
        journal.add(record)
    journal.close(discard=False)
    report = pytest_llmeval.load_report(str(journal.path))
    assert report.report.stopped == "killed before its end"
    assert report.mean_scores("west") == {"west": 0.5}
    with pytest.raises(ReportError, match="there is no such file"):
        pytest_llmeval.load_report(tmp_path / "none.json")


def test_the_package_stays_light() -> None:
    program = (
        "import sys, pytest_llmeval\n"
        "assert not [name for name in sys.modules if name.startswith('pytest_llmeval.')]\n"
        "pytest_llmeval.load_report\n"
        "print([name for name in ('pandas', 'torch', 'scipy', 'numpy', 'yaml', 'pytest') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_texts_without_a_utf8_form(tmp_path: Path) -> None:
    """Some versions of pandas hold texts in UTF-8."""
    odd = make_record("capitals", "\ud800", category="\udc00", values={"accuracy": 1.0, "m\ud800": 2.0})
    table = loaded(tmp_path, [odd]).scores(items=["\ud800"])
    assert rows(table, "subject", "item", "m\\ud800") == [("\\udc00", "\\ud800", 2.0)]
    table.to_json()


def test_values_of_what_could_not_be_scored_are_nan(tmp_path: Path) -> None:
    report = loaded(tmp_path, [make_record(id_="a"), make_record(id_="b", status="unscored", values={"f1": 0.5})])
    assert rows(report.scores(), "item", "accuracy") == [("a", 1.0), ("b", None)]
    assert "f1" not in report.scores().columns


def of_suite(folder: Path, record: Record, *metrics: str) -> LoadedReport:
    """A report on one suite that has these metrics."""
    write_report(report_of([record], [info(record.suite, metrics=metrics)]), folder / "out.json")
    return pytest_llmeval.load_report(folder / "out.json")


def test_a_metric_without_a_value_is_nan(tmp_path: Path) -> None:
    report = of_suite(tmp_path, make_record(model="demo", status="unscored", values={}), "accuracy")
    assert rows(report.scores(metrics="accuracy"), "accuracy") == [(None,)]
    assert math.isnan(report.mean_scores(metrics="accuracy")["accuracy"])


@pytest.mark.parametrize("arguments", [{"metrics": "bleu_2"}, {"subjects": "bleu_2"}])
def test_a_metric_of_all_samples_at_once_has_no_scores(tmp_path: Path, arguments: dict[str, Any]) -> None:
    values = {f"bleu_{kind}_{n}": 1.0 for kind in ("matches", "ngrams") for n in (1, 2)}
    record = make_record(model="demo", status="scored", values={**values, "bleu_length": 4.0, "bleu_reference": 4.0})
    report = of_suite(tmp_path, record, "bleu_2")
    assert report.report.suites[0].summary.metrics["bleu_2"].kind == "corpus"
    for method in (report.scores, report.mean_scores):
        with pytest.raises(ReportError, match="'bleu_2' is made of all samples of a suite: none has a value of it"):
            method(**arguments)
