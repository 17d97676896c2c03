r"""Answers as lm-eval's minerva_math finds and normalises them (after Lewkowycz et al., 2022, appendix D).

Whether two normalised answers are equal, once their texts differ, is sympy's word: see ``worker.py``.
"""

from __future__ import annotations

import re

__all__ = ["announced_answer", "normalized_answer"]

_ANNOUNCED = "Final Answer: The final answer is"


_HOPE = re.compile(". I hope it is correct.")


_CLOSING = "I hope it is correct."


_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
)


# In the published order: what one leaves, the next can find.
_REMOVED = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", r"\ldots", "sue"),
    *("points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges"),
    *("students", "childrentickets", "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2"),
    *(r"\text{}^3", "\\text{\n}", r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"'),
    r"\dots",
)


_WHOLE_WORDS = tuple(re.compile(rf"(?<!\\)\b{word}\b") for word in _REMOVED if word.isalpha())


_COMMAND = re.compile(r"(\\[a-zA-Z]+)")


_SHORTHANDS = (
    (re.compile(r"(.*?)(\$)(.*?)(\$)(.*)"), r"$\3$"),
    (re.compile(r"(\\text\{)(.*?)(\})"), r"\2"),
    (re.compile(r"(\\textbf\{)(.*?)(\})"), r"\2"),
    (re.compile(r"(\\overline\{)(.*?)(\})"), r"\2"),
    (re.compile(r"(\\boxed\{)(.*)(\})"), r"\2"),
    (re.compile(r"(frac)([^{])(.)"), r"frac{\2}{\3}"),
    (re.compile(r"(sqrt)(\[[^\]]*\])(\w)"), r"\1\2{\3}"),
    (re.compile(r"(sqrt)(?!\[)([^{])"), r"sqrt{\2}"),
)


_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+")


def announced_answer(text: str) -> str | None:
    """Return what stands between "Final Answer: The final answer is" and ". I hope it is correct.", the first on one
    line.

    The closing sentence may be missing at the end of the text. This is ``get_unnormalized_answer`` of lm-eval's
    minerva_math, whose ``[invalidanswer]`` is None here; its pattern is searched line by line, which takes time in
    proportion to the text.
    """
    for line in (text + _CLOSING).split("\n"):
        _, announced, rest = line.partition(_ANNOUNCED)
        hope = _HOPE.search(rest) if announced else None
        if hope is not None:
            return rest[: hope.start()].strip()
    return None


def normalized_answer(answer: str) -> str:
    """Return what ``normalize_final_answer`` of lm-eval's minerva_math does: no units, thousands separators and
    shorthands.
    """
    answer = answer.rpartition("=")[2]
    for word in _WHOLE_WORDS:
        answer = word.sub("", answer)
    for before, after in _REPLACED:
        answer = answer.replace(before, after)
    for text in _REMOVED:
        answer = _without_word(answer, text) if text.isalpha() else answer.replace(text, "")
    for shorthand, written_out in _SHORTHANDS:
        answer = shorthand.sub(written_out, answer)
    answer = answer.replace("$", "")
    return answer.replace(",", "") if _THOUSANDS.fullmatch(answer) else answer


def _without_word(answer: str, word: str) -> str:
    r"""Remove a unit that white space no longer delimits, but not the "ft" of ``\left``."""
    parts = _COMMAND.split(answer)
    parts[::2] = [part.replace(word, "") for part in parts[::2]]
    return "".join(parts)
