"""The one group of a regular expression, searched in the reply, is one of the targets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import regex

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.scorers.reply_scorer import ReplyScorer
from pytest_llmeval.scoring.scorers.responses import reply
from pytest_llmeval.scoring.scorers.targets import quote, several_or_one, target_texts
from pytest_llmeval.suites.format.schema import PatternSettings
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["PatternScorer", "check_counts", "compile_pattern"]

_MAX_UNROLLED = 100_000
_COUNT = regex.compile(r"\{([0-9]+)(?:,[0-9]*)?\}")


def check_counts(pattern: str) -> None:
    """``ValueError`` for a pattern that the compiler of ``regex`` would write out without end."""
    # The compiler writes counted repeats out: ((a{999}){999}){999} would take all memory before any time limit.
    if _unrolled_size(pattern) > _MAX_UNROLLED:
        raise ValueError(f"pattern {quote(pattern)} repeats more than {_MAX_UNROLLED} things by its counts in braces")


def compile_pattern(pattern: str, *, ignore_case: bool) -> regex.Pattern[str]:
    """A pattern of the ``regex`` package with exactly one group. ``ValueError`` says what is wrong, and where."""
    check_counts(pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, ValueError) as error:
        raise ValueError(f"pattern {quote(pattern)} is not a regular expression: {error}") from None
    except (RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"pattern {quote(pattern)} is too large to compile ({type(error).__name__})") from None
    if compiled.groups != 1:
        raise ValueError(
            f"pattern {quote(pattern)} has {compiled.groups} groups; expected exactly one, around the answer "
            "(write other brackets as (?:…))"
        )
    return compiled


@dataclass(frozen=True, slots=True)
class PatternScorer(ReplyScorer):
    """Right if what the pattern's group found equals a target. Made by ``of``, which checks the pattern."""

    settings: PatternSettings
    compiled: regex.Pattern[str] = field(compare=False, repr=False)

    @classmethod
    def of(cls, settings: PatternSettings) -> PatternScorer:
        """``ValueError`` for a pattern that cannot be used."""
        return cls(settings, compile_pattern(settings.pattern, ignore_case=settings.ignore_case))

    @property
    def name(self) -> str:
        return "pattern"

    def present(self, sample: Sample) -> Presented:
        """A target is a text or a list of texts: any is right. ``ValueError`` for another kind of target."""
        texts = target_texts(sample)
        return Presented(
            sample=sample, references=tuple(self._comparable(text) for text in texts), target=several_or_one(texts)
        )

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy; no match is no answer, and wrong. A search that outlives ``timeout_s`` is unscored."""
        text = reply(responses)
        try:
            found = self._find(text)
        except TimeoutError:
            limit = f"{self.settings.timeout_s:g} s"
            return Score(status="unscored", reason=f"the pattern took longer than {limit} (score.pattern.timeout_s)")
        except MemoryError:
            return Score(status="unscored", reason="the pattern took more memory than there is")
        correct = found is not None and self._comparable(found) in presented.references
        return Score(
            status="correct" if correct else "wrong",
            answer=found,
            no_answer=found is None,
            values={"accuracy": float(correct)},
            vote=None if found is None else self._comparable(found),
        )

    def _find(self, text: str) -> str | None:
        timeout_s = self.settings.timeout_s
        if self.settings.match == "first":
            match = self.compiled.search(text, timeout=timeout_s)
        else:
            match = None
            # The limit holds for the whole iteration, not for each match.
            for match in self.compiled.finditer(text, timeout=timeout_s):  # noqa: B007 - the last match is wanted
                pass
        group: str | None = None if match is None else match[1]
        return None if group is None else group.strip()

    def _comparable(self, text: str) -> str:
        return text.strip().casefold() if self.settings.ignore_case else text.strip()


def _unrolled_size(pattern: str) -> int:
    """About how many things a pattern matches once its counted repeats are written out."""
    sizes, last, position = [0], 0, 0
    while position < len(pattern):
        character = pattern[position]
        count = _COUNT.match(pattern, position)
        if count is not None:
            times = int(count[1]) if len(count[1]) < 10 else _MAX_UNROLLED + 1
            sizes[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
            position = count.end()
            continue
        if character == "(":
            sizes.append(0)
            last = 0
        elif character == ")" and len(sizes) > 1:
            last = max(sizes.pop(), 1)
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
            position = _end_of_atom(pattern, position) - 1
        position += 1
    return sum(sizes)


def _end_of_atom(pattern: str, position: int) -> int:
    """Where an escaped character, a character class, or a plain character ends."""
    if pattern[position] == "\\":
        return position + 2
    if pattern[position] == "[":
        position += 2 if pattern.startswith("[^", position) else 1
        while position + 1 < len(pattern):
            position += 2 if pattern[position] == "\\" else 1
            if pattern[position : position + 1] == "]":
                break
    return position + 1
