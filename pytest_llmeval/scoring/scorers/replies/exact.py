"""The reply is one of the targets, or holds one or all of them, after the same normalisations of both."""

from __future__ import annotations

import string
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, TypeVar

import regex

from pytest_llmeval.scoring.base import Presented, SettingsError, SettingsScorer
from pytest_llmeval.scoring.scorers.replies.regular_expressions import PythonRegex
from pytest_llmeval.scoring.scorers.responses import reply, right_or_wrong
from pytest_llmeval.scoring.targets import quote, several_or_one, target_texts
from pytest_llmeval.suites.format.score_settings.replies import ContainsSettings, ExactSettings, Normalization, Remove
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["ContainsScorer", "ExactScorer", "normalized"]

N = TypeVar("N", ExactSettings, ContainsSettings)

_PUNCTUATION = regex.compile(rf"[\p{{P}}{regex.escape(string.punctuation)}]+")
_ARTICLES = regex.compile(r"\b(?:a|an|the)\b", regex.IGNORECASE)
_REMOVING: frozenset[Normalization] = frozenset(("no_punctuation", "no_ascii_punctuation", "no_articles", "no_digits"))
_NO_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NO_DIGITS = str.maketrans("", "", string.digits)

_NORMALIZATIONS: Mapping[Normalization, Callable[[str], str]] = MappingProxyType(
    {
        "strip": str.strip,
        "lower": str.lower,
        "collapse_whitespace": lambda text: " ".join(text.split()),
        "no_punctuation": lambda text: _PUNCTUATION.sub("", text),
        "no_ascii_punctuation": lambda text: text.translate(_NO_ASCII_PUNCTUATION),
        "no_articles": lambda text: _ARTICLES.sub(" ", text),
        "no_digits": lambda text: text.translate(_NO_DIGITS),
        "unicode": lambda text: unicodedata.normalize("NFKC", text),
    }
)


def normalized(text: str, steps: Sequence[Normalization | PythonRegex]) -> str:
    """Return the text after the named normalisations, in their order.

    ``strip``: no white space at the ends. ``lower``: lower case. ``collapse_whitespace``: one space for each run of
    white space, none at the ends. ``no_punctuation``: without ASCII punctuation and Unicode's category P;
    ``no_ascii_punctuation``: without the former alone. ``no_articles``: a space for each of the words a, an, the, in
    any case. ``no_digits``: without the digits 0 to 9. ``unicode``: NFKC. A regular expression: without what it
    matches. SQuAD's evaluation is lower, no_punctuation, no_articles, collapse_whitespace.

    lm-eval's exact_match is what its ``regexes_to_ignore`` remove, ``lower``, ``no_ascii_punctuation``, ``no_digits``,
    in this order, as many of them as requested. Raises ``TimeoutError`` for a regular expression that takes longer
    than a second.
    """
    for step in steps:
        text = step.removed(text) if isinstance(step, PythonRegex) else _NORMALIZATIONS[step](text)
    return text


def _shown_steps(steps: Sequence[Normalization | PythonRegex]) -> str:
    return ", ".join(f"remove {quote(step.pattern)}" if isinstance(step, PythonRegex) else step for step in steps)


