"""Files of reports: what is accepted, what they are called, what is found out before a run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.storage.json_form import head_to_json
from pytest_llmeval.reporting.storage.report_file import _pieces
from pytest_llmeval.reporting.writers.formats import FORMATS, check_target, final_path, parse_target, write_report_file
from tests.reporting.made_reports import record, report, suite_report

SUFFIXES = ", ".join(one.suffix for one in FORMATS if one.is_report)


@pytest.mark.parametrize("text", ["a.json", "a.MD", "b/a.csv", "a.jsonl", "new/", "new.v2/"])
def test_targets(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_target(text) == Path(text)


def test_folders_that_exist_are_targets_without_a_slash(tmp_path: Path) -> None:
    (tmp_path / "odd.v2").mkdir()
    assert parse_target(str(tmp_path)) == tmp_path
    assert parse_target(str(tmp_path / "odd.v2")) == tmp_path / "odd.v2"


def test_a_folder_with_the_name_of_a_file_needs_the_slash(tmp_path: Path) -> None:
    """Who means a file would look for it in vain."""
    (tmp_path / "odd.json").mkdir()
    assert parse_target(f"{tmp_path}/odd.json/") == tmp_path / "odd.json"
    with pytest.raises(ValueError, match=r"expected a file, and odd.json is a folder; with / at its end"):
        parse_target(str(tmp_path / "odd.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.xml", "--junitxml=FILE.xml is pytest's own"),
        ("a.txt", f"ends in {SUFFIXES}, or a folder"),
        ("report", f"ends in {SUFFIXES}, or a folder"),
        ("new.json/", "make the folder new.json first, as its name is one of a file"),
        (" ", "expected the name"),
        ("a\0.json", "expected the name"),
    ],
)
def test_what_is_no_target(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_target(text)


def test_files_are_checked_before_the_run(tmp_path: Path) -> None:
    check_target(tmp_path / "a.md")
    check_target(tmp_path / "none" / "of" / "them" / "a.md")
    assert list((tmp_path / "none" / "of" / "them").iterdir()) == []  # a folder is made, and no file
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match=r"cannot write the report .*file/new/a.md: Not a directory"):
        check_target(tmp_path / "file" / "new" / "a.md")


def test_folders_are_checked_before_the_run(tmp_path: Path) -> None:
    check_target(tmp_path)
    check_target(tmp_path / "new" / "newer")
    assert list((tmp_path / "new" / "newer").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match=r"to the folder .*file/new: Not a directory"):
        check_target(tmp_path / "file" / "new")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ReportError, match="Permission denied"):
        check_target(tmp_path / "new")


@pytest.mark.parametrize(
    ("models", "scorers", "expected"),
    [
        (["gpt2"], ["choice"], "eval_report_gpt2_20261122_003015.md"),
        (["gpt2"], ["letter", "letter"], "eval_report_mcq_gpt2_20261122_003015.md"),
        (["gpt2"], ["letter", "choice"], "eval_report_gpt2_20261122_003015.md"),
        (["gpt2"], [], "eval_report_gpt2_20261122_003015.md"),
        ([], ["letter"], "eval_report_mcq_20261122_003015.md"),
        (["org/gpt2", "/ckpt/step 100"], ["choice"], "eval_report_gpt2_vs_step-100_20261122_003015.md"),
        (["a/m", "b/m"], ["choice"], "eval_report_a-m_vs_b-m_20261122_003015.md"),
        (["m?dtype=float16"], ["choice"], "eval_report_m-dtype-float16_20261122_003015.md"),
        (["..\\..\\evil\n\x1b"], ["choice"], "eval_report_evil_20261122_003015.md"),
        (["https://me:secret@host/模型"], ["choice"], "eval_report_host_20261122_003015.md"),
        (["?"], ["choice"], "eval_report_20261122_003015.md"),
    ],
)
def test_default_names(models: list[str], scorers: list[str], expected: str, tmp_path: Path) -> None:
    made = report(
        [suite_report(f"s{place}", scorer=scorer) for place, scorer in enumerate(scorers)],
        models=tuple({"name": name} for name in models),
    )
    assert final_path(tmp_path, made) == tmp_path / expected


def test_the_time_is_utc(tmp_path: Path) -> None:
    made = report(created="2026-11-22T02:30:15+02:00")
    assert final_path(tmp_path, made).name == "eval_report_gpt2_20261122_003015.md"
    assert final_path(tmp_path, report(created="../x\n")).name == "eval_report_gpt2_x.md"


def test_many_models_have_a_name_of_some_length(tmp_path: Path) -> None:
    models = tuple({"name": f"{'very' * 6}_long_{place}"} for place in range(30))
    name = final_path(tmp_path, report(models=models)).name
    assert name.endswith("_long_1_and_28_more_20261122_003015.md")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5, unique=True))
def test_any_models_name_is_a_file_name(models: list[str]) -> None:
    name = final_path(Path("new"), report(models=tuple({"name": name} for name in models))).name
    assert re.fullmatch(r"eval_report_([\w.-]+_)?20261122_003015\.md", name)
    assert len(name.encode("utf-8")) < 200


def test_no_report_takes_the_place_of_another(tmp_path: Path) -> None:
    files = [write_report_file(report(), tmp_path / "a" / "new").name for _ in range(3)]
    assert files == [f"eval_report_gpt2_20261122_003015{end}.md" for end in ("", "-2", "-3")]
    assert sorted(path.name for path in (tmp_path / "a" / "new").glob("*.md")) == sorted(files)


def test_sessions_that_end_together_take_two_names(tmp_path: Path) -> None:
    class Meanwhile(tuple[object, ...]):
        def __iter__(self) -> Iterator[object]:
            write_report_file(report(), tmp_path)
            return super().__iter__()

    first = write_report_file(replace(report(), records=Meanwhile()), tmp_path)  # type: ignore[arg-type]
    assert first.name == "eval_report_gpt2_20261122_003015.md"
    names = [
        f"eval_report_gpt2_20261122_003015-{number}.md" for number in range(2, len(list(tmp_path.glob("*.md"))) + 1)
    ]
    assert names, "the other session was never in the way"
    assert sorted(path.name for path in tmp_path.glob("*.md")) == sorted([first.name, *names])
    assert all(path.read_text().startswith("# LLM evaluation") for path in tmp_path.glob("*.md"))


def test_a_folder_that_has_gone_costs_no_report(tmp_path: Path) -> None:
    assert write_report_file(report(), tmp_path / "gone" / "a.md").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="cannot write the report"):
        write_report_file(report(), tmp_path / "file" / "a.md")


def test_each_suffix_has_its_form(tmp_path: Path) -> None:
    made = report(records=[record("q1"), record("q2")])
    texts = {}
    for name in ("a.json", "a.md", "a.csv", "a.JSONL"):
        assert write_report_file(made, tmp_path / name) == tmp_path / name
        texts[name] = (tmp_path / name).read_text(encoding="utf-8")
    assert len(json.loads(texts["a.json"])["records"]) == 2
    assert texts["a.md"].startswith("# LLM evaluation: gpt2")
    assert texts["a.csv"].startswith("suite,model,id")
    assert [json.loads(line)["id"] for line in texts["a.JSONL"].splitlines()] == ["q1", "q2"]
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 4


@pytest.mark.parametrize("name", ["a.json", "a.md", "a.csv", "a.jsonl"])
def test_a_report_that_fails_leaves_the_old_one(name: str, tmp_path: Path) -> None:
    class Broken(tuple[object, ...]):
        def __iter__(self) -> object:  # type: ignore[override]
            raise ReportError("the journal was damaged")

    (tmp_path / name).write_text("old")
    with pytest.raises(ReportError, match="damaged"):
        write_report_file(replace(report(), records=Broken()), tmp_path / name)  # type: ignore[arg-type]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    with pytest.raises(ReportError, match="damaged"):
        write_report_file(replace(report(), records=Broken()), tmp_path)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == [name], "a name that was taken is given back"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(Path("a")) | st.just(suite_report()),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_the_head_is_what_json_writes(value: object) -> None:
    made = report(options={"value": value, "few": 1, "none": {}}, judges=(), problems=("ä",))
    text = b"".join(_pieces(made)).decode()
    expected = json.dumps(head_to_json(made), indent=1).removesuffix("\n}") + ',\n "records": ['
    assert text.startswith(expected)
    assert json.loads(text)["options"] == head_to_json(made)["options"]
