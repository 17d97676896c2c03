"""The JSON Schema of the format."""

from __future__ import annotations

from typing import Any

from pytest_llmeval.suites.schema import SCORERS, SuiteSpec, json_schema


def test_score_has_both_forms() -> None:
    score: Any = json_schema()["properties"]["score"]  # type: ignore[index, call-overload]
    name, settings = score["anyOf"]
    assert name["enum"] == list(SCORERS)
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
