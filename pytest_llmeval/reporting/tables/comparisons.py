"""The comparisons of a report: gates, models beside each other, and the samples that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from pytest_llmeval.reporting.report.report import (
    Comparison,
    GateOutcome,
    GateResult,
    Report,
    VariantComparison,
    compared_models,
    group_of_suite,
)
from pytest_llmeval.reporting.tables.cells import Table, Tone, Toned, number, p_text, short_number, signed
from pytest_llmeval.reporting.tables.suites import named
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.scoring.paired_metrics import USUALLY_KEPT, FlippedSample, FlippedSamples
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.wording import counted

__all__ = [
    "MAX_FAILED",
    "MAX_FLIPPED",
    "OUTCOMES",
    "ChangeWord",
    "Flipped",
    "as_comparison",
    "compared_flips",
    "comparison_notes",
    "comparison_tables",
    "flipped_heading",
    "flipped_table",
    "gate_counts",
    "gate_flips",
    "gate_name",
    "gate_table",
    "has_improved",
    "ordered_gates",
    "variant_flips",
    "variant_tables",
    "word_of_difference",
    "word_of_gate",
]

OUTCOMES: tuple[GateOutcome, ...] = ("failed", "skipped", "passed")
"""The order in which outcomes are shown: first what a reader has to act on."""

MAX_FAILED = 50
"""The most failed gates that a terminal lists."""

MAX_FLIPPED = 10
"""The most metrics whose changed samples are shown; the JSON report has all."""


def gate_counts(results: Sequence[GateResult]) -> Toned:
    """Return ``gates: 1 failed, 3 passed``."""
    counts = Counter(result.outcome for result in results)
    parts: list[str] = []
    for outcome in OUTCOMES:
        if counts[outcome]:
            text = Toned(f"{counts[outcome]} {outcome}", "bad" if outcome == "failed" else None)
            parts += [", " if parts else "gates: ", text]
    return Toned.joined(parts)


def gate_name(result: GateResult, names: Mapping[str, str], *, separator: str = ", ") -> str:
    """Return ``boolq (gpt2), accuracy >= 0.6``, not yet ``printable``."""
    if result.suite is None:
        return result.name
    return f"{named(result.suite, result.model, names)}{separator}{result.name}"


def has_improved(result: GateResult) -> bool:
    """Tell whether the metric of a gate has become better than in the baseline, significantly."""
    found = result.regression
    return found is not None and found.drop < 0 and found.p_improved_adjusted <= found.alpha


def ordered_gates(results: Iterable[GateResult]) -> list[GateResult]:
    """Return the gates by outcome, and those of one outcome by kind."""
    return sorted(results, key=lambda one: (OUTCOMES.index(one.outcome), one.kind))


MAX_DIFF_LINES = 40
"""The most lines of a diff of prompts that are shown; the JSON report has all."""


def shown_diff(result: GateResult) -> list[str]:
    """Return the first lines of the diff of a gate's prompts, safe to print, and how many more there are."""
    lines = [printable(line) for line in result.prompt_diff[:MAX_DIFF_LINES]]
    if (num_more := len(result.prompt_diff) - len(lines)) > 0:
        lines.append(f"… and {num_more:,} more lines, all in the JSON report")
    return lines


def diff_heading(result: GateResult, names: Mapping[str, str]) -> str:
    """Return the line above a gate's diff of prompts, not yet ``printable``."""
    return f"{named(str(result.suite), result.model, names)}: how its questions are asked, in the baseline and now"


def gate_table(results: Sequence[GateResult], names: Mapping[str, str]) -> Table:
    """Return a row for each gate, with all that was found."""
    rows = [
        [
            one.outcome,
            "" if one.suite is None else printable(named(one.suite, one.model, names)),
            printable(one.name),
            printable("; ".join((one.reason, *one.notes))),
        ]
        for one in results
    ]
    return Table(headers=("outcome", "suite", "gate", "what was found"), rows=rows, align=["left"] * 4)


def comparison_tables(
    comparisons: Sequence[Comparison], names: Mapping[str, str], *, is_short: bool = False, has_p: bool = False
) -> Iterator[tuple[Table, str]]:
    """Yield a table for each model that others are compared with, which is ``headers[3]``, and what its cells hold.

    A cell has the other model's value of the suite's first metric and its difference from the first model with the 95%
    interval; of proportions, ``+3 -5`` says how many samples it has that the first has not, and the other way round. It
    is good or bad news if the interval does not hold 0. A session has one table; a report may have been edited.
    ``has_p``: with the p-values of the paired tests.
    """
    compared = [comparison for comparison in comparisons if comparison.differences]
    for first in dict.fromkeys(comparison.first for comparison in compared):
        own = [comparison for comparison in compared if comparison.first == first]
        seconds = list(dict.fromkeys(comparison.second for comparison in own))
        suites: dict[str, dict[str, Comparison]] = {}
        for comparison in own:
            suites.setdefault(comparison.suite, {})[comparison.second] = comparison
        models = [printable(names.get(model, model)) for model in (first, *seconds)]
        table = Table(
            headers=["suite", "metric", "n", *models],
            rows=[_row(suite, members, seconds, is_short, has_p) for suite, members in suites.items()],
            align=["left", "left", "right", *("value" for _ in models)],
            keys=3,
        )
        yield table, _meaning([*suites.values()], has_p)


