"""Rows in the forms in which benchmarks are published, and rows whose gold answer is missing or cannot be read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.named import NamedSuite, load_named_suite
from tests.presets import likelihood_rows, reply_rows, rows
from tests.presets.conftest import Load

NO_SHOTS = "prompt: {fewshot: {count: 0}}\n"


def suite_of(preset: str, file: str = "r.jsonl", more: str = "") -> str:
    return f"suite: s\npreset: {preset}\ndataset: {{path: {file}}}\n{more}"


def with_answer(some: list[rows.Row], **columns: Any) -> list[rows.Row]:
    """The first row as it is, the second with other columns."""
    return [some[0], {**some[1], **columns}]


UNREADABLE: Mapping[str, tuple[str, list[rows.Row], Mapping[str, Any], str]] = {
    "mmlu E": ("mmlu", rows.MMLU, {"answer": "E"}, "no key 'E'; expected one of A, B, C, D, 0, 1, 2, 3"),
    "mmlu b": ("mmlu", rows.MMLU, {"answer": "b"}, "no key 'b'; did you mean 'B'?"),
    "mmlu empty": ("mmlu", rows.MMLU, {"answer": ""}, "no key ''; expected one of A, B, C, D"),
    "mmlu AB": ("mmlu", rows.MMLU, {"answer": "AB"}, "no key 'AB'"),
    "mmlu null": ("mmlu", rows.MMLU, {"answer": None}, "no key 'None'"),
    "mmlu true": ("mmlu", rows.MMLU, {"answer": True}, "no key 'True'"),
    "mmlu 4": ("mmlu", rows.MMLU, {"answer": 4}, "no key '4'"),
    "hellaswag": ("hellaswag", rows.HELLASWAG, {"label": ""}, "no key ''; expected one of 0, 1, 2, 3"),
    "winogrande": ("winogrande", rows.WINOGRANDE, {"answer": ""}, "no key ''; expected one of 1, 2"),
    "arc": ("arc-easy", rows.ARC, {"answerKey": "C9"}, "found 'C9'"),
    "csqa": ("csqa", rows.CSQA, {"answerKey": ""}, "found ''"),
    "piqa": ("piqa", likelihood_rows.PIQA, {"label": -1}, "no key '-1'; expected one of 0, 1"),
    "openbookqa": ("openbookqa", likelihood_rows.OPENBOOKQA, {"answerKey": "E"}, "found 'E'"),
    "social-iqa": ("social-iqa", likelihood_rows.SIQA, {"label": ""}, "no key ''; expected one of 1, 2, 3"),
    **{
        f"{preset} {label}": (preset, rows.BOOLQ, {"label": label}, f"no key {shown}")
        for preset in ("boolq", "boolq-lm-eval")
        for label, shown in ((-1, "-1"), (None, "nothing (null)"), ("yes", "'yes'"), ("TRUE", "'TRUE'"), ("", "''"))
    },
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_gold_answer_that_cannot_be_read_is_no_target(load: Load, case: str) -> None:
    preset, some, columns, problem = UNREADABLE[case]
    more = NO_SHOTS if preset == "mmlu" else ""
    with pytest.raises(SuiteError) as caught:
        load(suite_of(preset, more=more), {"r.jsonl": with_answer(some, **columns)})
    assert f"preset {preset}: target: r.jsonl:2: " in str(caught.value)
    assert problem in str(caught.value)


READABLE: Mapping[str, tuple[str, list[rows.Row], list[Mapping[str, Any]], list[object]]] = {
    "mmlu": ("mmlu", rows.MMLU, [{"answer": answer} for answer in (0, "1", "C", 3)], [0, 1, 2, 3]),
    "hellaswag": ("hellaswag", rows.HELLASWAG, [{"label": label} for label in (3, "1", 0)], [3, 1, 0]),
    "winogrande": ("winogrande", rows.WINOGRANDE, [{"answer": answer} for answer in (1, "2")], [0, 1]),
    "boolq": (
        "boolq",
        rows.BOOLQ,
        [{"label": label} for label in (True, 1, "true", "True", "1", False, 0, "false", "False", "0")],
        [*[True] * 5, *[False] * 5],
    ),
    "boolq-lm-eval": (
        "boolq-lm-eval",
        rows.BOOLQ,
        [{"answer": answer} for answer in (True, False, 1, "0")],
        [1, 0, 1, 0],
    ),
}


@pytest.mark.parametrize("case", READABLE)
def test_gold_answers_as_they_are_published(load: Load, case: str) -> None:
    preset, some, answers, expected = READABLE[case]
    more = NO_SHOTS if preset == "mmlu" else ""
    suite = load(suite_of(preset, more=more), {"r.jsonl": [{**some[0], **columns} for columns in answers]})
    targets = [sample.target for sample in suite.samples]
    assert targets == expected
    assert [type(target) for target in targets] == [type(target) for target in expected]


def test_a_header_of_mmlus_csv_is_no_question(load: Load) -> None:
    files = {"anatomy_test.csv": "question,A,B,C,D,answer\nWhich?,one,two,three,four,B\n"}
    with pytest.raises(SuiteError, match=r"target: anatomy_test\.csv:1: a mapping has no key 'answer'"):
        load(suite_of("mmlu", "anatomy_test.csv", NO_SHOTS), files)


@pytest.mark.parametrize("name", ["mmlu_test.jsonl", "mmlu_test.csv.jsonl", "questions.csv"])
def test_mmlus_subject_is_no_name_of_any_other_file(load: Load, name: str) -> None:
    row = {column: value for column, value in rows.MMLU[0].items() if column != "subject"}
    content: Any = "Which?,one,two,three,four,B\n" if name.endswith(".csv") else [row]
    with pytest.raises(SuiteError) as caught:
        load(suite_of("mmlu", name, NO_SHOTS), {name: content})
    assert f"preset mmlu: dataset.fields.subject: {name}:1: a mapping has no key 'subject'" in str(caught.value)


def test_squad_1_1_as_published(load: Load) -> None:
    suite = load(suite_of("squad", "dev-v1.1.json"), {"dev-v1.1.json": json.dumps(rows.SQUAD_1_1)})
    assert [sample.id[-2:] for sample in suite.samples] == ["ec", "ed", "ee"]
    assert [sample.target for sample in suite.samples] == [["930 km", "930 km long"], ["Ebro"], ["nine grams"]]
    evaluation = Evaluation(suite)
    as_hub = Evaluation(load(suite_of("squad"), {"r.jsonl": rows.SQUAD}))
    mine = [evaluation.question(suite.samples[place]).requests for place in (0, 2)]
    assert mine == [as_hub.question(sample).requests for sample in as_hub.suite.samples]
    assert set(suite.samples[0].variables["row"]) == {"title", "context", "question", "answers", "id"}  # type: ignore[call-overload]


def test_squads_rows_in_a_json_list_of_their_own(load: Load) -> None:
    with pytest.raises(
        SuiteError, match=r"found a list of 2, expected a mapping with the key 'data'.* write key: null"
    ):
        load(suite_of("squad", "r.json"), {"r.json": json.dumps(rows.SQUAD)})
    text = suite_of("squad", "r.json").replace("r.json", "r.json, key: null")
    assert len(load(text, {"r.json": json.dumps(rows.SQUAD)}).samples) == 2


@pytest.mark.parametrize("variant", ["mc1", "mc2"])
def test_truthfulqa_as_its_authors_publish_it(load: Load, variant: str) -> None:
    text = suite_of(f"truthfulqa-{variant}")
    hub = Evaluation(load(text, {"r.jsonl": rows.TRUTHFULQA}))
    own = Evaluation(load(suite_of(f"truthfulqa-{variant}", "mc_task.json"), {
        "mc_task.json": json.dumps(rows.TRUTHFULQA_MC_TASK)
    }))  # fmt: skip
    for one, other in zip(hub.suite.samples, own.suite.samples, strict=True):
        assert one.target == other.target
        assert hub.question(one).requests == own.question(other).requests


def test_openbookqa_as_its_authors_publish_it(load: Load) -> None:
    text = suite_of("openbookqa")
    hub, own = (
        Evaluation(load(text, {"r.jsonl": some}))
        for some in (likelihood_rows.OPENBOOKQA, likelihood_rows.OPENBOOKQA_NESTED)
    )
    for one, other in zip(hub.suite.samples, own.suite.samples, strict=True):
        assert one.target == other.target
        assert hub.question(one).requests == own.question(other).requests


def test_truthfulqas_right_answer_is_where_the_labels_say(load: Load) -> None:
    turned = {"question": "Why?", "mc1_targets": {"choices": ["no", "so", "not so"], "labels": [0, 1, 0]}}
    suite = load(suite_of("truthfulqa-mc1"), {"r.jsonl": [rows.TRUTHFULQA[0], turned]})
    assert [sample.target for sample in suite.samples] == [[0], [1]]


_REPLY_PRESETS: Mapping[str, list[rows.Row]] = {
    "math-500": reply_rows.MATH_500,
    "math-500-hendrycks": reply_rows.MATH_500,
    "aime24": reply_rows.AIME_24,
    "aime25": reply_rows.AIME_25,
    "gpqa-diamond": reply_rows.GPQA,
    "mmlu-pro": reply_rows.MMLU_PRO,
    "drop": reply_rows.DROP,
    "triviaqa": reply_rows.TRIVIAQA,
    "nq-open": reply_rows.NQ_OPEN,
    "mgsm-direct-te": reply_rows.mgsm("te")[0],
    "mgsm-en-cot-zh": reply_rows.mgsm("zh")[0],
    "mgsm-native-cot-fr": reply_rows.mgsm("fr")[0],
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of these benchmarks in their published names and forms."""
    folder = tmp_path_factory.mktemp("published")

    def write(name: str, text: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    def lines(some: list[rows.Row]) -> str:
        return "".join(json.dumps(row) + "\n" for row in some)

    def parquet(name: str, some: list[rows.Row]) -> None:
        write(name, "")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(some), folder / name)

    write("math-500/test.jsonl", lines(reply_rows.MATH_500))
    parquet("aime24/aime_2024_problems.parquet", reply_rows.AIME_24)
    write("aime25/test.jsonl", lines(reply_rows.AIME_25))
    cells = io.StringIO()
    writer = csv.DictWriter(cells, list(reply_rows.GPQA[0]))
    writer.writeheader()
    writer.writerows(reply_rows.GPQA)
    write("gpqa/gpqa_diamond.csv", cells.getvalue())
    parquet("mmlu-pro/data/test-00000-of-00001.parquet", reply_rows.MMLU_PRO)
    parquet("mmlu-pro/data/validation-00000-of-00001.parquet", reply_rows.MMLU_PRO_VALIDATION)
    write("drop/drop_dataset_dev.json", json.dumps(dict(map(_drop_passage, reply_rows.DROP))))
    parquet("triviaqa/rc.nocontext/validation-00000-of-00001.parquet", reply_rows.TRIVIAQA)
    write("nq_open/NQ-open.dev.jsonl", lines(reply_rows.NQ_OPEN))
    for language in ("te", "zh", "fr"):
        test = reply_rows.mgsm(language)[0]
        write(f"mgsm/mgsm_{language}.tsv", "".join(f"{row['question']}\t{row['answer_number']:,}\n" for row in test))
    return folder


