"""Replies that are JSON, by the standard library's reader and by jsonschema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scorers import json as json_scorer
from pytest_llmeval.scorers.json import JsonScorer, JsonSettings, NotJSONError, parse_json, same_json
from pytest_llmeval.scoring.base import SettingsError
from pytest_llmeval.types import JSON, GenerateResponse, Score
from tests.scoring.helpers import a_sample, judge_reply

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def judge(reply: str, target: Any = None, **settings: Any) -> Score:
    return judge_reply(JsonSettings(**settings), target, reply)


@given(VALUES)
def test_what_json_writes_is_read_back(value: JSON) -> None:
    assert same_json(parse_json(json.dumps(value)), value)
    assert judge(json.dumps(value)).status == "correct"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "not JSON: Expecting value (line 1, column 1)"),
        ("{'a': 1}", "not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ("{} and so on", "not JSON: Extra data (line 1, column 4)"),
        ("[NaN]", "not JSON: NaN is not JSON"),
        ("-Infinity", "not JSON: -Infinity is not JSON"),
        ("1e999", "not JSON: a number that is too large"),
        ("1" * 200_000, "not JSON: a number of more than 1,000 digits"),
        ("0." + "1" * 200_000, "not JSON: a number that is too large"),
        ("[" * 500_000, "not JSON: nested deeper than 100 levels"),
        ('{"a":' * 200 + "1" + "}" * 200, "not JSON: nested deeper than 100 levels"),
        ('"' + '\\"' * 400_000, "not JSON: Unterminated string starting at (line 1, column 1)"),
        ("[]" * 500_001, "not JSON: longer than 1,000,000 characters"),
    ],
    ids=lambda value: value[:12],
)
def test_what_is_no_json_is_no_answer(reply: str, problem: str) -> None:
    score = judge(reply)
    assert (score.status, score.no_answer, score.answer) == ("wrong", True, None)
    assert score.details == {"problem": problem}


def test_brackets_in_a_text_are_no_levels() -> None:
    assert judge(json.dumps("[" * 1000)).status == "correct"
    assert judge(json.dumps('\\"' + "[" * 1000)).status == "correct"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ('{"name": "Ann", "age": 3}', None),
        ('{"name": "Ann", "age": -3}', "age: -3 is less than the minimum of 0"),
        ('{"age": 3}', "'name' is a required property"),
        ('{"name": "ann"}', "name: 'ann' does not match '^[A-Z]'"),
        ("[]", "[] is not of type 'object'"),
    ],
)
def test_a_schema(reply: str, problem: str | None) -> None:
    score = judge(reply, schema=PERSON)
    assert score.status == ("correct" if problem is None else "wrong")
    assert score.details == ({} if problem is None else {"problem": problem})
    assert not score.no_answer


@pytest.mark.parametrize(
    ("schema", "message", "keys"),
    [
        ({"$ref": "http://example.com/x.json"}, "found 'http://example.com/x.json', expected a reference", ("$ref",)),
        ({"items": {"$ref": "other.json"}}, "nothing is fetched", ("items", "$ref")),
        ({"type": "strin"}, "'strin' is not valid under any of the given schemas", ("type",)),
        ({"properties": {"a": {"pattern": "("}}}, r"'\(' is not a 'regex'", ("properties", "a", "pattern")),
        ("person.json", "found the file 'person.json'", ()),
    ],
)
def test_a_schema_that_cannot_be_used(schema: Any, message: str, keys: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        JsonScorer.of(JsonSettings(schema=schema))
    assert caught.value.keys == ("json", "schema", *keys)


def test_a_schema_of_a_standard_is_not_fetched_either() -> None:
    schema = {"$id": "http://example.com/a", "$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}
    assert judge("1", schema=schema).details == {"problem": "1 is not of type 'string'"}


@pytest.mark.parametrize(
    ("schema", "reply"),
    [
        pytest.param({"uniqueItems": True}, "[" + "{},[]," * 100_000 + "1]", marks=pytest.mark.slow),
        ({"multipleOf": 0.5}, "9" * 900),
    ],
    ids=["unique items", "a large number"],
)
def test_what_has_no_end_costs_one_sample(schema: Any, reply: str) -> None:
    assert judge(reply, schema=schema).status in ("wrong", "correct")


@pytest.mark.parametrize(
    ("target", "reply", "right"),
    [
        ('{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}', True),
        ('{"a": 1}', '{"a": true}', False),
        ("[1, 2]", "[2, 1]", False),
        (["1", '"one"'], '"one"', True),
        (7, "7", True),
        (True, "true", True),
        (True, "1", False),
        ('{"a": 1}', '{"a": 1, "b": 1}', False),
    ],
)
def test_the_value_of_a_target(target: Any, reply: str, right: bool) -> None:
    assert judge(reply, target).status == ("correct" if right else "wrong")


@pytest.mark.parametrize(
    ("target", "message"), [("{", r"target '\{' is not JSON: Expecting"), ([], "the target is an empty list")]
)
def test_a_target_that_is_no_json_is_refused(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JsonScorer.of(JsonSettings()).present(a_sample(target))


@pytest.mark.parametrize(
    "reply", ["1", "```json\n1\n```", "Sure:\n```\n1\n```\nor\n```json\n2\n```", "```json\n1", "``` json \r\n 1```"]
)
def test_a_fenced_block(reply: str) -> None:
    assert judge(reply, 1, fenced=True).status == "correct"
    assert judge(reply, 1).status == ("correct" if reply == "1" else "wrong")


def test_few_shot_shows_the_target() -> None:
    scorer = JsonScorer.of(JsonSettings())
    assert scorer.answer_text(scorer.present(a_sample('{"a": 1}'))) == '{"a": 1}'
    with pytest.raises(ValueError, match="no target to show"):
        scorer.answer_text(scorer.present(a_sample()))


@pytest.mark.parametrize(("first", "second"), [(1, True), (0, False), ("1", 1), (None, 0), ([], {})])
def test_values_that_are_not_the_same(first: JSON, second: JSON) -> None:
    assert not same_json(first, second)
    assert same_json(first, first)


@given(st.text(st.characters(), max_size=100))
def test_any_reply_is_judged(reply: str) -> None:
    score = judge(reply, fenced=True, schema=PERSON)
    assert score.no_answer == (score.answer is None)
    try:
        parse_json(reply)
    except NotJSONError:
        assert score.status == "wrong"


SLOW = "^(?:a|aa)+[bc]$"


KEY = json.dumps({"a" * 200: 1})


@pytest.mark.parametrize(
    ("schema", "reply"),
    [
        ({"pattern": SLOW}, json.dumps("a" * 200)),
        pytest.param({"patternProperties": {SLOW: {}}}, KEY, marks=pytest.mark.slow),
        pytest.param({"patternProperties": {SLOW: {}}, "additionalProperties": False}, KEY, marks=pytest.mark.slow),
        pytest.param({"patternProperties": {SLOW: {}}, "unevaluatedProperties": False}, KEY, marks=pytest.mark.slow),
        pytest.param({"propertyNames": {"pattern": SLOW}}, KEY, marks=pytest.mark.slow),
    ],
    ids=["pattern", "names", "additional", "unevaluated", "propertyNames"],
)
def test_a_pattern_that_takes_too_long_leaves_the_sample_unscored(schema: Any, reply: str) -> None:
    score = judge(reply, schema=schema)
    assert score.status == "unscored"
    assert score.reason == "score.json.schema: a pattern of the schema took longer than 1 s"


def test_no_more_than_a_thousand_violations_are_looked_at() -> None:
    reply = json.dumps([1] * 3_000)
    assert judge(reply, schema={"items": {"type": "string"}}).details == {"problem": "999: 1 is not of type 'string'"}


@pytest.mark.parametrize("schema", [{"items": {"type": "integer"}}, {"patternProperties": {"^a": {}}}])
def test_a_comparison_that_takes_too_long_leaves_the_sample_unscored(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply of a million characters has so many entries that each of them has to be quick."""
    monkeypatch.setattr(json_scorer, "_MAX_S", -1.0)
    scorer = JsonScorer(JsonSettings(schema=schema))
    score = scorer.score(scorer.present(a_sample()), [GenerateResponse(text='[{"a": 1}]')])
    assert score.status == "unscored"
    assert score.reason == "score.json.schema: comparing the reply with it took longer than -1 s"


