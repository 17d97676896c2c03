"""The meaning of the names of metrics, and their forms: BLEU of two tokenizers is two metrics of one name.

A metric says how an answer compares with the right one, and how that is made one number. How the answer was found (a
prompt, filters, the normalisation of log-likelihoods) is no part of it: accuracy is accuracy in all suites.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

import regex

from pytest_llmeval.types import JSON

__all__ = [
    "METRICS",
    "NOT_MEASURABLE",
    "WILDCARD",
    "Kind",
    "MetricDefinition",
    "definition",
    "is_known",
    "metric_form",
    "metric_limits",
    "named_metrics",
    "shown_order",
    "split_name",
]

Kind: TypeAlias = Literal["proportion", "mean", "count", "pooled", "corpus"]
"""``proportion``: a mean of values that are all 0 or 1; where one is neither it is a ``mean``. ``count``: a number of
samples, without an interval. ``pooled``: made of one ratio of two sums over the samples (see ``corpus.POOLED``).
``corpus``: computed from all samples at once (``corpus.py``)."""
WILDCARD = "*"
"""Stands in a scorer's ``metrics`` for the names that its scores turn out to carry (see ``summary.expanded``)."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """The meaning of a metric's name.

    ``higher_is_better`` is None where neither direction is. No value lies below ``lowest`` or above ``highest``, and no
    interval reaches beyond them. ``in_terminal``: shown at the end of a session, not in the report alone. ``version``
    grows when the same scores would give another number.
    """

    name: str
    kind: Kind
    higher_is_better: bool | None
    description: str
    lowest: float = -math.inf
    highest: float = math.inf
    in_terminal: bool = True
    version: int = 1


_NO_DIRECTIONS: Mapping[str, str] = MappingProxyType({})

_BEST_BY: Mapping[str, str] = MappingProxyType(
    {
        "token": "with the highest logprob per token",
        "sum": "with the highest loglikelihood",
        "char": "with the highest loglikelihood per character",
        "byte": "with the highest loglikelihood per UTF-8 byte",
        "pmi": "whose loglikelihood the prompt raises most",
    }
)


def _gain(
    name: str, kind: Kind, description: str, highest: float = 1.0, *, in_terminal: bool = True
) -> MetricDefinition:
    """Define a metric of which more is better, from 0."""
    return MetricDefinition(name, kind, True, description, 0.0, highest, in_terminal)


def _loss(
    name: str,
    kind: Kind,
    description: str,
    *,
    lowest: float = 0.0,
    highest: float = math.inf,
    in_terminal: bool = True,
) -> MetricDefinition:
    """Define a metric of which less is better, down to ``lowest``."""
    return MetricDefinition(name, kind, False, description, lowest, highest, in_terminal)


def _cosine(name: str, description: str) -> MetricDefinition:
    return MetricDefinition(name, "mean", True, description, -1.0, 1.0)


def _accuracies() -> Iterator[MetricDefinition]:
    """Define accuracy by each normalisation, with the credit of a tie shared; then as lm-eval counts it, the first
    winning.
    """
    for name, how in _BEST_BY.items():
        yield _gain(f"accuracy_{name}", "proportion", f"Accuracy of the option {how}.", in_terminal=False)
    for suffix, how in {"": "that is the answer", **{f"_{name}": how for name, how in _BEST_BY.items()}}.items():
        description = f"Accuracy of the option {how}, the first of equal ones."
        yield _gain(f"accuracy{suffix}_first", "proportion", description, in_terminal=False)


_DEFINITIONS = (
    _gain("accuracy", "proportion", "Share of the samples that were answered right."),
    MetricDefinition(
        "skill", "mean", True, "Mean of (correct - chance) / (1 - chance): 0 is guessing, 1 is perfect.", highest=1.0
    ),
    _loss(
        "brier",
        "mean",
        "Mean over a sample's options of (p - y)²: 0 is perfect, at most 2/k for k options.",
        highest=1.0,
    ),
    _loss(
        "brier_sum",
        "mean",
        "Sum over a sample's options of (p - y)²: 0 is perfect, at most r + 1 where r options are right.",
        in_terminal=False,
    ),
    *_accuracies(),
    _gain("accuracy_name", "proportion", "Share of the samples whose calls are of the expected functions."),
    _gain(
        "accuracy_arguments",
        "mean",
        "Mean share of the arguments of the expected calls that are right; a call that is missing has none right.",
    ),
    _gain("accuracy_count", "proportion", "Share of the samples with as many calls as are expected."),
    MetricDefinition(
        "greedy_match", "proportion", True, "Share of the samples for which greedy decoding writes a right option."
    ),
    _gain("probability_mass", "mean", "Mean probability of the right options together: 1 is perfect."),
    _loss("nll", "mean", "Mean of -ln(probability of the right options), in nats: 0 is perfect.", in_terminal=False),
    _loss(
        "ece",
        "corpus",
        "Expected calibration error of the likeliest option, in 15 bins of equal width: 0 is perfect. It is too "
        "high, by more the fewer samples there are.",
        highest=1.0,
        in_terminal=False,
    ),
    _loss("perplexity", "pooled", "exp(-mean over samples of the target's loglikelihood): 1 is perfect.", lowest=1.0),
    _loss(
        "word_perplexity",
        "pooled",
        "exp(-sum of loglikelihoods / sum of words): 1 is perfect. Words are what white space separates.",
        lowest=1.0,
    ),
    _loss("byte_perplexity", "pooled", "exp(-sum of loglikelihoods / sum of UTF-8 bytes): 1 is perfect.", lowest=1.0),
    _loss("bits_per_byte", "pooled", "-sum of loglikelihoods / ln 2 / sum of UTF-8 bytes: 0 is perfect."),
    _loss(
        "token_perplexity",
        "pooled",
        "exp(-sum of loglikelihoods / sum of tokens): 1 is perfect. Comparable only with the same tokenizer.",
        lowest=1.0,
    ),
    MetricDefinition(
        "mcc",
        "corpus",
        True,
        "Matthews correlation of the classes answered with the right ones: 0 is guessing, 1 is perfect.",
        -1.0,
        1.0,
    ),
    _gain("f1_binary", "corpus", "F1 of class 1 of two classes: 1 is perfect."),
    _gain("f1_macro", "corpus", "Mean over the classes of their F1: 1 is perfect."),
    _gain("f1_micro", "corpus", "F1 over all classes' decisions; with one class for each sample it is accuracy."),
    _gain(
        "f1_weighted",
        "corpus",
        "Mean over the classes of their F1, weighted by their numbers of samples: 1 is perfect.",
    ),
    _gain(
        "f1", "mean", "Mean over samples of the F1 of the reply's words, as SQuAD's script computes it: 1 is perfect."
    ),
    _gain("rouge_l", "mean", "Mean of the samples' ROUGE-L (longest common subsequence), as F1: 1 is perfect."),
    _gain(
        "rouge_lsum", "mean", "Mean of the samples' ROUGE-Lsum (ROUGE-L over the union of lines), as F1: 1 is perfect."
    ),
    _gain("rouge_s", "mean", "Mean of the samples' ROUGE-S (pairs of words in their order), as F1: 1 is perfect."),
    _gain("chrf", "corpus", "Corpus chrF: 100 is perfect.", 100.0),
    _gain("chrf_p", "corpus", "Corpus chrF+, chrF with single words: 100 is perfect.", 100.0),
    _gain("chrf_pp", "corpus", "Corpus chrF++, chrF with one and two words: 100 is perfect.", 100.0),
    _gain("sentence_chrf", "mean", "Mean of the samples' chrF: 100 is perfect.", 100.0),
    _gain("sentence_chrf_p", "mean", "Mean of the samples' chrF+: 100 is perfect.", 100.0),
    _gain("sentence_chrf_pp", "mean", "Mean of the samples' chrF++: 100 is perfect.", 100.0),
    _loss("ter", "corpus", "Corpus translation edit rate: 0 is perfect, above 100 is possible."),
    _loss("sentence_ter", "mean", "Mean of the samples' translation edit rate: 0 is perfect, above 100 is possible."),
    _gain("meteor", "mean", "Mean of the samples' METEOR: 1 is perfect."),
    MetricDefinition("score", "mean", True, "Mean of the scores that a test or your own scorer gave."),
    MetricDefinition("correct", "count", True, "Samples that were answered right."),
    MetricDefinition("total", "count", None, "Samples that were scored."),
    MetricDefinition("yes_predicted", "count", None, "Samples that were answered yes."),
    MetricDefinition("no_predicted", "count", None, "Samples that were answered no."),
    MetricDefinition("ties", "count", None, "Samples in which the likeliest options are equally likely."),
    *(
        MetricDefinition(f"failed_{problem}", "count", None, f"Replies whose code did not pass the tests: {why}.")
        for problem, why in (
            ("syntax", "it is no Python"),
            ("assertion", "a test found a wrong result"),
            ("exception", "it raised an exception, or ended its process"),
            ("time", "it took too much time"),
            ("memory", "it took too much memory"),
            ("forbidden", "the sandbox does not allow what it does"),
        )
    ),
    MetricDefinition("decided_by_exact", "count", None, "Samples that were decided by the text of the reply."),
    MetricDefinition("decided_by_math", "count", None, "Samples that were decided by mathematics."),
    MetricDefinition("decided_by_judge", "count", None, "Samples that were decided by the judge."),
    _gain("win_rate", "mean", "Share of the pairs whose reply is better; a tie or a contradiction is a half."),
    _gain("order_consistency", "proportion", "Share of the pairs with one verdict in both orders of the replies."),
    MetricDefinition(
        "order_kappa", "corpus", True, "Cohen's kappa of the verdicts in the two orders of the replies.", -1.0, 1.0
    ),
    _gain(
        "first_order_right", "proportion", "Share of the verdicts that agree with people's, with the reply shown first."
    ),
    _gain(
        "second_order_right",
        "proportion",
        "Share of the verdicts that agree with people's, with the other reply shown first.",
    ),
    _gain(
        "both_orders_right",
        "proportion",
        "Share of the samples on which the verdicts of both orders agree with people's.",
    ),
    _gain("judge.agreement", "proportion", "Share of the samples rated by people on which the judge agrees with them."),
    MetricDefinition(
        "judge.base_rate", "proportion", None, "Share of the samples rated by people that people call right.", 0.0, 1.0
    ),
    MetricDefinition("judge.human_mean", "mean", None, "Mean of people's ratings, over the samples that they rated."),
    MetricDefinition(
        "judge.kappa",
        "corpus",
        True,
        "Cohen's kappa of people and the judge, with quadratic weights: 0 is chance, 1 is perfect.",
        -1.0,
        1.0,
    ),
    _gain(
        "judge.sensitivity",
        "proportion",
        "Share of the right replies, as people see it, that the judge calls right, too.",
    ),
    _gain(
        "judge.specificity",
        "proportion",
        "Share of the wrong replies, as people see it, that the judge calls wrong, too.",
    ),
    _gain(
        "corrected_accuracy",
        "corpus",
        "The accuracy that people would have given: the judge's, corrected by its errors on the samples "
        "that people rated.",
    ),
    MetricDefinition(
        "judge.alpha", "corpus", True, "Krippendorff's alpha of the judges: 0 is chance, 1 is perfect.", -1.0, 1.0
    ),
    _loss(
        "dissent",
        "proportion",
        "Mean distance of a judge's rating from the panel's; for labels, the share of samples on which they differ.",
    ),
    _gain("rubric", "mean", "Mean share of the weighted points of a rubric: 1 is perfect."),
    _gain("faithfulness", "mean", "Mean share of an answer's claims that the contexts support: 1 is perfect."),
    _cosine("answer_relevance", "Mean cosine of the question and of questions that the answer would answer."),
    _gain("context_precision", "mean", "Mean of the average precision of the retrieved texts: 1 is perfect."),
    _gain("context_recall", "mean", "Mean share of the reference answer's claims that the contexts support."),
    _gain("faithfulness_ragas", "mean", "Faithfulness, with one verdict on all claims of an answer, as ragas asks."),
    _cosine("answer_relevance_ragas", "Answer relevance as ragas counts it: 0 for a noncommittal answer."),
    _gain("context_recall_ragas", "mean", "Context recall over the sentences of the reference answer, as ragas asks."),
    _cosine("similarity", "Mean cosine of the embeddings of the reply and of its nearest target: 1 is perfect."),
    MetricDefinition("aspects", "mean", True, "Mean of a judge's ratings over all aspects."),
    _gain("ap", "mean", "Mean average precision of all documents found (MAP): 1 is perfect.", in_terminal=False),
    _gain("rr", "mean", "Mean reciprocal rank of the first relevant document (MRR): 1 is perfect."),
    _gain(
        "r_precision",
        "mean",
        "Mean share of relevant documents among the first R, if R documents are relevant: 1 is perfect.",
        in_terminal=False,
    ),
    _gain(
        "bpref",
        "mean",
        "Mean bpref, which is lower the more documents judged irrelevant come before relevant ones: 1 is perfect.",
        in_terminal=False,
    ),
    MetricDefinition("no_answer", "count", False, "Samples whose reply held no answer; they are never right."),
)

METRICS: Mapping[str, MetricDefinition] = MappingProxyType({metric.name: metric for metric in _DEFINITIONS})
"""The metrics that scorers here give, by name, in the order in which they are shown."""


def _of_rankings() -> Iterator[tuple[str, MetricDefinition]]:
    """Define the metrics of what a search found, each at a cut-off, and whether a session shows it that a suite does
    not name.
    """
    names: tuple[tuple[str, Kind, str, bool], ...] = (
        ("ndcg", "mean", "Mean nDCG of the first {} documents, the gain being the grade: 1 is perfect.", True),
        ("ndcg_exp", "mean", "Mean nDCG of the first {} documents, the gain being 2^grade - 1: 1 is perfect.", True),
        ("recall", "mean", "Mean share of the relevant documents that are among the first {}.", True),
        ("precision", "mean", "Mean share of relevant ones among the first {} documents.", False),
        ("f1", "mean", "Mean of the harmonic means of precision and recall of the first {} documents.", False),
        ("hit_rate", "proportion", "Share of the queries with a relevant document among the first {}.", False),
        ("ap", "mean", "Mean average precision of the first {} documents: 1 is perfect.", True),
        ("rr", "mean", "Mean reciprocal rank of the first relevant one of the first {} documents.", True),
    )
    for name, kind, description, in_terminal in names:
        yield rf"{name}@([1-9]\d*)", _gain(f"{name}@{{}}", kind, description, in_terminal=in_terminal)
    judged = "Mean share of judged ones among the first {} documents; unjudged ones count as not relevant."
    yield r"judged@([1-9]\d*)", MetricDefinition("judged@{}", "mean", None, judged, 0.0, 1.0)


_FAMILIES: tuple[tuple[str, MetricDefinition], ...] = (
    (
        r"bleu_([1-9]\d?)",
        _gain("bleu_{}", "corpus", "Corpus BLEU of n-grams of up to {} words: 100 is perfect.", 100.0),
    ),
    (
        r"sentence_bleu_([1-9]\d?)",
        _gain(
            "sentence_bleu_{}", "mean", "Mean of the samples' BLEU of n-grams of up to {} words: 100 is perfect.", 100.0
        ),
    ),
    (r"rouge_([1-9])", _gain("rouge_{}", "mean", "Mean of the samples' ROUGE-{}, as F1: 1 is perfect.")),
    (
        r"rouge_s([1-9])",
        _gain(
            "rouge_s{}",
            "mean",
            "Mean of the samples' ROUGE-S (pairs of words with at most {} between them), as F1: 1 is perfect.",
        ),
    ),
    (r"aspect_([A-Za-z_]\w*)", MetricDefinition("aspect_{}", "mean", True, "Mean of a judge's ratings of {}.")),
    (
        r"criterion_([A-Za-z_]\w*)",
        _gain("criterion_{}", "proportion", "Mean of how far replies meet the criterion {}: 1 is perfect."),
    ),
    (
        r"corrected_([A-Za-z_]\w*)",
        MetricDefinition(
            "corrected_{}",
            "corpus",
            True,
            "The mean of {} that people would have given: the judge's, corrected by its errors on the "
            "samples that people rated.",
        ),
    ),
    *_of_rankings(),
    (r"pass@([1-9]\d*)", _gain("pass@{}", "proportion", "Mean of the probability that one of {} replies is right.")),
    (r"pass\^([1-9]\d*)", _gain("pass^{}", "proportion", "Mean of the probability that {} replies are all right.")),
)
"""Metrics with a number in their names, shown after those of ``METRICS``: a pattern, and the definition by number."""
_MAX_NAMES = 4_096
"""Names whose meaning is remembered: every suite has the same ones, and each is looked up many times."""


def definition(name: str, better: Mapping[str, str] = _NO_DIRECTIONS) -> MetricDefinition:
    """Return the definition of a metric's name; one that is not ours is a mean, whose direction ``better`` may know.

    ``better`` says "higher" or "lower" by name, as a scorer does.
    ``flexible.accuracy``, the accuracy of one scorer of several, is defined as ``accuracy`` is, under its own name.
    """
    prefix, base = split_name(name)
    found = _unprefixed(base)
    if found is None:
        is_higher = better[name] == "higher" if name in better else None
        return MetricDefinition(name, "mean", is_higher, f"Mean of {name}.")
    return replace(found, name=name) if prefix else found


def is_known(name: str) -> bool:
    """Return whether the name, with or without a prefix, is one that this package defines."""
    return _unprefixed(split_name(name)[1]) is not None


@lru_cache(maxsize=_MAX_NAMES)
def split_name(name: str) -> tuple[str, str]:
    """Return ``flexible.accuracy`` as (``flexible.``, ``accuracy``); the prefix is empty where the rest is no known
    name.

    ``correct`` and ``total`` count what the deciding scorer says, so that with a prefix they are no metrics of ours.
    """
    prefix, dot, base = name.rpartition(".")
    if dot and prefix and base not in ("correct", "total") and _unprefixed(base) is not None:
        return f"{prefix}.", base
    return "", name


def shown_order(name: str) -> tuple[int, str, int, int, str]:
    """Return the key by which names are sorted for a reader: known ones in their order, those with a prefix, others."""
    prefix, base = split_name(name)
    if base in METRICS:
        return (int(bool(prefix)), prefix, list(METRICS).index(base), 0, "")
    for place, (pattern, _) in enumerate(_FAMILIES):
        if found := regex.fullmatch(pattern, base):
            number = int(found[1]) if found[1].isdecimal() else 0
            return (int(bool(prefix)), prefix, len(METRICS) + place, number, "" if number else found[1])
    return (2, "", 0, 0, name)


@lru_cache(maxsize=_MAX_NAMES)
def _unprefixed(base: str) -> MetricDefinition | None:
    if base in METRICS:
        return METRICS[base]
    for pattern, family in _FAMILIES:
        if found := regex.fullmatch(pattern, base):
            return replace(family, name=base, description=family.description.format(found[1]))
    return None


NOT_MEASURABLE = "not_measurable"
"""The key of a suite's settings that says, by metric, what a sample counts as if it is not measurable there."""

