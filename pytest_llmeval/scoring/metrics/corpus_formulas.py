"""Corpus metrics: numbers that are computed from all samples at once, and are no mean over them.

Three kinds of formulas stand here. Classification: a sample's ingredients are ``gold`` and ``predicted``, two class
numbers, and samples without both are left out. The agreement of a judge's verdicts in two orders (``order_kappa``), of
``first_order`` and ``second_order``. And BLEU, chrF and TER: all are on sacrebleu's scale, on which 100 is perfect (0
for TER), and the samples' numbers together give exactly what ``sacrebleu.corpus_bleu``, ``corpus_chrf`` and
``corpus_ter`` give for their texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

import regex

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

__all__ = [
    "CHRF_NAMES",
    "CLASSIFICATION",
    "SMOOTHINGS",
    "TER_NEEDS",
    "CorpusFormula",
    "FormulaEstimate",
    "Ingredients",
    "Sums",
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

Ingredients: TypeAlias = Mapping[str, float]
"""A sample's numbers that a corpus metric is made of, by their names in ``Score.values``."""


@dataclass(frozen=True, slots=True)
class FormulaEstimate:
    """A number over samples, its standard error and its 95% interval.

    ``value`` is None where the formula gives none (nothing to divide by, too large for a float); so are the others.
    """

    value: float | None
    stderr: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """A corpus metric as a function of sums: ``rows`` holds one row of numbers for each sample, all of one length.

    ``value`` gives the metric for the sums of the rows' columns, over any selection of the samples and with samples
    taken more than once; None where there is none.
    """

    rows: Sequence[Sequence[float]]
    value: Callable[[Sequence[float]], float | None]


@dataclass(frozen=True, slots=True)
class CorpusFormula:
    """A metric over samples whose values hold all of ``needs``, made of sums over them: ``sums`` says which.

    ``may_have`` are further ingredients, which some of the samples hold and others do not. ``estimate`` gives the
    standard error and the interval of independent samples where there is a better one than a bootstrap's; its value is
    that of ``compute``.

    ``no_interval`` says why the metric has neither standard error nor interval, as one has that chance can only make
    larger: a bootstrap sample adds its own noise to that of the samples, and percentiles can lie wholly above the
    metric, and both above the truth.

    ``of_columns`` gives what ``compute`` does, to the last digit, from the samples' numbers by the names of ``needs``:
    a column each, in the order of the samples. It is for a formula that needs no table of rows for its value.
    """

    needs: tuple[str, ...]
    sums: Callable[[Sequence[Ingredients]], Sums]
    no_interval: str | None = None
    may_have: tuple[str, ...] = ()
    of_columns: Callable[[Mapping[str, Sequence[float]]], float | None] | None = None
    estimate: Callable[[Sequence[Ingredients]], FormulaEstimate] | None = None

    def compute(self, samples: Sequence[Ingredients]) -> float | None:
        """Return the metric from exact sums, None where there is none (no samples, one class only, nothing to divide
        by).

        The order of the samples makes no difference.
        """
        if not samples:
            return None
        if self.of_columns is not None:
            return self.of_columns({need: [sample[need] for sample in samples] for need in self.needs})
        found = self.sums(samples)
        return found.value([math.fsum(column) for column in zip(*found.rows, strict=True)])


_NEEDS = ("gold", "predicted")
_ORDERS = ("first_order", "second_order")


def _per_class(samples: Sequence[Ingredients], needs: tuple[str, str] = _NEEDS) -> list[list[float]]:
    """Return for each sample and class three numbers: answered and right, right, answered; each 1 or 0."""
    classes = sorted({sample[need] for sample in samples for need in needs})
    place = {label: index for index, label in enumerate(classes)}
    rows = []
    for sample in samples:
        row = [0.0] * (3 * len(classes))
        gold, predicted = (place[sample[need]] for need in needs)
        row[3 * gold] = float(gold == predicted)
        row[3 * gold + 1] = row[3 * predicted + 2] = 1.0
        rows.append(row)
    return rows


