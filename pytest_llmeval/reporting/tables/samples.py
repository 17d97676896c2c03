"""A sample as a reader sees it: its texts by name, and its options in the order in which the model was shown them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.text.escaping import printable, shortened
from pytest_llmeval.text.tool_calls import described_calls, read_tool_calls
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

__all__ = ["as_text", "asked", "cut_field", "option_texts", "sample_fields", "sample_heading", "sample_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOption:
    """An option of a sample, with texts that are not yet ``printable``.

    ``label`` is its letter, if it has one; ``probability`` the softmax over the options' scores, if the scorer has one.
    ``marks``: ``right``, ``answered``, ``tied`` (as likely as another, and likelier than the rest).
    """

    text: str
    label: str | None = None
    probability: float | None = None
    marks: tuple[str, ...] = ()


_YES_NO = ("yes", "no")
"""The options of a sample that is judged by the likelier of two continuations, in the order of its numbers."""


def option_texts(record: Record, *, limit: int | None = None) -> tuple[str, ...]:
    """Return each option as a line, ``printable``: ``B. Oslo: 0.288 (right)``; ``limit`` cuts the text of an option."""
    return tuple(_line(option, limit) for option in sample_options(record))


def _line(option: ShownOption, limit: int | None) -> str:
    text = printable(option.text if limit is None else shortened(option.text, limit=limit))
    label = "" if option.label is None else f"{printable(option.label)}. "
    number = "" if option.probability is None else f": {option.probability:.3f}"
    marked = f" ({', '.join(option.marks)})" if option.marks else ""
    return f"{label}{text}{number}{marked}"


def sample_options(record: Record) -> tuple[ShownOption, ...]:
    """Return the sample's options.

    ``details`` say which of several options of one text are right; older reports do not, and then each is marked.
    """
    probabilities = _numbers(record.details.get("probabilities"))
    choices: Sequence[str] = record.choices
    if not choices and len(probabilities) == len(_YES_NO):
        choices = _YES_NO
    labels = _detail_texts(record.details.get("labels"))
    if len(labels) != len(choices):
        labels = ()
    names = labels or choices  # target and answer are written in these
    targets = record.target if isinstance(record.target, list | tuple) else [record.target]
    right, answered = _places(names, _detail_texts(targets)), _places(names, _detail_texts([record.answer]))
    if len(set(names)) < len(names):
        right = _indices(record.details.get("right")) or right
        answered = {min(answered)} if answered else answered  # the first of equal options is the answer
    if len(probabilities) != len(choices):
        probabilities = ()
    marked_places = {"right": right, "answered": answered, "tied": _indices(record.details.get("tied"))}
    return tuple(
        ShownOption(
            text=choice,
            label=labels[place] if labels else None,
            probability=probabilities[place] if probabilities else None,
            marks=tuple(mark for mark, places in marked_places.items() if place in places),
        )
        for place, choice in enumerate(choices)
    )


def _places(names: Sequence[str], wanted: Collection[str]) -> set[int]:
    return {place for place, name in enumerate(names) if name in wanted}


def _detail_texts(value: object) -> Sequence[str]:
    """Return the texts of a report's detail, or nothing if it is no list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else ()


def _indices(value: object) -> set[int]:
    return {item for item in value if type(item) is int} if isinstance(value, list | tuple) else set()


def _numbers(value: object) -> Sequence[float]:
    if not isinstance(value, list | tuple) or any(isinstance(item, bool) for item in value):
        return ()
    numbers = [item for item in value if isinstance(item, int | float) and math.isfinite(item)]
    return numbers if len(numbers) == len(value) else ()


_MAX_CHARACTERS = 300
"""Characters of a text that is not asked for whole."""
_MAX_OPTION = 60
"""Characters of an option that is not asked for whole: its number and its mark stand behind it."""
_MAX_OPTIONS = 1000
"""Characters of all options together."""


