r"""Finds the answer that a reply states, as a person reads it: a label, a word, or what stands in ``\boxed{}``.

The first of four places that holds an answer decides:

1. the last ``\boxed{}``;
2. the sentence after the last mark, which is "answer is", "answer:" or ``####`` ("choice", "option" and "the correct
   one is" too, and what says the same in nine other languages, see ``wordings.py``);
3. the start of the reply;
4. anywhere after that mark, or in all of a reply without one, where it stands as a word of its own.

If a place holds several different answers, one that it says to be right counts, or one that it begins with and sets
apart; else the reply has none, since it is not clear which is meant. White space, quotes, brackets and Markdown around
an answer do not matter. A line that begins with ``Question:`` or ``Q:`` ends the reply: there a base model goes on with
a question of its own. Every search takes time in proportion to the text.

A label counts if it stands as a word of its own, in the case in which the options are labelled. In the other case it
counts too if that is clear: in brackets or quotes, or if nothing but a stop, a comma or a colon follows it at the
start. It does not count

- as a word or a number before a word: ``A dog``, ``I think``, ``2 days`` (but ``A is right``, and ``B countryside``);
- inside the text of an option: ``Vitamin C`` is an option's text, and no C;
- where it is denied, in one of the ten languages of ``wordings.py``: ``not B``, ``B is wrong``, ``B) Paris ist falsch``
  (but not by the option's own text, nor by what is said of another option);
- as a piece of something longer: ``U.S.``, ``R&B``, ``C++``, ``B-flat``, ``x = B``.

A reply that lists the options over again does not begin with its answer. One that begins with a label and names another
has an answer if it says of one that it is right, or sets the first one apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar

import regex

from pytest_llmeval.scorers.reading.wordings import (
    ASIDE,
    ASKED,
    CLOSING,
    JOINED,
    MARK,
    NAMED,
    REASONS,
    VERBS,
    affirmed,
    denied,
    denied_before,
    is_known,
    is_of_one,
)
from pytest_llmeval.text.escaping import plain_characters

__all__ = ["AROUND", "MAX_ANSWER", "LabelStyle", "last_box", "stated_answer", "stated_label"]

MAX_ANSWER = 10_000
"""Characters of an answer. What is longer is not one."""


# A run of backslashes is looked at from its start only: from each of its characters it would take quadratic time.
_BOX_OR_BRACE = re.compile(r"(?<!\\)\\+(?:boxed|fbox)(?![A-Za-z])[ \t]*|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"[^$\n]*")
_BETWEEN_BOXES = re.compile(
    r"\$?\s*(?:,|;|,?\s*and|,?\s*or|,?\s*\\text\s*\{\s*(?:and|or)\s*\}|,?\s*\\(?:quad|qquad))\s*(?:\\quad)?\s*\$?"
)
_MAX_BETWEEN = 40


def last_box(text: str) -> str | None:
    r"""Return what the last complete ``\boxed{}`` or ``\fbox{}`` holds; None where there is none."""
    boxes = sorted(_boxes(text))
    if not boxes:
        return None
    contents = [boxes[-1][1]]
    start = boxes[-1][0]
    for earlier_start, content, end in reversed(boxes[:-1]):
        if not (end <= start <= end + _MAX_BETWEEN and _BETWEEN_BOXES.fullmatch(text, end, start)):
            break
        contents.append(content)
        start = earlier_start
    return ", ".join(reversed(contents))


def _boxes(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the start, the content and the end of every complete box."""
    open_braces: list[tuple[int, int] | None] = []  # where a box and its content begin; None for any other brace
    box: tuple[int, int] | None = None
    for token in _BOX_OR_BRACE.finditer(text):
        if token[0].endswith("{"):
            if token[0] == "{":
                open_braces.append(box if box is not None and box[1] == token.end() else None)
        elif token[0] == "}":
            opened = open_braces.pop() if open_braces else None
            if opened is not None and token.start() - opened[1] <= MAX_ANSWER:
                yield opened[0], text[opened[1] : token.start()].strip(), token.end()
        elif token[0].lstrip("\\")[:4] in ("boxe", "fbox"):
            box = (token.start(), token.end() + 1)
            if not text.startswith("{", token.end()):
                bare = _BARE_BOX.match(text, token.end(), token.end() + MAX_ANSWER)
                content = "" if bare is None else re.split(r"\\[\])]", bare[0])[0].strip().rstrip(".,;")
                if content:
                    yield token.start(), content, token.end() + len(content)


T = TypeVar("T")
AROUND = r"[\s*_`~>#:\-\"'“”„‘’«»‹›「」『』()\[\]{}（）【】<$]"
"""Characters that can stand before an answer and are no part of it."""
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


LabelStyle: TypeAlias = Literal["upper", "lower", "digit"]


