"""The reply is one of the targets, after the same normalisations of both."""

from __future__ import annotations

import string
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias, get_args

import regex
from pydantic import BeforeValidator, Field

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse_here
from pytest_llmeval.scoring.base import PreparedSample, S, ScorerSettings, SettingsError, SettingsScorer
from pytest_llmeval.scoring.references import quote, several_or_one, target_texts
from pytest_llmeval.scoring.regular_expressions import PythonRegex
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.text.wording import describe, nearest, quoted
from pytest_llmeval.types import Response, Sample, Score

__all__ = [
    *("ExactScorer", "ExactSettings", "Normalization", "Normalizations", "NormalizingScorer"),
    *("Remove", "checked_steps", "normalized", "shown_steps"),
]

Normalization: TypeAlias = Literal[
    "strip",
    "lower",
    "collapse_whitespace",
    "no_punctuation",
    "no_ascii_punctuation",
    "no_articles",
    "no_digits",
    "unicode",
]


class Remove(Spec):
    """Remove what a regular expression matches."""

    remove: str = Field(description="A regular expression in Python's syntax.")


def _step(value: object) -> object:
    """Return a name, or ``{remove: …}``. pydantic's own words on a union name each of its parts."""
    names = get_args(Normalization)
    if isinstance(value, Remove) or value in names:
        return value
    if isinstance(value, dict) and list(value) == ["remove"]:
        pattern = value["remove"]
        if not isinstance(pattern, str):
            raise refuse_here(f"found {describe(pattern)}, expected a regular expression in quotes", "remove")
        return Remove(remove=pattern)
    near = nearest(value, names) if isinstance(value, str) else None
    advice = f"; did you mean {quoted(near)}?" if near else ""
    raise expected_here(f"one of {', '.join(names)}, or {{remove: a regular expression}}{advice}")


NormalizationStep: TypeAlias = Annotated[Normalization | Remove, BeforeValidator(_step)]
Normalizations: TypeAlias = Annotated[tuple[NormalizationStep, ...], FROM_LIST]


class ExactSettings(ScorerSettings):
    """The reply is one of the targets, after the same normalisations of both."""

    kind: Literal["exact"] = "exact"
    normalize: Normalizations = Field(
        ("strip",),
        description="Steps applied to the reply and to the targets, in this order, before they are compared.",
    )
    allow_empty: bool = Field(
        False,
        description="Accept a target that is empty after normalisation, as lm-eval's exact_match does; a reply that is "
        "empty after normalisation is then right.",
    )

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Return the key of a setting that the suite does without."""
        return () if self.allow_empty else ("allow_empty",)

    def make(self) -> ExactScorer:
        return ExactScorer(self, checked_steps(self.kind, self.normalize))


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


def shown_steps(steps: Sequence[Normalization | PythonRegex]) -> str:
    return ", ".join(f"remove {quote(step.pattern)}" if isinstance(step, PythonRegex) else step for step in steps)


def checked_steps(kind: str, steps: Sequence[Normalization | Remove]) -> tuple[Normalization | PythonRegex, ...]:
    """Return the steps of the scorer ``kind``. Raise ``SettingsError`` for a regular expression that cannot be used."""
    made: list[Normalization | PythonRegex] = []
    for place, step in enumerate(steps):
        try:
            made.append(PythonRegex.of(step.remove) if isinstance(step, Remove) else step)
        except ValueError as error:
            raise SettingsError(str(error), (kind, "normalize", place, "remove")) from None
    return tuple(made)


@dataclass(frozen=True, slots=True)
class NormalizingScorer(SettingsScorer[S]):
    """A scorer that compares reply and targets after the same normalisations of both. ``of`` makes it, and checks the
    settings.
    """

    steps: tuple[Normalization | PythonRegex, ...] = field(repr=False)

    @property
    def version(self) -> int:
        """Return 2, which compares a target as it is written where a named step would leave nothing of it."""
        return 2 if not _REMOVING.isdisjoint(self.steps) else 1

    def present(self, sample: Sample) -> PreparedSample:
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
        return PreparedSample(sample=sample, references=references, target=several_or_one(texts))

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
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


class ExactScorer(NormalizingScorer[ExactSettings]):
    """A scorer that is right if the normalised reply equals a normalised target."""

    @property
    def version(self) -> int:
        return 1 if self.settings.allow_empty else super().version

    def _steps_for(self, target: str) -> tuple[Normalization | PythonRegex, ...]:
        return self.steps if self.settings.allow_empty else super()._steps_for(target)

    def _check_empty(self, target: str) -> None:
        if target and not self.settings.allow_empty:
            raise ValueError(
                f"nothing is left of target {quote(target)} after {shown_steps(self.steps)}: an empty reply would be "
                "right (score.exact.allow_empty)"
            )

    def _judged(self, bare: str, pairs: Sequence[tuple[str, str]]) -> Score:
        """Judge a reply; one that is empty after the normalisations is no answer, unless it is right."""
        right = [text for text, reference in pairs if text == reference]
        return right_or_wrong(bool(right), right[0] if right else bare or None)