def _matthews(samples: Sequence[Ingredients]) -> Sums:
    """Return Matthews' correlation of any number of classes (J. Gorodkin, 2004,
    doi:10.1016/j.compbiolchem.2004.09.006).

    0 where all answers, or all right ones, are of one class, as scikit-learn's ``matthews_corrcoef`` has it, which is
    lm-eval's ``mcc``.
    """

    def value(total: Sequence[float]) -> float:
        hits, gold, predicted = total[0::3], total[1::3], total[2::3]
        n = math.fsum(gold)
        covariance = math.fsum(hits) * n - math.fsum(map(float.__mul__, gold, predicted))
        of_gold = n * n - math.fsum(count * count for count in gold)
        of_predicted = n * n - math.fsum(count * count for count in predicted)
        # The square root of each: their product can be too large to be exact.
        scale = math.sqrt(of_gold) * math.sqrt(of_predicted)
        return covariance / scale if scale else 0.0

    return Sums(_per_class(samples), value)


def _binary(samples: Sequence[Ingredients]) -> Sums:
    """Return ``2 tp / (2 tp + fp + fn)`` of class 1, as scikit-learn's ``f1_score`` by default, which is lm-eval's
    ``f1``.

    0 where class 1 is neither right nor answered; None where there is a class other than 0 and 1.
    """
    rows = [
        [
            float(sample["gold"] == sample["predicted"] == 1),
            float(sample["gold"] == 1) + float(sample["predicted"] == 1),
            float(not {sample["gold"], sample["predicted"]} <= {0.0, 1.0}),
        ]
        for sample in samples
    ]
    has_others = any(row[2] for row in rows)

    def value(total: Sequence[float]) -> float | None:
        if has_others:
            return None
        return 2 * total[0] / total[1] if total[1] else 0.0

    return Sums(rows, value)


def _macro(samples: Sequence[Ingredients]) -> Sums:
    """Return the mean of F1 over the classes that are right or answered somewhere; scikit-learn's
    ``average="macro"``.
    """

    def value(total: Sequence[float]) -> float:
        found = [
            2 * hits / (gold + predicted)
            for hits, gold, predicted in zip(total[0::3], total[1::3], total[2::3], strict=True)
            if gold + predicted
        ]
        return math.fsum(found) / len(found)

    return Sums(_per_class(samples), value)


def _weighted(samples: Sequence[Ingredients]) -> Sums:
    """Return the mean of F1 over the classes, each as often as it is right; scikit-learn's ``average="weighted"``."""

    def value(total: Sequence[float]) -> float:
        counts = list(zip(total[0::3], total[1::3], total[2::3], strict=True))
        found = [2 * hits / (gold + predicted) * gold for hits, gold, predicted in counts if gold]
        return math.fsum(found) / math.fsum(gold for _, gold, _ in counts)

    return Sums(_per_class(samples), value)


def _micro(samples: Sequence[Ingredients]) -> Sums:
    """Return F1 from all classes' counts together, scikit-learn's ``average="micro"``: the share of right answers."""
    rows = [[float(sample["gold"] == sample["predicted"]), 1.0] for sample in samples]
    return Sums(rows, lambda total: total[0] / total[1])


def _kappa_of_orders(samples: Sequence[Ingredients]) -> Sums:
    """Return Cohen's kappa of the verdicts in the two orders of a pair (J. Cohen, 1960,
    doi:10.1177/001316446002000104).

    None where all verdicts of both orders are the same one.
    """

    def value(total: Sequence[float]) -> float | None:
        same, first, second = total[0::3], total[1::3], total[2::3]
        n = math.fsum(first)
        by_chance = math.fsum(map(float.__mul__, first, second)) / (n * n)
        return None if by_chance == 1.0 else (math.fsum(same) / n - by_chance) / (1.0 - by_chance)

    return Sums(_per_class(samples, _ORDERS), value)


CLASSIFICATION: Mapping[str, CorpusFormula] = MappingProxyType(
    {
        "mcc": CorpusFormula(_NEEDS, _matthews),
        "f1_binary": CorpusFormula(_NEEDS, _binary),
        "f1_macro": CorpusFormula(_NEEDS, _macro),
        "f1_micro": CorpusFormula(_NEEDS, _micro),
        "f1_weighted": CorpusFormula(_NEEDS, _weighted),
        "order_kappa": CorpusFormula(_ORDERS, _kappa_of_orders),
    }
)
"""Corpus metrics of classification by name. ``mcc`` and ``f1_binary`` are lm-eval 0.4.13's aggregations
``matthews_corrcoef`` and ``f1``."""
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
