"""Scorers that compare a reply with reference texts by a library, and their settings.

References in a script that a metric's tokenizer cannot cut into words are refused: their numbers would silently be 0.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import regex
from pydantic import Field

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.bounded_process import BoundedProcess, Bounds, ProcessError
from pytest_llmeval.scoring.references import target_texts
from pytest_llmeval.scoring.responses import reply, said_to_be_cut
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["LibraryScorer", "ReferenceSettings", "TooLongError", "bleu_warning", "rouge_warning", "values_in_time"]

_BY_SPACES = ("13a", "intl")
_NO_SPACES = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN = regex.compile(r"\p{Han}")
_LETTER = regex.compile(r"\p{L}")
_ASCII = regex.compile(r"[A-Za-z0-9]")
_LETTERS_PER_WORD = 4
"""More than this between two spaces is no word: Chinese that was cut into words before has about two."""


def bleu_warning(tokenize: str, samples: Sequence[Sample]) -> str | None:
    """Return why BLEU with this tokenizer of sacrebleu would be near 0 for some references, and the way out; None for
    none.
    """
    references = [target_texts(sample)[0] for sample in samples]
    own = [text for text in references if _is_without_spaces(text)] if tokenize in _BY_SPACES else []
    if not own:
        return None
    whole = "".join(own)
    if _KANA.search(whole):
        script, right = "Japanese", "score.bleu.tokenize: ja-mecab (pip install 'sacrebleu[ja]'), or char"
    elif _HAN.search(whole):
        script, right = "Chinese", "score.bleu.tokenize: zh"
    else:
        script, right = "a script that puts no spaces between words", "score.bleu.tokenize: char"
    return (
        f"{_counted(len(own), len(references))} in {script}, and tokenize {tokenize} cuts words at spaces: their BLEU "
        f"will be near 0 whatever the replies; set {right}"
    )


def _counted(number: int, count: int) -> str:
    if number == count:
        return "references are"
    return f"{number:,} of {count:,} references {'is' if number == 1 else 'are'}"


def rouge_warning(samples: Sequence[Sample]) -> str | None:
    """Return why ROUGE would be near 0, with the way out; None where it would not."""
    references = [target_texts(sample)[0] for sample in samples]
    if not _most(references, lambda text: len(_ASCII.findall(text)) < len(_LETTER.findall(text)) / 2):
        return None
    return (
        "references are not in Latin letters, and ROUGE's words are runs of ASCII letters and digits: it will be near "
        "0 whatever the replies; use score: chrf, which compares characters"
    )


def _is_without_spaces(text: str) -> bool:
    num_own = len(_NO_SPACES.findall(text))
    num_words = sum(1 for word in text.split() if _NO_SPACES.search(word))
    return num_own > len(_LETTER.findall(text)) / 2 and num_own > _LETTERS_PER_WORD * num_words


def _most(references: list[str], has: Callable[[str], bool]) -> bool:
    return 2 * sum(map(has, references)) > len(references)


class ReferenceSettings(ScorerSettings):
    """Settings of scorers that compare a reply with reference texts by a library."""

    kind: str
    max_reply_chars: int = Field(
        100_000,
        ge=1,
        description="Only the first this many characters of a reply are judged; the record says if it was longer.",
    )
    timeout_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds of processor time that one comparison may take; a sample that needs more is unscored.",
    )


R = TypeVar("R", bound=ReferenceSettings)
_SHORT = 2_000
"""Characters of a reply and its references that are compared here: no metric takes more than seconds for them."""


class TooLongError(ValueError):
    """A text that a metric would take minutes or hours for."""

    @classmethod
    def check(cls, metric: str, text: str, references: Sequence[str], count: Callable[[str], int], limit: int) -> None:
        """Raise it where a reply's words times a reference's are more than ``limit``; ``count`` counts words."""
        num_words = count(text)
        num_expected = max(map(count, references), default=0)
        if num_words * num_expected > limit:
            raise cls(
                f"the reply has {num_words:,} words and a reference {num_expected:,}: {metric} is computed where their "
                f"product is at most {limit:,}"
            )


class LibraryScorer(SettingsScorer[R]):
    """A scorer that gives a reply numbers by its references through a library, with no right or wrong.

    An empty reply has the numbers that its metrics give to no words, which is 0 for most, and is counted as no answer.
    Of a reply longer than the suite's ``max_reply_chars`` the beginning is judged, and details say so. Long texts are
    compared in a process that is ended after the suite's ``timeout_s``: the sample is unscored then.
    """

    library: ClassVar[tuple[str, str]] = ("sacrebleu", "sacrebleu")
    """The module that it needs, and the package of the extra ``metrics`` that brings it."""

    @classmethod
    def of(cls, settings: R) -> Self:
        """Raise ``ValueError`` where the library is not installed."""
        module, package = cls.library
        if find_spec(module) is None:
            raise ValueError(
                f"{settings.kind} needs {package}, which is not installed; pip install 'pytest-llmeval-suites[metrics]'"
            )
        return cls(settings)

    @abstractmethod
    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """Return the sample's numbers by name: metrics, and parts of corpus metrics. May raise ``TooLongError``."""

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Return the reply's numbers; the reply itself, without white space at its ends, is the answer."""
        whole = reply(responses)
        text = whole[: self.settings.max_reply_chars]
        details = said_to_be_cut(whole, self.settings.max_reply_chars)
        num_chars = len(text) + sum(map(len, presented.references))
        try:
            if num_chars <= _SHORT:
                values = self.values(text, presented.references)
            else:
                values = values_in_time(self.settings, text, presented.references)
        except (TooLongError, ProcessError) as error:
            return Score(status="unscored", reason=str(error), details=details)
        return Score(
            status="scored",
            answer=text.strip() or None,
            no_answer=not text.strip(),
            values=values,
            details=details,
        )


def values_in_time(settings: ReferenceSettings, text: str, references: Sequence[str]) -> Mapping[str, float]:
    """Return the numbers that the scorer with these settings gives a text.

    Raise ``ProcessError`` where that took longer than ``settings.timeout_s``; raise ``TooLongError`` where the scorer
    refused.
    """
    written = [settings.kind, settings.model_dump(mode="json", exclude={"kind"})]
    arguments = {"settings": written, "text": text, "references": list(references), "data_folders": _data_folders()}
    bounds = Bounds(settings.timeout_s, None, f"score.{settings.kind}")
    answer = _shared_process().compute("values", arguments, bounds)
    if "too_long" in answer:
        raise TooLongError(answer["too_long"])
    values: dict[str, float] = answer["values"]
    return values


def _data_folders() -> list[str]:
    """Return where nltk looks for its data, to which a conftest.py may have added a folder; empty if it was not
    imported.
    """
    module = sys.modules.get("nltk.data")
    return [] if module is None else [os.path.abspath(str(folder)) for folder in module.path if folder]


@cache
def _shared_process() -> BoundedProcess:
    """Return the comparing process of this process, as for mathematics: it holds no result."""
    return BoundedProcess(lambda: str(Path(__file__).with_name("text_worker.py")), "compares texts")
