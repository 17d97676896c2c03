"""The JSON Schema of the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.suites.format.schema import SuiteSpec, json_schema
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.presets import all_presets


def test_score_has_both_forms() -> None:
    score: Any = json_schema()["properties"]["score"]  # type: ignore[index, call-overload]
    name, settings, *_ = score["anyOf"]
    assert set(name["enum"]) == set(SCORERS) - {"pairwise", "pattern", "rubric", "several"}  # which need settings
    assert set(settings["properties"]) == set(SCORERS)
    assert settings["maxProperties"] == 1


def test_every_key_is_described() -> None:
    schema: Any = json_schema()
    for model in [schema, *schema["$defs"].values()]:
        assert model["description"]
        for key, value in model.get("properties", {}).items():
            # pydantic leaves it out where it is that of the model referred to
            assert value.get("description") or "$ref" in value, f"{model.get('title')}.{key}"


def test_the_scorers_own_tag_is_no_key_of_the_format() -> None:
    schema: Any = json_schema()
    for model in schema["$defs"].values():
        assert "kind" not in model.get("properties", {})


def test_the_scorers() -> None:
    assert {"choice", "letter", "yes_no", "number", "exact", "pattern", "perplexity"} <= set(SCORERS)
    assert SuiteSpec.model_config["extra"] == "forbid"


def test_the_presets() -> None:
    schema: Any = json_schema()
    assert schema["properties"]["preset"]["anyOf"][0]["enum"] == [preset.name for preset in all_presets()]


ROWS = [{"question": "q", "target": "t"}, {"question": "r", "target": "u"}]
BOOLQ = [{"question": "q", "passage": "p", "answer": True}]
SEVERAL = {"scorers": {"a": {"score": "exact"}}}
TAKEN: list[dict[str, Any]] = [
    {"variants": {}},
    {"variants": {"a": {"prompt.template": "x"}, "b-1": {"generate": {"max_tokens": 9}, "prompt.fewshot.count": 1}}},
    {},
    {"score": {"exact": None}},
    {"score": {"exact": {}}},
    {"score": "mine"},
    {"score": {"mine": None}},
    {"score": {"mine": {"any": 1}}},
    {"score": {"pattern": {"pattern": "(x)"}}},
    {"score": {"rouge": {"types": [1]}}},
    {"score": {"rouge": {"types": ["2", "l", "Lsum", 9]}}},
    {"score": {"bleu": {"k": [4]}}},
    {"score": {"several": SEVERAL}},
    {"score": {"pairwise": {"against": "old"}}},
    {"score": {"pairwise": {"against": {"baseline": True}}}},
    {"score": {"equivalence": {"prompt": "Judge."}}},
    {"score": {"equivalence": {"prompt": {"template": "Judge."}}}},
    {"score": {"several": {"scorers": {"a": {"score": {"exact": None}}, "b_2@3": {"score": "mine"}}}}},
    {"filters": [{"strip": None}, "strip", {"after": "x"}, {"map": {"1": 2}}, {"drop_reasoning": None}]},
    {"generate": {"stop": "x"}},
    {"generate": {"stop": ["x", " "]}},
    {"generate": {"stop": []}},
    {"tags": ["a-b_2", "é"]},
    {"gates": []},
    {"gates": ["accuracy>=0.6", " ci_low( category.a: b.accuracy ) > -.5e-1 "]},
    {"primary_metric": "accuracy"},
    {"primary_metric": {"name": "accuracy", "better": "lower"}},
    {"primary_metric": {"name": "accuracy", "better": None}},
    {"primary_metric": None},
    {"cluster": None},
    {"samples": [{**ROWS[0], "of": place} for place in range(10)], "cluster": "of"},
    {"epochs": 10_000},
    {"epochs": {"count": 2, "reduce": ["mean", "pass@2"]}},
    {"epochs": None},
    {"suite": "a b: c", "dataset": None, "preset": None},
    {"samples": None, "dataset": {"path": "rows.jsonl", "fields": {"a_1": "question"}}},
    {"samples": None, "score": None, "preset": "squad", "dataset": {"path": "squad.jsonl"}},
    {
        "samples": None,
        "score": None,
        "preset": "gsm8k",
        "dataset": {"path": "gsm8k.jsonl"},
        "prompt": {"fewshot": {"path": "shots.jsonl"}},
    },
    {"score": None, "preset": "boolq", "samples": BOOLQ},
    {"score": None, "preset": "boolq", "samples": BOOLQ, "dataset": {"limit": 1}},
    {"prompt": {"fewshot": {"count": 1, "path": None, "samples": [{"question": "e", "target": "f"}]}}},
    {"prompt": {"messages": "talk"}},
    {"prompt": {"messages": [{"column": "talk"}, {"role": "user", "content": "{{ question }}", "name": None}]}},
    {"prompt": {"messages": [{"role": "assistant", "tool_calls": "c"}, {"role": "tool", "content": ""}]}},
    {"prompt": {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}]}},
]
REFUSED: list[dict[str, Any]] = [
    {"variants": None},
    {"variants": ["a"]},
    {"variants": {"a": None}},
    {"variants": {"a": {}}},
    {"variants": {"a b": {"prompt.template": "x"}}},
    {"variants": {".a": {"prompt.template": "x"}}},
    {"variants": {"not": {"prompt.template": "x"}}},
    {"variants": {"a": {"suite": "x"}}},
    {"variants": {"a": {"variants.b": {}}}},
    {"variants": {"a": {"prompt..template": "x"}}},
    {"score": None},
    {"score": 1},
    {"score": []},
    {"score": {}},
    {"score": {"exact": None, "number": None}},
    {"score": {"exact": "x"}},
    {"score": {"mine": 1}},
    {"score": "pattern"},
    {"score": "several"},
    {"score": {"pattern": None}},
    {"score": {"several": None}},
    {"score": {"several": {"scorers": {}}}},
    {"score": {"several": {"scorers": {"a b": {"score": "exact"}}}}},
    {"score": {"several": {"scorers": {"a": {"score": {"several": SEVERAL}}}}}},
    {"score": {"rouge": {"types": [10]}}},
    {"score": {"rouge": {"types": []}}},
    {"score": {"rouge": {"types": ["1", "1"]}}},
    {"score": {"bleu": {"k": []}}},
    {"score": {"bleu": {"k": [1, 1]}}},
    {"score": {"chrf": {"word_order": []}}},
    {"score": {"math": {"extract": []}}},
    {"score": "pairwise"},
    {"score": {"pairwise": {"against": {"baseline": False}}}},
    {"score": {"pairwise": {"against": {"column": "old"}}}},
    {"score": {"pairwise": {"against": ["old"]}}},
    {"score": {"equivalence": {"prompt": ["Judge."]}}},
    {"filters": [{"after": None}]},
    {"filters": [{"map": {}}]},
    {"filters": [{"map": None}]},
    {"filters": None},
    {"generate": {"stop": [""]}},
    {"generate": {"stop": ""}},
    {"generate": {"stop": None}},
    {"tags": ["a b"]},
    {"tags": ["1a"]},
    {"tags": ["a\n"]},
    {"tags": ["not"]},
    {"tags": [""]},
    {"suite": " "},
    {"suite": "*"},
    {"suite": "a\nb"},
    {"suite": "a\n"},
    {"preset": "gsm8", "score": None},
    {"preset": None, "score": None},
    {"gates": "accuracy >= 0.6"},
    {"gates": None},
    {"gates": ["accuracy"]},
    {"gates": ["accuracy = 0.6"]},
    {"gates": ["accuracy >= 60%"]},
    {"gates": ["accuracy >= 0.6", "accuracy >= 0.6"]},
    {"gates": [0.6]},
    {"primary_metric": ""},
    {"primary_metric": []},
    {"primary_metric": {"better": "lower"}},
    {"primary_metric": {"name": ""}},
    {"primary_metric": {"name": "accuracy", "better": "up"}},
    {"cluster": ""},
    {"cluster": 1},
    {"epochs": 0},
    {"epochs": 10_001},
    {"epochs": {"count": 2, "reduce": []}},
    {"epochs": {"count": 2, "reduce": ["mean", "mean"]}},
    {"epochs": {"count": 2, "reduce": "mean\n"}},
    {"samples": []},
    {"samples": None},
    {"dataset": {"path": "rows.jsonl"}},
    {"samples": None, "dataset": {"path": "rows.jsonl", "fields": {"a b": "question"}}},
    {"samples": None, "dataset": {"path": "rows.jsonl", "fields": {"row": "question"}}},
    {"prompt": {"fewshot": {"seed": 1}}},
    {"prompt": None},
    {"prompt": {"messages": " "}},
    {"prompt": {"messages": []}},
    {"prompt": {"messages": [{"content": "a"}]}},
    {"prompt": {"messages": [{"role": "user"}]}},
    {"prompt": {"messages": [{"role": "human", "content": "a"}]}},
    {"prompt": {"messages": [{"role": "assistant", "tool_calls": []}]}},
    {"prompt": {"messages": [{"column": None}]}},
    {"score": None, "preset": "boolq", "samples": BOOLQ, "dataset": {"path": "rows.jsonl"}},
    {"samples": None, "dataset": {"limit": 1}},
    {"samples": None, "dataset": {"path": "rows.jsonl", "hub": "a/b"}},
    {"prompt": {"fewshot": {"count": 1, "path": "shots.jsonl", "samples": [{"question": "e", "target": "f"}]}}},
]


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema: Any = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("keys", TAKEN + REFUSED, ids=json.dumps)
def test_the_schema_takes_what_the_loader_takes(
    keys: dict[str, Any], tmp_path: Path, validator: Draft202012Validator
) -> None:
    value = {"suite": "s", "score": "exact", "samples": ROWS, **keys}
    if keys.get("score", "") is None:
        del value["score"]
    squad = {"id": "1", "context": "c", "question": "q", "answers": {"text": ["a"], "answer_start": [0]}}
    gsm8k = [{"question": f"q{place}", "answer": "#### 1"} for place in range(6)]
    for name, rows in (("rows", ROWS), ("squad", [squad]), ("gsm8k", gsm8k[:1]), ("shots", gsm8k[1:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "s.yaml").write_text(json.dumps(value))
    is_taken = True
    try:
        load_suite(tmp_path / "s.yaml", scorers={"mine": lambda reply: 1.0})
    except SuiteError:
        is_taken = False
    assert is_taken is (keys in TAKEN)
    assert validator.is_valid(value) is is_taken