_MAX_REPLIES = 20
_MAX_VERDICTS = 20
"""Verdicts on a sample, by all judges together."""
_MAX_DEPTH = 4
"""The most levels of nested scores that are read: those of a sample, its replies, their scorers, and their judges."""
_MAX_RELEVANT = 20
_MAX_STEPS = 20
_MAX_FOUND = 100
_MAX_CONTEXTS = 20
_MAX_REPLY = 1500
"""Characters of one reply to a sample that was asked several times."""


def as_text(value: JSON) -> str:
    """Return a record's value as text: texts with bars between, chat messages by role, what is no text as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return " | ".join(map(str, value))
    if isinstance(value, list) and value and all(isinstance(item, dict) and "content" in item for item in value):
        return "\n".join(f"{who}: {text}" for who, text in _messages(value))
    return json.dumps(value, ensure_ascii=False)


def _messages(value: Sequence[JSON]) -> list[tuple[str, str]]:
    """Return who speaks, and what is said and called, of each message of a chat."""
    found = []
    for message in value:
        if not isinstance(message, dict):
            continue
        who = " ".join(str(message[key]) for key in ("role", "name") if message.get(key))
        said = [] if message.get("content") is None else [str(message["content"])]
        try:
            if calls := read_tool_calls(message.get("tool_calls")):
                said.append(f"calls {described_calls(calls)}")
        except ValueError:  # of a report that something else has written
            said.append(json.dumps(message["tool_calls"], ensure_ascii=False))
        found.append((who, "\n".join(said)))
    return found


def cut_field(name: str, text: str) -> str:
    """Return the beginning of a sample's field that is not asked for whole."""
    return shortened(text, limit=_MAX_OPTIONS if name == "choices" else _MAX_CHARACTERS)


def sample_heading(record: Record) -> str:
    """Return ``q1 (boolq, gpt2): wrong``, not yet ``printable``."""
    category = None if record.category is None else f"category {record.category}"
    where = ", ".join(text for text in (record.suite, record.model, category) if text)
    return f"{record.id} ({where}): {record.status}{', no answer' if record.no_answer else ''}"


def asked(record: Record) -> str:
    """Return the question; of a conversation without one, what the user said last. Empty where neither is known."""
    if record.question:
        return record.question
    talks, prompt = record.details.get("conversation"), record.prompt
    if isinstance(talks, list) and talks:
        talk = talks[0] if isinstance(talks[0], list) else talks
        return next((str(turn["user"]) for turn in reversed(talk) if isinstance(turn, dict) and "user" in turn), "")
    messages = _messages(prompt) if isinstance(prompt, list) else []
    return next((text for who, text in reversed(messages) if who.startswith("user")), "")


def sample_fields(record: Record, *, prompt: bool, whole: bool, options: bool = True) -> Iterator[tuple[str, str]]:
    """Yield names and texts of all that there is to say of the sample, in the order in which it happened.

    Neither is ``printable`` yet. ``whole``: with each option on a line, and each step of a trace. ``options``: with the
    options.
    """
    if question := record.question if prompt else asked(record):  # the prompt has a conversation whole
        yield "question", question
    if prompt and record.prompt is not None:
        turns = _messages(record.prompt) if whole and isinstance(record.prompt, list) else []
        if any(who.startswith(("assistant", "tool")) for who, _ in turns[:-1]):
            for number, (who, text) in enumerate(turns, 1):
                yield f"{who}, message {number} of {len(turns)}", text
        else:
            yield "prompt", as_text(record.prompt)
    if prompt and (tools := _tools(record, whole=whole)):
        yield "tools", tools
    if options and (lines := option_texts(record, limit=None if whole else _MAX_OPTION)):
        yield "choices", ("\n" if whole else " | ").join(lines)
    replies = [*_conversations(record), *_replies(record)] if whole else []
    found = record.details.get("documents")  # a search finds these, and writes nothing
    yield from replies if whole else _conversations(record, whole=False)
    yield from _steps(record, whole=whole)
    if record.reasoning and not replies:
        yield "reasoning", record.reasoning
    calls = record.details.get("tool_calls")  # a reply may consist of calls alone, which are its answer
    is_text = record.output or not (isinstance(found, list) or calls)
    if record.output is not None and not replies and is_text:
        yield "output", record.output
    if record.answer is not None:
        yield "answer", record.answer
    if record.target is not None and record.target != []:
        yield "expected", as_text(record.target)
    yield from _relevant(record)
    if whole:
        yield from _found(record)
    yield from _verdicts(record)
    yield from _problems(record)
    if record.values:
        scores = (f"{name} {value:.4g}" for name, value in record.values.items() if not math.isnan(value))
        yield "scores", ", ".join(scores)
    if record.not_measurable:
        yield "not measurable", "; ".join(f"{name}: {reason}" for name, reason in record.not_measurable.items())
    if record.reason is not None:
        yield "reason", record.reason
    for one in record.served_by:
        who = " ".join(str(one[key]) for key in ("role", "name") if key in one)
        what = ", ".join(f"{key} {one[key]}" for key in ("model", "system_fingerprint") if key in one)
        yield "answered by", f"{what} in the place of {who}"


