"""``score: retrieval`` in sessions as a user has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.judge_for_tests import report_of

REPORT = "--llm-report=report.json"
ROWS: list[dict[str, Any]] = [
    {"id": "q1", "question": "one", "response": ["d3", "d1"], "qrels": {"d1": 2, "d9": 1}},
    {"id": "q2", "question": "two", "response": ["d1"], "qrels": {"d1": 1, "d2": 0}},
    {"id": "q3", "question": "three", "response": None, "qrels": {"d1": 1}},
    {"id": "q4", "question": "four", "response": ["d1"], "qrels": {}},
]
SUITE = "suite: search\ndataset: {path: rows.jsonl}\nscore: retrieval\n"
NDCG = [2 / 1.584962500721156 / (2 + 1 / 1.584962500721156), 1.0, 0.0]
"""Of the queries that have a relevant document, by hand."""

_SEARCH = """
def search(question):
    return {"one": ["d3", "d1"], "two": [("d1", 0.5)], "three": [], "four": ("d1", "d5")}[question]


async def worse(question):
    return {"text": "", "documents": ["d7", *(["d1"] if question == "two" else [])]}


def twice(question):
    return ["d1", "d1"] if question == "two" else ["d1"]


def writes(question):
    return "I found d1."


def maps(question):
    return {"one": {"d1": 0.5, "d3": 0.9}, "two": {"d1": 1}, "three": {}, "four": {"d5": 1.0, "d1": 2.0}}[question]


def yields(question):
    if question == "broken":
        raise OSError("no index")
    yield from {"one": ["d3", "d1"], "two": [("d1", 0.5)], "three": [], "four": ["d1", "d5"]}[question]


class Array(list):  # as numpy has it
    def tolist(self):
        return list(self)


def arrays(question):
    return Array(yields(question))


