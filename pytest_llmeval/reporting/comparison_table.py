"""Several models beside each other in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_llmeval.reporting.escape import printable
from pytest_llmeval.reporting.report import Comparison
from pytest_llmeval.reporting.tables import number, table_lines
from pytest_llmeval.scoring.comparison import Difference

__all__ = ["comparison_cells", "comparison_lines"]


def comparison_lines(comparisons: Sequence[Comparison], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Each model's value of the suites' first metric, and its difference from the first model with the 95% interval.

    Of proportions, ``+3 -5`` says how many samples it has that the first has not, and the other way round.
    """
    for headers, rows in comparison_cells(comparisons, names):
        yield f"against {headers[3]}, over the samples that both scored: value (difference [95% interval])"
        yield from table_lines(headers, rows, ("left", "left", "right", *("left" for _ in headers[3:])), width=width)


def comparison_cells(
    comparisons: Sequence[Comparison], names: Mapping[str, str]
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Headers and rows, made ``printable``, of a table for each model that others stand against: ``headers[3]``.

    A session has one; a report may have been edited.
    """
    compared = [comparison for comparison in comparisons if comparison.differences]
    for first in dict.fromkeys(comparison.first for comparison in compared):
        own = [comparison for comparison in compared if comparison.first == first]
        seconds = list(dict.fromkeys(comparison.second for comparison in own))
        suites: dict[str, dict[str, Comparison]] = {}
        for comparison in own:
            suites.setdefault(comparison.suite, {})[comparison.second] = comparison
        headers = ["suite", "metric", "n", *(printable(names.get(model, model)) for model in (first, *seconds))]
        yield headers, [_row(suite, members, seconds) for suite, members in suites.items()]


def _row(suite: str, own: Mapping[str, Comparison], seconds: Sequence[str]) -> list[str]:
    metric = _first_metric(own)
    found = {model: comparison.differences.get(metric) for model, comparison in own.items()}
    differences = {model: difference for model, difference in found.items() if difference is not None}
    widest = max(differences.values(), key=lambda difference: difference.n)
    cells = [_cell(differences.get(model), widest.n) for model in seconds]
    return [printable(suite), printable(metric), str(widest.n), number(widest.first), *cells]


def _first_metric(own: Mapping[str, Comparison]) -> str:
    """The metric that all models have and that a reader looks at first."""
    (one, *others) = own.values()
    common = [name for name in one.differences if all(name in other.differences for other in others)]
    return "accuracy" if "accuracy" in common else (common or list(one.differences))[0]


def _cell(difference: Difference | None, usual_n: int) -> str:
    if difference is None:
        return ""
    found = f"{difference.difference:+.3f}"
    if difference.ci_low is not None and difference.ci_high is not None:
        found += f" [{number(difference.ci_low)}, {number(difference.ci_high)}]"
    if difference.num_gained is not None:
        found += f", +{difference.num_gained} -{difference.num_lost}"
    if difference.n != usual_n:
        found += f", n {difference.n}"
    return f"{number(difference.second)} ({found})"