def _tools(record: Record, *, whole: bool) -> str:
    """Return the functions that the model could call: each as JSON on a line, or their names."""
    found = record.details.get("tools")
    functions = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if whole:
        return "\n".join(map(as_text, functions))
    return ", ".join(str(one.get("name")) for one in functions)


def _replies(record: Record) -> Iterator[tuple[str, str]]:
    """Yield each reply to a sample that was asked several times, with what it was judged to be."""
    outputs, epochs = record.details.get("outputs"), record.details.get("epochs")
    reasonings = record.details.get("reasonings")
    if "conversation" in record.details:
        return
    if not isinstance(outputs, list) or not isinstance(epochs, list) or len(outputs) != len(epochs):
        return
    for number, (output, epoch) in enumerate(zip(outputs, epochs, strict=True), start=1):
        if number > _MAX_REPLIES:
            yield "output", f"{len(outputs) - _MAX_REPLIES} more are in the report"
            return
        judged = epoch if isinstance(epoch, dict) else {}
        status = f"{judged.get('status', 'not judged')}{', no answer' if judged.get('no_answer') else ''}"
        if isinstance(reasonings, list) and number <= len(reasonings) and reasonings[number - 1]:
            yield f"reasoning {number} of {len(outputs)}", shortened(as_text(reasonings[number - 1]), limit=_MAX_REPLY)
        text = as_text(output) or as_text(judged.get("answer") or "")  # a reply may consist of tool calls alone
        yield f"output {number} of {len(outputs)} ({status})", shortened(text, limit=_MAX_REPLY)


def _conversations(record: Record, *, whole: bool = True) -> Iterator[tuple[str, str]]:
    """Yield what the user and the model said in each turn, with what a turn that was scored was judged to be.

    A sample that was asked several times has a conversation for each time. Unless ``whole``, only turns before the last
    whose replies are wrong: the sample is wrong because of them, whatever its last reply is.
    """
    talks, epochs = record.details.get("conversation"), record.details.get("epochs")
    if not isinstance(talks, list) or not talks:
        return
    several = isinstance(talks[0], list)
    for number, talk in enumerate(talks[:_MAX_REPLIES] if several else [talks], 1):
        judged: object = record.details
        status = "" if several else f", {record.status}"
        epoch = epochs[number - 1] if several and isinstance(epochs, list) and number <= len(epochs) else None
        if isinstance(epoch, dict):
            judged, status = epoch.get("details"), f", {epoch.get('status')}"
        scores = judged.get("turns") if isinstance(judged, Mapping) else None
        of_output = f" of output {number}" if several else ""
        limit = _MAX_REPLY if several else None
        turns = [turn for turn in talk if isinstance(turn, dict)] if isinstance(talk, list) else []
        for place, turn in enumerate(turns):
            where = f"turn {place + 1} of {len(turns)}{of_output}"
            score = scores[place] if isinstance(scores, list) and place < len(scores) else None
            is_wrong = isinstance(score, dict) and score.get("status") == "wrong"
            if not whole and (place + 1 == len(turns) or not is_wrong):
                continue
            if "user" in turn:
                yield f"user, {where}", _said(turn["user"], limit)
            if whole and turn.get("reasoning"):
                yield f"reasoning, {where}", _said(turn["reasoning"], limit)
            own = f", {score.get('status')}" if isinstance(score, dict) else "" if place + 1 < len(turns) else status
            yield f"reply, {where}{own}", _said(turn.get("reply"), limit)
            if isinstance(score, dict) and is_wrong and score.get("target") and place + 1 < len(turns):
                yield f"expected, {where}", as_text(score["target"])
    if whole and several and len(talks) > _MAX_REPLIES:
        yield "output", f"{len(talks) - _MAX_REPLIES} more are in the report"


