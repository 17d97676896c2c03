"""The reply calls the expected functions with the expected arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.text.tool_calls import calls_as_json, calls_in_text, described_calls
from pytest_llmeval.text.wording import describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, GenerateRequest, GenerateResponse, Response, Sample, Score, ToolCall

__all__ = ["ToolCallsScorer", "ToolCallsSettings"]

Order: TypeAlias = Literal["any", "same", "subset"]
_NO_CALL = "no call"
_EXPECTED = "calls"
"""The name under which a prepared sample holds what is expected."""


class ToolCallsSettings(ScorerSettings):
    """The reply calls the functions of the target with its arguments; with no other, or with none at all."""

    kind: Literal["tool_calls"] = "tool_calls"
    order: Order = Field(
        "any",
        description="any: the reply has the expected calls and no others, in any order. same: in the order of the "
        "target. subset: the reply has the expected calls, and may have others.",
    )
    rule: Literal["equal", "bfcl"] = Field(
        "equal",
        description="equal: an argument equals the target's, or is what a matcher there asks for ($any_of, $type, "
        "$optional, $ignore). bfcl: the target is a ground truth of the Berkeley Function-Calling Leaderboard, with a "
        "list of accepted values for each argument, and is compared as its AST checker does.",
    )

    expects_calls: ClassVar[bool] = True

    def make(self) -> ToolCallsScorer:
        return ToolCallsScorer.of(self)


class _Absent:
    """The value of an argument that a call does not have."""


ABSENT = _Absent()
Accepts: TypeAlias = Callable[[object], bool]
"""Whether an argument has a right value, which may be ``ABSENT``."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that is expected: its function, and which value of each argument is right.

    ``shown`` says for each argument what a message tells that was expected.
    """

    name: str
    arguments: Mapping[str, Accepts]
    shown: Mapping[str, JSON]

    def problems(self, call: ToolCall) -> dict[str, str]:
        """Return what is wrong with each argument of a call of this function; empty if all are right."""
        if call.arguments is None:
            return {"": f"the arguments are no JSON object: {quote(call.text)}"}
        found: dict[str, str] = {}
        for name in dict.fromkeys((*self.arguments, *call.arguments)):
            value = call.arguments.get(name, ABSENT)
            if name not in self.arguments:
                found[name] = f"{name} is not expected"
            elif not self.arguments[name](value):
                given = "is missing" if value is ABSENT else f"is {_as_text(value)}"
                found[name] = f"{name} {given}, expected {_as_text(self.shown[name])}"
        return found

    def credit(self, call: ToolCall) -> float:
        """Return the share of the arguments, of the call or expected, that are right; 1 if there are none."""
        if call.arguments is None:
            return 0.0
        names = {*self.arguments, *call.arguments}
        return 1.0 - len(self.problems(call)) / len(names) if names else 1.0


class ToolCallsScorer(SettingsScorer[ToolCallsSettings]):
    """A scorer that is right if the reply's calls are those that are expected."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer", "accuracy_name", "accuracy_arguments", "accuracy_count")

    def present(self, sample: Sample) -> PreparedSample:
        """Read the expected calls. ``[]`` means that no function is to be called. Raises ``ValueError``."""
        wanted = _wanted_calls(sample.target)
        expected = _read_ground_truth(wanted, {}) if self.settings.rule == "bfcl" else _read_expected(wanted)
        shown = ", ".join(f"{one.name}({_arguments_shown(one)})" for one in expected) or _NO_CALL
        return PreparedSample(
            sample=sample, target=shown, judged_with={_EXPECTED: json.dumps(wanted, ensure_ascii=False)}
        )

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the expected calls as JSON, the first of several values. Raises ``ValueError`` where there are
        none.
        """
        wanted: list[Any] = json.loads(presented.judged_with[_EXPECTED])
        if not wanted:
            raise ValueError("no call is expected, and so there is none to show; set prompt.fewshot.answer")
        calls: list[JSON] = []
        for one in wanted:
            name, arguments = _name_and_arguments(one)
            read: Callable[[object], object] = _first_accepted if self.settings.rule == "bfcl" else _example
            values = {key: read(value) for key, value in arguments.items()}
            given: Any = {key: value for key, value in values.items() if value is not ABSENT}
            calls.append({"name": name, "arguments": given})
        return json.dumps(calls, ensure_ascii=False)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Compare the calls that the model told, or that its text holds."""
        text = reply(responses)
        tools = _tools_of(presented)
        response = responses[0]
        told = response.tool_calls if isinstance(response, GenerateResponse) else None
        calls = calls_in_text(text, tools) if told is None else told
        wanted = json.loads(presented.judged_with[_EXPECTED])
        if self.settings.rule == "bfcl":
            expected = _read_ground_truth(wanted, _schemas(tools))
        else:
            expected = _read_expected(wanted)
        score = self._judged(expected, calls)
        if told is not None or not calls:
            return score
        return replace(score, details={**score.details, "calls": calls_as_json(calls)})

    def _judged(self, expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]) -> Score:
        order: Order = self.settings.order

        def is_right(one: ExpectedCall, call: ToolCall) -> bool:
            return one.name == call.name and not one.problems(call)

        pairs = _pairs(expected, calls, order, is_right, greedy=self.settings.rule == "bfcl")
        named = _pairs(expected, calls, order, lambda one, call: one.name == call.name)
        has_count = len(calls) >= len(expected) if order == "subset" else len(calls) == len(expected)
        has_names = has_count and len(named) == len(expected)
        correct = has_count and len(pairs) == len(expected)
        values = {"accuracy_name": float(has_names), "accuracy_count": float(has_count)}
        not_measurable = {}
        if expected:
            best = pairs | {
                place: other for place, other in named.items() if place not in pairs and other not in pairs.values()
            }
            credits = [expected[place].credit(calls[other]) for place, other in best.items()]
            values["accuracy_arguments"] = 1.0 if correct else sum(credits) / len(expected)
        else:
            not_measurable = {"accuracy_arguments": "no call is expected"}
        answer = described_calls(calls) or (None if expected else _NO_CALL)
        problem = None if correct else _problem(expected, calls, pairs, named, has_count=has_count)
        details: dict[str, JSON] = {} if problem is None else {"problem": problem}
        score = right_or_wrong(correct, answer, values=values, details=details)
        return replace(score, not_measurable=not_measurable)