_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(sentence_)?bleu_\d+", ("tokenize", "smoothing", "smooth_value", "lowercase")),
    (r"(sentence_)?chrf(_p|_pp)?", ("beta", "lowercase", "whitespace")),
    (r"(sentence_)?ter", ("normalized", "no_punct", "asian_support", "case_sensitive")),
    (r"rouge_.+", ("stemmer",)),
    (r"meteor", ("synonyms", "stemmer", "tokenize", "alpha", "beta", "gamma")),
    (r"(word|byte|token)_perplexity|bits_per_byte", ("windows", "stride")),
    (r"(corrected_)?aspect(s|_.+)", ("scale",)),
    (r"(corrected_)?context_precision", ("k",)),
    (r"(corrected_)?answer_relevance(_ragas)?", ("questions",)),
    (r"(ndcg(_exp)?|judged)@\d+", ("ties", "no_relevant")),
    (
        r"(recall|precision|f1|hit_rate|ap|rr)(@\d+)?|r_precision|bpref",
        ("relevant_from", "ties", "no_relevant"),
    ),
)
"""The scorer's settings that a metric's formula depends on, by the metric."""


def metric_form(name: str, scorer: str | None, settings: Mapping[str, JSON]) -> str:
    """Return the settings that the metric ``name`` depends on in a suite, such as ``tokenize 13a, smoothing exp``.

    ``scorer`` and ``settings`` are those of ``SuiteInfo``. Two suites of which this differs give two metrics under one
    name. Empty where no setting decides. A metric whose name is none of ours means what its scorer makes it mean.
    """
    prefix, base = split_name(name)
    numbers = settings.get(NOT_MEASURABLE)
    counts_as = f"{numbers[name]} where not measurable" if isinstance(numbers, Mapping) and name in numbers else None
    scorer, settings = _judge_of(prefix.removesuffix("."), scorer, settings)
    own = {key: value for key, value in settings.items() if key not in _NO_FORM}
    if not is_known(name) or base == "score":
        form = ", ".join(filter(None, (scorer, _shown(own, own)))) if scorer else ""
    else:
        form = _shown(own, _settings_of(base))
    return ", ".join(filter(None, (form, counts_as)))


