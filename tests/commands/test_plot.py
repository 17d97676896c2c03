"""``llmeval plot``: figures of reports as files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.reporting.figures import forest_plots, image_files
from pytest_llmeval.reporting.figures.report_figure import PlannedFigure, ReportFigure
from pytest_llmeval.reporting.report.merge import side_by_side
from pytest_llmeval.reporting.report.report import Averages, Report
from tests.commands.saved_reports import MODEL, report_of, samples, saved
from tests.reporting.figures.drawn import pdf_pages, report_of_all, texts_of

TWO = tuple({**MODEL, "name": name} for name in ("a/one", "b/two"))


def of_two_models() -> Report:
    records = [one for model in TWO for one in samples("sums", "cwcc", model=model["name"])]
    return report_of(records, models=TWO)


@pytest.fixture
def report(tmp_path: Path) -> str:
    return saved(tmp_path, "report.json", report_of([*samples("sums", "cwcc"), *samples("words", "wwc")]))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the figures that were drawn."""
    names: list[str] = []
    draw = PlannedFigure.draw

    def noted(planned: PlannedFigure) -> ReportFigure:
        names.append(planned.name)
        return draw(planned)

    monkeypatch.setattr(PlannedFigure, "draw", noted)
    return names


def plot(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error."""
    try:
        code = main(["plot", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG"), ("PNG", b"\x89")]
)
def test_one_figure(report: str, suffix: str, start: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / f"x.{suffix}"
    assert plot(capsys, report, "-o", str(path), "--kind", "forest") == (0, f"{path}\n", "")
    first = path.read_bytes()
    assert first.startswith(start)
    assert plot(capsys, report, "-o", str(path), "--figure", "forest-accuracy")[0] == 0
    assert path.read_bytes() == first, "the same bytes each time, in place of the file that was there"


def test_a_folder(report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "figures"
    code, shown, _ = plot(capsys, report, "-o", f"{folder}/")
    names = sorted(path.name for path in folder.iterdir())
    assert code == 0
    assert names == ["forest-accuracy.svg", "price-accuracy-seconds.svg", "price-accuracy-tokens.svg"]
    assert sorted(shown.splitlines()) == [str(folder / name) for name in names]
    assert plot(capsys, report, "-o", str(folder), "--format", "png", "--kind", "price")[0] == 0
    assert (folder / "price-accuracy-tokens.png").exists()


def test_a_pdf_has_a_page_for_each_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, made = tmp_path / "all.pdf", saved(tmp_path, "report.json", of_two_models())
    assert plot(capsys, made, "-o", str(path)) == (0, f"{path}\n", "")
    first = path.read_bytes()
    assert first.count(b"/Type /Page\n") + first.count(b"/Type /Page ") == 4
    assert b"CreationDate" not in first
    assert plot(capsys, made, "-o", str(path))[0] == 0
    assert path.read_bytes() == first


@pytest.mark.parametrize(("arguments", "count"), [([], 1), (["--no-title"], 0)])
def test_titles(
    arguments: list[str], count: int, report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file, in those of a folder, and on the pages of a PDF."""
    path, folder, pdf = tmp_path / "x.svg", tmp_path / "all", tmp_path / "x.pdf"
    assert plot(capsys, report, "-o", str(path), "--kind", "forest", *arguments)[0] == 0
    assert plot(capsys, report, "-o", f"{folder}/", *arguments)[0] == 0
    for file in (path, folder / "forest-accuracy.svg"):
        assert texts_of(file.read_text(encoding="utf-8")).count("accuracy by suite") == count
    assert plot(capsys, report, "-o", str(pdf), *arguments)[0] == 0
    shown = pdf_pages(pdf.read_bytes())
    assert [page.count("accuracy by suite") for page in shown] == [count, 0, 0]
    assert [page.count("of a sample") for page in shown] == [0, 1 + count, 1 + count]


def test_a_metric(report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.svg"
    assert plot(capsys, report, "-o", str(path), "--kind", "forest", "--metric", "accuracy")[0] == 0
    code, _, error = plot(capsys, report, "-o", str(path), "--metric", "al")
    assert code
    assert "there is no metric 'al'; did you mean 'all'?" in error
    _, _, error = plot(capsys, report, "-o", str(path), "--metric", "nothing-like-it")
    assert "expected one of all, " in error
    code, _, error = plot(capsys, report, "-o", str(path), "--metric", "acuracy")
    assert (code, error) == (1, "llmeval plot: there is no metric 'acuracy'; did you mean 'accuracy'?\n")


def test_all_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """At least what is drawn without a metric, or with any one."""
    made = saved(tmp_path, "report.json", report_of_all())

    def names(*arguments: str) -> set[str]:
        code, shown, _ = plot(capsys, made, "-o", f"{tmp_path}/all/", *arguments)
        assert code == 0
        return {Path(one).stem for one in shown.splitlines()}

    found = names("--metric", "all")
    monkeypatch.setattr(PlannedFigure, "draw", lambda planned: planned)  # of the others, the names suffice
    monkeypatch.setattr(image_files, "write_figure", lambda *_, **__: None)
    assert found >= names() | names("--metric", "ece") | names("--metric", "pass@4")
    assert {"forest-judge-kappa", "price-pass-hat-4-tokens", "differences-models-accuracy", "agreement"} <= found
    assert names("--metric", "all", "--metric", "accuracy", "--kind", "forest") == {
        name for name in found if name.startswith("forest-")
    }


def test_of_many_figures_some_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = saved(tmp_path, "report.json", report_of_all())
    _, _, error = plot(capsys, made, "-o", "x.png")
    assert error == (
        "llmeval plot: x.png can hold one figure, and there are 15: choose one with --figure (forest-accuracy, "
        "forest-pass-at-1, forest-rubric, differences-models-accuracy, and 11 more), or name a .pdf, or a folder, "
        "which gets a file for each\n"
    )
    _, _, error = plot(capsys, made, "-o", "x.png", "--figure", "reliability-capital")
    assert error == "llmeval plot: there is no figure 'reliability-capital'; did you mean 'reliability-capitals'?\n"
    _, _, error = plot(capsys, made, "-o", "x.png", "--figure", "pie")
    assert error.endswith("differences-models-accuracy, and 11 more\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-o", "x.svg"], 1, "x.svg can hold one figure, and there are 3: choose one with --figure (forest-accuracy, "),
        (
            ["-o", "x.svg", "--figure", "pie"],
            1,
            "there is no figure 'pie'; there are forest-accuracy, price-accuracy-tokens, price-accuracy-seconds\n",
        ),
        (["-o", "x.svg", "--kind", "agreement"], 1, "there is nothing for agreement in report.json"),
        (["-o", "x.txt"], 2, "--output x.txt: expected a name that ends in .svg, .pdf or .png, or a folder"),
        (
            ["-o", "x.svg", "--format", "png"],
            2,
            "--format is for a folder: the name of the file x.svg says which format it has",
        ),
        (["-o", "x.svg", "--kind", "pie"], 2, "invalid choice: 'pie'"),
        ([], 2, "the following arguments are required: -o/--output"),
        (["-o", "report.json/x.svg", "--kind", "forest"], 1, "cannot write the report report.json/x.svg"),
    ],
)
def test_what_cannot_be_done(
    report: str,
    arguments: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(Path(report).parent)
    found, shown, error = plot(capsys, "report.json", *arguments)
    assert found == code
    assert message in error
    assert error.count("\n") == 1
    assert not shown
    assert sorted(path.name for path in Path().iterdir()) == ["report.json"]


def test_what_is_not_asked_for_is_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: list[str]
) -> None:
    made, path = saved(tmp_path, "report.json", report_of_all()), tmp_path / "x.svg"
    assert plot(capsys, made, "-o", str(path), "--figure", "agreement")[0] == 0
    assert drawn == ["agreement"]
    assert plot(capsys, made, "-o", str(path))[0] == 1
    assert drawn == ["agreement"], "that there are several is known before one is drawn"


