"""Makes the turns of conversations that a suite asks turn by turn (``prompt.turns``), of templates or a row's list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import cast

from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.templates.templates import TemplateError
from pytest_llmeval.text.documents import written_value
from pytest_llmeval.text.escaping import unusable_character
from pytest_llmeval.text.wording import Keys, describe, quoted
from pytest_llmeval.types import (
    JSON,
    ConversationRequest,
    GenerateRequest,
    GenerateResponse,
    Message,
    Prompt,
    Request,
    Sample,
)

__all__ = ["as_conversations", "render_turns", "shown_conversation", "turn_samples"]

_KEYS: Keys = ("prompt", "turns")


def turn_samples(suite: Suite, sample: Sample) -> tuple[Sample | None, ...]:
    """Return the sample with the target of each turn, None for a turn that is not scored; the last one always is.

    Raise ``SuiteError`` for a template that fails, and a column that holds no turns.
    """
    spec = suite.spec.prompt
    if spec.column_of_turns is not None:
        users, targets = _of_column(suite, sample, spec.column_of_turns)
        count, scored = len(users), {*targets}
    else:
        count, scored = len(spec.turn_specs), {place for place, turn in enumerate(spec.turn_specs) if turn.is_scored}
        targets = {
            place: _target(suite, sample, turn.target, (*_KEYS, place, "target"))
            for place, turn in enumerate(spec.turn_specs)
            if turn.target is not None
        }
    scored |= {count - 1} if spec.score_turns == "last" else {*range(count)}
    return tuple(
        None if place not in scored else replace(sample, target=targets[place]) if place in targets else sample
        for place in range(count)
    )


def render_turns(suite: Suite, sample: Sample, variables: Mapping[str, object]) -> tuple[Prompt, tuple[str, ...]]:
    """Return the prompt of a sample's first turn, the system text before it, and the user's texts of all turns.

    Raise ``SuiteError`` for a template that fails, and a turn that is empty.
    """
    spec = suite.spec.prompt
    if spec.column_of_turns is not None:
        users, _ = _of_column(suite, sample, spec.column_of_turns)
    else:
        users = [
            _text(suite, sample, turn.user, variables, (*_KEYS, place, "user"))
            for place, turn in enumerate(spec.turn_specs)
        ]
    for number, user in enumerate(users, 1):
        if not user.strip():
            raise suite.error(f"turn {number} of {len(users)} is empty", sample, _KEYS)
    system = _text(suite, sample, spec.system, variables, ("prompt", "system"))
    first = Message(role="user", content=users[0])
    return (Message(role="system", content=system), first) if system else (first,), tuple(users)


def as_conversations(requests: Sequence[Request], users: Sequence[str], scorer: str) -> tuple[Request, ...]:
    """Return the requests for the reply to a first turn as those for whole conversations.

    ``ValueError`` says that ``scorer`` asks for something else than replies.
    """
    if not all(isinstance(request, GenerateRequest) for request in requests):
        raise ValueError(f"{scorer} compares log-likelihoods, and a turn is asked for a reply; use prompt.template")
    names = [field.name for field in fields(GenerateRequest)]
    return tuple(
        ConversationRequest(**{name: getattr(one, name) for name in names}, turns=tuple(users[1:])) for one in requests
    )


def shown_conversation(request: ConversationRequest, last: GenerateResponse) -> list[JSON]:
    """Return what a record keeps of a conversation: of each turn the user's text and the reply with its reasoning.

    Earlier replies are missing where a file of replies has the last ones only.
    """
    users = request.users
    known = (*last.turns, last)
    replies = (*[None] * (len(users) - len(known)), *known)
    shown: list[JSON] = []
    for user, reply in zip(users, replies, strict=True):
        turn: dict[str, JSON] = {"user": user, "reply": None if reply is None else reply.text}
        if reply is not None and reply.reasoning is not None:
            turn["reasoning"] = reply.reasoning
        shown.append(turn)
    return shown


def _text(suite: Suite, sample: Sample, source: str, variables: Mapping[str, object], keys: Keys) -> str:
    try:
        text = suite.templates.text(source, variables)
    except TemplateError as error:
        raise suite.error(str(error), sample, keys) from None
    if (problem := unusable_character(text)) is not None:
        raise suite.error(f"the rendered text: {problem}", sample, keys)
    return text


def _target(suite: Suite, sample: Sample, rule: object, keys: Keys) -> JSON:
    """Return the target of a turn. Raise ``SuiteError`` for a template that fails, or unusable text."""
    if isinstance(rule, tuple):
        return [_target(suite, sample, one, (*keys, place)) for place, one in enumerate(rule)]
    if not isinstance(rule, str):
        return cast("JSON", rule)
    try:
        found = suite.templates.value(rule, sample.variables)
    except TemplateError as error:
        raise suite.error(str(error), sample, keys) from None
    if isinstance(found, str) and (problem := unusable_character(found)) is not None:
        raise suite.error(f"the rendered text: {problem}", sample, keys)
    if isinstance(found, dict):
        raise suite.error(f"found {describe(found)}, expected text, a number, a bool or a list", sample, keys)
    return found


def _of_column(suite: Suite, sample: Sample, column: str) -> tuple[list[str], dict[int, JSON]]:
    """Return the user's texts that a column holds, and targets by their places."""
    found = suite.column(sample, column, _KEYS)
    if isinstance(found, str):  # a CSV has no lists
        try:
            found = written_value(found) or found
        except ValueError as error:
            raise suite.error(f"the column {quoted(column)}: {error}", sample, _KEYS) from None
    if not isinstance(found, list | tuple) or not found:
        raise suite.error(
            f"the column {quoted(column)} holds {describe(found)}, expected a list of the user's texts", sample, _KEYS
        )
    users: list[str] = []
    targets: dict[int, JSON] = {}
    for number, turn in enumerate(found, 1):
        where = f"the column {quoted(column)}: turn {number}: "
        if isinstance(turn, Mapping) and isinstance(turn.get("user"), str) and turn.keys() <= {"user", "target"}:
            if turn.get("target") is not None:
                targets[number - 1] = turn["target"]
            turn = turn["user"]
        if not isinstance(turn, str):
            raise suite.error(
                f"{where}found {describe(turn)}, expected text, or {{user: text, target: …}}", sample, _KEYS
            )
        if (problem := unusable_character(turn)) is not None:
            raise suite.error(f"{where}{problem}", sample, _KEYS)
        users.append(turn)
    return users, targets
