"""What today's sessions make of reports and stores of schema 2 (``tests/reporting/schema2``): which suites still
compare, which are refused, and by which line.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from pytest_llmeval.gates.decide import read_verified
from tests.support import REPOSITORY

SCHEMA_2 = REPOSITORY / "tests" / "reporting" / "schema2"
REPLAY = ("--llm-model=replay:replies.jsonl", "--llm-judge=python:models:Judge")
AGAIN = "score the baseline's replies again: --llm-model replay:BASELINE.json --llm-report NEW.json"
VERSION = (
    "the suite differs from the baseline's: the scorer (its version or its code); 2 samples are changed ('a', 'b')"
)
REFUSED = {
    # scorers that judge the same reply differently from before
    **dict.fromkeys(("f1", "letter", "math", "number", "yes_no"), f"{VERSION}; {AGAIN}"),
    "equivalence": "a report of schema 2 knows a judge by less: make it anew",
    "reasoning": f"which was judged as a part of them there and is split off now (generate.reasoning); {AGAIN}",
}
MARGIN = ("--llm-gate-mode=margin", "--llm-max-drop=accuracy=0.1")
COMPARED = ("choice", "exact", "pattern")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """The reports and stores, the suites that they are of, and what answered them."""
    shutil.copytree(SCHEMA_2, llm_pytester.path, dirs_exist_ok=True)
    return llm_pytester


def suites(*, without: tuple[str, ...] = ("echo", "retrieval")) -> list[str]:
    return sorted(f"suites/{path.name}" for path in SCHEMA_2.glob("suites/*.yaml") if path.stem not in without)


def gates(project: pytest.Pytester, name: str = "now.json") -> dict[str, dict[str, Any]]:
    """What was decided of each suite."""
    report = json.loads((project.path / name).read_text(encoding="utf-8"))
    return {gate["suite"]: gate for gate in report["gates"] if gate["suite"] is not None}


def test_which_suites_compare_with_a_report_of_schema_2(project: pytest.Pytester, workers: list[str]) -> None:
    """Two samples are too few for a drop to be significant; with a margin they are compared."""
    given = (*REPLAY, "--llm-baseline=report.json", *MARGIN, "--llm-report=now.json")
    result = project.runpytest(*workers, *given, *suites())
    assert result.ret == 1
    found = gates(project)
    assert {name for name, gate in found.items() if gate["outcome"] == "passed"} == {*COMPARED}
    assert {name for name, gate in found.items() if gate["outcome"] == "failed"} == {*REFUSED}
    for name, line in REFUSED.items():
        assert found[name]["reason"].endswith(line), name
        assert found[name]["regression"] is None
    for name in COMPARED:
        assert (found[name]["regression"]["n"], found[name]["regression"]["difference"]) == (2, 0.0)
    compared = project.run(
        "llmeval", "compare", "report.json", "now.json", "--gate-mode=margin", "--max-drop=accuracy=0.1"
    )
    text = " ".join(compared.stdout.str().split())
    assert compared.ret == 1
    for name, line in REFUSED.items():
        assert f"failed: {name}, accuracy vs baseline: " in text
        assert line in text


def test_replies_of_schema_2_that_are_scored_again_are_a_baseline(project: pytest.Pytester) -> None:
    """As the lines say; the judge is asked for its verdicts anew."""
    old = (*REPLAY[1:], "-pno:xdist", "--llm-model=replay:report.json")
    assert project.runpytest(*old, "--llm-report=again.json", *suites()).ret == 0
    now = ("-pno:xdist", *REPLAY, "--llm-baseline=again.json", *MARGIN, "--llm-report=now.json")
    assert project.runpytest(*now, *suites()).ret == 0
    assert {gate["outcome"] for gate in gates(project).values()} == {"passed"}
    assert {*gates(project)} == {*COMPARED, *REFUSED}


def test_a_search_of_schema_2_compares(project: pytest.Pytester, workers: list[str]) -> None:
    given = ("--llm-baseline=retrieval.json", "--llm-report=now.json", "--llm-gate-mode=margin")
    result = project.runpytest(*workers, *given, "--llm-max-drop=ndcg@10=0.01", "suites/retrieval.yaml")
    assert result.ret == 0
    assert gates(project)["retrieval"]["outcome"] == "passed"


@pytest.mark.parametrize("schema", [1, 2])
def test_it_is_not_known_what_an_older_report_has_selected(project: pytest.Pytester, schema: int) -> None:
    """Nor by what, where some of a suite is missing; a whole one is whole."""
    given = ("-pno:xdist", "--llm-model=python:models:Fixed", "suites/echo.yaml")
    assert project.runpytest(*given, "-k", "b", "--llm-report=part.json").ret == 0
    part = json.loads((project.path / "part.json").read_text(encoding="utf-8"))
    del part["selection"], part["digest"]
    (project.path / "part.json").write_text(json.dumps({**part, "schema": schema}))
    result = project.runpytest(*given, "--llm-baseline=part.json", "--llm-require-gates")
    assert result.ret == 1
    told = f"the baseline is a selection, 1 of 2 samples (its report is of schema {schema}, which does not say by what)"
    assert told in " ".join(result.stdout.str().split())


@pytest.mark.parametrize(("model", "store"), [("Fixed", "object"), ("function", "function")])
def test_replies_of_python_code_are_asked_for_again(project: pytest.Pytester, model: str, store: str) -> None:
    """Their keys lacked the hash of the code; what they hold is read, and stays."""
    folder = f"store_{store}"
    lines = sum(path.read_text().count("\n") for path in (project.path / folder).glob("*.jsonl"))
    assert lines == 2
    given = (f"--llm-model=python:models:{model}", f"--llm-store={folder}", "--llm-store-max-age=9999d", "-pno:xdist")
    result = project.runpytest(*given, "--llm-report=now.json", "suites/echo.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"store {folder}: 0 of 2 samples reused*"])
    found = project.run("llmeval", "store", "verify", folder)
    assert found.ret == 0
    found.stdout.fnmatch_lines([f"{folder}: 4 replies, 0 damaged lines"])
    result = project.runpytest(*given, "suites/echo.yaml")
    result.stdout.fnmatch_lines([f"store {folder}: 2 of 2 samples reused*"])


def test_keys_are_as_they_were_but_for_the_hash_of_python_code(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No field that came later, and is not used, is in a key: replies of models of other kinds are found again. The
    time of a reply says that it is the baseline's own.
    """
    monkeypatch.setattr("pytest_llmeval.models.python.model.hash_of_sources", lambda *code: None)
    given = ("--llm-store-max-age=9999d", "-pno:xdist", *MARGIN, "suites/echo.yaml")
    result = project.runpytest(
        *given, "--llm-model=python:models:function", "--llm-store=store_function", "--llm-baseline=function.json"
    )
    result.stdout.fnmatch_lines(["store store_function: 2 of 2 samples reused*"])
    assert "2 of 2 samples are judged on the baseline's own replies, from a store, and" in " ".join(
        result.stdout.str().split()
    )
    result = project.runpytest(
        *given, "--llm-model=python:models:Fixed", "--llm-store=store_object", "--llm-baseline=object.json"
    )
    result.stdout.fnmatch_lines(["store store_object: 2 of 2 samples reused*"])
    assert "the same model: 2 of 2 samples" in " ".join(result.stdout.str().split())


@pytest.mark.parametrize("name", ["report", "retrieval", "object", "function"])
def test_reports_of_schema_2_are_read_and_fit_their_records(name: str) -> None:
    report = read_verified(SCHEMA_2 / f"{name}.json")
    assert report.schema == 2
    assert all(suite.summary.num_scored == 2 for suite in report.suites)
