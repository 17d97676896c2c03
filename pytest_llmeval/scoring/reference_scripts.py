"""References in a script that a metric's tokenizer cannot cut into words: their numbers would be 0, and nobody told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import regex

from pytest_llmeval.scoring.evaluation import Evaluation
from pytest_llmeval.scoring.scorers.targets import target_texts
from pytest_llmeval.suites.format.score_settings import SeveralSettings
from pytest_llmeval.suites.format.score_settings.texts import BleuSettings, RougeSettings
from pytest_llmeval.suites.format.spec import Spec
from pytest_llmeval.text.wording import Keys

__all__ = ["script_warnings"]

_BY_SPACES = ("13a", "intl")
_NO_SPACES = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN = regex.compile(r"\p{Han}")
_LETTER = regex.compile(r"\p{L}")
_ASCII = regex.compile(r"[A-Za-z0-9]")
_LETTERS_PER_WORD = 4
"""More than this between two spaces is no word: Chinese that was cut into words before has about two."""


def script_warnings(evaluation: Evaluation) -> list[str]:
    """One line for each scorer of the suite that finds no words in most of its references, with the way out."""
    suite = evaluation.suite
    found = []
    for settings, keys in _scorers(suite.spec.score):
        if not isinstance(settings, BleuSettings | RougeSettings):
            continue
        references = [target_texts(sample)[0] for sample in suite.samples]
        message = _bleu(settings, references) if isinstance(settings, BleuSettings) else _rouge(references)
        if message is not None:
            found.append(str(suite.error(message, keys=keys)))
    return found


def _scorers(settings: Spec) -> Iterator[tuple[Spec, Keys]]:
    if isinstance(settings, SeveralSettings):
        for name, part in settings.scorers.items():
            yield part.score, ("score", "several", "scorers", name, "score")
    else:
        yield settings, ("score",)


def _bleu(settings: BleuSettings, references: list[str]) -> str | None:
    if settings.tokenize not in _BY_SPACES or not _most(references, _is_without_spaces):
        return None
    whole = "".join(references)
    if _KANA.search(whole):
        script, right = "Japanese", "score.bleu.tokenize: ja-mecab (pip install 'sacrebleu[ja]'), or char"
    elif _HAN.search(whole):
        script, right = "Chinese", "score.bleu.tokenize: zh"
    else:
        script, right = "a script that puts no spaces between words", "score.bleu.tokenize: char"
    return (
        f"references are in {script}, and tokenize {settings.tokenize} cuts words at spaces: BLEU will be near 0 "
        f"whatever the replies; set {right}"
    )


def _rouge(references: list[str]) -> str | None:
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