def _drop_passage(row: rows.Row) -> tuple[str, rows.Row]:
    """A passage of DROP's JSON, by its name: the hub has a row for each question, and lists in place of answers."""
    several = row["validated_answers"]
    answers = [dict(zip(several, values, strict=True)) for values in zip(*several.values(), strict=True)]
    for answer in answers:  # an answer without a date has an empty one there
        answer["date"] = {} if not any(answer["date"].values()) else answer["date"]
    pair = {"question": row["question"], "answer": row["answer"], "query_id": row["query_id"]}
    return row["section_id"], {
        "passage": row["passage"],
        "qa_pairs": [{**pair, "validated_answers": answers}],
        "wiki_url": "",
    }


@pytest.mark.parametrize("preset", _REPLY_PRESETS)
def test_published_files_are_what_the_hub_has(load: Load, published: Path, preset: str) -> None:
    data = Source(published, "data")
    named = Evaluation(load_named_suite(NamedSuite(preset, preset), Path("s.yaml"), data))
    shots = ""
    if preset == "mmlu-pro":
        shots = f"prompt: {{fewshot: {{path: {published}/mmlu-pro/data/validation-00000-of-00001.parquet}}}}\n"
    of_hub = Evaluation(load(suite_of(preset, more=shots), {"r.jsonl": _REPLY_PRESETS[preset]}))
    assert len(named.suite.samples) == len(_REPLY_PRESETS[preset])
    for one, other in zip(named.suite.samples, of_hub.suite.samples, strict=True):
        assert (one.id, one.category) == (other.id, other.category)
        mine, others = named.question(one), of_hub.question(other)
        assert mine.requests == others.requests
        assert mine.references == others.references
        assert mine.right == others.right
