"""The reply calls the expected functions with the expected arguments."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.text.tool_calls import calls_as_json, calls_in_text, described_calls
from pytest_llmeval.text.wording import describe, expected_one_of
from pytest_llmeval.types import JSON, GenerateResponse, Response, Sample, Score, ToolCall

__all__ = ["ToolCallsScorer", "ToolCallsSettings"]

Order: TypeAlias = Literal["any", "same", "subset"]
_NO_CALL = "no call"
_EXPECTED = "calls"
"""The name under which a prepared sample holds what is expected."""
_MOST_NAMES = 10
_MOST_LEVELS = 100
_MOST_CHARACTERS = 80


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
        "$optional, $ignore, $equal). bfcl: the target is a ground truth of the Berkeley Function-Calling Leaderboard, "
        "with a list of accepted values for each argument, and is compared as its AST checker does.",
    )

    expects_calls: ClassVar[bool] = True

    def make(self) -> ToolCallsScorer:
        return ToolCallsScorer.of(self)


class _Absent:
    """The value of an argument that a call does not have."""


ABSENT = _Absent()
Accepts: TypeAlias = Callable[[object], bool]
"""Tells whether an argument has a right value; the value may be ``ABSENT``."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that is expected: its function, and which value of each argument is right.

    ``shown`` says in words what is expected of each argument.
    """

    name: str
    arguments: Mapping[str, Accepts]
    shown: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.shown.items())})"

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
                found[name] = f"{name} {given}, expected {self.shown[name]}"
        return found

    def credit(self, call: ToolCall) -> float:
        """Return the share of the arguments, of the call or expected, that are right; 1 if there are none."""
        if call.arguments is None:
            return 0.0
        names = {*self.arguments, *call.arguments}
        return 1.0 - len(self.problems(call)) / len(names) if names else 1.0

    def is_met_by(self, call: ToolCall) -> bool:
        """Tell whether a call is what is expected."""
        return call.name == self.name and not self.problems(call)


class ToolCallsScorer(SettingsScorer[ToolCallsSettings]):
    """A scorer that is right if the reply's calls are those that are expected."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer", "accuracy_name", "accuracy_arguments", "accuracy_count")

    def present(self, sample: Sample) -> PreparedSample:
        """Read the expected calls; ``[]`` means that no function is to be called. Raises ``ValueError``."""
        wanted = _wanted_calls(sample.target)
        expected = self._expected(wanted)
        shown = ", ".join(map(str, expected)) or _NO_CALL
        return PreparedSample(
            sample=sample, target=shown, judged_with={_EXPECTED: json.dumps(wanted, ensure_ascii=False)}
        )

    def _expected(self, wanted: Iterable[Mapping[str, Any]], tools: str = "") -> list[ExpectedCall]:
        if self.settings.rule == "bfcl":
            schemas = _schemas(tools)
            return [_read_ground_truth(one["name"], one["arguments"], schemas.get(one["name"])) for one in wanted]
        return [_read_expected(one["name"], one["arguments"]) for one in wanted]

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the expected calls as JSON, with the first of several values. Raises ``ValueError`` if no call is
        expected, or if an argument may have any value of a type.
        """
        wanted: list[Any] = json.loads(presented.judged_with[_EXPECTED])
        if not wanted:
            raise ValueError("no call is expected, and so there is none to show; set prompt.fewshot.answer")
        read = _first_accepted if self.settings.rule == "bfcl" else _example
        return json.dumps(
            [{**one, "arguments": _present(read, one["arguments"])} for one in wanted], ensure_ascii=False
        )

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Compare the calls that the model told, or that its text holds."""
        text = reply(responses)
        expected = self._expected(json.loads(presented.judged_with[_EXPECTED]), presented.tools)
        response = responses[0]
        if isinstance(response, GenerateResponse) and response.tool_calls is not None:
            return self._judged(expected, response.tool_calls)
        calls = calls_in_text(text, presented.tools)
        score = self._judged(expected, calls)
        return replace(score, details={**score.details, "tool_calls": calls_as_json(calls)})

    def _judged(self, expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]) -> Score:
        order: Order = self.settings.order
        names, expected_names = [call.name for call in calls], [one.name for one in expected]
        has_count = len(calls) >= len(expected) if order == "subset" else len(calls) == len(expected)
        has_names = names == expected_names if order == "same" else not Counter(expected_names) - Counter(names)
        pairs = _pairs(expected, calls, order, is_greedy=self.settings.rule == "bfcl")
        correct = has_count and len(pairs) == len(expected)
        values = {"accuracy_name": float(has_count and has_names), "accuracy_count": float(has_count)}
        partners = _partners(expected, calls, order, pairs)
        if expected:
            values["accuracy_arguments"] = sum(
                expected[number].credit(calls[other]) for number, other in partners.items()
            ) / len(expected)
        problem = None if correct else _problem(expected, calls, order, pairs, partners)
        score = right_or_wrong(
            correct,
            described_calls(calls) or (None if expected else _NO_CALL),
            values=values,
            details={} if problem is None else {"problem": problem},
            vote=_vote(calls, order) or None,
        )
        return score if expected else replace(score, not_measurable={"accuracy_arguments": "no call is expected"})


