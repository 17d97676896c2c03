"""The reply is one of the targets, after the same normalisations of both."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import regex

from pytest_llmeval.scoring.base import Presented, SettingsError, SettingsScorer
from pytest_llmeval.scoring.scorers.replies.regular_expressions import PythonRegex
from pytest_llmeval.scoring.scorers.responses import reply
from pytest_llmeval.scoring.targets import quote, several_or_one, target_texts
from pytest_llmeval.suites.format.score_settings.replies import ExactSettings, Normalization, NormalizationStep, Remove
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["ExactScorer", "compile_steps", "normalized", "normalized_reply", "normalized_targets", "shown_steps"]

_PUNCTUATION = regex.compile(rf"[\p{{P}}{regex.escape(string.punctuation)}]+")
_ARTICLES = regex.compile(r"\b(?:a|an|the)\b", regex.IGNORECASE)
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
    """The text after the named normalisations, in their order.

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


def compile_steps(scorer: str, steps: Sequence[NormalizationStep]) -> tuple[Normalization | PythonRegex, ...]:
    """The steps of a scorer's ``normalize`` with their regular expressions made ready.

    ``SettingsError`` for one that cannot be used.
    """
    made: list[Normalization | PythonRegex] = []
    for place, step in enumerate(steps):
        try:
            made.append(PythonRegex.of(step.remove) if isinstance(step, Remove) else step)
        except ValueError as error:
            raise SettingsError(str(error), (scorer, "normalize", place, "remove")) from None
    return tuple(made)


def normalized_targets(texts: Sequence[str], steps: Sequence[Normalization | PythonRegex]) -> tuple[str, ...]:
    """Targets as replies are compared with them. ``ValueError`` where a regular expression takes too long."""
    try:
        return tuple(normalized(text, steps) for text in texts)
    except TimeoutError:
        raise ValueError("a regular expression of normalize took longer than 1 s in the target") from None


def normalized_reply(responses: Sequence[Response], steps: Sequence[Normalization | PythonRegex]) -> str | Score:
    """The reply after the steps; unscored where a regular expression takes too long, or too much memory."""
    try:
        return normalized(reply(responses), steps)
    except TimeoutError:
        return Score(status="unscored", reason="a regular expression of normalize took longer than 1 s")
    except MemoryError:
        return Score(status="unscored", reason="a regular expression of normalize took more memory than there is")


def shown_steps(steps: Sequence[Normalization | PythonRegex]) -> str:
    """The steps in a message."""
    return ", ".join(f"remove {quote(step.pattern)}" if isinstance(step, PythonRegex) else step for step in steps)


@dataclass(frozen=True, slots=True)
class ExactScorer(SettingsScorer[ExactSettings]):
    """Right if the normalised reply equals a normalised target. Made by ``of``, which checks the settings."""

    steps: tuple[Normalization | PythonRegex, ...] = field(repr=False)

    @classmethod
    def of(cls, settings: ExactSettings) -> ExactScorer:
        """``SettingsError`` for a regular expression that cannot be used."""
        return cls(settings, compile_steps(settings.kind, settings.normalize))

    def present(self, sample: Sample) -> Presented:
        """A target is a text or a list of texts: any is right.

        ``ValueError`` for another kind of target, and for one of which the normalisations leave nothing, unless that is
        allowed.
        """
        texts = target_texts(sample)
        references = normalized_targets(texts, self.steps)
        for text, reference in zip(texts, references, strict=True):
            if text and not reference and not self.settings.allow_empty:
                raise ValueError(
                    f"nothing is left of target {quote(text)} after {shown_steps(self.steps)}: an empty reply would be "
                    "right (score.exact.allow_empty)"
                )
        return Presented(sample=sample, references=references, target=several_or_one(texts))

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy; a reply of which nothing is left is no answer, unless nothing is what was expected."""
        answer = normalized_reply(responses, self.steps)
        if isinstance(answer, Score):
            return answer
        correct = answer in presented.references
        no_answer = not answer and not correct
        return Score(
            status="correct" if correct else "wrong",
            answer=None if no_answer else answer,
            no_answer=no_answer,
            values={"accuracy": float(correct)},
        )
