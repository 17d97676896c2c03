"""Reads what a sample expects: indices of right choices, or texts that count as right.

Errors are one line for the user.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Mapping, Sequence

from pytest_llmeval.text.documents import written_value
from pytest_llmeval.text.escaping import plain_characters
from pytest_llmeval.text.wording import expected_one_of
from pytest_llmeval.types import JSON, Sample

__all__ = ["no_column", "quote", "right_choices", "several_or_one", "target_texts"]

_SHOWN_CHARACTERS = 60
_COMPARED_CHARACTERS = 1000
"""The longest text whose nearest spelling is looked for: that takes the product of their lengths."""


def quote(value: object) -> str:
    """Return a value as an error shows it: on one line, control characters escaped, cut where it is long."""
    # A whole data file can stand where a short target was meant: cut before repr, which would build all of it.
    text = repr(value[: _SHOWN_CHARACTERS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def no_column(sample: Sample, name: str) -> ValueError:
    """Return the error of a sample that has no such column, with those that it has."""
    row = sample.variables.get("row")
    others = expected_one_of(name, map(str, row)) if isinstance(row, Mapping) and row else ""
    return ValueError(f"the sample has no column {quote(name)}{others}")


def column(sample: Sample, name: str) -> object:
    """Return what the sample has in a column. Raise ``ValueError`` where it has no such column."""
    if name not in sample.variables:
        raise no_column(sample, name)
    return sample.variables[name]


def several_or_one(texts: Sequence[str]) -> str | tuple[str, ...]:
    """Return one text as itself, several as a tuple: how a report shows what was expected."""
    return texts[0] if len(texts) == 1 else tuple(texts)


def right_choices(sample: Sample) -> tuple[int, ...]:
    """Return the indices into ``sample.choices`` of the right ones, ascending: at least one, and not all.

    A target is an index, the text of a choice (compared after white space is stripped from both ends), or a list of
    these. ``ValueError`` says what is wrong with the choices or the target.
    """
    if len(sample.choices) < 2:
        found = f"only {quote(sample.choices[0])}" if sample.choices else "none"
        raise ValueError(f"a sample needs two choices or more, found {found}")
    targets = sample.target if isinstance(sample.target, list) else [sample.target]
    if not targets:
        raise ValueError("the target is an empty list; expected one or more right choices")
    right = sorted({_right_choice(target, sample.choices) for target in targets})
    if len(right) == len(sample.choices):
        raise ValueError(f"all {len(right)} choices are right: there is nothing to choose")
    return tuple(right)


def target_texts(sample: Sample) -> tuple[str, ...]:
    """Return the texts that count as right, as given: the target, or each of a list; an int or float as it is written.

    ``ValueError`` for no target, an empty list, and anything that is not text or a number.
    """
    if isinstance(sample.target, str):
        _check_no_list(sample.target, sample.path)
    targets = sample.target if isinstance(sample.target, list) else [sample.target]
    if not targets:
        raise ValueError("the target is an empty list; expected one or more texts")
    return tuple(_text(target, sample.path) for target in targets)


def _check_no_list(target: str, path: str) -> None:
    """Raise ``ValueError`` for a list of texts that a data file has as one text: no reply would ever be equal to it."""
    if target.lstrip().startswith("[") and not path.endswith((".yaml", ".yml")):
        try:
            found = written_value(target)
        except ValueError as error:
            raise ValueError(f"the target: {error}") from None
        if isinstance(found, list) and found and all(isinstance(entry, str) for entry in found):
            raise ValueError(
                f"the target is the text {quote(target)}, which is written as a list; with your column's name write "
                'target: "{{ answer | literal }}" for the list, or "{{ [answer] }}" for the text itself'
            )


def _text(target: JSON, path: str) -> str:
    """``path`` is the file that it stands in, which decides the message for a truth value."""
    if isinstance(target, str):
        return target
    if target is None:
        raise ValueError("the sample has no target; expected a text")
    if isinstance(target, bool):
        if path.endswith((".yaml", ".yml")):
            advice = "put it in quotes (YAML reads a bare yes, no, true or false as a truth value)"
        else:
            advice = "say what text it stands for, such as target: \"{{ 'yes' if target else 'no' }}\""
        raise ValueError(f"the target is {str(target).lower()}, which is not text; {advice}")
    if isinstance(target, int | float):
        return repr(target)
    raise ValueError(f"the target is {quote(target)}; expected a text or a list of texts")


def _right_choice(target: JSON, choices: Sequence[str]) -> int:
    if target is None:
        raise ValueError("the sample has no target; expected the index or the text of a choice")
    if isinstance(target, int) and not isinstance(target, bool):
        if 0 <= target < len(choices):
            return target
        raise ValueError(
            f"target {quote(target)} is out of range: the {len(choices)} choices are 0 to {len(choices) - 1}"
        )
    if isinstance(target, str):
        return _choice_of_text(target, choices)
    raise ValueError(f"target {quote(target)} is neither the index nor the text of a choice")


def _choice_of_text(target: str, choices: Sequence[str]) -> int:
    stripped = [choice.strip() for choice in choices]
    text = target.strip()
    if text not in stripped:
        text, stripped = plain_characters(text), [plain_characters(choice) for choice in stripped]
    count = stripped.count(text)
    if count == 1:
        return stripped.index(text)
    if count > 1:
        raise ValueError(f"target {quote(target)} is ambiguous: {count} choices have this text; give an index")
    message = f"target {quote(target)} is not among the choices"
    # isdecimal, not int(): a "number" of a million digits is only ever compared as text.
    if text.removeprefix("-").isdecimal():
        raise ValueError(
            f'{message}; if it is an index, write `target: "{{{{ answer | int }}}}"` with your column\'s name'
        )
    labels = string.ascii_uppercase[: len(choices)]
    if len(text) == 1 and text.upper() in labels:
        raise ValueError(
            f"{message}; if it is the label of one, write `target: \"{{{{ '{labels}'.index(answer) }}}}\"` with your "
            "column's name"
        )
    short = [choice for choice in stripped if len(choice) < _COMPARED_CHARACTERS]
    near = difflib.get_close_matches(text, short, n=1) if len(text) < _COMPARED_CHARACTERS else []
    if near:
        raise ValueError(f"{message}; did you mean {quote(near[0])}?")
    raise ValueError(
        f"{message} ({', '.join(quote(choice) for choice in stripped[:5])}{', …' if len(stripped) > 5 else ''})"
    )
