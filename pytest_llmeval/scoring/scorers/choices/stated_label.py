r"""The label that a reply states, as a person reads it; where it is looked for, ``stated.py`` says.

A label is one where it stands as a word of its own, in the case in which the options are labelled. In the other case it
counts too where that is clear: in brackets or quotes, or where nothing but a stop, a comma or a colon follows it at the
start. It does not count

- as a word or a number before a word: ``A dog``, ``I think``, ``2 days`` (but ``A is right``, and ``B countryside``);
- inside the text of an option: ``Vitamin C`` is an option's text, and no C;
- where it is denied: ``not B``, ``rather than B``, ``B is wrong``, ``B) Paris is not correct`` (but not by the option's
  own text, nor by what is said of another option);
- as a piece of something longer: ``U.S.``, ``R&B``, ``C++``, ``B-flat``, ``x = B``.

A reply that lists the options over again does not begin with its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import regex

from pytest_llmeval.scoring.scorers.choices.stated import AROUND, stated_answer
from pytest_llmeval.text.characters import plain_characters

__all__ = ["LabelStyle", "stated_label"]

LabelStyle: TypeAlias = Literal["upper", "lower", "digit"]

# Letters of scripts without case are not among them: nothing separates words there, as in 答案是B。
_LETTER = r"[\p{Lu}\p{Ll}\p{Lt}\p{M}\p{Nd}]"
_LEFT = rf"(?<!{_LETTER})(?<!{_LETTER}[_'’&/+.,:\-])(?<![\\$€£]|=\s?)"
_RIGHT = rf"(?!{_LETTER})(?!['’&/:,\-]{_LETTER})(?!\.{_LETTER}(?!\p{{Ll}}))(?![+#^%°]|\s?=)"
_NAMED = r"(?:(?i:option|choice|letter|number)\s+)?"
_COMMAND = r"\\[A-Za-z]+(?=\s*\{)"
_START = regex.compile(rf"(?:{AROUND}|{_COMMAND})*+{_NAMED}(?:{AROUND}|{_COMMAND})*+")
_BRACKETS = frozenset((*zip("([{（【「『\"“'‘*`", ")]}）】」』\"”'’*`", strict=True),))
_DENIED_BEFORE = regex.compile(
    rf"(?:\bnot|n['’]t|\bnor|\bneither|\bthan|\binstead of|\bexcept)\s+{_NAMED}[(\[\"'*]*\Z", regex.IGNORECASE
)
_DENIED_AFTER = regex.compile(
    r"[)\]\"'*.]*\s(?:is|are|was)(?:\s(?:not(?!\s(?:wrong|incorrect|false)\b)|never|incorrect|wrong|false)\b|n['’]t)"
)
_DENIED_LATER = regex.compile(
    r"[)\]\"'*_.:]*+(?:(?!\b(?:because|since|as|so|for|that|if|and|or|but|while|whereas|not|right|correct|best|others?"
    r"|rest|remaining|all|both|any|every|none)\b)[^.;!?\n]){0,120}?"
    r"\s(?:(?:is|are|was|seems)\s(?:\p{L}+ly\s|also\s)?(?:wrong|incorrect|not\s(?:the\s)?(?:right|correct|answer))"
    r"|(?:is|are|was)n['’]t\s(?:the\s)?(?:right|correct|answer))\b",
    regex.IGNORECASE,
)
_BEHIND = regex.compile(r"[)\]\"'*_.:,\-–—\s(]*+")
_A_WORD = regex.compile(rf"\s+(?!(?:is|are|was|were|because|since|as|and|or|would|seems|appears)\b){_LETTER}")
_AND = regex.compile(r"[)\]}\"”'’*_`.]*\s*(?:[,;/&]|\b(?:and|or)\b)\s*(?:(?:and|or)\b\s*)?[(\[{\"“'‘*_`]*")
_NEAR = 40


def stated_label(text: str, labels: Sequence[str], options: Sequence[str] = ()) -> str | None:
    """The label, one of ``labels``, that a reply states; None where it states none, or several.

    ``options`` are the texts that the labels stand for.
    """
    text, options = plain_characters(text), [plain_characters(option) for option in options]
    texts = {label: option.strip() for label, option in zip(labels, options, strict=False)}
    reader = _Reader(_token(max(map(len, labels))), {label.casefold(): label for label in labels}, labels[:2], texts)
    return stated_answer(reader.without(options, text), reader.at_start, reader.among)


@dataclass(frozen=True, slots=True)
class _Reader:
    token: regex.Pattern[str]
    labels: Mapping[str, str]
    first_two: Sequence[str]
    texts: Mapping[str, str]

    def without(self, options: Sequence[str], text: str) -> str:
        """The text with a word for every option's text that holds what could be a label."""
        for option in options:
            bare = option.strip()
            if bare.strip("()[].:\"'").casefold() in self.labels or not self._labels_in(bare):
                continue
            text = regex.sub(rf"(?<!{_LETTER}){regex.escape(bare)}(?!{_LETTER})", "option-text", text, flags=regex.I)
        return text

    def _labels_in(self, text: str) -> bool:
        return any(match[0].casefold() in self.labels for match in self.token.finditer(text))

    def at_start(self, text: str) -> str | None:
        """The label that the text begins with, unless another one goes with it."""
        begin = _START.match(text)
        match = None if begin is None else self.token.match(text, begin.end())
        label = None if match is None else self.labels.get(match[0].casefold())
        if match is None or label is None or self._is_denied(label, text, match.end()):
            return None
        if _A_WORD.match(text, match.end()) and (match[0] != label or _can_be_a_word(label)):
            return None
        if text[match.end() : match.end() + 1] == "?":
            return None
        more = _AND.match(text, match.end())
        other = None if more is None else self.token.match(text, more.end())
        if other is not None and other[0] in self.labels.values() and not _A_WORD.match(text, other.end()):
            return None
        return None if label == self.first_two[0] and self._is_a_list(text) else label

    def _is_denied(self, label: str, text: str, end: int) -> bool:
        """Whether the sentence goes on, behind a label that ends there, with that it is wrong."""
        if _DENIED_AFTER.match(text, end):
            return True
        own = self.texts.get(label, "").rstrip(".")
        behind = _BEHIND.match(text, end)
        begin = end if behind is None else behind.end()
        if own and text[begin : begin + len(own)].casefold() == own.casefold():
            end = begin + len(own)
        found = _DENIED_LATER.match(text, end)
        if found is None:
            return False
        said = found[0].casefold()
        if any(option.casefold() in said for other, option in self.texts.items() if other != label and option):
            return False
        return not any(token[0] in self.labels.values() for token in self.token.finditer(found[0]))

    def _is_a_list(self, text: str) -> bool:
        """Whether a line of the text begins as the line of the second option does."""
        second = regex.escape(self.first_two[-1])
        # From the last of several line breaks: from each of them it would take the square of the time.
        return regex.search(rf"\n(?:[^\S\n]|[*#>\-])*+\(?{second}[.):]", text) is not None

    def among(self, text: str) -> frozenset[str]:
        """All labels that stand in the text."""
        found = set()
        for match in self.token.finditer(text):
            label = self.labels.get(match[0].casefold())
            if label is None or label in found:
                continue
            start, end = match.span()
            bracketed = (text[start - 1 : start], text[end : end + 1]) in _BRACKETS and not text[
                max(0, start - 2) : start - 1
            ].isalnum()
            if match[0] != label and not bracketed:
                continue
            if not bracketed and _can_be_a_word(label) and _A_WORD.match(text, end):
                continue
            if _DENIED_BEFORE.search(text[max(0, start - _NEAR) : start]) or self._is_denied(label, text, end):
                continue
            found.add(label)
        return frozenset(found)


def _can_be_a_word(label: str) -> bool:
    return label in ("A", "I", "a", "i") or label.isdigit()


@lru_cache(maxsize=32)
def _token(longest: int) -> regex.Pattern[str]:
    """A run of letters, or of digits, that stands as a word of its own and is not longer than the longest label."""
    return regex.compile(rf"{_LEFT}(?:[A-Za-z]{{1,{longest}}}+|[0-9]{{1,{longest}}}+){_RIGHT}")