def as_comparison(variant: VariantComparison, names: Mapping[str, str]) -> Comparison:
    """Return the comparison of two variants in the form in which models are shown, under the names of the variants."""
    first, second = (_name_of_variant(variant, name) for name in (variant.first, variant.second))
    return Comparison(
        suite=named(variant.suite, variant.model, names),
        first=first,
        second=second,
        differences=variant.differences,
        movers=variant.movers,
    )


def _name_of_variant(variant: VariantComparison, name: str) -> str:
    return "as written" if name == variant.suite else name.removeprefix(f"{variant.suite}@")


def variant_tables(
    variants: Sequence[VariantComparison], names: Mapping[str, str], *, is_short: bool = False
) -> Iterator[tuple[Table, str]]:
    """Yield tables as ``comparison_tables`` does, with a column for each variant and a row for each suite and model.

    They show the metric that is tested.
    """
    shown = []
    for one in variants:
        if (tested := one.differences.get(one.metric or "")) is not None:
            differences = {str(one.metric): replace(tested, p_value=one.p_adjusted)}
            shown.append(replace(as_comparison(one, names), differences=differences))
    family = max((one.family for one in variants), default=0)
    tested_how = f"two-sided p by Holm over {family} tests" if family > 1 else "two-sided p"
    for table, meaning in comparison_tables(shown, {}, is_short=is_short, has_p=True):
        yield table, meaning.replace(_TEST, tested_how)