def _said(text: JSON, limit: int | None) -> str:
    """Return what was said in a turn; of a file of replies, earlier ones may be missing."""
    shown = "(not known)" if text is None else as_text(text)
    return shown if limit is None else shortened(shown, limit=limit)


def _relevant(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the relevant documents of a query, with their grades, and the ranks at which a search found them."""
    documents = record.details.get("relevant")
    shown = []
    for one in documents if isinstance(documents, list) else ():
        if isinstance(one, dict) and isinstance(one.get("id"), str) and "rank" in one:
            rank = "missed" if one["rank"] is None else f"at {one['rank']}"
            shown.append(f"{one['id']} (grade {one.get('grade')}) {rank}")
    if shown:
        more = f", … ({len(shown)})" if len(shown) > _MAX_RELEVANT else ""
        yield "relevant", f"{', '.join(shown[:_MAX_RELEVANT])}{more}"


def _found(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what a search found, best first, with its scores, and the contexts that an answer was written from.

    A sample that was asked several times has them for each reply.
    """
    outputs = record.details.get("outputs")
    for name, limit in (("documents", _MAX_FOUND), ("contexts", _MAX_CONTEXTS)):
        found = record.details.get(name)
        several = isinstance(outputs, list) and isinstance(found, list) and len(outputs) == len(found)
        for number, own in enumerate(found if several and isinstance(found, list) else [found], 1):
            if isinstance(own, list) and own:
                texts = [_document(one) if name == "documents" else as_text(one) for one in own[:limit]]
                more = [f"… ({len(own)})"] if len(own) > limit else []
                of_reply = f" of output {number}" if several else ""
                yield f"{name}{of_reply}", ("\n" if name == "documents" else "\n\n").join([*texts, *more])


def _document(one: JSON) -> str:
    """Return ``d1 (2.5)``: a document's id, with its score if it has one."""
    name, *score = one if isinstance(one, list) and one else [one]
    return as_text(name) + (f" ({score[0]:.4g})" if score and isinstance(score[0], int | float) else "")


def _steps(record: Record, *, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield how the reply came about, if the model says it: each step by itself if the sample is shown whole.

    A sample that was asked several times has steps for each reply.
    """
    trace, outputs = record.details.get("trace"), record.details.get("outputs")
    if not isinstance(trace, list):
        return
    several = isinstance(outputs, list) and len(outputs) == len(trace)
    for number, steps in enumerate(trace[:_MAX_REPLIES] if several else [trace], 1):
        if not isinstance(steps, list):
            continue
        of_reply = f" of output {number}" if several else ""
        if not whole:
            yield (
                f"trace{of_reply}",
                f"{len(steps)} step{'' if len(steps) == 1 else 's'}: {' | '.join(map(as_text, steps[:_MAX_STEPS]))}",
            )
            continue
        for place, step in enumerate(steps[:_MAX_STEPS], 1):
            yield f"step {place} of {len(steps)}{of_reply}", shortened(as_text(step), limit=_MAX_REPLY)
        if len(steps) > _MAX_STEPS:
            yield f"trace{of_reply}", f"{len(steps) - _MAX_STEPS} more steps are in the report"


def _verdicts(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what judges said, with their reasons, for each scorer, each reply and each judge of a panel by itself."""
    found: list[tuple[str, str]] = []
    for whose, details in _all_details(record.details, "", _MAX_DEPTH):
        if not isinstance(verdicts := details.get("verdicts"), list):
            continue
        texts = [text for one in verdicts if (text := _verdict(one))]
        for number, text in enumerate(texts, 1):
            found.append((f"verdict{'' if len(texts) == 1 else f' {number} of {len(texts)}'}{whose}", text))
    yield from found[:_MAX_VERDICTS]
    if len(found) > _MAX_VERDICTS:
        yield "verdicts", f"{len(found) - _MAX_VERDICTS} more are in the report"


def _problems(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a reply, if its scorer says so, for each scorer and each reply by itself."""
    found = {}
    for whose, details in _all_details(record.details, "", _MAX_DEPTH):
        problem, detail = details.get("problem"), details.get("detail")
        if isinstance(problem, str):
            found[f"problem{whose}"] = f"{problem}: {detail}" if isinstance(detail, str) else problem
    yield from list(found.items())[:_MAX_VERDICTS]


def _all_details(details: object, whose: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a score's details, and those of the scores that it was made of, and whose they are."""
    if not isinstance(details, Mapping) or not depth:
        return
    scorers = details.get("scorers")
    parts: Mapping[str, object] = scorers if isinstance(scorers, Mapping) else {}
    # The deciding one of several scorers comes first, and its details are those of the sample.
    own = next((f" of scorer {name}{whose}" for name in parts), whose)
    yield own, details
    inner = [(f" of scorer {name}{whose}", one) for name, one in parts.items()]
    for name, kept, whole in (("judge", "judges", own), ("output", "epochs", whose), ("turn", "turns", own)):
        members = details.get(kept)
        several = enumerate(members if isinstance(members, list) else (), 1)
        inner += [(f" of {name} {number}{whole}", one) for number, one in several]
    for name, one in inner:
        yield from _all_details(one.get("details") if isinstance(one, Mapping) else None, name, depth - 1)


def _listed(value: JSON) -> str:
    """Join a judge's claims or questions, or several verdicts of one reply, into one line."""
    if not isinstance(value, list):
        return as_text(value)
    return " | ".join(", ".join(map(as_text, one.values())) if isinstance(one, dict) else as_text(one) for one in value)


def _verdict(one: JSON) -> str | None:
    """Return ``polite pass (It says please.)``, or None for an entry that holds nothing that was said."""
    if not isinstance(one, dict):
        return None
    about = [as_text(one[name]) for name in ("metric", "claim") if one.get(name) is not None]
    if one.get("chunk") is not None:
        about.append(f"rank {one['rank']}, {as_text(one['chunk'])}" if "rank" in one else as_text(one["chunk"]))
    if isinstance(order := one.get("order"), list):
        about.append(f"{as_text(order[0])} first" if order else "")
    problem, reasons, value = one.get("problem"), one.get("reasons"), one.get("value")
    if problem is not None:
        raw, words = one.get("raw"), as_text(problem)
        began = f" (it began {quoted(raw.strip())})" if isinstance(raw, str) and raw.strip() else ""
        said = f"none: {words}{'' if 'it began' in words else began}"
    elif isinstance(reasons, dict) and isinstance(value, dict):
        said = ", ".join(f"{name} {as_text(value[name])} ({as_text(reasons.get(name))})" for name in value)
    elif reasons is not None:
        said = f"{as_text(value)} ({as_text(reasons)})"
    elif "asked" in one and value is not None:
        said = f"{as_text(one['asked'])}: {_listed(value)}"
    else:
        return None
    return ": ".join(filter(None, [", ".join(filter(None, about)), said]))
