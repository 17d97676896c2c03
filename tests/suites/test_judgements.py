"""Files of relevance judgements: TREC's, BEIR's and JSON Lines, and what can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scorers.reading.rankings import read_judgements

KNOWN = {"q1": {"d1": 2, "d 9": 0}, "q2": {"d1": -1}}
PLAIN = {"q1": {"d1": 2, "d9": 0}, "q2": {"d1": -1}}
HEADER = "query-id\tcorpus-id\tscore\n"
ROWS = [
    {"query-id": "q1", "corpus-id": "d1", "score": 2},
    {"query-id": "q1", "corpus-id": "d 9", "score": 0.0},
    {"query-id": "q2", "corpus-id": "d1", "score": -1},
]


def read(folder: Path, name: str, text: str) -> dict[str, dict[str, int]]:
    path = folder / name
    path.write_bytes(text.encode())
    return {query: dict(own) for query, own in read_judgements(Source(path, name)).items()}


@pytest.mark.parametrize("name", ["qrels.txt", "qrels.trec", "qrels", "test.qrels", "qrels.tsv"])
@pytest.mark.parametrize("space", [" ", "\t", "  "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_trec(tmp_path: Path, name: str, space: str, end: str) -> None:
    lines = ["q1 0 d1 2", "q1 0 d9 0", "", "q2 Q0 d1 -1", ""]
    assert read(tmp_path, name, end.join(lines).replace(" ", space)) == PLAIN


@pytest.mark.parametrize(
    "header", ["", HEADER, "qid\tdocid\trelevance\n", "Query-ID\tCorpus-ID\tScore\n", "\ufeff" + HEADER]
)
@pytest.mark.parametrize("between", ["", "0\t"])
def test_beir(tmp_path: Path, header: str, between: str) -> None:
    if between and header:
        header = header.replace("\t", "\titeration\t", 1)
    lines = [f"q1\t{between}d1\t2", f"q1\t{between}d 9\t0", f"q2\t{between}d1\t-1"]
    assert read(tmp_path, "test.tsv", header + "\n".join(lines)) == KNOWN


@pytest.mark.parametrize(
    "lines",
    [
        ["q1\t 0 d1\t2", "q1 0\td9 0", "q2\tQ0\td1 -1"],
        ["q1\t0\td1 2", "q1\t0\td9 0", "q2\t0\td1\t-1"],
    ],
)
def test_trec_of_tabs_and_blanks_as_trec_eval_reads_it(tmp_path: Path, lines: list[str]) -> None:
    for name in ("qrels.tsv", "qrels.txt"):
        assert read(tmp_path, name, "\n".join(lines)) == PLAIN


def test_a_line_that_is_read_in_two_ways_beside_ids_with_blanks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, "q.tsv", "q1\t0\td 9\t0\nq1\t 0 d1\t2\n")
    assert str(caught.value) == (
        "q.tsv:2: can be read in two ways, as the document '0 d1' by its tabs, and as 'd1' by its blanks, as other "
        "lines of the file cannot; separate the columns of all lines by tabs alone"
    )


def test_csv(tmp_path: Path) -> None:
    assert read(tmp_path, "test.csv", "query_id,corpus_id,score\nq1,d1,2\nq1,d 9,0\nq2,d1,-1\n") == KNOWN


def test_quotes_of_a_csv(tmp_path: Path) -> None:
    assert read(tmp_path, "test.csv", 'q1,"d1",2\nq1,"d, 9",0\n"q2",d1,-1\n') == {
        "q1": {"d1": 2, "d, 9": 0},
        "q2": {"d1": -1},
    }


@pytest.mark.parametrize("text", ["q1\trel\t2\nq1\tscore\t0\n", "score 0 rel 2\nq1 0 docid 1\n"])
def test_ids_that_are_words_of_a_header(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, "a.tsv" if "\t" in text else "a.txt", text)
    assert sum(map(len, found.values())) == 2


def test_a_header_stands_on_the_first_line(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"a\.tsv:2: the grade of 'corpus-id': found 'score'"):
        read(tmp_path, "a.tsv", "q1\td1\t2\nquery-id\tcorpus-id\tscore\n")


def test_json_lines(tmp_path: Path) -> None:
    assert read(tmp_path, "a.jsonl", "\n".join(map(json.dumps, ROWS))) == KNOWN
    whole = [{"query_id": query, "query": "?", "relevant_docs": own} for query, own in KNOWN.items()]
    assert read(tmp_path, "b.jsonl", "\n".join(map(json.dumps, whole))) == KNOWN
    assert read(tmp_path, "c.json", json.dumps(whole)) == KNOWN


def test_a_query_with_no_relevant_document_was_judged(tmp_path: Path) -> None:
    line = json.dumps({"query_id": 7, "relevant_docs": {}})
    assert read(tmp_path, "a.jsonl", line) == {"7": {}}


def test_a_list_holds_relevant_documents(tmp_path: Path) -> None:
    assert read(tmp_path, "a.jsonl", '{"query_id": "q", "relevant_docs": ["a", 5]}') == {"q": {"a": 1, "5": 1}}


def test_ids_of_queries_are_composed_as_those_of_samples_are(tmp_path: Path) -> None:
    assert read(tmp_path, "a.txt", "e\u0301 0 e\u0301 1") == {"\u00e9": {"e\u0301": 1}}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("q.txt", "q1 0 d1 1\nq1 0 d2 x\n", "q.txt:2: the grade of 'd2': found 'x' (text), expected a whole number"),
        ("q.txt", "q1 0 d1 x\n", "q.txt:1: the grade of 'd1': found 'x'"),
        ("q.txt", "q1 0 d1 1.5\n", "q.txt:1: the grade of 'd1': found '1.5'"),
        ("q.txt", "q1 0 d1 nan\n", "q.txt:1: the grade of 'd1': found 'nan'"),
        ("q.txt", "q1 0 d1 99999\n", "from -1000 to 1000"),
        ("q.txt", "q1 0 d1 \u0661\n", "q.txt:1: the grade"),
        ("q.txt", "q1 d1\n", "q.txt:1: found 2 columns"),
        ("q.txt", "q1 Q0 d1 1 2.5 run\n", "q.txt:1: found 6 columns"),
        ("q.txt", "q1 0 d1 1\nq1 0 d1 1\n", "q.txt:2: the document 'd1' is judged twice for the query 'q1'"),
        ("q.txt", "", "holds no relevance judgements"),
        ("q.tsv", HEADER, "holds no relevance judgements"),
        ("q.tsv", "q1\t\t1\n", "q.tsv:1: a document's id: found ''"),
        ("q.jsonl", '{"a": 1}', "q.jsonl:1: found no column with a query, expected one of query_id"),
        ("q.jsonl", '{"query_id": "q", "score": 1}', "found no column with a document"),
        ("q.jsonl", '{"query_id": "q", "doc_id": "d"}', "found no column with a grade"),
        ("q.jsonl", '{"query_id": "q", "doc_id": "d", "score": true}', "q.jsonl:1: the grade of 'd': found true"),
        ("q.jsonl", '{"query_id": null, "relevant_docs": {}}', "the query's id: found nothing (null)"),
        ("q.jsonl", '{"query_id": "q", "relevant_docs": 5}', "q.jsonl:1: found 5"),
        ("q.jsonl", '{"query_id": "q", "relevant_docs": {"d": 1, "d": 2}}', "q.jsonl:1: found the key 'd' twice"),
        ("q.jsonl", "nothing", "q.jsonl:1: is not JSON"),
        ("q.tsv.gz", "no", "q.tsv.gz"),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, name, text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


names = st.text("abcDÉ0123-_./:", min_size=1, max_size=8).filter(lambda name: name.strip() == name)


@given(st.dictionaries(names, st.dictionaries(names, st.integers(-1000, 1000), min_size=1), min_size=1))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, judged: dict[str, dict[str, int]]) -> None:
    lines = [f"{query} 0 {document} {grade}" for query, own in judged.items() for document, grade in own.items()]
    assert read(tmp_path_factory.mktemp("qrels"), "qrels.txt", "\n".join(lines)) == judged