def finds_nothing(question):
    return {"text": "I do not know.", "documents": []}
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite of four queries, whose rows have what a search found, and functions that search."""
    write_rows(llm_pytester.path / "rows.jsonl", ROWS)
    llm_pytester.path.joinpath("search.yaml").write_text(SUITE)
    llm_pytester.makepyfile(my_search=_SEARCH)
    return llm_pytester


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def without_responses(pytester: pytest.Pytester) -> None:
    rows = [{name: value for name, value in row.items() if name != "response"} for row in ROWS]
    write_rows(pytester.path / "rows.jsonl", rows)


def metrics_of(pytester: pytest.Pytester, place: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = report_of(pytester.path)["suites"][place]["metrics"]
    return found


def records_of(pytester: pytest.Pytester) -> list[dict[str, Any]]:
    """In the order of models and samples."""
    found: list[dict[str, Any]] = report_of(pytester.path)["records"]
    return found


def values_of(pytester: pytest.Pytester, name: str) -> list[float]:
    return [record["values"][name] for record in records_of(pytester) if name in record["values"]]


def test_three_lines_are_a_suite(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest("search.yaml", REPORT, *workers)
    result.assert_outcomes(passed=4)
    assert values_of(project, "ndcg@10") == pytest.approx(NDCG, abs=1e-12)
    metrics = metrics_of(project)
    assert metrics["ndcg@10"]["value"] == pytest.approx(sum(NDCG) / 3)
    assert (metrics["ndcg@10"]["n"], metrics["hit_rate@10"]["kind"]) == (3, "proportion")
    assert metrics["recall@10"]["value"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics["precision@10"]["value"] == pytest.approx((0.1 + 0.1 + 0) / 3)
    assert metrics["judged@10"]["value"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics["judged@10"]["n"] == 3
    result.stdout.fnmatch_lines(
        [
            "suite   n  ndcg@10 *",
            "search: no answer 1, judged@10 not measurable 1 (nothing was found),",
            "*metrics not measurable 1 (no document is relevant)*",
        ]
    )


def test_the_same_from_a_function(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    models = ("--llm-model=python:my_search:search", "--llm-model=python:my_search:worse")
    result = project.runpytest("search.yaml", *models, REPORT, *workers)
    result.assert_outcomes(passed=8)
    assert values_of(project, "ndcg@10")[:3] == pytest.approx(NDCG, abs=1e-12)
    first, *_, last = records_of(project)
    assert first["details"]["documents"] == [["d3", None], ["d1", None]]
    assert first["details"]["relevant"][-1] == {"id": "d9", "grade": 1, "rank": None}
    assert last["details"]["documents"] == [["d7", None]]
    result.stdout.fnmatch_lines(["against *my_search:search*", "search *ndcg@10 * 3 *"])


def test_a_report_is_replayed(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    project.runpytest("search.yaml", "--llm-model=python:my_search:search", REPORT, *workers)
    before = records_of(project)
    result = project.runpytest("search.yaml", "--llm-model=replay:report.json", "--llm-report=again.json", *workers)
    result.assert_outcomes(passed=4)
    again = json.loads(project.path.joinpath("again.json").read_text())["records"]
    assert [record["values"] for record in again] == [record["values"] for record in before]
    assert [record["details"] for record in again] == [record["details"] for record in before]


def test_gates_and_a_baseline(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    gates = ("--llm-gate=ndcg@10 >= 0.5", "--llm-gate=ci_low(recall@10) > 0.99", "--llm-gate=precision@10 < 0.5")
    result = project.runpytest("search.yaml", "--llm-model=python:my_search:search", REPORT, *gates, *workers)
    assert result.ret == 1
    assert [gate["outcome"] for gate in report_of(project.path)["gates"]] == ["failed", "failed", "passed"]
    result = project.runpytest(
        "search.yaml",
        "--llm-model=python:my_search:worse",
        "--llm-baseline=report.json",
        "--llm-gate-mode=margin",
        *workers,
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*failed: search, *ndcg@10*"])


def test_a_trec_run(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    project.path.joinpath("bm25.run").write_text(
        "q1 Q0 d1 2 3.0 bm25\nq1 Q0 d3 1 4.0 bm25\n\nq2 Q0 d1 1 0.5 bm25\nother Q0 d1 1 1 bm25\nq4 Q0 d1 1 1 bm25\n"
    )
    result = project.runpytest("search.yaml", "--llm-model=replay:bm25.run", REPORT, *workers)
    result.assert_outcomes(passed=4)
    assert values_of(project, "ndcg@10") == pytest.approx(NDCG, abs=1e-12)
    assert metrics_of(project)["no_answer"]["value"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 Q0 d1 1 3.0\n", "x.run:1: found 5 columns, expected the six of a TREC run: query, Q0, document, rank,"),
        ("q1 Q0 d1 1 high a\n", "x.run:1: the score: found 'high' (text), expected a finite number"),
        ("q1 Q0 d1 1 nan a\n", "x.run:1: the score: found 'nan' (text), expected a finite number"),
        ("q1 Q0 d1 1 2 a\nq1 Q0 d1 2 1 a\n", "x.run:2: the document 'd1' stands twice for the query 'q1'"),
        ("\n", "x.run holds no rows, expected a TREC run"),
        ("z1 Q0 d1 1 2 a\n", "has replies to 'z1', which suite 'search' does not have"),
    ],
)
def test_a_run_that_is_wrong(project: pytest.Pytester, text: str, words: str) -> None:
    project.path.joinpath("x.run").write_text(text)
    result = project.runpytest("search.yaml", "--llm-model=replay:x.run", "-p", "no:xdist")
    assert result.ret != 0
    output = result.stdout.str() + result.stderr.str()
    assert words in output.replace("\n", " ").replace("  ", " ")
    assert "Traceback" not in output


def test_a_run_under_another_suffix(project: pytest.Pytester) -> None:
    project.path.joinpath("run.txt").write_text("q1 Q0 d1 1 3 a\n")
    result = project.runpytest("search.yaml", "--llm-model=replay:run.txt?format=trec", REPORT, "-p", "no:xdist")
    result.assert_outcomes(passed=4)
    result = project.runpytest("search.yaml", "--llm-model=replay:run.txt?format=treck", "-p", "no:xdist")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*format: found 'treck'; did you mean 'trec'?*"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.txt", "q1 0 d1 2\nq1 0 d9 1\nq2 0 d1 1\nq2 0 d2 0\nq3 0 d1 1\n"),
        ("test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td9\t1\nq2\td1\t1\nq2\td2\t0\nq3\td1\t1\n"),
        ("own.tsv", "q1\t0\td1\t2\nq1\t0\td9\t1\nq2\t0\td1\t1\nq3\t0\td1\t1\n"),
        (
            "own.jsonl",
            '{"query_id": "q1", "query": "one", "relevant_docs": {"d1": 2, "d9": 1}}\n'
            '{"query_id": "q2", "relevant_docs": {"d1": 1}}\n{"query_id": "q3", "relevant_docs": ["d1"]}\n',
        ),
        (
            "rows.json",
            '[{"query-id": "q1", "corpus-id": "d1", "score": 2}, {"query-id": "q1", "corpus-id": "d9", "score": 1},'
            ' {"query-id": "q2", "corpus-id": "d1", "score": 1}, {"query-id": "q3", "corpus-id": "d1", "score": 1}]',
        ),
    ],
)
def test_judgements_in_a_file(project: pytest.Pytester, workers: list[str], name: str, text: str) -> None:
    rows = [{"_id": row["id"], "text": row["question"]} for row in ROWS]
    write_rows(project.path / "queries.jsonl", rows)
    project.path.joinpath(name).write_text(text)
    project.path.joinpath("search.yaml").write_text(
        "suite: search\ndataset: {path: queries.jsonl, fields: {id: _id, question: text}}\n"
        f"score: {{retrieval: {{qrels: {{path: {name}}}}}}}\n"
    )
    result = project.runpytest("search.yaml", "--llm-model=python:my_search:search", REPORT, *workers)
    result.assert_outcomes(passed=4)
    assert values_of(project, "ndcg@10") == pytest.approx(NDCG, abs=1e-12)
    result.stdout.fnmatch_lines(["*not measurable 1 (no judgements)*"])


def test_moved_judgements_are_the_same_and_others_are_not(project: pytest.Pytester) -> None:
    fingerprints = []
    for name, grade in (("a.txt", 1), ("b.txt", 1), ("c.txt", 2)):
        project.path.joinpath(name).write_text(f"q1 0 d1 {grade}\n")
        suite = f"suite: search\ndataset: {{path: rows.jsonl}}\nscore: {{retrieval: {{qrels: {{path: {name}}}}}}}\n"
        project.path.joinpath("search.yaml").write_text(suite)
        project.runpytest("search.yaml", REPORT, "-p", "no:xdist")
        fingerprints.append(report_of(project.path)["suites"][0]["fingerprint"])
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("twice", "the document 'd1' stands twice, at 1 and 2, expected it once"),
        ("writes", None),
    ],
)
def test_what_a_function_gets_wrong(
    project: pytest.Pytester, workers: list[str], model: str, words: str | None
) -> None:
    without_responses(project)
    result = project.runpytest("search.yaml", f"--llm-model=python:my_search:{model}", REPORT, *workers)
    if words is None:  # a text without a list is a reply, and lists nothing
        assert metrics_of(project)["no_answer"]["value"] == 4
        result.assert_outcomes(passed=4)
    else:
        result.assert_outcomes(passed=3, failed=1)
        (unscored,) = [record for record in records_of(project) if record["status"] == "unscored"]
        assert (unscored["id"], words in unscored["reason"]) == ("q2", True), unscored["reason"]


def test_documents_are_no_text(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    project.path.joinpath("search.yaml").write_text(
        "suite: search\ndataset: {path: rows.jsonl}\nscore: exact\ntarget: \"{{ 'x' }}\"\n"
    )
    result = project.runpytest("search.yaml", "--llm-model=python:my_search:search", *workers)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*the model returned documents and no text; score: retrieval judges documents*"])


def test_an_empty_answer_with_documents_is_an_answer(project: pytest.Pytester, workers: list[str]) -> None:
    """A pipeline that found something and wrote nothing is wrong; only one that has no text at all is an error."""
    without_responses(project)
    project.makepyfile(my_rag='def answer(question):\n    return {"text": "", "documents": ["d1"]}\n')
    project.path.joinpath("search.yaml").write_text(
        "suite: both\ndataset: {path: rows.jsonl}\ntarget: \"{{ 'x' }}\"\n"
        "score: {several: {scorers: {text: {score: exact},\n"
        "  found: {score: {retrieval: {metrics: [precision@1, ap]}}}}}}\n"
    )
    result = project.runpytest("search.yaml", "--llm-model=python:my_rag:answer", REPORT, *workers)
    result.assert_outcomes(passed=0)
    result.stdout.fnmatch_lines(["suite*accuracy*found.precision@1*found.ap*", "both*0.000*"])
    assert metrics_of(project)["found.ap"]["n"] == 3


def test_a_record_keeps_a_thousand_documents(project: pytest.Pytester) -> None:
    without_responses(project)
    project.makepyfile(much='def search(question):\n    return [f"x{n}" for n in range(1500)] + ["d1"]\n')
    project.runpytest("search.yaml", "--llm-model=python:much:search", REPORT, "-p", "no:xdist")
    details = records_of(project)[0]["details"]
    assert (len(details["documents"]), details["num_documents"]) == (1000, 1501)
    assert {"id": "d1", "grade": 2, "rank": 1501} in details["relevant"]
    result = project.runpytest("search.yaml", "--llm-model=replay:report.json", "-p", "no:xdist")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the report keeps the first documents only, of more than it has room for*"])


def test_epochs_of_a_search_that_draws_lots(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    project.makepyfile(lots='def search(question, epoch):\n    return ["d1", "d3"] if epoch else ["d3", "d1"]\n')
    suite = f"{SUITE.replace('retrieval', '{retrieval: {metrics: [rr]}}')}epochs: 2\ngenerate: {{temperature: 1}}\n"
    project.path.joinpath("search.yaml").write_text(suite)
    project.runpytest("search.yaml", "--llm-model=python:lots:search", REPORT, *workers)
    assert values_of(project, "rr") == [0.75, 0.75, 0.75]
    before = records_of(project)
    result = project.runpytest("search.yaml", "--llm-model=replay:report.json", REPORT, *workers)
    result.assert_outcomes(passed=4)
    assert [record["values"] for record in records_of(project)] == [record["values"] for record in before]


CLOSABLE = """

