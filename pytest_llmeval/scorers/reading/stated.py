r"""Where a person who reads a reply finds its answer: a label or a word, by the rules of ``letter`` and ``yes_no``.

The first of four places that holds an answer decides:

1. the last ``\boxed{}``;
2. the sentence after the last mark, which is "answer is", "answer:" or ``####`` ("choice", "option" and "the correct
   one is" too, and what says the same in nine other languages, see ``wordings.py``);
3. the start of the reply;
4. anywhere after that mark, or in all of a reply without one, where it stands as a word of its own.

Where a place holds several different answers, one that it says to be right counts, or one that it begins with and sets
apart; else the reply has none, since it is not clear which is meant. White space,
quotes, brackets and Markdown around an answer do not matter. A line that begins with ``Question:`` or ``Q:`` ends the
reply: there a base model goes on with a question of its own. Every search takes time
in proportion to the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import regex

from pytest_llmeval.scorers.reading.boxes import last_box
from pytest_llmeval.scorers.reading.wordings import MARK

__all__ = ["AROUND", "stated_answer"]

T = TypeVar("T")


AROUND = r"[\s*_`~>#:\-\"'“”„‘’«»‹›「」『』()\[\]{}（）【】<$]"
"""What can stand before an answer and is no part of it."""


_MAX_SENTENCE = 300


_SKIPPED = regex.compile(rf"{AROUND}*+")


_SENTENCE = regex.compile(r"(?:[^.\n。]|\.(?=\S))*+\.?")


_NEXT_QUESTION = regex.compile(r"(?<=\S)[^\S\n]*\n\s*[#*]*\s?(?:Question|Q)\s?\d*\s?[*]*:", regex.IGNORECASE)


def stated_answer(text: str, at_start: Callable[[str], T | None], among: Callable[[str], frozenset[T]]) -> T | None:
    """Return the answer by the four places above; None where there is none, or several.

    ``at_start`` gives the one answer that a text begins with, ``among`` all the different ones that stand in it.
    """
    following = _NEXT_QUESTION.search(text)
    reply = text if following is None else text[: following.start()]
    box = last_box(reply)
    marks = list(MARK.finditer(reply))
    after = marks[-1].end() if marks else 0
    for part in (box, _sentence(reply, after) if marks else None):
        if part is None:
            continue
        several = among(part)
        found = at_start(part) or _only(several)
        if found is not None or several:
            return found
    return at_start(reply) or _only(among(reply[after:]))


def _sentence(reply: str, start: int) -> str:
    skipped = _SKIPPED.match(reply, start)
    start = start if skipped is None else skipped.end()
    found = _SENTENCE.match(reply, start, start + _MAX_SENTENCE)
    return "" if found is None else found[0]


def _only(answers: frozenset[T]) -> T | None:
    return next(iter(answers)) if len(answers) == 1 else None
