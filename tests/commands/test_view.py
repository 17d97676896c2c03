"""``llmeval view``: a report as a page in the browser."""

from __future__ import annotations

import shutil
import webbrowser
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.reporting.storage.journal import Journal
from tests.commands.saved_reports import info, report_of, sample, saved
from tests.reporting.html.pages import read_page


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open."""
    asked: list[str] = []

    def open_(url: str) -> bool:
        asked.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_)
    return asked


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return Path(saved(tmp_path, "r.json", report_of([sample("a", "q1"), sample("a", "q2", "wrong")])))


def test_the_page_lies_beside_the_report_and_is_opened(
    report: Path, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # a page of before is written again
        assert main(["view", str(report)]) == 0
    page = report.with_suffix(".html")
    assert opened == [page.as_uri()] * 2
    assert capsys.readouterr() == ("", f"{page}\n" * 2)
    assert [row["id"] for row in read_page(page).samples] == ["q1", "q2"]


def test_the_page_of_a_journal_has_the_name_of_its_report(tmp_path: Path, opened: list[str]) -> None:
    journal = Journal(tmp_path / "out.json.journal", {"created": "2026-01-01T00:00:00+00:00", "environment": {}})
    journal.add_fact("suite", info("a"))
    journal.add_fact("model", {"name": "demo"})
    for record in (sample("a", "q1"), sample("a", "q2", "wrong")):
        journal.add(record)
    journal.close(discard=False)
    before = journal.path.read_bytes()
    assert main(["view", str(journal.path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "out.json.journal"]
    assert opened == [(tmp_path / "out.html").as_uri()]
    assert [row["id"] for row in read_page(tmp_path / "out.html").samples] == ["q1", "q2"]
    assert journal.path.read_bytes() == before


def test_pages_of_numbered_journals_keep_their_numbers(
    report: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in (2, 3):
        shutil.copy(report, tmp_path / f"out.json.{number}.journal")
        assert main(["view", str(tmp_path / f"out.json.{number}.journal"), "--no-open"]) == 0
    assert {path.name for path in tmp_path.glob("*.html")} == {"out.json.2.html", "out.json.3.html"}


def test_a_page_elsewhere_and_no_browser(report: Path, tmp_path: Path, opened: list[str]) -> None:
    assert main(["view", str(report), "-o", str(tmp_path / "new" / "page.html"), "--no-open"]) == 0
    assert read_page(tmp_path / "new" / "page.html").samples
    assert not opened
    assert not report.with_suffix(".html").exists()


def test_a_page_is_opened_as_it_is(report: Path, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["view", str(report), "--no-open"])
    page = report.with_suffix(".html")
    before = page.read_bytes()
    assert main(["view", str(page)]) == 0
    assert opened == [page.as_uri()]
    assert page.read_bytes() == before
    capsys.readouterr()
    assert main(["view", str(page), "-o", "other.html"]) == 1
    assert "is a page already" in capsys.readouterr().err


def test_a_report_that_contradicts_itself_says_so(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report.read_text().replace('"value": 0.5', '"value": 0.25')
    report.write_text(text)
    assert main(["view", str(report), "--no-open"]) == 0
    said = capsys.readouterr().err.splitlines()[0].removeprefix("llmeval view: ")
    assert said.startswith(f"the report {report}")
    page = read_page(report.with_suffix(".html"))
    assert said in page.text
    assert page.by_id("verdict").attributes["class"] == "verdict bad"


def test_somebody_elses_page_stays(report: Path, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    page = report.with_suffix(".html")
    page.write_text("<html>mine</html>", encoding="utf-8")
    assert main(["view", str(report)]) == 1
    assert f"{page} exists, and is not the page of a report: name another file with --output" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "<html>mine</html>"
    assert main(["view", str(report), "-o", str(page)]) == 0
    assert not opened[1:]


def test_no_browser_is_no_failure(
    report: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert main(["view", str(report)]) == 0
    assert "no browser could be started: open the file yourself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.json"], "cannot read the report no.json: there is no such file"),
        (["r.json", "-o", "r.json"], "--output r.json is one of the reports that are read"),
        (["r.json", "-o", "new.json"], "--output new.json: expected a name that ends in .html"),
        (["mine.html"], "cannot view mine.html: it is not the page of a report; name a report (.json)"),
        (
            ["mine.html", "-o", "mine.html"],
            "cannot view mine.html: it is not the page of a report; name a report (.json)",
        ),
        (["cut.html"], "cannot view cut.html: the file ends before the page does: it was cut off; copy it again"),
    ],
)
def test_what_cannot_be_viewed(
    report: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    opened: list[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(report.parent)
    main(["view", "r.json", "-o", "cut.html", "--no-open"])
    cut = Path("cut.html").read_bytes()
    Path("cut.html").write_bytes(cut[: len(cut) * 2 // 3])
    Path("mine.html").write_text("<html>mine</html>", encoding="utf-8")
    assert main(["view", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not opened
