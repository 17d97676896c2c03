"""References in a script that a metric's tokenizer cannot cut into words: their numbers would silently be 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import regex

from pytest_llmeval.scoring.references import target_texts
from pytest_llmeval.types import Sample

__all__ = ["bleu_warning", "rouge_warning"]

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
