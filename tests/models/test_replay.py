"""Replies from a file: what is read, whose a reply is, and what it answers."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import LeftOutError, ModelError, RequestError
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.replay.file import ReplayArguments, read_replies
from pytest_llmeval.models.replay.model import ReplayModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import (
    AskedSample,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Request,
)
from tests.models.support import one_line_of

LM_EVAL = Path(__file__).with_name("lm_eval_samples")
TEXT = (GenerateRequest("?"),)
OPTIONS = tuple(LoglikelihoodRequest("?", f" {option}") for option in "ab")


def samples(*ids: str, requests: Sequence[Request] = TEXT, suite: str = "s", **fields: Any) -> list[AskedSample]:
    return [
        AskedSample(
            suite=suite, id=id_, number=number, place=f"{suite}.yaml:{number}", requests=tuple(requests), **fields
        )
        for number, id_ in enumerate(ids, 1)
    ]


def load(path: Path, arguments: str = "") -> ReplayModel:
    spec = parse_model_spec(f"replay:{path}{'?' * bool(arguments)}{arguments}")
    model = load_model(spec, ModelSettings())
    assert isinstance(model, ReplayModel)
    return model


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answers(model: ReplayModel, asked: Sequence[AskedSample]) -> list[object]:
    """Texts, log-likelihoods, and the messages of errors."""
    model.prepare(asked[0].suite, asked)
    found: list[object] = []
    for response in model.answer_samples(asked):
        match response:
            case GenerateResponse():
                found.append(response.text)
            case LoglikelihoodResponse():
                found.append(response.loglikelihood)
            case RequestError():
                found.append(one_line_of(response))
    return found


def refusal(model: ReplayModel, asked: Sequence[AskedSample]) -> str:
    with pytest.raises(ModelError) as caught:
        model.prepare(asked[0].suite, asked)
    return one_line_of(caught.value)


ROWS: list[dict[str, Any]] = [
    {"id": "b", "response": "two"},
    {"id": "a", "response": "one"},
    {"id": 3, "response": 3.5},
]


INSPECT = {
    "eval": {"task": "t"},
    "results": {"scores": [{"name": "match"}]},
    "samples": [
        {"id": row["id"], "output": {"completion": row["response"]}, "scores": {"match": {"value": "C"}}}
        for row in ({"id": "a", "response": "one"}, {"id": "b", "response": "two"})
    ],
}
PROMPTFOO = {
    "evalId": "e",
    "results": {
        "prompts": [{"raw": "q"}],
        "results": [
            {"vars": {"id": row["id"]}, "response": {"output": row["response"]}, "success": True, "score": 1}
            for row in ({"id": "a", "response": "one"}, {"id": "b", "response": "two"})
        ],
    },
    "config": {"tests": [{"vars": {"id": "a"}}]},
}


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        (INSPECT, "response=output.completion"),
        (PROMPTFOO, "response=response.output&id=vars.id"),
        ({"run": {"outputs": [{"id": "b", "response": "two"}, {"id": "a", "response": "one"}], "log": []}}, ""),
    ],
    ids=["Inspect", "promptfoo", "others"],
)
def test_rows_inside_mappings_are_found(tmp_path: Path, content: object, arguments: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(content))
    model = load(path, arguments)
    assert answers(model, samples("a", "b")) == ["one", "two"]
    assert model.lacks_method("s", "loglikelihood"), "a column scores without numbers is none"


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (INSPECT, "", "has no column 'response', 'loglikelihoods' or 'scores' with numbers: name yours"),
        (INSPECT, "response=completion", "expected a list of rows; 'key' names the list: expected one of samples"),
        ({"a": [{"response": "x"}], "b": [{"response": "y"}]}, "", "'key' names the list: expected one of a, b"),
    ],
)
def test_rows_inside_mappings_that_are_not_found(tmp_path: Path, content: object, arguments: str, words: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError) as caught:
        load(path, arguments)
    assert words in one_line_of(caught.value)


@pytest.mark.parametrize("format_", ["jsonl", "json", "csv", "jsonl.gz", "json with a key"])
def test_formats(tmp_path: Path, format_: str) -> None:
    arguments = ""
    path = tmp_path / f"out.{format_.partition(' ')[0]}"
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    if format_ == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "response"])
            writer.writeheader()
            writer.writerows(ROWS)
    elif format_ == "jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif format_ == "json with a key":
        path.write_text(json.dumps({"outputs": ROWS}))
        arguments = "key=outputs"
    else:
        path.write_text(json.dumps(ROWS) if format_ == "json" else lines)
    assert answers(load(path, arguments), samples("a", "b", "3")) == ["one", "two", "3.5"]


def test_columns_of_other_names(tmp_path: Path) -> None:
    rows = [{"custom_id": n, "body": {"choices": [{"message": {"content": f"reply {n}"}}]}} for n in range(2)]
    model = load(write(tmp_path, rows), "id=custom_id&response=body.choices.0.message.content")
    assert answers(model, samples("0", "1")) == ["reply 0", "reply 1"]
    with pytest.raises(ModelError) as caught:
        load(write(tmp_path, rows), "id=custm_id&response=body")
    assert "has no column 'custm_id', which id= names; did you mean 'custom_id'?" in one_line_of(caught.value)
    with pytest.raises(ModelError) as caught:
        load(write(tmp_path, [{"id": 1, "respons": "x"}]))
    assert "name yours with ?response=COLUMN; did you mean 'respons'?" in one_line_of(caught.value)


def test_by_order_where_nobody_has_an_id(tmp_path: Path) -> None:
    model = load(write(tmp_path, [{"response": "x"}, {"response": "y"}]))
    assert answers(model, samples("b", "a")) == ["x", "y"]
    assert "has 2 replies without ids, and suite 's' has 3 samples" in refusal(model, samples("b", "a", "c"))
    some = load(write(tmp_path, [{"response": "x", "id": "a"}, {"response": "y"}]))
    assert "out.jsonl:2: the reply has no id, and others have one" in refusal(some, samples("b", "a"))


def test_partial_takes_replies_in_order_as_far_as_they_go(tmp_path: Path) -> None:
    path = write(tmp_path, [{"response": "x"}, {"response": "y"}])
    assert refusal(load(path), samples("a")).endswith("?partial=true scores the first 1")
    model = load(path, "partial=true")
    assert answers(model, samples("b", "a")) == ["x", "y"]
    assert model.warning_of("s") is None
    (first, second, third) = answers(model, samples("b", "a", "c"))
    assert (first, second) == ("x", "y")
    assert "no reply in" in str(third)
    assert model.warning_of("s") is None
    assert answers(model, samples("b")) == ["x"]
    assert str(model.warning_of("s")).endswith("out.jsonl: the last reply is left out, since suite 's' has 1 sample")


def test_missing_and_surplus_ids(tmp_path: Path) -> None:
    rows = [{"id": f"x{n}", "response": ""} for n in range(7)]
    path = write(tmp_path, [*rows, {"id": "a", "response": "one"}])
    message = refusal(load(path), samples("a", "b", "c"))
    assert "has replies to 'x0', 'x1', 'x2', 'x3', 'x4', … (7), which suite 's' does not have" in message
    assert "and none to 'b', 'c'; its ids are 'a', 'b', 'c'" in message
    assert "has replies to 'x0'" in refusal(load(path, "partial=true"), samples("a", "b", "c"))
    path = write(tmp_path, [{"id": "a", "response": "one"}, {"id": "b", "response": None}])
    message = refusal(load(path), samples("a", "b", "c"))
    assert "has no reply to 'b', 'c', of the 3 samples of suite 's'; ?partial=true scores those" in message


def test_partial_leaves_out_what_has_no_reply(tmp_path: Path) -> None:
    model = load(write(tmp_path, [{"id": "a", "response": ""}]), "partial=true")
    asked = samples("a", "b")
    model.prepare("s", asked)
    first, second = model.answer_samples(asked)
    assert isinstance(first, GenerateResponse)
    assert first.text == ""
    assert isinstance(second, LeftOutError)


def test_duplicates(tmp_path: Path) -> None:
    model = load(write(tmp_path, [{"id": "a", "response": "x"}, {"id": "a", "response": "x"}]))
    message = refusal(model, samples("a"))
    assert "has more than one reply to 'a'" in message
    assert "out.jsonl:1" in message
    assert "out.jsonl:2): remove one, or number them in a column epoch" in message


EPOCHS = [GenerateRequest("?", epoch=epoch) for epoch in range(3)]


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "a", "response": ["x", "y", "z"]}],
        [{"id": "a", "response": text, "epoch": epoch} for text, epoch in (("z", 3), ("x", 1), ("y", 2))],
    ],
)
def test_epochs(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    model = load(write(tmp_path, rows))
    assert answers(model, samples("a", requests=EPOCHS)) == ["x", "y", "z"]
    (message,) = answers(model, samples("a"))
    assert "found 3 responses, and the suite asks each sample once" in str(message)
    single = load(write(tmp_path, [{"id": "a", "response": "x"}]))
    assert "found 1 response, and the suite asks each sample 3 times" in str(
        answers(single, samples("a", requests=EPOCHS))[0]
    )


def test_several_suites_in_one_file(tmp_path: Path) -> None:
    rows = [{"suite": "s", "id": "a", "response": "one"}, {"suite": "t", "id": "a", "response": "two"}]
    model = load(write(tmp_path, rows))
    assert answers(model, samples("a")) == ["one"]
    assert answers(model, samples("a", suite="t")) == ["two"]
    assert "has no replies for suite 'u', only for 's', 't'" in refusal(model, samples("a", suite="u"))


@pytest.mark.parametrize(
    ("row", "measure", "num_tokens"),
    [
        ({"loglikelihoods": [-1.5, -2.0], "num_tokens": [2, 3]}, "loglikelihood", [2, 3]),
        ({"loglikelihoods": [-1.5, -2.0]}, "uncounted", [0, 0]),
        ({"loglikelihoods": "[-1.5, -2.0]"}, "uncounted", [0, 0]),
        ({"response": [-1.5, -2.0]}, "uncounted", [0, 0]),
    ],
)
def test_loglikelihoods(tmp_path: Path, row: dict[str, Any], measure: str, num_tokens: list[int]) -> None:
    model = load(write(tmp_path, [{"id": "a", **row}]))
    asked = samples("a", requests=OPTIONS)
    assert answers(model, asked) == [-1.5, -2.0]
    for response, count in zip(model.answer_samples(asked), num_tokens, strict=True):
        assert isinstance(response, LoglikelihoodResponse)
        assert (response.measure, response.num_tokens, response.is_greedy) == (measure, count, None)


def test_scores_become_a_distribution(tmp_path: Path) -> None:
    """Logits of any sign, as a list or in columns of their own: log-softmax, so that the softmax gives them back."""
    rows: list[dict[str, Any]] = [{"id": "a", "scores": [3.0, 1.0]}, {"id": "b", "logits": "[3, 1]"}]
    for row, arguments in (
        (rows[0], ""),
        (rows[1], ""),
        ({"id": "a", "yes": 3, "no": "1"}, "scores=yes,no"),
        ({"id": "a", "out": [3, 1]}, "logits=out"),
    ):
        found = answers(load(write(tmp_path, [row]), arguments), samples(str(row["id"]), requests=OPTIONS))
        weights = [math.exp(float(str(value))) for value in found]
        assert sum(weights) == pytest.approx(1)
        assert weights[0] / weights[1] == pytest.approx(math.exp(2))


@pytest.mark.parametrize(
    ("row", "requests", "words"),
    [
        (
            {"response": "A"},
            OPTIONS,
            "found a response and no log-likelihoods, and this suite needs the log-likelihoods of 2",
        ),
        ({"response": "A"}, (LoglikelihoodRollingRequest("x"),), "needs the log-likelihood of a text"),
        ({"loglikelihoods": [-1, -2]}, TEXT, "found log-likelihoods and no response, and this suite reads a text"),
        ({"scores": [-1, -2]}, TEXT, "found scores and no response, and this suite reads a text"),
        ({"loglikelihoods": [-1, -2, -3]}, OPTIONS, "loglikelihoods: found 3, and the sample needs 2"),
        ({"loglikelihoods": [0.5, -2]}, OPTIONS, "found 0.5, expected a log-likelihood in nats, at most 0; scores of"),
        ({"loglikelihoods": [-1, "x"]}, OPTIONS, "loglikelihoods: found 'x' (text), expected a number"),
        ({"loglikelihoods": [-1, -2], "num_tokens": [1, 0]}, OPTIONS, "num_tokens: found 0.0, expected a whole number"),
        (
            {"loglikelihoods": [-1, -2], "is_greedy": [1, 0]},
            OPTIONS,
            "is_greedy: found 1 (a whole number), expected true",
        ),
        ({"loglikelihoods": [-(10**400), -1]}, OPTIONS, "(a whole number), expected a number"),
        ({"scores": [1, None]}, OPTIONS, "scores: found nothing (null), expected a number"),
        ({"response": {"a": 1}}, TEXT, "response: found a mapping"),
        ({"response": True}, TEXT, "response: found true (a bool), expected text"),
    ],
)
def test_what_does_not_fit_is_that_samples_error(
    tmp_path: Path, row: dict[str, Any], requests: Sequence[Request], words: str
) -> None:
    found = answers(load(write(tmp_path, [{"id": "a", **row}])), samples("a", requests=requests))
    assert len(found) == len(requests)
    assert words in str(found[0])
    assert "out.jsonl:1: " in str(found[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no rows"),
        ("{", "is not JSON"),
        ('{"id": [1], "response": "x"}\n', "out.jsonl:1: id: found a list of 1, expected text or a whole number"),
        (
            '{"doc_id": 1e999, "doc": {}, "resps": [], "filtered_resps": []}\n',
            "out.jsonl:1: found no doc_id, arguments",
        ),
        ('{"id": 1, "response": "x", "epoch": "one"}\n', "epoch: found 'one' (text), expected a whole number"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(content)
    with pytest.raises(ModelError) as caught:
        load(path)
    assert words in one_line_of(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"details": [1]},
        {"values": "loglikelihood", "output": None},
        {"suite": 1},
        {"id": 3},
        {"details": {"loglikelihoods": 3}},
    ],
    ids=str,
)
def test_a_damaged_record_of_a_report(tmp_path: Path, wrong: dict[str, Any]) -> None:
    record = {"suite": "s", "model": "m", "id": "a", "status": "correct", "values": {}, "output": "x", **wrong}
    path = tmp_path / "out.json.journal"
    path.write_text('{"schema": 2, "created": "", "journal": 1}\n' + json.dumps({"record": record}) + "\n")
    with pytest.raises(ModelError) as caught:
        load(path)
    assert "out.json.journal:2: found no record as a report of this plugin has it" in one_line_of(caught.value)


def test_files_that_are_refused_before_the_run(tmp_path: Path) -> None:
    for name, words in (("missing.jsonl", "there is no such file"), ("out.txt", "found the suffix '.txt'")):
        with pytest.raises(ModelError) as caught:
            load(tmp_path / name)
        assert words in one_line_of(caught.value)


# lm-eval's samples: written by lm_eval 0.4.13 with --log_samples, the model that ships, and five small tasks


def lm_eval_samples(name: str, requests: Sequence[Request], rows: Sequence[Mapping[str, object]]) -> list[object]:
    asked = [
        AskedSample(suite=name, id=f"q{n}", number=n, place="", requests=tuple(requests), row=row)
        for n, row in enumerate(rows, 1)
    ]
    return answers(load(LM_EVAL / f"{name}.jsonl"), asked)


CAPITALS = [{"q": f"Capital of {country}?"} for country in ("France", "Italy", "Norway")]
SUMS = [{"q": "1 + 1 =", "a": "2"}, {"q": "2 + 3 =", "a": "5"}]


def test_lm_eval_multiple_choice() -> None:
    requests = [LoglikelihoodRequest("?", f" {option}") for option in ("Paris", "Rome", "Oslo")]
    found = lm_eval_samples("caps", requests, CAPITALS)
    assert found[:4] == [-8.957149505615234, -12.410500526428223, -11.918052673339844, -6.4388346672058105]
    assert len(found) == 9


def test_lm_eval_replies() -> None:
    """A task with two filters logs each reply twice."""
    assert lm_eval_samples("sums", TEXT, SUMS) == [" 4", " 5 coins."]
    assert lm_eval_samples("rep", EPOCHS, SUMS) == [" 8", " 4", " 4", " 4 coins.", " 5 coins.", " 9 coins."]


def test_lm_eval_texts_and_continuations() -> None:
    rolling = [LoglikelihoodRollingRequest("1 + 1 =")]
    assert lm_eval_samples("ppl", rolling, SUMS) == [-32.23396682739258, -32.05767822265625]
    model = load(LM_EVAL / "lam.jsonl")
    asked = samples("x", "y", requests=[LoglikelihoodRequest("?", "2")])
    assert answers(model, asked) == [-11.919615745544434, -7.329098701477051]
    assert [getattr(response, "is_greedy", None) for response in model.answer_samples(asked)] == [False, False]


def test_lm_eval_rows_have_to_be_the_suites_own() -> None:
    model = load(LM_EVAL / "sums.jsonl")
    asked = samples("x", "y", row={"q": "2 + 3 =", "other": 1})
    message = refusal(model, asked)
    assert "sums.jsonl:1: the reply is to a row whose 'q' is '1 + 1 =' (text), and sample 'x' of suite 's'" in message
    assert "has '2 + 3 =' (text): the rows have to be the same, in the same order" in message
    assert "row 2" in refusal(model, samples("x"))


def test_errors_are_requests_errors(tmp_path: Path) -> None:
    model = load(write(tmp_path, [{"id": "a", "response": "A"}]))
    asked = samples("a", requests=OPTIONS)
    model.prepare("s", asked)
    assert all(type(response) is RequestError for response in model.answer_samples(asked))


def test_a_reply_with_ends_of_lines_that_are_none(tmp_path: Path) -> None:
    """In a file of replies a line ends at a line feed."""
    text = "a\u2028b\u2029c\x85d\x0ce\x1cf"
    (tmp_path / "r.jsonl").write_bytes(
        json.dumps({"id": "1", "response": text}, ensure_ascii=False).replace("\x0c", "\\f").encode()
    )
    replies = read_replies(Source(tmp_path / "r.jsonl", "r.jsonl"), ReplayArguments()).replies
    assert [(reply.id, reply.response) for reply in replies] == [("1", text)]