@given(
    st.dictionaries(st.text("abc", max_size=3), st.integers(0, 2), max_size=4),
    st.dictionaries(st.sampled_from(["^a", "b$", "^[ab]+$", "", "c"]), st.sampled_from([{}, {"minimum": 1}, False])),
    st.sampled_from(["additionalProperties", "unevaluatedProperties", "title"]),
)
def test_patterns_of_names_are_those_of_jsonschema(value: Any, patterns: Any, key: str) -> None:
    schema = {"patternProperties": patterns, "properties": {"patternProperties": {}, "ac": {"maximum": 1}}}
    schema[key] = "t" if key == "title" else False
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (judge(json.dumps(value), schema=schema).status == "correct") == expected


def test_a_message_shows_the_patterns_of_the_schema() -> None:
    schema = {"patternProperties": {"^a": {}, "^b": {}}, "additionalProperties": False}
    problem = "'c' does not match any of the regexes: '^a', '^b'"
    assert judge('{"a": 1, "c": 2}', schema=schema).details == {"problem": problem}


@pytest.mark.parametrize(
    ("schema", "keys", "message"),
    [
        (
            {"items": {"$ref": "#/$defs/x"}},
            ("items", "$ref"),
            "found '#/$defs/x', and there is no schema at that place",
        ),
        ({"$ref": "#/title", "title": "t"}, ("$ref",), "found '#/title', and there is no schema at that place"),
        ({"$ref": "#"}, (), "refers to itself without end, or is nested too deeply"),
        ({"anyOf": [{"$ref": "#"}]}, (), "refers to itself without end, or is nested too deeply"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "x", "$ref": "#/$defs/a"}}}, ("$defs", "a", "$ref"), "no schema"),
        ({"patternProperties": {"a{9999999}": {}}}, ("patternProperties", "a{9999999}"), "a{9999999}"),
    ],
)
def test_a_schema_that_no_value_can_be_compared_with(schema: Any, keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        JsonScorer.of(JsonSettings(schema=schema))
    assert caught.value.keys == ("json", "schema", *keys)
    assert message in str(caught.value)


def test_a_schema_may_refer_to_itself_for_parts_of_a_value() -> None:
    tree = {"type": "object", "additionalProperties": {"$ref": "#"}}
    assert judge('{"a": {"b": {}}}', schema=tree).status == "correct"
    assert judge('{"a": {"b": 1}}', schema=tree).status == "wrong"


def test_unique_items_are_compared_by_what_they_are() -> None:
    """By texts, and not each with each, which takes hours for a long list."""
    problem = {"problem": "the list has an entry twice"}
    assert judge('[{"a": 1}, [], {"a": 1.0}]', schema={"uniqueItems": True}).details == problem
    assert judge("[1, true, {}]", schema={"uniqueItems": True}).status == "correct"
