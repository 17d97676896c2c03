"""The group of a regular expression that is searched in the reply."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import regex
from pydantic import Field

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.references import quote, several_or_one, target_texts
from pytest_llmeval.scoring.regular_expressions import check_counts
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["PatternScorer", "PatternSettings", "compile_pattern"]


class PatternSettings(ScorerSettings):
    """The one group of a regular expression, searched in the reply, is one of the targets."""

    kind: Literal["pattern"] = "pattern"
    pattern: str = Field(description="A regular expression with one group.")
    ignore_case: bool = Field(False, description="Compare and search without regard to case.")
    match: Literal["first", "last"] = Field("first", description="Which match counts.")
    timeout_s: float = Field(1.0, gt=0, description="Seconds that the search in one reply may take.")

    def make(self) -> PatternScorer:
        return PatternScorer.of(self)


def compile_pattern(pattern: str, *, ignore_case: bool) -> regex.Pattern[str]:
    """Compile a pattern of the ``regex`` package with exactly one group. Raise ``ValueError``, which says what is
    wrong, and where.
    """
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
class PatternScorer(SettingsScorer[PatternSettings]):
    """A scorer that is right if what the pattern's group found equals a target. ``of`` makes it, and checks the
    pattern.
    """

    compiled: regex.Pattern[str] = field(compare=False, repr=False)

    @classmethod
    def of(cls, settings: PatternSettings) -> PatternScorer:
        """Raise ``ValueError`` for a pattern that cannot be used."""
        return cls(settings, compile_pattern(settings.pattern, ignore_case=settings.ignore_case))

    def present(self, sample: Sample) -> PreparedSample:
        """Read a target, which is a text or a list of texts: any is right. Raise ``ValueError`` for another kind of
        target.
        """
        texts = target_texts(sample)
        return PreparedSample(
            sample=sample, references=tuple(self._comparable(text) for text in texts), target=several_or_one(texts)
        )

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge accuracy; no match is no answer, and wrong. A search that outlives ``timeout_s`` is unscored."""
        text = reply(responses)
        try:
            found = self._find(text)
        except TimeoutError:
            limit = f"{self.settings.timeout_s:g} s"
            return Score(status="unscored", reason=f"the pattern took longer than {limit} (score.pattern.timeout_s)")
        except MemoryError:
            return Score(status="unscored", reason="the pattern took more memory than there is")
        vote = None if found is None else self._comparable(found)
        return right_or_wrong(vote in presented.references, found, vote=vote)

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
