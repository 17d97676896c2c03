"""What gates found, as a report holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytest_llmeval.scoring.comparison.flipped_samples import FlippedSamples

__all__ = ["GateMode", "GateOutcome", "GateResult", "Regression"]

GateOutcome: TypeAlias = Literal["passed", "failed", "skipped"]
"""``skipped`` is undecided: a gate of a suite, or of the ini file, that sees only a selection of the suite; a suite
that only the session or only its baseline has; a comparison of so few samples that no drop could be significant."""

GateMode: TypeAlias = Literal["significant", "margin", "non-inferior"]
"""When a drop against a baseline fails: where it is significant and beyond the margin; where it is beyond the margin;
unless its interval excludes a drop beyond the margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """One metric of one suite against a baseline, over the ``n`` samples that both scored.

    ``baseline`` and ``current`` are the metric's values over these samples, ``difference`` is current minus baseline
    with its 95% interval, all in the metric's unit. ``drop`` is the difference turned so that more is worse, and
    ``margin`` the drop that is allowed. ``noise`` is a drop that is put down to rounding where no margin was named and
    the mode is ``significant``; else 0. ``p_value`` is one-sided: how likely a drop as large is where nothing has
    changed; ``p_adjusted`` is Holm's over the ``family`` of tests of the session. ``p_improved`` and
    ``p_improved_adjusted`` are the same of the other side. ``num_draws`` is None where the test is exact.
    ``num_worse`` and ``num_better`` are the samples that flipped each way (of a right or wrong answer), or whose value
    became worse or better. ``smallest_drop`` is what this n and discordance detects with 90% power at the level of the
    first of Holm's steps. ``false_alarm_rate`` is how often a drop beyond the margin is seen where nothing has changed.
    ``num_left_out`` samples of either side have no partner, or no value of the metric in the baseline.
    ``num_clusters`` is None where samples are independent. ``movers`` are None where samples have
    no value of the metric.
    """

    mode: GateMode
    metric: str
    higher_is_better: bool
    n: int
    baseline: float
    current: float
    difference: float
    ci_low: float | None
    ci_high: float | None
    drop: float
    margin: float
    method: Literal["mcnemar", "sign-flip"]
    p_value: float
    p_adjusted: float
    p_improved: float
    p_improved_adjusted: float
    family: int
    alpha: float
    num_draws: int | None = None
    num_worse: int = 0
    num_better: int = 0
    num_clusters: int | None = None
    smallest_drop: float | None = None
    false_alarm_rate: float | None = None
    num_left_out: int = 0
    noise: float = 0.0
    movers: FlippedSamples | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate found about one suite; where several models were given, on one of them.

    ``name`` is what stands in ``gate[…]``: the rule of a threshold, or ``accuracy vs baseline``. ``origin`` says who
    asked for it: the suite itself, the ini file of the project, or the command line (with the environment). ``reason``
    is one line that says what was found; ``notes`` are further ones (samples that were left out, unscored ones that
    were allowed). ``value`` is what was compared with ``threshold``. ``path`` is the suite's node id and ``line`` the
    line of the gate in its file, where they are known. ``regression`` is what the test against a baseline found.
    """

    name: str
    kind: Literal["threshold", "baseline"]
    origin: Literal["suite", "ini", "option"]
    outcome: GateOutcome
    reason: str
    suite: str | None = None
    model: str | None = None
    path: str | None = None
    line: int | None = None
    metric: str | None = None
    category: str | None = None
    value: float | None = None
    threshold: float | None = None
    notes: tuple[str, ...] = ()
    regression: Regression | None = None