@dataclass(frozen=True, slots=True)
class _NormalizingScorer(SettingsScorer[N]):
    """A scorer that compares reply and targets after the same normalisations of both. ``of`` makes it, and checks the
    settings.
    """

    steps: tuple[Normalization | PythonRegex, ...] = field(repr=False)

    @classmethod
    def of(cls, settings: N) -> Self:
        """Raise ``SettingsError`` for a regular expression that cannot be used."""
        made: list[Normalization | PythonRegex] = []
        for place, step in enumerate(settings.normalize):
            try:
                made.append(PythonRegex.of(step.remove) if isinstance(step, Remove) else step)
            except ValueError as error:
                raise SettingsError(str(error), (settings.kind, "normalize", place, "remove")) from None
        return cls(settings, tuple(made))

    @property
    def version(self) -> int:
        """Return 2, which compares a target as it is written where a named step would leave nothing of it."""
        return 2 if not _REMOVING.isdisjoint(self.settings.normalize) else 1

    def present(self, sample: Sample) -> Presented:
        """Read a target, which is a text or a list of texts.

        Raise ``ValueError`` for another kind of target, where a regular expression takes too long, and for a target
        that the normalisations leave empty and that cannot be compared then.
        """
        texts = target_texts(sample)
        try:
            references = tuple(normalized(text, self._steps_for(text)) for text in texts)
        except TimeoutError:
            raise ValueError("a regular expression of normalize took longer than 1 s in the target") from None
        for text, reference in zip(texts, references, strict=True):
            if not reference:
                self._check_empty(text)
        return Presented(sample=sample, references=references, target=several_or_one(texts))

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Judge accuracy. The sample is unscored where a regular expression takes too long, or too much memory."""
        text = reply(responses)
        try:
            bare = normalized(text, self.steps)
            pairs = [
                (bare if steps == self.steps else normalized(text, steps), reference)
                for steps, reference in zip(
                    map(self._steps_for, target_texts(presented.sample)), presented.references, strict=True
                )
            ]
        except TimeoutError:
            return Score(status="unscored", reason="a regular expression of normalize took longer than 1 s")
        except MemoryError:
            return Score(status="unscored", reason="a regular expression of normalize took more memory than there is")
        return self._judged(bare, pairs)

    def _steps_for(self, target: str) -> tuple[Normalization | PythonRegex, ...]:
        """Return the steps, without the named ones that would leave nothing of a target: where articles are removed,
        ``A`` is compared as it is written, or every article would be right.
        """
        kept: list[Normalization | PythonRegex] = []
        for step in self.steps:
            after = normalized(target, (step,))
            if after.strip() or not target.strip() or step not in _REMOVING:
                kept.append(step)
                target = after
        return tuple(kept)

    @abstractmethod
    def _check_empty(self, target: str) -> None:
        """Raise ``ValueError`` where a target that is empty after the normalisations cannot be compared."""

    @abstractmethod
    def _judged(self, bare: str, pairs: Sequence[tuple[str, str]]) -> Score:
        """Return the score of a normalised reply. ``pairs`` are the reply and each reference, normalised alike."""


class ExactScorer(_NormalizingScorer[ExactSettings]):
    """A scorer that is right if the normalised reply equals a normalised target."""

    @property
    def version(self) -> int:
        return 1 if self.settings.allow_empty else super().version

    def _steps_for(self, target: str) -> tuple[Normalization | PythonRegex, ...]:
        return self.steps if self.settings.allow_empty else super()._steps_for(target)

    def _check_empty(self, target: str) -> None:
        if target and not self.settings.allow_empty:
            raise ValueError(
                f"nothing is left of target {quote(target)} after {_shown_steps(self.steps)}: an empty reply would be "
                "right (score.exact.allow_empty)"
            )

    def _judged(self, bare: str, pairs: Sequence[tuple[str, str]]) -> Score:
        """Judge a reply; one that is empty after the normalisations is no answer, unless it is right."""
        right = [text for text, reference in pairs if text == reference]
        return right_or_wrong(bool(right), right[0] if right else bare or None)


class ContainsScorer(_NormalizingScorer[ContainsSettings]):
    """A scorer that is right if the normalised reply holds a normalised target, or all of them."""

    def _check_empty(self, target: str) -> None:
        after = f" after {_shown_steps(self.steps)}" if target else ""
        raise ValueError(f"nothing is left of target {quote(target)}{after}: every reply would contain it")

    def _judged(self, bare: str, pairs: Sequence[tuple[str, str]]) -> Score:
        """Judge a reply; an empty one is no answer. The answer is what it holds of the targets, else all of it."""
        found = [reference for text, reference in pairs if reference in text]
        correct = len(found) == len(pairs) if self.settings.match == "all" else bool(found)
        return right_or_wrong(correct, ", ".join(found) or bare or None, details={"found": [*found]})
