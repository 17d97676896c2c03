r"""Answers as lm-eval's tasks find, normalise and compare them.

``minerva_math`` (after Lewkowycz et al., 2022, appendix D) and ``hendrycks_math`` (after Hendrycks et al., 2021, MATH).
The published code is followed, oddities and all, so that its numbers come out: ``1/2`` is ``\frac{1}{2}`` and 0.5 too,
but 1/4 is not 0.25.
"""

from __future__ import annotations

import re

__all__ = [
    "aime_answer",
    "announced_answer",
    "between_dollars",
    "equal_texts",
    "normal_form",
    "normalized_answer",
    "published_box",
]

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


_BRACE = re.compile(r"[{}]")
_UNIT = r"\text{ "


def equal_texts(one: str, other: str) -> bool:
    """Return whether two answers have one normal form; where the published code fails on either, whether they are
    identical.

    This is ``lm_eval.tasks.hendrycks_math.utils.is_equiv`` for two texts.
    """
    try:
        return _normal_form(one) == _normal_form(other)
    except (IndexError, ValueError):
        return one == other


def normal_form(text: str) -> str:
    """Return the form that equal answers share; the text itself where the published code fails on it."""
    try:
        return _normal_form(text)
    except (IndexError, ValueError):
        return text


def published_box(solution: str) -> str | None:
    r"""Return what the last ``\boxed{}``, ``\fbox{}`` or ``\boxed `` of a published solution holds; None if there is
    none.

    This is ``remove_boxed(last_boxed_only_string(solution))`` of lm-eval, which fails for a ``\fbox{}``: ``\boxed``
    before a blank, anywhere, comes first and ends with the next ``$``; an escaped brace counts like any other.
    """
    _, bare, rest = solution.rpartition("\\boxed ")
    if bare:
        return rest.partition("$")[0]
    start = solution.rfind("\\boxed")
    if start < 0:
        start = solution.rfind("\\fbox")
    opening = solution.find("{", start)
    if start < 0 or opening < 0:
        return None
    depth = 0
    for brace in _BRACE.finditer(solution, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0 and brace[0] == "}":
            return solution[opening + 1 : brace.start()]
    return None


def between_dollars(text: str) -> str:
    """Return what stands between the first ``$`` and the last, or the whole text with fewer than two."""
    first, last = text.find("$"), text.rfind("$")
    return text if first == last else text[first + 1 : last]


def aime_answer(reply: str) -> str:
    r"""Return what ``process_results`` of lm-eval's aime compares: the last ``\boxed{}``, else what is between dollars.

    A ``\fbox{}`` and a ``\boxed`` with neither a brace nor a blank behind it are no boxes there.
    """
    is_read = "\\boxed " in reply or reply.startswith("\\boxed{", reply.rfind("\\boxed"))
    boxed = published_box(reply) if is_read else None
    return between_dollars(reply) if boxed is None else boxed


def _normal_form(text: str) -> str:
    r"""Return what ``strip_string`` of lm-eval's hendrycks_math does. Raise ``IndexError`` or ``ValueError`` where that
    fails.
    """
    text = text.replace("\n", "").replace(r"\!", "").replace("\\\\", "\\")
    text = text.replace("tfrac", "frac").replace("dfrac", "frac").replace(r"\left", "").replace(r"\right", "")
    text = text.replace(r"^{\circ}", "").replace(r"^\circ", "").replace(r"\$", "")
    text = _without_unit(text).replace(r"\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = "0" + text
    if text.count("=") == 1:
        name, _, value = text.partition("=")
        text = value if len(name) <= 2 else text
    text = _braced_roots(text).replace(" ", "")
    text = _braced_fractions(text)
    return _fraction_of_slash(r"\frac{1}{2}" if text == "0.5" else text)


def _without_unit(text: str) -> str:
    before, *after = text.split(_UNIT)
    if len(after) > 1:
        raise ValueError("several units")
    return before


def _braced_roots(text: str) -> str:
    r"""Write ``\sqrt3`` as ``\sqrt{3}``."""
    first, *rest = text.split(r"\sqrt")
    return first + "".join(rf"\sqrt{part}" if part[0] == "{" else rf"\sqrt{{{part[0]}}}{part[1:]}" for part in rest)


def _braced_fractions(text: str) -> str:
    r"""Write ``\frac12`` and ``\frac1{2}`` as ``\frac{1}{2}``; return the whole text as it was if one has too little
    after it.
    """
    first, *rest = text.split(r"\frac")
    parts = [first]
    for part in rest:
        if part[0] == "{":
            parts.append(part)
        elif len(part) < 2:
            return text
        else:
            bottom = part[1:] if part[1] == "{" else f"{{{part[1]}}}{part[2:]}"
            parts.append(f"{{{part[0]}}}{bottom}")
    return r"\frac".join(parts)


def _fraction_of_slash(text: str) -> str:
    r"""Write ``1/2`` as ``\frac{1}{2}``. Raise ``ValueError`` for one slash between anything but whole numbers."""
    if text.count("/") != 1:
        return text
    top, bottom = (int(part) for part in text.split("/"))
    return rf"\frac{{{top}}}{{{bottom}}}" if text == f"{top}/{bottom}" else text
