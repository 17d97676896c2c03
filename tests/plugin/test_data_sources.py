"""Data from elsewhere than one file beside the suite, in whole sessions: node ids, places, and workers at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugin.suites_for_tests import CAPITALS
from tests.suites.hub_cache import as_parquet, cache_files, configs_card
from tests.support import fake_model_conftest

ROWS = [{"question": f"{number} + 1 =", "target": str(number + 1)} for number in range(6)]
SUITE = """\
suite: sums
dataset: {%s}
score: exact
"""


@pytest.mark.slow
def test_workers_share_the_cache_of_a_hub_data_set(
    llm_pytester: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = llm_pytester.path / "home"
    card = configs_card({"small": {"test": "small/test*", "dev": "small/dev*"}, "large": {"test": "large/*"}})
    rows = {"small/test.parquet": as_parquet(ROWS), "small/dev.parquet": as_parquet(ROWS[:1])}
    cache_files(home, "org/sums", "a" * 40, {"README.md": card, **rows})
    llm_pytester.makefile(".yaml", sums=SUITE % "hub: org/sums, config: small, split: test")
    llm_pytester.makeconftest(fake_model_conftest(replies={"0 + 1": "1", "1 + 1": "2"}, default_reply="none"))
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = llm_pytester.runpytest_subprocess(*workers, "sums.yaml", "--llm-report=report.json")
    result.stdout.fnmatch_lines(["*2 passed, 4 wrong*"])
    report = json.loads(Path(llm_pytester.path / "report.json").read_text(encoding="utf-8"))
    assert sorted(record["id"] for record in report["records"]) == ["1", "2", "3", "4", "5", "6"]

    llm_pytester.makefile(".yaml", sums=SUITE % "hub: org/sums, config: small")
    result = llm_pytester.runpytest_subprocess(*workers, "sums.yaml")
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)  # the latter with xdist
    result.stdout.fnmatch_lines(
        ["sums.yaml:2: dataset.split: org/sums (small) has several splits, expected one of test, dev"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_folder_with_a_sample_in_each_file(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    for number, row in enumerate(ROWS):
        folder = llm_pytester.path / "rows" / f"part{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number + 8}.json").write_text(json.dumps(row), encoding="utf-8")
    llm_pytester.makefile(".yaml", sums=SUITE % "path: rows")
    llm_pytester.makeconftest(fake_model_conftest(replies={"0 + 1": "1"}, default_reply="none"))
    result = llm_pytester.runpytest_subprocess(*workers, "sums.yaml")
    result.stdout.fnmatch_lines(["*1 passed, 5 wrong*"])
    (llm_pytester.path / "rows" / "part1" / "9.json").write_text("{", encoding="utf-8")
    result = llm_pytester.runpytest_subprocess(*workers, "sums.yaml")
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)  # the latter with xdist
    result.stdout.fnmatch_lines(["rows/part1/9.json:1: is not JSON: *"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_what_is_added_to_one_item_is_not_added_to_the_others(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    llm_pytester.makeconftest(
        fake_model_conftest(default_reply="none")
        + """
import gc


@pytest.fixture
def noted(request):
    print("noted", request.node.name)


def pytest_collection_modifyitems(items):
    assert gc.isenabled()
    items[1].fixturenames.append("noted")
"""
    )
    result = llm_pytester.runpytest_subprocess(*workers, "capitals.yaml", "-rA")
    noted = [line for line in result.outlines if line.startswith("noted ")]
    assert noted == ["noted q2"]