# Letters of scripts without case are not among them: nothing separates words there, as in 答案是B。
_LETTER = r"[\p{Lu}\p{Ll}\p{Lt}\p{M}\p{Nd}]"
_LEFT = rf"(?<!{_LETTER})(?<!{_LETTER}[_'’&/+.,:\-])(?<![\\$€£]|=\s?)"
_RIGHT = rf"(?!{_LETTER})(?!['’&/:,\-]{_LETTER})(?!\.{_LETTER}(?!\p{{Ll}}))(?![+#^%°]|\s?=)"
_COMMAND = r"\\[A-Za-z]+(?=\s*\{)"
_START = regex.compile(rf"(?:{AROUND}|{_COMMAND})*+{NAMED}(?:{AROUND}|{_COMMAND})*+")
_BRACKETS = frozenset((*zip("([{（【「『\"“'‘*`", ")]}）】」』\"”'’*`", strict=True),))
_BEHIND = regex.compile(r"[)\]\"'*_.:,\-–—\s(（）】」』、：]*+")
_A_WORD = regex.compile(rf"\s+(?!(?:{VERBS})\b)(?:\p{{Latin}}|\p{{M}}|\p{{Nd}})")
_A_NUMBERED_WORD = regex.compile(rf"\s+(?!(?:{VERBS})\b){_LETTER}")
_AND = regex.compile(JOINED)
_ASIDE = regex.compile(rf"{CLOSING}*+{ASIDE}", regex.IGNORECASE)
_APART = regex.compile(rf"{CLOSING}*+[.。]?{CLOSING}*+[^\S\n]*(?:\n|\Z)")
_GOES_ON = regex.compile(rf"{CLOSING}++|{CLOSING}*+\s?[.:,;–—\-。，、：；،]|\s*(?:{REASONS})")


