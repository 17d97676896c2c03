"""Several models beside each other in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_llmeval.reporting.report.report import Comparison
from pytest_llmeval.reporting.terminal.tables import Coloured, Table, joined_lines, number, short_number, table_lines
from pytest_llmeval.scoring.comparison.differences import Difference
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.text.escaping import printable

__all__ = ["comparison_cells", "comparison_lines", "p_text"]


def comparison_lines(comparisons: Sequence[Comparison], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Each model's value of the suites' first metric, and its difference from the first model with the 95% interval.

    Of proportions, ``+3 -5`` says how many samples it has that the first has not, and the other way round. A difference
    whose interval does not hold 0 is green where the model is better than the first, and red where it is worse.
    """
    short_cells = [rows for _, rows, _ in comparison_cells(comparisons, names, is_short=True)]
    for place, (headers, rows, meaning) in enumerate(comparison_cells(comparisons, names)):
        yield from [""] * (place > 0)
        yield from joined_lines(f"against {headers[3]}, over the samples that both scored:", [meaning], width=width)
        table = _table(headers, rows)
        if not table.fits(width):
            table = _table(headers, short_cells[place])
        yield from table_lines(table, width=width)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return Table(headers=headers, rows=rows, align=["left", "left", "right", *("left" for _ in headers[3:])], keys=3)


def comparison_cells(
    comparisons: Sequence[Comparison], names: Mapping[str, str], *, is_short: bool = False, has_p: bool = False
) -> Iterator[tuple[list[str], list[list[str]], str]]:
    """Headers and rows, made ``printable``, of a table for each model that others stand against: ``headers[3]``.

    The third says what a cell holds. A session has one table; a report may have been edited. ``has_p``: with the
    p-values of the paired tests.
    """
    compared = [comparison for comparison in comparisons if comparison.differences]
    for first in dict.fromkeys(comparison.first for comparison in compared):
        own = [comparison for comparison in compared if comparison.first == first]
        seconds = list(dict.fromkeys(comparison.second for comparison in own))
        suites: dict[str, dict[str, Comparison]] = {}
        for comparison in own:
            suites.setdefault(comparison.suite, {})[comparison.second] = comparison
        headers = ["suite", "metric", "n", *(printable(names.get(model, model)) for model in (first, *seconds))]
        rows = [_row(suite, members, seconds, is_short, has_p) for suite, members in suites.items()]
        yield headers, rows, _meaning([*suites.values()], has_p)


def _meaning(suites: Sequence[Mapping[str, Comparison]], has_p: bool) -> str:
    """``value (difference [95% interval], samples gained and lost)``: flips and p where a cell has them."""
    shown = [one.differences.get(_first_metric(own)) for own in suites for one in own.values()]
    parts = ["difference [95% interval]"]
    if any(difference is not None and difference.num_gained is not None for difference in shown):
        parts.append("samples gained and lost")
    if has_p and any(difference is not None and difference.p_value is not None for difference in shown):
        parts.append("two-sided p of the paired test that gates make")
    return f"value ({', '.join(parts)})"


def p_text(p: float) -> str:
    """A p-value in three digits: ``0.012``, ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _row(suite: str, own: Mapping[str, Comparison], seconds: Sequence[str], is_short: bool, has_p: bool) -> list[str]:
    metric = _first_metric(own)
    found = {model: comparison.differences.get(metric) for model, comparison in own.items()}
    differences = {model: difference for model, difference in found.items() if difference is not None}
    widest = max(differences.values(), key=lambda difference: difference.n)
    cells = [_cell(metric, differences.get(model), widest.n, is_short, has_p) for model in seconds]
    return [printable(suite), printable(metric), str(widest.n), number(widest.first), *cells]


def _first_metric(own: Mapping[str, Comparison]) -> str:
    """The metric that all models have and that a reader looks at first."""
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
    return Coloured(f"{number(difference.second)} ({found})", _colour(metric, difference))


def _colour(metric: str, difference: Difference) -> str | None:
    """Of a difference that is significant; none where neither direction is better."""
    low, high, higher_is_better = difference.ci_low, difference.ci_high, definition(metric).higher_is_better
    if low is None or high is None or higher_is_better is None or low <= 0.0 <= high:
        return None
    return "green" if (low > 0.0) is higher_is_better else "red"