_NO_FORM = ("kind", "filters", "epochs", "score", NOT_MEASURABLE)


@lru_cache(maxsize=4_096)
def _settings_of(base: str) -> tuple[str, ...]:
    return next((keys for pattern, keys in _SETTINGS if regex.fullmatch(pattern, base)), ())


def metric_limits(name: str, scorer: str | None, settings: Mapping[str, JSON]) -> tuple[float, float] | None:
    """Return the lowest and the highest value of a metric where a suite's settings say it: of ratings, their scale.

    ``scorer`` and ``settings`` as ``metric_form`` takes them.
    """
    prefix, base = split_name(name)
    _, settings = _judge_of(prefix.removesuffix("."), scorer, settings)
    if not _is_rating(base):
        return None
    scale = settings.get("scale")
    if not isinstance(scale, list | tuple) or len(scale) != 2:
        return None
    low, high = scale
    return (float(low), float(high)) if isinstance(low, int) and isinstance(high, int) else None


@lru_cache(maxsize=4_096)
def _is_rating(base: str) -> bool:
    return regex.fullmatch(r"(corrected_)?aspect(s|_.+)|judge\.human_mean", base) is not None


def named_metrics(scorer: str | None, settings: Mapping[str, JSON]) -> tuple[str, ...]:
    """Return what a suite's settings name as its metrics, as its scores carry them; nothing where they leave that to
    us.

    ``scorer`` and ``settings`` as ``metric_form`` takes them.
    """
    parts = settings.get("scorers")
    if scorer == "several" and isinstance(parts, Mapping) and parts:
        deciding = str(settings.get("decides") or next(iter(parts)))
        found: list[str] = []
        for name in parts:
            kind, own = _judge_of(str(name), scorer, settings)
            found += [metric if name == deciding else f"{name}.{metric}" for metric in named_metrics(kind, own)]
        return tuple(found)
    named = settings.get("metrics") if scorer in _NAMING else None
    return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


_NAMING = ("rag", "retrieval")
"""Scorers whose settings name their metrics."""


def _judge_of(part: str, scorer: str | None, settings: Mapping[str, JSON]) -> tuple[str | None, Mapping[str, JSON]]:
    """Return the one of several scorers that gives the metrics with this prefix; the deciding one's have none."""
    parts = settings.get("scorers")
    if scorer != "several" or not isinstance(parts, Mapping) or not parts:
        return scorer, settings
    name = part or settings.get("decides") or next(iter(parts))
    found = parts.get(str(name))
    score = found.get("score") if isinstance(found, Mapping) else None
    if not isinstance(score, Mapping):
        return scorer, settings
    return str(score.get("kind")), score


def _shown(settings: Mapping[str, JSON], keys: Mapping[str, JSON] | tuple[str, ...]) -> str:
    return ", ".join(f"{key} {_text(settings[key])}" for key in keys if settings.get(key) is not None)


def _text(value: JSON) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