def stated_label(text: str, labels: Sequence[str], options: Sequence[str] = ()) -> str | None:
    """Return the label, one of ``labels``, that a reply states; None where it states none, or several.

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
        """Return the text with a word in place of every option's text that holds what could be a label."""
        for option in options:
            bare = option.strip()
            if bare.strip("()[].:\"'").casefold() in self.labels or not self._labels_in(bare):
                continue
            text = regex.sub(rf"(?<!{_LETTER}){regex.escape(bare)}(?!{_LETTER})", "option-text", text, flags=regex.I)
        return text

    def _labels_in(self, text: str) -> bool:
        return any(match[0].casefold() in self.labels for match in self.token.finditer(text))

    def at_start(self, text: str) -> str | None:
        """Return the label that the text begins with, unless another one goes with it."""
        begin = _START.match(text)
        match = None if begin is None else self.token.match(text, begin.end())
        label = None if match is None else self.labels.get(match[0].casefold())
        if match is None or label is None or self._is_denied(label, text, match.end()):
            return None
        end = match.end()
        if _is_a_word(label, text, end) and (match[0] != label or _can_be_a_word(label)):
            return None
        other = self._joined(text, end)
        if text[end : end + 1] in ("?", "？") or (other is not None and not _is_a_word(other[0], text, other.end())):
            return None
        if label == self.first_two[0] and self._is_a_list(text):
            return None
        meant = self._found(text[self._behind_aside(label, text, end) :])
        if not meant.keys() - {label}:
            return label
        meant[label] = meant.get(label, False) or affirmed(text, match.start(), self._behind_own_text(label, text, end))
        marked = [name for name, is_marked in meant.items() if is_marked]
        if marked:
            return marked[0] if len(marked) == 1 else None
        return label if self._is_set_apart(label, text, end) else None

    def _joined(self, text: str, end: int) -> regex.Match[str] | None:
        """Return another label that goes with one that ends there: "A or B"."""
        more = _AND.match(text, end)
        other = None if more is None else self.token.match(text, more.end())
        return other if other is not None and other[0] in self.labels.values() else None

    def _behind_own_text(self, label: str, text: str, end: int) -> int:
        """Return where the text of the label's option ends if it stands behind the label; else ``end``."""
        own = self.texts.get(label, "").rstrip(".。")
        behind = _BEHIND.match(text, end)
        begin = end if behind is None else behind.end()
        return begin + len(own) if own and text[begin : begin + len(own)].casefold() == own.casefold() else end

    def _behind_aside(self, label: str, text: str, end: int) -> int:
        """Return where brackets end that stand behind the label or the text of its option; else ``end``."""
        aside = _ASIDE.match(text, self._behind_own_text(label, text, end)) or _ASIDE.match(text, end)
        return end if aside is None else aside.end()

    def _is_set_apart(self, label: str, text: str, end: int) -> bool:
        """Return whether a label at the start stands on a line of its own, alone or with its option's text.

        In a language that is known what it denies would be seen: there a stop, a comma or a reason is enough.
        """
        own_end = self._behind_own_text(label, text, end)
        if _APART.match(text, own_end):
            return True
        aside_end = self._behind_aside(label, text, end)
        goes_on = _GOES_ON.match(text, end) or _GOES_ON.match(text, own_end)
        if goes_on is None and self._joined(text, aside_end) is None:
            goes_on = _GOES_ON.match(text, aside_end)
        return goes_on is not None and is_known(self._without_texts(text[own_end:]))

    def _is_denied(self, label: str, text: str, end: int) -> bool:
        """Return whether what follows a label that ends there, or a list that it begins, says that it is wrong."""
        for name, its_end in self._listed(label, text, end):
            if self._is_said_to_be_wrong(name, text, its_end, alone=its_end == end):
                return True
            if text[its_end : its_end + 1] == ",":
                return False
        return False

    def _is_asked(self, label: str, text: str, end: int) -> bool:
        """Return whether a label that ends there, or a list that it begins, ends a question, as in "A? No, B"."""
        return any(
            ASKED.match(text, self._behind_own_text(name, text, its_end))
            for name, its_end in self._listed(label, text, end)
        )

    def _listed(self, label: str, text: str, end: int) -> Iterator[tuple[str, int]]:
        """Yield a label that ends there and those that are joined to it, each with where it ends."""
        yield label, end
        for _ in self.labels:
            other = self._joined(text, end)
            if other is None:
                return
            end = other.end()
            yield other[0], end

    def _is_said_to_be_wrong(self, label: str, text: str, end: int, *, alone: bool = True) -> bool:
        found = denied(text, end, self._behind_own_text(label, text, end))
        if found is None or (not alone and is_of_one(found)):
            return False
        said = found.casefold()
        if said.strip(" .:()") in self.texts.get(label, "").casefold():
            return False
        if any(option.casefold() in said for other, option in self.texts.items() if other != label and option):
            return False
        return not any(token[0] in self.labels.values() for token in self.token.finditer(found))

    def _is_a_list(self, text: str) -> bool:
        """Return whether a line of the text begins as the line of the second option does."""
        second = regex.escape(self.first_two[-1])
        # From the last of several line breaks: from each of them it would take the square of the time.
        return regex.search(rf"\n(?:[^\S\n]|[*#>\-])*+\(?{second}[.):]", text) is not None

    def among(self, text: str) -> frozenset[str]:
        """Return the labels that stand in the text, or the one of them that it says to be right."""
        found = self._found(text)
        marked = [label for label, is_marked in found.items() if is_marked]
        return frozenset(marked if len(marked) == 1 else found)

    def _found(self, text: str) -> dict[str, bool]:
        """Return the labels that stand in the text and are not denied, each with whether it is said to be right.

        What can be a word and stands before one is no label; beside another it may be, in a language that is not known.
        What is asked counts where nothing is stated.
        """
        found: dict[str, bool] = {}
        doubtful: set[str] = set()
        asked: dict[str, bool] = {}
        aside = 0
        for match in self.token.finditer(text):
            label = self.labels.get(match[0].casefold())
            if label is None or found.get(label) or match.start() < aside:
                continue
            start, end = match.span()
            bracketed = (text[start - 1 : start], text[end : end + 1]) in _BRACKETS and not text[
                max(0, start - 2) : start - 1
            ].isalnum()
            if match[0] != label and not bracketed:
                continue
            is_word = not bracketed and _can_be_a_word(label) and _is_a_word(label, text, end)
            if label not in found and denied_before(text, start):
                continue
            if label not in found and self._is_asked(label, text, end):
                asked[label] = False
            elif is_word and self._joined(text, end) is None:
                doubtful.add(label)
            elif label in found or not self._is_denied(label, text, end):
                found[label] = affirmed(text, start, self._behind_own_text(label, text, end))
                aside = self._behind_aside(label, text, end)
        if found and doubtful - found.keys() and not is_known(self._without_texts(text)):
            found.update(dict.fromkeys(doubtful - found.keys(), False))
        return found or asked

    def _without_texts(self, text: str) -> str:
        text = text.casefold()
        for option in self.texts.values():
            text = text.replace(option.casefold(), " ") if option else text
        return text


def _is_a_word(label: str, text: str, end: int) -> bool:
    """Return whether a word follows a label that ends there, of which it is the article or the number."""
    return (_A_NUMBERED_WORD if label.isdigit() else _A_WORD).match(text, end) is not None


def _can_be_a_word(label: str) -> bool:
    return label in ("A", "I", "a", "i") or label.isdigit()


@lru_cache(maxsize=32)
def _token(longest: int) -> regex.Pattern[str]:
    """Return a pattern of letters, or of digits, that stand as a word of their own and are no longer than the longest
    label.
    """
    return regex.compile(rf"{_LEFT}(?:[A-Za-z]{{1,{longest}}}+|[0-9]{{1,{longest}}}+){_RIGHT}")
