"""The reply is one of the targets, after the same normalisations of both."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import regex

from pytest_llmeval.scoring.base import Presented, reply_request
from pytest_llmeval.scoring.responses import reply
from pytest_llmeval.scoring.targets import quote, several_or_one, target_texts
from pytest_llmeval.suites.schema import ExactSettings, GenerateSpec, Normalization
from pytest_llmeval.types import Prompt, Request, Response, Sample, Score

__all__ = ["ExactScorer", "normalized"]

_PUNCTUATION = regex.compile(rf"[\p{{P}}{regex.escape(string.punctuation)}]+")
_ARTICLES = regex.compile(r"\b(?:a|an|the)\b", regex.IGNORECASE)

_NORMALIZATIONS: Mapping[Normalization, Callable[[str], str]] = MappingProxyType(
    {
        "strip": str.strip,
        "lower": str.lower,
        "collapse_whitespace": lambda text: " ".join(text.split()),
        "no_punctuation": lambda text: _PUNCTUATION.sub("", text),
        "no_articles": lambda text: _ARTICLES.sub(" ", text),
        "unicode": lambda text: unicodedata.normalize("NFKC", text),
    }
)


def normalized(text: str, names: Sequence[Normalization]) -> str:
    """The text after the named normalisations, in their order.

    ``strip``: no white space at the ends. ``lower``: lower case. ``collapse_whitespace``: one space for each run of
    white space, none at the ends. ``no_punctuation``: without ASCII punctuation and Unicode's category P.
    ``no_articles``: a space for each of the words a, an, the, in any case. ``unicode``: NFKC. SQuAD's evaluation is
    lower, no_punctuation, no_articles, collapse_whitespace.
    """
    for name in names:
        text = _NORMALIZATIONS[name](text)
    return text


@dataclass(frozen=True, slots=True)
class ExactScorer:
    """Right if the normalised reply equals a normalised target."""

    settings: ExactSettings

    @property
    def name(self) -> str:
        return "exact"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer")

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """A target is a text or a list of texts: any is right.

        ``ValueError`` for another kind of target, and for one of which the normalisations leave nothing.
        """
        texts = target_texts(sample)
        references = tuple(normalized(text, self.settings.normalize) for text in texts)
        for text, reference in zip(texts, references, strict=True):
            if text and not reference:
                names = ", ".join(self.settings.normalize)
                raise ValueError(
                    f"nothing is left of target {quote(text)} after {names}: an empty reply would be right"
                )
        return Presented(sample=sample, references=references, target=several_or_one(texts))

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The first target, as given."""
        return target_texts(presented.sample)[0]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One reply, generated as the suite's ``generate`` says."""
        return (reply_request(prompt, generate),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy; a reply of which nothing is left is no answer, unless nothing is what was expected."""
        answer = normalized(reply(responses), self.settings.normalize)
        correct = answer in presented.references
        no_answer = not answer and not correct
        return Score(
            status="correct" if correct else "wrong",
            answer=None if no_answer else answer,
            no_answer=no_answer,
            values={"accuracy": float(correct)},
        )
