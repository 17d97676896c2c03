"""BLEU, chrF and TER by sacrebleu: numbers of one reply, and corpus metrics that are made of their sums.

All are on sacrebleu's scale, on which 100 is perfect (0 for TER). The samples' numbers together give exactly what
``sacrebleu.corpus_bleu``, ``corpus_chrf`` and ``corpus_ter`` give for their texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import regex

from pytest_llmeval.scoring.metrics.corpus_formula import CorpusFormula, Ingredients, Sums

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF


__all__ = [
    "CHRF_NAMES",
    "SMOOTHINGS",
    "TER_NEEDS",
    "bleu",
    "chrf_beta",
    "chrf_metric",
    "chrf_sums",
    "is_translation_ingredient",
    "sentence_bleu",
    "sentence_chrf",
    "smooth_value",
    "ter_of",
    "translation_formula",
]

SMOOTHINGS = ("exp", "floor", "add-k", "none")
"""sacrebleu's smoothing methods; a sample's ingredient ``bleu_smoothing`` is the index into these."""

CHRF_NAMES: Mapping[int, str] = MappingProxyType({0: "chrf", 1: "chrf_p", 2: "chrf_pp"})
"""Name of the corpus metric by the order of its word n-grams: chrF, chrF+, chrF++."""

_CHAR_ORDER = 6
_BLEU = regex.compile(r"bleu_([1-9]\d?)")
_BLEU_SMOOTHING = ("bleu_smoothing", "bleu_smooth_value")
TER_NEEDS = ("ter_edits", "ter_reference_length")
_INGREDIENT = regex.compile(
    r"bleu_(?:length|reference_length|smoothing|smooth_value|(?:matches|ngrams)_\d+)"
    r"|chrf(?:_p|_pp)?_(?:beta|(?:ngrams|reference_ngrams|matches)_\d+)"
    r"|ter_(?:edits|reference_length)"
)


def translation_formula(name: str) -> CorpusFormula | None:
    """Return the corpus formula of ``bleu_1``, ``bleu_2``, …, ``chrf``, ``chrf_p``, ``chrf_pp``, ``ter``; None for
    others.
    """
    if found := _BLEU.fullmatch(name):
        order = int(found[1])
        return _formula(_bleu_sums(order), _BLEU_SMOOTHING, partial(_bleu_of, order, effective_order=False))
    for word_order, own in CHRF_NAMES.items():
        if name == own:
            return _formula(chrf_sums(word_order), (chrf_beta(word_order),), partial(_chrf_of, word_order))
    return _formula(TER_NEEDS, (), ter_of) if name == "ter" else None


def _formula(summed: tuple[str, ...], same: tuple[str, ...], value: Callable[..., float]) -> CorpusFormula:
    """Return ``value`` of the sums of the ingredients ``summed``, and of those that are the ``same`` for all
    samples.
    """

    def sums(samples: Sequence[Ingredients]) -> Sums:
        constants = [samples[0][name] for name in same]
        rows = [[sample[name] for name in summed] for sample in samples]
        return Sums(rows, lambda total: value(total, *constants))

    return CorpusFormula((*summed, *same), sums)


def is_translation_ingredient(name: str) -> bool:
    """Return whether the name is one of the numbers that the corpus metrics here are made of."""
    return _INGREDIENT.fullmatch(name) is not None


@lru_cache(maxsize=8)  # a tokenizer's model is read once in a process
def bleu(order: int, tokenize: str, lowercase: bool) -> BLEU:
    """Return the BLEU from which counts are taken: without smoothing, which would change them."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(
        max_ngram_order=order, tokenize=tokenize, lowercase=lowercase, smooth_method="none", effective_order=True
    )


def sentence_bleu(counts: Ingredients, k: int) -> float:
    """Return BLEU of one reply with n-grams up to ``k``, as ``sacrebleu.sentence_bleu``: orders that it is too short
    for are left out (``effective_order``).
    """
    smoothing = (counts[name] for name in _BLEU_SMOOTHING)
    return _bleu_of(k, [counts[name] for name in _bleu_sums(k)], *smoothing, effective_order=True)


def _bleu_sums(k: int) -> tuple[str, ...]:
    orders = range(1, k + 1)
    return (
        "bleu_length",
        "bleu_reference_length",
        *(f"bleu_matches_{n}" for n in orders),
        *(f"bleu_ngrams_{n}" for n in orders),
    )


def _bleu_of(k: int, counts: Sequence[float], method: float, value: float, *, effective_order: bool) -> float:
    """Return BLEU of these sums; ``method`` and ``value`` are the ingredients ``_BLEU_SMOOTHING``."""
    from sacrebleu.metrics.bleu import BLEU

    smoothing = SMOOTHINGS[int(method)]

    # Whole numbers, but for samples that are means over epochs; sacrebleu shows the lengths as whole ones.
    length, reference_length, *ngrams = cast("list[int]", list(counts))
    found = BLEU.compute_bleu(
        correct=ngrams[:k],
        total=ngrams[k:],
        sys_len=round(length),
        ref_len=round(reference_length),
        smooth_method=smoothing,
        smooth_value=value if smoothing in ("floor", "add-k") else None,
        effective_order=effective_order,
        max_ngram_order=k,
    )
    return min(100.0, float(found.score))  # rounding alone can lift a perfect score above 100


def smooth_value(smoothing: str, value: float | None) -> float:
    """Return the value that sacrebleu takes where none is given; 0 stands for a method that takes none."""
    from sacrebleu.metrics.bleu import BLEU

    return value if value is not None else float(BLEU.SMOOTH_DEFAULTS[smoothing] or 0.0)


@lru_cache(maxsize=16)
def chrf_metric(word_order: int, beta: int, lowercase: bool = False, whitespace: bool = False) -> CHRF:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(char_order=_CHAR_ORDER, word_order=word_order, beta=beta, lowercase=lowercase, whitespace=whitespace)


def sentence_chrf(counts: Ingredients, word_order: int) -> float:
    """Return the chrF of one reply, as ``sacrebleu.sentence_chrf``."""
    return _chrf_of(word_order, [counts[name] for name in chrf_sums(word_order)], counts[chrf_beta(word_order)])


def chrf_sums(word_order: int) -> tuple[str, ...]:
    """Return the names of the sums in the order in which sacrebleu counts: characters' n-grams first."""
    own = CHRF_NAMES[word_order]
    return tuple(
        f"{own}_{what}_{n}"
        for n in range(1, _CHAR_ORDER + word_order + 1)
        for what in ("ngrams", "reference_ngrams", "matches")
    )


def chrf_beta(word_order: int) -> str:
    return f"{CHRF_NAMES[word_order]}_beta"


def _chrf_of(word_order: int, counts: Sequence[float], beta: float) -> float:
    found = chrf_metric(word_order, int(beta))._compute_score_from_stats(cast("list[int]", list(counts)))
    return min(100.0, float(found.score))


def ter_of(counts: Sequence[float]) -> float:
    """Return ``100 * edits / length``; where the length is 0, 100 for any edits and 0 for none, as sacrebleu has it."""
    edits, length = counts
    if length > 0:
        return 100 * (edits / length)
    return 100.0 if edits > 0 else 0.0
