"""A sample's options as a reader sees them: with their probabilities, the right ones and the answer marked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.text.escaping import printable, shortened

__all__ = ["option_texts"]

_YES_NO = ("yes", "no")
"""The options of a sample that is judged by the likelier of two continuations, in the order of its numbers."""


def option_texts(record: Record, *, limit: int | None = None) -> tuple[str, ...]:
    """Each option on a line: ``B. Oslo: 0.288 (right)``, in the order in which the model was shown them.

    The number is the option's probability, the softmax over the options' scores, where the scorer has one. Options
    that are equally likely, and likelier than the others, are tied. Of options of one text ``details`` say which are
    right; reports of before do not, and each is marked then. ``limit`` cuts the text of an option. Nothing for
    a sample without options.
    """
    probabilities = _numbers(record.details.get("probabilities"))
    choices: Sequence[str] = record.choices
    if not choices and len(probabilities) == len(_YES_NO):
        choices = _YES_NO
    labels = _texts(record.details.get("labels"))
    if len(labels) != len(choices):
        labels = ()
    names = labels or choices  # what target and answer are written in
    targets = record.target if isinstance(record.target, list | tuple) else [record.target]
    right, answered = _places(names, _texts(targets)), _places(names, _texts([record.answer]))
    if len(set(names)) < len(names):
        right = _indices(record.details.get("right")) or right
        answered = {min(answered)} if answered else answered  # of equal options the first is the answer
    if len(probabilities) != len(choices):
        probabilities = ()
    marked_places = {"right": right, "answered": answered, "tied": _indices(record.details.get("tied"))}
    lines = []
    for place, choice in enumerate(choices):
        text = printable(choice if limit is None else shortened(choice, limit=limit))
        label = f"{printable(labels[place])}. " if labels else ""
        number = f": {probabilities[place]:.3f}" if probabilities else ""
        marks = [mark for mark, places in marked_places.items() if place in places]
        marked = f" ({', '.join(marks)})" if marks else ""
        lines.append(f"{label}{text}{number}{marked}")
    return tuple(lines)


def _places(names: Sequence[str], wanted: Collection[str]) -> set[int]:
    return {place for place, name in enumerate(names) if name in wanted}


def _texts(value: object) -> Sequence[str]:
    """The list of texts that a report's detail should be; nothing where it is something else."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else ()


def _indices(value: object) -> set[int]:
    return {item for item in value if type(item) is int} if isinstance(value, list | tuple) else set()


def _numbers(value: object) -> Sequence[float]:
    if not isinstance(value, list | tuple) or any(isinstance(item, bool) for item in value):
        return ()
    numbers = [item for item in value if isinstance(item, int | float) and math.isfinite(item)]
    return numbers if len(numbers) == len(value) else ()