def test_each_figure_is_written_before_the_next_is_drawn(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drawn: list[str]
) -> None:
    written: list[int] = []

    def write(*_: object, **__: object) -> None:
        written.append(len(drawn))

    monkeypatch.setattr(image_files, "write_figure", write)
    assert plot(capsys, report, "-o", f"{tmp_path}/figures/")[0] == 0
    assert written == [1, 2, 3]


@pytest.mark.parametrize("target", ["figures/", "all.pdf"])
def test_a_figure_that_fails_costs_no_other(
    target: str, report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(forest_plots, "interval_rows", broken)
    code, shown, error = plot(capsys, report, "-o", f"{tmp_path}/{target}")
    assert code == 1
    assert error.splitlines()[-1] == "llmeval plot: could not be drawn: forest-accuracy (OverflowError: too large)"
    if target == "all.pdf":
        assert (tmp_path / target).read_bytes().count(b"/Type /Page ") == 2
        assert shown == f"{tmp_path / target}\n"
    else:
        assert len(list((tmp_path / target).iterdir())) == len(shown.splitlines()) == 2
    for name in ("x.svg", "x.pdf"):
        alone = tmp_path / name
        assert plot(capsys, report, "-o", str(alone), "--kind", "forest")[:2] == (1, "")
        assert not alone.exists()


def test_suites_that_differ_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = report_of_all()
    paths = []
    for name, fingerprint in (("a", "1"), ("b", "2")):
        suites = [replace(suite, info=replace(suite.info, fingerprint="0")) for suite in one.suites]
        info = replace(suites[0].info, fingerprint=fingerprint)
        suites = [replace(suite, info=info) if suite.info.name == info.name else suite for suite in suites]
        paths.append(saved(tmp_path, f"{name}.json", replace(one, suites=tuple(suites))))
    arguments = ["-o", str(tmp_path / "x.svg"), "--kind", "agreement"]
    code, _, error = plot(capsys, *paths, *arguments)
    assert code == 0
    assert error.startswith(
        "llmeval plot: the reports differ in what the suite capitals asks or how replies are judged"
    )
    assert error.count("\n") == 1
    assert plot(capsys, paths[0], *arguments) == (0, f"{tmp_path / 'x.svg'}\n", "")


def test_an_input_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(saved(tmp_path, "forest-accuracy.svg", report_of(samples("sums", "cw"))))
    before = path.read_bytes()
    for target in (path, tmp_path):
        code, _, error = plot(capsys, str(path), "-o", str(target), "--kind", "forest")
        assert code == 1
        assert "is one of the reports that are read" in error
    assert path.read_bytes() == before


def test_without_matplotlib(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = "llmeval plot: figures need matplotlib: pip install 'pytest-llmeval-suites[report]'\n"
    assert plot(capsys, report, "-o", str(tmp_path / "x.svg")) == (1, "", message)


def test_reports_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved(tmp_path, "main.json", report_of(samples("sums", "cwcc")))
    after = saved(tmp_path, "new.json", report_of(samples("sums", "ccwc")))
    other = saved(tmp_path, "two.json", of_two_models())
    path = tmp_path / "x.svg"
    assert plot(capsys, before, after, other, "-o", str(path), "--kind", "forest")[0] == 0
    texts = texts_of(path.read_text(encoding="utf-8"))
    assert {"demo (main)", "demo (new)", "one", "two"} <= set(texts)
    assert texts.count("sums") == 1
    assert plot(capsys, before, before, "-o", str(path))[0] == 1


def test_what_several_reports_are_together(tmp_path: Path) -> None:
    one, other = report_of_all(), report_of_all()
    single = report_of(samples("sums", "cw"))
    nameless = replace(single, suites=tuple(replace(suite, models=()) for suite in single.suites))
    both = side_by_side([("x/a.json", one), ("y/a.json", other), ("z.json", single), ("n.json", nameless)])
    assert both.model_names == ("org/one (x a)", "org/two (x a)", "org/one (y a)", "org/two (y a)", "demo", "n")
    assert len(both.records) == 2 * len(one.records) + 4
    assert both.records[0].model == "org/one (x a)"
    assert [record.model for record in both.records[-3:]] == ["demo", "n", "n"]
    assert [(one.first, one.second) for one in both.comparisons] == [
        ("org/one (x a)", "org/two (x a)"),
        ("org/one (y a)", "org/two (y a)"),
    ]
    assert [gate.model for gate in both.gates] == ["org/one (x a)", "org/one (y a)"]
    assert side_by_side([("a.json", one)]) is one


def test_averages_of_one_report_are_none_of_several() -> None:
    one = report_of_all()
    averaged = replace(one, averages=(Averages(model="org/one", macro={}, micro={}),))
    assert not side_by_side([("a.json", averaged), ("b.json", one)]).averages


def test_records_of_all_reports_make_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [saved(tmp_path, f"{name}.json", report_of_all()) for name in ("a", "b")]
    target = tmp_path / "x.svg"
    assert plot(capsys, *paths, "-o", str(target), "--kind", "risk-coverage")[0] == 0
    texts = " ".join(texts_of(target.read_text(encoding="utf-8")))
    assert all(f"one ({name}): AURC" in texts for name in ("a", "b"))


def test_svg_of_a_paper_needs_no_page(report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.svg"
    arguments: list[Any] = [report, "-o", str(path), "--kind", "forest"]
    assert plot(capsys, *arguments)[0] == 0
    assert "var(" not in path.read_text(encoding="utf-8")
    assert ElementTree.parse(path).getroot().get("viewBox")