def _vote(calls: Sequence[ToolCall], order: Order) -> str:
    """Return a text that equal calls share, whatever the order of arguments, and of calls where it does not count."""
    texts = [json.dumps(one, sort_keys=True) for one in calls_as_json(calls)]
    return "\n".join(texts if order == "same" else sorted(texts))


def _pairs(
    expected: Sequence[ExpectedCall], calls: Sequence[ToolCall], order: Order, *, is_greedy: bool
) -> dict[int, int]:
    """Map places of expected calls to places of calls that meet them, each once: as many as possible.

    ``is_greedy`` takes the first call that fits, as BFCL does, also if a later expected call then finds none.
    """
    if order == "same":
        met = (one.is_met_by(call) for one, call in zip(expected, calls, strict=False))
        return {number: number for number, is_met in enumerate(met) if is_met}
    taken: dict[int, int] = {}

    def find_call(number: int, seen: set[int]) -> bool:
        for other, call in enumerate(calls):
            if other in seen or not expected[number].is_met_by(call):
                continue
            seen.add(other)
            if other not in taken or (not is_greedy and find_call(taken[other], seen)):
                taken[other] = number
                return True
        return False

    for number in range(len(expected)):
        find_call(number, set())
    return {number: other for other, number in taken.items()}


def _partners(
    expected: Sequence[ExpectedCall], calls: Sequence[ToolCall], order: Order, pairs: Mapping[int, int]
) -> dict[int, int]:
    """Map places of expected calls to places of the calls that they are compared with: one that meets it, else the
    most alike of the other calls of its function.
    """
    if order == "same":
        alike = (one.name == call.name for one, call in zip(expected, calls, strict=False))
        return {number: number for number, is_alike in enumerate(alike) if is_alike}
    found, taken = dict(pairs), set(pairs.values())
    others = [
        (one.credit(call), number, other)
        for number, one in enumerate(expected)
        for other, call in enumerate(calls)
        if number not in found and other not in taken and one.name == call.name
    ]
    for _, number, other in sorted(others, key=lambda entry: -entry[0]):
        if number not in found and other not in taken:
            found[number] = other
            taken.add(other)
    return found


def _problem(
    expected: Sequence[ExpectedCall],
    calls: Sequence[ToolCall],
    order: Order,
    pairs: Mapping[int, int],
    partners: Mapping[int, int],
) -> str:
    """Return what is wrong first, in one line."""
    if not calls:
        return "the reply calls no function"
    names = _listed([call.name or "?" for call in calls])
    if not expected:
        return f"the reply calls {names}, and no call is expected"
    for number, one in enumerate(expected):
        if number not in pairs and number in partners:
            return f"{one.name}: {next(iter(one.problems(calls[partners[number]]).values()))}"
    in_order = ", in this order" if order == "same" and len(expected) > 1 else ""
    return f"the reply calls {names}; expected {_listed([one.name for one in expected])}{in_order}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join((*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else ())))


# What is expected