def comparison_notes(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each first model or variant that another takes the place of, since it has no score, and for each
    variant that is not compared, or only in part, made ``printable``.
    """
    given, firsts = compared_models(report), {one.first for one in report.comparisons}
    if given and firsts and given[0] not in firsts:
        others = ", ".join(names.get(first, first) for first in sorted(firsts))
        yield printable(f"{names.get(given[0], given[0])} has no score: the others are compared with {others}")
    written = {(one.info.base, group_of_suite(one, given)[1]): one.info.name for one in reversed(report.suites)}
    for (suite, model), one in {(one.suite, one.model): one for one in report.variants}.items():
        if (first := written.get((suite, model), one.first)) != one.first:
            unscored, taken = (_name_of_variant(one, name) for name in (first, one.first))
            yield printable(
                f"{named(suite, model, names)}: {unscored} has no score: the others are compared with {taken}"
            )
    for one in report.variants:
        if one.note is not None:
            first = _name_of_variant(one, one.first)
            yield printable(f"{named(one.second, one.model, names)} against {first}: {one.note}")


def variant_flips(variants: Sequence[VariantComparison], names: Mapping[str, str]) -> Iterator[Flipped]:
    """Yield the tested metrics in which a sample of a variant differs from the first variant's at all."""
    for one in variants:
        shown = as_comparison(one, names)
        tested = replace(shown, movers={name: found for name, found in one.movers.items() if name == one.metric})
        for flipped in compared_flips([tested], {}):
            yield flipped._replace(suite=one.second, model=one.model)


_TEST = "two-sided p of the paired test that gates make"


def _meaning(suites: Sequence[Mapping[str, Comparison]], has_p: bool) -> str:
    """Return ``value (difference [95% interval], samples gained and lost)``: flips and p if a cell has them."""
    shown = [one.differences.get(_first_metric(own)) for own in suites for one in own.values()]
    parts = ["difference [95% interval]"]
    if any(difference is not None and difference.num_gained is not None for difference in shown):
        parts.append("samples gained and lost")
    if has_p and any(difference is not None and difference.p_value is not None for difference in shown):
        parts.append(_TEST)
    return f"value ({', '.join(parts)})"


def _row(suite: str, own: Mapping[str, Comparison], seconds: Sequence[str], is_short: bool, has_p: bool) -> list[str]:
    metric = _first_metric(own)
    found = {model: comparison.differences.get(metric) for model, comparison in own.items()}
    differences = {model: difference for model, difference in found.items() if difference is not None}
    widest = max(differences.values(), key=lambda difference: difference.n)
    cells = [_cell(metric, differences.get(model), widest.n, is_short, has_p) for model in seconds]
    return [printable(suite), printable(metric), str(widest.n), number(widest.first), *cells]


def _first_metric(own: Mapping[str, Comparison]) -> str:
    """Return the metric that all models have and that a reader looks at first."""
    (one, *others) = own.values()
    common = [name for name in one.differences if all(name in other.differences for other in others)]
    return "accuracy" if "accuracy" in common else (common or list(one.differences))[0]


def _cell(metric: str, difference: Difference | None, usual_n: int, is_short: bool, has_p: bool) -> str:
    if difference is None:
        return ""
    shown, gap = (short_number, "") if is_short else (number, " ")
    sign = "+" if difference.difference >= 0 else ""
    found = f"{sign}{shown(difference.difference)}"
    if difference.ci_low is not None and difference.ci_high is not None:
        found += f" [{shown(difference.ci_low)},{gap}{shown(difference.ci_high)}]"
    if difference.num_gained is not None:
        found += f", +{difference.num_gained} -{difference.num_lost}"
    if has_p and difference.p_value is not None:
        found += f", p {p_text(difference.p_value)}"
    if difference.n != usual_n:
        found += f", n {difference.n}"
    return Toned(f"{number(difference.second)} ({found})", _tone(metric, difference))


def _tone(metric: str, difference: Difference) -> Tone | None:
    """Return the tone of a significant difference; None if neither direction of the metric is better."""
    word = word_of_difference(difference, definition(metric).higher_is_better)
    return "good" if word == "better" else "bad" if word == "worse" else None


ChangeWord: TypeAlias = Literal["better", "worse", "=", ""]
"""The word for a difference. ``=`` means that it cannot be told from chance. The word is empty if that is not known, or
if neither direction of the metric is better."""


def word_of_difference(found: Difference, higher_is_better: bool | None) -> ChangeWord:
    """Return the word for a difference of models or variants, by its 95% interval."""
    if found.ci_low is None or found.ci_high is None:
        return ""
    if found.ci_low <= 0.0 <= found.ci_high:
        return "="
    return "" if higher_is_better is None else "better" if (found.ci_low > 0.0) is higher_is_better else "worse"


def word_of_gate(result: GateResult) -> ChangeWord:
    """Return what the difference from a baseline is, by the test of the gate, adjusted for all tests of the session."""
    found = result.regression
    if found is None:
        return ""
    is_worse = found.drop > 0 and found.p_adjusted <= found.alpha
    return "better" if has_improved(result) else "worse" if is_worse else "="


class Flipped(NamedTuple):
    """Samples that changed in one metric of a suite, on one model: ``what`` says which and against what."""

    what: str
    samples: FlippedSamples
    suite: str
    model: str | None


def gate_flips(results: Sequence[GateResult], names: Mapping[str, str]) -> Iterator[Flipped]:
    """Yield the metrics that gates compared with a baseline and in which a sample changed at all."""
    for result in results:
        found = None if result.regression is None else result.regression.movers
        if found is not None and result.suite is not None and found.num_worse + found.num_better:
            what = f"{named(result.suite, result.model, names)}: {result.name}"
            yield Flipped(what, found, result.suite, result.model)


def compared_flips(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Iterator[Flipped]:
    """Yield the metrics in which a sample of a second model differs from the first model's at all."""
    for one in comparisons:
        first, second = names.get(one.first, one.first), names.get(one.second, one.second)
        for metric, found in one.movers.items():
            if found.num_worse + found.num_better:
                yield Flipped(f"{one.suite}: {metric} of {second} against {first}", found, one.suite, one.second)


def flipped_heading(flipped: Flipped) -> str:
    """Return ``sums: accuracy vs baseline: 3 samples worse, 1 better, 96 the same``, made ``printable``."""
    found = flipped.samples
    counts = f"{counted(found.num_worse, 'sample')} worse, {found.num_better:,} better, {found.num_same:,} the same"
    return printable(f"{flipped.what}: {counts}")


def flipped_table(flipped: Flipped) -> Table:
    """Return a row for each sample, those that became worse first, and of each side the ``USUALLY_KEPT`` first."""
    found = flipped.samples
    rows = [_flipped_row("worse", one) for one in found.worse[:USUALLY_KEPT]]
    rows += [_flipped_row("better", one) for one in found.better[:USUALLY_KEPT]]
    headers = ["", "sample", "before", "now", "change"]
    return Table(headers=headers, rows=rows, align=["left", "left", "right", "right", "right"], keys=2)


def _flipped_row(side: str, one: FlippedSample) -> list[str]:
    return [side, printable(one.id), number(one.before), number(one.now), signed(one.difference)]