def _tools_of(presented: PreparedSample) -> str:
    return next((one.tools for one in presented.requests if isinstance(one, GenerateRequest)), "")


def _pairs(
    expected: Sequence[ExpectedCall],
    calls: Sequence[ToolCall],
    order: Order,
    fits: Callable[[ExpectedCall, ToolCall], bool],
    *,
    greedy: bool = False,
) -> dict[int, int]:
    """Map places of expected calls to places of calls that fit them, each once: as many as possible.

    ``greedy`` takes the first call that fits, as BFCL does, also where a later expected call then finds none.
    """
    if order == "same":
        return {n: n for n, (one, call) in enumerate(zip(expected, calls, strict=False)) if fits(one, call)}
    taken: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for other, call in enumerate(calls):
            if other in seen or not fits(expected[number], call):
                continue
            seen.add(other)
            if other not in taken or (not greedy and place(taken[other], seen)):
                taken[other] = number
                return True
        return False

    for number in range(len(expected)):
        place(number, set())
    return {number: other for other, number in taken.items()}


def _problem(
    expected: Sequence[ExpectedCall],
    calls: Sequence[ToolCall],
    pairs: Mapping[int, int],
    named: Mapping[int, int],
    *,
    has_count: bool,
) -> str:
    """Return what is wrong first, in one line."""
    if not calls:
        return "the reply calls no function"
    if not expected:
        return f"the reply calls {calls[0].name or 'a function'}, and no call is expected"
    for number, one in enumerate(expected):
        if number in pairs:
            continue
        other = named.get(number)
        if other is None:
            names = ", ".join(call.name or "?" for call in calls)
            return f"{one.name} is not called as expected; the reply calls {names}"
        found = next(iter(one.problems(calls[other]).values()), None)
        if found is not None:
            return f"{one.name}: {found}"
    if not has_count:
        return f"the reply has {len(calls)} calls, expected {len(expected)}"
    return "two expected calls are met by one call only"


# What is expected


def _wanted_calls(target: JSON) -> list[Any]:
    """Return the list of expected calls; a text is JSON, as a CSV has it."""
    if target is None:
        raise ValueError("the sample has no target; expected a list of calls, or [] where none is to be made")
    if isinstance(target, str):
        try:
            target = json.loads(target)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"target {quote(target)} is not JSON: {error}") from None
    if isinstance(target, dict):
        target = [target]
    if not isinstance(target, list):
        raise ValueError(f"the target is {describe(target)}; expected a list of calls, or [] for no call")
    return target