def closable(question):
    from pathlib import Path

    if Path("closed").exists():
        raise RuntimeError("asked again")
    return search(question)
"""


def test_a_store_keeps_what_was_found(project: pytest.Pytester, workers: list[str]) -> None:
    without_responses(project)
    module = project.path / "my_search.py"
    module.write_text(module.read_text() + CLOSABLE)
    options = ("search.yaml", "--llm-model=python:my_search:closable", REPORT, "--llm-store=kept", *workers)
    project.runpytest(*options)
    before = records_of(project)
    project.path.joinpath("closed").touch()  # the function's source stays: another one is another model
    result = project.runpytest(*options, "--llm-store-max-age=1d")
    result.assert_outcomes(passed=4)
    assert [record["values"] for record in records_of(project)] == [record["values"] for record in before]


def test_show_tells_ranks(project: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_llmeval.cli import main

    project.runpytest("search.yaml", REPORT, "-p", "no:xdist")
    capsys.readouterr()
    main(["show", str(project.path / "report.json"), "--id", "q1"])
    assert "  relevant: d1 (grade 2) at 2, d9 (grade 1) missed\n" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["random", "majority"])
def test_guesses_are_rankings_that_are_right_elsewhere(project: pytest.Pytester, model: str) -> None:
    result = project.runpytest("search.yaml", f"--llm-model={model}", REPORT)
    result.assert_outcomes(passed=4)
    assert [record["no_answer"] for record in records_of(project)] == [False] * 4


@pytest.mark.parametrize("name", ["maps", "yields", "arrays"])
def test_whatever_holds_ids_is_a_list_of_them(project: pytest.Pytester, name: str) -> None:
    without_responses(project)
    project.runpytest("search.yaml", f"--llm-model=python:my_search:{name}", REPORT).assert_outcomes(passed=4)
    assert values_of(project, "ndcg@10") == pytest.approx(NDCG)


def test_a_generator_that_raises_is_that_samples_error(project: pytest.Pytester) -> None:
    without_responses(project)
    rows = [{"id": "q1", "question": "broken", "qrels": {"d1": 1}}, {"id": "q2", "question": "two", "qrels": {"d1": 1}}]
    write_rows(project.path / "rows.jsonl", rows)
    result = project.runpytest("search.yaml", "--llm-model=python:my_search:yields")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*raised OSError: no index*"])


def test_a_search_that_finds_nothing_is_not_asked_for_json(project: pytest.Pytester) -> None:
    without_responses(project)
    result = project.runpytest("search.yaml", "--llm-model=python:my_search:finds_nothing")
    result.stdout.fnmatch_lines(["search: 4 of 4 replies had no list of documents; the first was 'I do not know.'; *"])
    result.stdout.fnmatch_lines(["*a program returns documents beside its text*"])


@pytest.mark.parametrize("found", [5, True, 0.5])
def test_a_number_in_the_place_of_a_list_is_an_error(project: pytest.Pytester, found: object) -> None:
    write_rows(project.path / "rows.jsonl", [*ROWS[:2], {**ROWS[2], "response": found}])
    result = project.runpytest("search.yaml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*rows.jsonl:3: response: found *, expected ids, best first*"])


def test_a_run_of_other_ids_is_said_to_contain_no_judged_document(project: pytest.Pytester, workers: list[str]) -> None:
    rows = [{**row, "response": ["x1", "x2"]} for row in ROWS]
    write_rows(project.path / "rows.jsonl", rows)
    result = project.runpytest("search.yaml", *workers)
    result.stdout.fnmatch_lines(["search: none of * rankings contains a relevant document, nor a judged one among *"])