def _wanted_calls(target: JSON) -> list[dict[str, Any]]:
    """Return the expected calls, each as ``{name: …, arguments: …}``; a text is JSON, as a CSV has it."""
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
    return list(map(_wanted_call, target))


def _wanted_call(value: object) -> dict[str, Any]:
    """Return the name and arguments of ``{name: f, arguments: {…}}`` or of ``{f: {…}}``. Raises ``ValueError``."""
    name: object = None
    if isinstance(value, Mapping) and isinstance(value.get("name"), str) and value.keys() <= {"name", "arguments"}:
        name, arguments = value["name"], value.get("arguments")
    elif isinstance(value, Mapping) and len(value) == 1:
        ((name, arguments),) = value.items()
    if not isinstance(name, str):
        raise ValueError(f"target: found {quote(value)}, expected a call: {{FUNCTION: {{ARGUMENT: VALUE}}}}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ValueError(f"target: {name}: found {describe(arguments)}, expected a mapping of arguments")
    return {"name": name, "arguments": arguments or {}}


def _read_expected(name: str, arguments: Mapping[str, Any]) -> ExpectedCall:
    for key, value in arguments.items():
        if key in _MATCHERS:
            raise ValueError(
                f"target: {name}: {key} stands in place of all arguments, expected {{ARGUMENT: {{{key}: …}}}}"
            )
        _check_matchers(value)
    accepts = {key: partial(_fits, wanted=value) for key, value in arguments.items()}
    return ExpectedCall(name, accepts, {key: _shown_value(value) for key, value in arguments.items()})


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


def _as_matcher(value: object) -> tuple[str, Any]:
    """Return the parts of ``{$any_of: […]}`` and its like; of a plain value no name and the value itself. Raises
    ``ValueError`` for what looks like a matcher and is none.
    """
    if not isinstance(value, Mapping):
        return "", value
    if len(value) != 1:
        if (key := next((one for one in _MATCHERS if one in value), None)) is not None:
            raise ValueError(f"target: {key} stands alone in its mapping, found {quote(value)}; put one into the other")
        return "", value
    ((key, own),) = value.items()
    if not key.startswith("$"):
        return "", value
    if key not in _MATCHERS:
        raise ValueError(f"target: there is no matcher {quote(key)}{expected_one_of(key, _MATCHERS)}")
    if key == "$any_of" and (not isinstance(own, list) or not own):
        raise ValueError(f"target: $any_of: found {describe(own)}, expected a list of values")
    if key == "$type" and (not isinstance(own, str) or own not in _TYPES):
        raise ValueError(f"target: $type: found {quote(own)}{expected_one_of(str(own), _TYPES)}")
    if key == "$ignore" and own is not True:
        raise ValueError(f"target: $ignore: found {describe(own)}, expected true")
    return key, own


def _check_matchers(value: object, level: int = 0) -> None:
    """Raise ``ValueError`` for a matcher that is none, wherever it stands in a value, or for too many levels."""
    if level > _MOST_LEVELS:
        raise ValueError(f"the target is nested more than {_MOST_LEVELS} levels deep; flatten it")
    key, own = _as_matcher(value)
    if key == "$optional":
        _check_matchers(own, level + 1)
    elif key != "$equal" and isinstance(own, Mapping | list):
        for part in own.values() if isinstance(own, Mapping) else own:
            _check_matchers(part, level + 1)


def _fits(given: object, wanted: Any, *, is_literal: bool = False) -> bool:
    """Tell whether a value, or ``ABSENT``, is what the target asks for; ``is_literal`` says that there are no matchers.

    Values are compared as in JSON: 1 and 1.0 are equal, 1 and true are not. Order counts in lists.
    """
    key, own = ("", wanted) if is_literal else _as_matcher(wanted)
    match key:
        case "$any_of":
            return any(_fits(given, one) for one in own)
        case "$type":
            return _is_of_type(given, own)
        case "$optional":
            return given is ABSENT or _fits(given, own)
        case "$ignore":
            return True
        case "$equal":
            return _fits(given, own, is_literal=True)
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return given == wanted
    fits = partial(_fits, is_literal=is_literal)
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(fits, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return given.keys() <= wanted.keys() and all(fits(given.get(key, ABSENT), own) for key, own in wanted.items())
    return type(given) is type(wanted) and given == wanted


def _is_of_type(given: object, name: str) -> bool:
    if isinstance(given, bool):
        return name == "boolean"
    if name == "integer" and isinstance(given, float):  # as in JSON Schema
        return given.is_integer()
    return isinstance(given, _TYPES[name])


def _example(value: object) -> object:
    """Return a right value for an example, or ``ABSENT``. Raises ``ValueError`` if the target names none."""
    key, own = _as_matcher(value)
    match key:
        case "$any_of":
            return _example(own[0])
        case "$type":
            raise ValueError(f"the target names the type {own} and no value to show; set prompt.fewshot.answer")
        case "$optional" | "$ignore":
            return ABSENT
        case "$equal":
            return own
    if isinstance(own, Mapping):
        return _present(_example, own)
    if not isinstance(own, list):
        return own
    items = list(map(_example, own))
    if ABSENT in items:
        raise ValueError("the target names no value to show for an item of a list; set prompt.fewshot.answer")
    return items


def _present(read: Callable[[object], object], values: Mapping[str, object]) -> dict[str, Any]:
    """Return what each value is read as, without those that are left out."""
    found = {key: read(value) for key, value in values.items()}
    return {key: value for key, value in found.items() if value is not ABSENT}


# BFCL's ground truth, with lists of accepted values, in which "" says that the argument may be left out.
# The rules are those of ast_checker.py of bfcl-eval 2026.3.23 for Python (Patil et al. 2025).


def _schemas(tools: str) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each function's parameters, by its name."""
    functions = [tool["function"] for tool in json.loads(tools)] if tools else []
    return {function["name"]: function.get("parameters") or {} for function in functions}


def _read_ground_truth(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any] | None) -> ExpectedCall:
    """Return the expected call; without its function's schema the types of arguments are not checked. Raises
    ``ValueError``.
    """
    for key, accepted in arguments.items():
        _check_accepted(accepted, f"{name}.{key}")
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
    shown = {key: _shown_accepted(accepted) for key, accepted in arguments.items()}
    return ExpectedCall(name, accepts, {**dict.fromkeys(accepts, "none of the ground truth"), **shown})


def _check_accepted(accepted: object, where: str) -> None:
    """Raise ``ValueError`` for what is no list of accepted values, also for a key of an object among the values."""
    if not isinstance(accepted, list):
        message = f"target: {where}: found {quote(accepted)}, expected a list of accepted values"
        raise ValueError(f"{message}, as BFCL's ground truth has it")
    for value in accepted:
        for one in value if isinstance(value, list) else [value]:
            for key, own in one.items() if isinstance(one, Mapping) else ():
                _check_accepted(own, f"{where}.{key}")


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
            lists = [one for one in self.values if isinstance(one, list | str)]
            return [_plain(one) for one in given] in [[_plain(part) for part in one] for one in lists]
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


def _first_accepted(values: Any) -> object:
    """Return the first accepted value of an argument; ``ABSENT`` if it can only be left out."""
    return next((_value_of(one) for one in values if one != ""), ABSENT)


def _value_of(accepted: Any) -> Any:
    """Return an accepted value with the first of the values that its keys may have."""
    if isinstance(accepted, dict):
        return _present(_first_accepted, accepted)
    return [_value_of(one) for one in accepted] if isinstance(accepted, list) else accepted


# For readers


def _as_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _shown_value(value: object) -> str:
    """Return what the target asks for, in words if a matcher does: ``one of [1, 2] or nothing``."""
    key, own = _as_matcher(value)
    match key:
        case "$any_of":
            return f"one of {_as_text(own)}"
        case "$type":
            return f"a value of type {own}"
        case "$optional":
            return f"{_shown_value(own)} or nothing"
        case "$ignore":
            return "anything"
    return _as_text(own)


def _shown_accepted(values: Sequence[object]) -> str:
    """Return the accepted values of a ground truth in the same words."""
    others = [value for value in values if value != ""]
    shown = _as_text(others[0]) if len(others) == 1 else f"one of {_as_text(others)}"
    return f"{shown} or nothing" if "" in values else shown