def _name_and_arguments(value: object) -> tuple[str, Mapping[str, Any]]:
    """Return the parts of ``{name: f, arguments: {…}}`` or of ``{f: {…}}``. Raises ``ValueError``."""
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and value.keys() <= {"name", "arguments"}:
            arguments = value.get("arguments")
            if arguments is None or isinstance(arguments, Mapping):
                return value["name"], arguments or {}
            raise ValueError(f"target: {value['name']}: arguments: found {describe(arguments)}, expected a mapping")
        if len(value) == 1:
            ((name, arguments),) = value.items()
            if arguments is None or isinstance(arguments, Mapping):
                return str(name), arguments or {}
    raise ValueError(f"target: found {quote(value)}, expected a call: {{name: …, arguments: {{…}}}}")


def _read_expected(wanted: Sequence[object]) -> list[ExpectedCall]:
    found = []
    for one in wanted:
        name, arguments = _name_and_arguments(one)
        found.append(ExpectedCall(name, {key: _matcher(value) for key, value in arguments.items()}, arguments))
    return found


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_MATCHERS = ("$any_of", "$type", "$optional", "$ignore", "$equal")


def _as_matcher(value: object) -> tuple[str, Any] | None:
    """Return the parts of ``{$any_of: […]}`` and its like; None for a plain value. Raises ``ValueError``."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    ((key, own),) = value.items()
    if not isinstance(key, str) or not key.startswith("$"):
        return None
    if key not in _MATCHERS:
        raise ValueError(f"target: there is no matcher {quoted(key)}{expected_one_of(key, _MATCHERS)}")
    if key == "$any_of" and (not isinstance(own, list) or not own):
        raise ValueError(f"target: $any_of: found {describe(own)}, expected a list of values")
    if key == "$type" and own not in _TYPES:
        raise ValueError(f"target: $type: found {quote(own)}{expected_one_of(str(own), _TYPES)}")
    if key == "$ignore" and own is not True:
        raise ValueError(f"target: $ignore: found {describe(own)}, expected true")
    return key, own


def _matcher(value: object) -> Accepts:
    matcher = _as_matcher(value)
    if matcher is None:
        return lambda given: _equals(given, value)
    key, own = matcher
    match key:
        case "$any_of":
            accepted = [_matcher(one) for one in own]
            return lambda given: any(accepts(given) for accepts in accepted)
        case "$type":
            return lambda given: _is_of_type(given, own)
        case "$optional":
            inner = _matcher(own)
            return lambda given: given is ABSENT or inner(given)
        case "$ignore":
            return lambda given: True
    return lambda given: _equals(given, own)


def _is_of_type(given: object, name: str) -> bool:
    if isinstance(given, bool):
        return name == "boolean"
    if name == "integer" and isinstance(given, float):  # as in JSON Schema
        return given.is_integer()
    return isinstance(given, _TYPES[name])


def _equals(given: object, wanted: object) -> bool:
    """Tell whether two values are the same in JSON: 1 and 1.0 are, 1 and true are not. Order counts in lists."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return given == wanted
    if isinstance(given, list) and isinstance(wanted, list | tuple):
        return len(given) == len(wanted) and all(map(_equals, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, Mapping):
        return given.keys() == wanted.keys() and all(_equals(given[key], wanted[key]) for key in given)
    return type(given) is type(wanted) and given == wanted


def _example(value: object) -> object:
    """Return a right value, for an example. Raises ``ValueError`` where the target names none."""
    matcher = _as_matcher(value)
    if matcher is None:
        return value
    key, own = matcher
    match key:
        case "$any_of":
            return _example(own[0])
        case "$equal":
            return own
        case "$type":
            raise ValueError(f"the target names the type {own} and no value to show; set prompt.fewshot.answer")
    return ABSENT


# BFCL's ground truth, with lists of accepted values, in which "" says that the argument may be left out.
# The rules are those of ast_checker.py of bfcl-eval 2026.3.23 for Python (Patil et al. 2025).


def _schemas(tools: str) -> dict[str, Mapping[str, Any]]:
    found = {}
    for tool in json.loads(tools) if tools else ():
        function = tool["function"]
        found[function["name"]] = function.get("parameters") or {}
    return found


def _read_ground_truth(wanted: Sequence[object], schemas: Mapping[str, Mapping[str, Any]]) -> list[ExpectedCall]:
    """Return the expected calls. Functions that ``schemas`` does not have leave the types of arguments unchecked."""
    found = []
    for one in wanted:
        name, arguments = _name_and_arguments(one)
        for key, accepted in arguments.items():
            if not isinstance(accepted, list):
                message = f"target: {name}.{key}: found {quote(accepted)}, expected a list of accepted values"
                raise ValueError(f"{message}, as BFCL's ground truth has it")
        schema = schemas.get(name)
        properties = None if schema is None else schema.get("properties") or {}
        required = () if schema is None else schema.get("required") or ()
        accepts = {
            key: _Accepted(
                accepted,
                None if properties is None else properties.get(key),
                is_known=properties is None or key in properties,
                is_required=key in required,
            )
            for key, accepted in arguments.items()
        }
        # A parameter that is required and not in the ground truth cannot be met: a call with it is not expected.
        accepts |= {key: _Accepted([], None, is_required=True) for key in required if key not in arguments}
        shown = {**{key: [] for key in accepts}, **arguments}
        found.append(ExpectedCall(name, accepts, shown))
    return found


_CLASSES: Mapping[str, type[Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The accepted values of one argument, with the schema of its parameter; None if that is not known."""

    values: Sequence[Any]
    schema: Mapping[str, Any] | None
    is_known: bool = True
    is_required: bool = False

    def __call__(self, given: Any) -> bool:
        if given is ABSENT:
            return "" in self.values and not self.is_required
        if not self.is_known:
            return False
        if self.schema is None:
            return any(_is_alike(given, one) for one in self.values)
        wanted: type[Any] = _class_of(self.schema)
        if wanted is float and type(given) is int:
            given = float(given)
        of_values = next((type(one) for one in self.values if one != ""), None)
        items = self.schema.get("items") if wanted is list else None
        if type(given) is not wanted:  # the ground truth's own type counts, too, whatever the schema declares
            return type(given) is of_values and given in self.values
        if isinstance(items, Mapping) and not self._has_right_items(given, _class_of(items)):
            return False
        if of_values is not None and of_values is not wanted:
            return given in self.values
        if wanted is dict:
            return any(one != "" and _is_right_object(given, one) for one in self.values)
        if wanted is list and isinstance(items, Mapping) and _class_of(items) is dict:
            return any(_are_right_objects(given, one) for one in self.values)
        if wanted is str:
            return _plain(given) in [_plain(one) for one in self.values if isinstance(one, str)]
        if wanted is list:
            # "" stands for an empty list, too: it is a list of no characters.
            return [_plain(one) for one in given] in [[_plain(part) for part in one] for one in self.values]
        return given in self.values

    def _has_right_items(self, given: Sequence[object], wanted: type) -> bool:
        """Tell whether all items are of the declared type, or of that of the first item of an accepted list."""
        for one in self.values:
            if not isinstance(one, list):
                return True
            of_items = next((type(part) for part in one if part != ""), None)
            if all(type(part) is wanted or (of_items is not None and type(part) is of_items) for part in given):
                return True
        return False


def _class_of(schema: Mapping[str, Any]) -> type[Any]:
    return _CLASSES.get(str(schema.get("type")), str)  # BFCL reads "any" as text


def _plain(value: object) -> object:
    """Return a text as BFCL compares it: without spaces and some punctuation, and in lower case."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _is_alike(given: object, wanted: object) -> bool:
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_is_alike, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return _is_right_object(given, wanted)
    return type(_plain(given)) is type(_plain(wanted)) and _plain(given) == _plain(wanted)


def _is_right_object(given: Mapping[str, object], wanted: object) -> bool:
    """Compare an object with one that has a list of accepted values for each key."""
    if not isinstance(wanted, Mapping):
        return False
    for key, value in given.items():
        if key not in wanted or _plain(value) not in [_plain(one) for one in wanted[key]]:
            return False
    return all(key in given or "" in accepted for key, accepted in wanted.items())


def _are_right_objects(given: Sequence[Any], wanted: Sequence[Any]) -> bool:
    if len(given) != len(wanted):
        return False
    return all(isinstance(one, Mapping) and _is_right_object(one, own) for one, own in zip(given, wanted, strict=True))


def _first_accepted(values: object) -> object:
    """Return the first accepted value of an argument; ``ABSENT`` if it can only be left out."""
    assert isinstance(values, list)
    return next((_value_of(one) for one in values if one != ""), ABSENT)


def _value_of(accepted: Any) -> Any:
    """Return an accepted value with the first of the values that its keys may have."""
    if isinstance(accepted, dict):
        values = {key: _first_accepted(own) for key, own in accepted.items()}
        return {key: value for key, value in values.items() if value is not ABSENT}
    return [_value_of(one) for one in accepted] if isinstance(accepted, list) else accepted


# For readers


def _as_text(value: object) -> str:
    matcher = None
    with suppress(ValueError):  # a plain value of BFCL's, whose keys may begin with $
        matcher = _as_matcher(value)
    if matcher is not None and matcher[0] == "$any_of":
        return f"one of {_as_text(matcher[1])}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _arguments_shown(call: ExpectedCall) -> str:
    return ", ".join(_parts(call))


def _parts(call: ExpectedCall) -> Iterator[str]:
    for name, value in call.shown.items():
        yield f"{name}={_as_text(value)}"
