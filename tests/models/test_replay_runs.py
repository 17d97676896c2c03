"""Rankings from files: TREC runs, rows with documents, and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import ModelError, OptionError, RequestError
from pytest_llmeval.models.replay.file import ReplayArguments
from pytest_llmeval.models.replay.model import DataResponses, ReplayModel, load_replay
from pytest_llmeval.types import JSON, AskedSample, GenerateRequest, GenerateResponse

ASK = (GenerateRequest("?"),)
RUN = "q1 Q0 b 1 1.5 mine\nq1 Q0 a 2 2.5 mine\n\nq1\tQ0\tc\t3\t1.5\tmine\nq9 Q0 a 1 -3e2 mine\n"


def model(folder: Path, name: str, text: str, **arguments: JSON) -> ReplayModel:
    path = folder / name
    path.write_text(text, "utf-8")
    return load_replay(f"replay:{name}", Source(path, name), ReplayArguments.of(arguments, f"replay:{name}"))


def sample(id_: str, number: int = 1, *, requests: Any = ASK, response: JSON = None, reads: bool = True) -> AskedSample:
    return AskedSample(
        suite="s", id=id_, number=number, place="x:1", requests=requests, response=response, reads_documents=reads
    )


def answers(found: ReplayModel, *samples: AskedSample) -> list[Any]:
    found.prepare("s", samples)
    return [answer for one in samples for answer in found.answer(one)]


@pytest.mark.parametrize(("name", "arguments"), [("r.trec", {}), ("r.run", {}), ("r.txt", {"format": "trec"})])
def test_a_run_is_in_the_order_of_its_scores_and_equal_ones_as_they_stand(
    tmp_path: Path, name: str, arguments: dict[str, JSON]
) -> None:
    first, second = answers(model(tmp_path, name, RUN, **arguments), sample("q1"), sample("q2", 2))
    assert first == GenerateResponse(text="", documents=(("a", 2.5), ("b", 1.5), ("c", 1.5)), has_text=False)
    assert second == GenerateResponse(
        text="", documents=(), has_text=False
    )  # and q9, which the suite lacks, is left aside


def test_epochs_of_a_run_are_the_same(tmp_path: Path) -> None:
    found = model(tmp_path, "r.run", RUN)
    one, other = answers(found, sample("q2", requests=ASK * 2), sample("q1"))[:2]
    assert one == other == GenerateResponse(text="", documents=(), has_text=False)


def test_a_run_none_of_whose_queries_fits(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"r\.run has replies to 'q1', 'q9', which suite 's' does not have"):
        answers(model(tmp_path, "r.run", RUN), sample("x"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 Q0 a 1 2.5\n", "r.run:1: found 5 columns, expected the six of a TREC run"),
        (RUN + "q1 Q0 d 1 nan x\n", "r.run:6: the score: found 'nan' (text), expected a finite number"),
        (RUN + "q1 Q0 d 1 inf x\n", "r.run:6: the score: found 'inf'"),
        (RUN + "q1 Q0 d 1 high x\n", "r.run:6: the score: found 'high'"),
        (RUN + "q1 Q0 a 9 0.1 x\n", "r.run:6: the document 'a' stands twice for the query 'q1'"),
        ("\n", "holds no rows, expected a TREC run"),
    ],
)
def test_a_run_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        model(tmp_path, "r.run", text)
    assert words in str(caught.value)


def test_a_format_that_there_is_not() -> None:
    with pytest.raises(OptionError, match="format: found 'trek'; did you mean 'trec'"):
        ReplayArguments.of({"format": "trek"}, "replay:x.txt")


ROWS: list[tuple[JSON, tuple[tuple[str, float | None], ...]]] = [
    (["b", "a"], (("b", None), ("a", None))),
    ([["b", 0.5], ["a", 0.1]], (("b", 0.5), ("a", 0.1))),
    ({"a": 0.1, "b": 0.5}, (("b", 0.5), ("a", 0.1))),
    ('["b", "a"]', (("b", None), ("a", None))),
    ([], ()),
]


@pytest.mark.parametrize(("value", "documents"), ROWS)
@pytest.mark.parametrize("column", ["response", "documents"])
def test_a_list_is_one_ranking(tmp_path: Path, column: str, value: JSON, documents: Any) -> None:
    found = model(tmp_path, "r.jsonl", json.dumps({"id": "q1", column: value}))
    assert answers(found, sample("q1")) == [GenerateResponse(text="", documents=documents, has_text=False)]


def test_documents_beside_a_text(tmp_path: Path) -> None:
    row = {"id": "q1", "response": "An ox.", "hits": ["b"], "contexts": ["ox"]}
    found = model(tmp_path, "r.jsonl", json.dumps(row), documents="hits")
    expected = GenerateResponse(text="An ox.", documents=(("b", None),), contexts=("ox",))
    assert answers(found, sample("q1", reads=False)) == [expected]


def test_a_column_of_another_meaning_is_no_ranking_unless_it_is_named(tmp_path: Path) -> None:
    text = json.dumps({"id": "q1", "response": "An ox.", "documents": [["a", "b", "c"]]})
    assert answers(model(tmp_path, "r.jsonl", text), sample("q1", reads=False)) == [GenerateResponse(text="An ox.")]
    with pytest.raises(ModelError, match=r"r\.jsonl:1: documents: entry 1 is a list of 3"):
        model(tmp_path, "r.jsonl", text, documents="documents")


def test_a_document_that_stands_twice_is_that_samples_error(tmp_path: Path) -> None:
    found = model(tmp_path, "r.jsonl", json.dumps({"id": "q1", "response": ["a", "a"]}))
    (answer,) = answers(found, sample("q1"))
    assert isinstance(answer, RequestError)
    assert str(answer).startswith("r.jsonl:1: response: the document 'a' stands twice")


def test_epochs_are_rows(tmp_path: Path) -> None:
    rows = [{"id": "q1", "epoch": number, "response": [name]} for number, name in ((2, "b"), (1, "a"))]
    found = model(tmp_path, "r.jsonl", "\n".join(map(json.dumps, rows)))
    first, second = answers(found, sample("q1", requests=ASK * 2))
    assert (first.documents, second.documents) == ((("a", None),), (("b", None),))


def test_texts_of_a_report_stay_texts(tmp_path: Path) -> None:
    """A model that was asked twice to rank wrote two texts, which are two replies, whatever they list."""
    texts = ['["a", "a"]', '["b"]']
    record = {"suite": "s", "model": "m", "id": "q1", "status": "scored", "values": {}, "details": {"outputs": texts}}
    report = json.dumps({"schema": 2, "created": "now", "records": [record]})
    found = answers(model(tmp_path, "r.json", report), sample("q1", requests=ASK * 2))
    assert [one.text for one in found] == texts


def test_rows_without_a_reply_of_a_data_set_found_nothing() -> None:
    assert DataResponses().answer(sample("q1")) == [GenerateResponse(text="", documents=(), has_text=False)]
    (answer,) = DataResponses().answer(sample("q1", reads=False))
    assert isinstance(answer, RequestError)
