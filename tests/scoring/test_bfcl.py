"""BFCL as published: its ground truth is right, and mutated calls are judged as by the AST checker of bfcl-eval.

The checker is imported without the parts of its package that need API clients and parsers of Java: a flag of each
model, which is False here, and converters of other languages' values.
"""

from __future__ import annotations

import json
import random
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeAlias

import pytest

from pytest_llmeval.scorers.tool_calls import ToolCallsScorer, ToolCallsSettings
from pytest_llmeval.text.tool_schemas import tools_as_text
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Score, ToolCall
from tests.presets.comparisons import DATA
from tests.scoring.helpers import a_sample

pytestmark = [
    pytest.mark.slow,
    pytest.mark.campaign,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}"),
]

FILES = {"simple": "simple_python", "multiple": "multiple", "parallel": "parallel"}
COUNTS = {"simple": 400, "multiple": 200, "parallel": 200}
MUTANTS = 1_000
"""Of each category."""
SCORER: ToolCallsScorer = ToolCallsSettings(rule="bfcl").make()
Calls: TypeAlias = list[dict[str, dict[str, Any]]]
"""Calls as the checker takes them: the arguments by the function's name."""


def rows_of(category: str) -> list[tuple[list[Any], Calls]]:
    """The functions and the ground truth of each question."""
    folder = DATA / "bfcl"

    def read(name: str) -> list[Any]:
        return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]

    truths = {row["id"]: row["ground_truth"] for row in read(f"{FILES[category]}_answers.json")}
    return [(row["function"], truths[row["id"]]) for row in read(f"{FILES[category]}.json")]


def judged(functions: list[Any], truth: Calls, calls: Calls) -> Score:
    presented = SCORER.present(a_sample(truth))
    presented = replace(presented, requests=(GenerateRequest("q", tools=tools_as_text(functions)),))
    told = tuple(ToolCall(name=name, arguments=own) for call in calls for name, own in call.items())
    return SCORER.score(presented, [GenerateResponse(text="", tool_calls=told)])


def accepted(value: Any, choose: Callable[[list[Any]], Any]) -> Any:
    """An accepted value, with one of the values that each of its keys may have."""
    if isinstance(value, dict):
        given = {key: [one for one in own if one != ""] for key, own in value.items()}
        return {key: accepted(choose(own), choose) for key, own in given.items() if own}
    return [accepted(one, choose) for one in value] if isinstance(value, list) else value


def first(values: list[Any]) -> Any:
    return values[0]


def right_calls(truth: Calls, choose: Callable[[list[Any]], Any] = first) -> Calls:
    return [{name: accepted(own, choose) for name, own in call.items()} for call in truth]


@pytest.mark.parametrize("category", FILES)
def test_the_ground_truth_is_right(category: str) -> None:
    rows = rows_of(category)
    assert len(rows) == COUNTS[category]
    assert {judged(functions, truth, right_calls(truth)).status for functions, truth in rows} == {"correct"}


@pytest.mark.parametrize("category", FILES)
def test_the_answer_of_an_example_is_right(category: str) -> None:
    for functions, truth in rows_of(category):
        presented = SCORER.present(a_sample(truth))
        answer = GenerateResponse(text=SCORER.answer_text(presented))
        requests = (GenerateRequest("q", tools=tools_as_text(functions)),)
        assert SCORER.score(replace(presented, requests=requests), [answer]).status == "correct"


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    pytest.importorskip("bfcl_eval", reason="the package bfcl-eval is not installed")
    models = types.ModuleType("bfcl_eval.constants.model_config")
    flags = types.SimpleNamespace(underscore_to_dot=False)
    models.MODEL_CONFIG_MAPPING = defaultdict(lambda: flags)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, models.__name__, models)
    for language in ("java", "js"):
        name = f"{language}_type_converter"
        module = types.ModuleType(f"bfcl_eval.eval_checker.ast_eval.type_convertor.{name}")
        setattr(module, name, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    python = import_module("bfcl_eval.constants.enums").Language.PYTHON
    module = import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")

    def check(functions: list[Any], truth: Calls, calls: Calls, category: str) -> bool:
        found: bool = module.ast_checker(functions, calls, truth, python, category, "any")["valid"]
        return found

    return check


@pytest.mark.parametrize("category", FILES)
def test_mutated_calls_are_judged_as_by_the_checker(category: str, checker: Callable[..., Any]) -> None:
    rows, draw = rows_of(category), random.Random(f"bfcl {category}")
    verdicts: Counter[bool] = Counter()
    for _ in range(MUTANTS):
        functions, truth = draw.choice(rows)
        calls = right_calls(truth, draw.choice)
        for _ in range(draw.choice((1, 1, 2))):
            calls = mutated(json.loads(json.dumps(calls)), functions, draw)
        theirs, ours = checker(functions, truth, calls, category), judged(functions, truth, calls)
        assert (ours.status == "correct") == theirs, (truth, calls, ours.details)
        verdicts[theirs] += 1
    assert min(verdicts[True], verdicts[False]) > MUTANTS / 10


VALUES: list[Any] = [0, 1, -1, 1.5, True, False, None, "", "a", [], ["a"], [1, 2], {}, {"a": 1}, [{}]]


def mutated(calls: Calls, functions: list[Any], draw: random.Random) -> Calls:
    """The calls with a change, which may change nothing that counts."""
    places = [(own, key) for call in calls for own in call.values() for key in own]
    kind = draw.choice(["calls", "name", "less", "more", "any", "same type", "spelling", "inner"])
    if kind == "calls":
        return draw.choice([calls[1:], [*calls, *calls[:1]], calls[::-1], []])
    if kind == "name" and calls:
        (name, own), new = next(iter(calls[0].items())), draw.choice(functions)["name"]
        return [{draw.choice([new, f"{name}x", name.upper()]): own}, *calls[1:]]
    if kind == "more" and calls:
        own = next(iter(draw.choice(calls).values()))
        own[draw.choice(["extra", *functions[0]["parameters"]["properties"]])] = draw.choice(VALUES)
    elif places:
        own, key = draw.choice(places)
        if kind == "less":
            del own[key]
        elif kind == "any":
            own[key] = draw.choice(VALUES)
        else:
            own[key] = changed(own[key], draw, is_inner=kind == "inner", is_spelling=kind == "spelling")
    return calls


def changed(value: Any, draw: random.Random, *, is_inner: bool, is_spelling: bool) -> Any:
    """A value that looks like it: of the same kind, spelt differently, or with a change inside."""
    match value:
        case bool():
            return draw.choice([not value, int(value), str(value)])
        case int() | float():
            return draw.choice([value, float(value), int(value), value + 1, str(value)])
        case str():
            spelt = [value.upper(), value.replace(" ", "-"), f"{value}.", value.replace(" ", ", ")]
            return draw.choice(spelt if is_spelling else [*spelt, f"{value}x", value[1:], [value]])
        case list() if value and is_inner:
            place = draw.randrange(len(value))
            new = changed(value[place], draw, is_inner=True, is_spelling=is_spelling)
            return [*value[:place], new, *value[place + 1 :]]
        case list():
            return draw.choice([value[::-1], value[1:], [*value, *value[:1]], [*value, draw.choice(VALUES)]])
        case dict() if value:
            key = draw.choice(list(value))
            new = changed(value[key], draw, is_inner=is_inner, is_spelling=is_spelling)
            less = {one: own for one, own in value.items() if one != key}
            return draw.choice([{**value, key: new}, less, {**value, "extra": 1}])
    return draw.choice(VALUES)
