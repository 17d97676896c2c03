"""The options of a sample as a reader sees them: in the order in which the model was shown them, with probabilities."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.text.escaping import printable, shortened

__all__ = ["Option", "option_texts", "sample_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """``label`` is its letter, where it has one; ``probability`` the softmax over the options' scores, where the scorer
    has one. ``marks``: ``right``, ``answered``, ``tied`` (as likely as another, and likelier than the rest). Texts are
    not yet ``printable``.
    """

    text: str
    label: str | None = None
    probability: float | None = None
    marks: tuple[str, ...] = ()


_YES_NO = ("yes", "no")
"""The options of a sample that is judged by the likelier of two continuations, in the order of its numbers."""


def option_texts(record: Record, *, limit: int | None = None) -> tuple[str, ...]:
    """Each option on a line, made ``printable``: ``B. Oslo: 0.288 (right)``; ``limit`` cuts the text of an option."""
    return tuple(_line(option, limit) for option in sample_options(record))


def _line(option: Option, limit: int | None) -> str:
    text = printable(option.text if limit is None else shortened(option.text, limit=limit))
    label = "" if option.label is None else f"{printable(option.label)}. "
    number = "" if option.probability is None else f": {option.probability:.3f}"
    marked = f" ({', '.join(option.marks)})" if option.marks else ""
    return f"{label}{text}{number}{marked}"


def sample_options(record: Record) -> tuple[Option, ...]:
    """The sample's options; none for a sample without.

    Of options of one text ``details`` say which are right; reports of before do not, and each is marked then.
    """
    probabilities = _numbers(record.details.get("probabilities"))
    choices: Sequence[str] = record.choices
    if not choices and len(probabilities) == len(_YES_NO):
        choices = _YES_NO
    labels = _detail_texts(record.details.get("labels"))
    if len(labels) != len(choices):
        labels = ()
    names = labels or choices  # what target and answer are written in
    targets = record.target if isinstance(record.target, list | tuple) else [record.target]
    right, answered = _places(names, _detail_texts(targets)), _places(names, _detail_texts([record.answer]))
    if len(set(names)) < len(names):
        right = _indices(record.details.get("right")) or right
        answered = {min(answered)} if answered else answered  # of equal options the first is the answer
    if len(probabilities) != len(choices):
        probabilities = ()
    marked_places = {"right": right, "answered": answered, "tied": _indices(record.details.get("tied"))}
    return tuple(
        Option(
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
    """The list of texts that a report's detail should be; nothing where it is something else."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else ()


def _indices(value: object) -> set[int]:
    return {item for item in value if type(item) is int} if isinstance(value, list | tuple) else set()


def _numbers(value: object) -> Sequence[float]:
    if not isinstance(value, list | tuple) or any(isinstance(item, bool) for item in value):
        return ()
    numbers = [item for item in value if isinstance(item, int | float) and math.isfinite(item)]
    return numbers if len(numbers) == len(value) else ()
