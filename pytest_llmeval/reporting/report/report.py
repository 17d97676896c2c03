"""The report of a session as data, with the results of its gates (``storage/report_file`` writes and reads it)."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, TypeVar

from pytest_llmeval.data.code_version import installed_version
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.origin import ReportOrigin
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.summary import Distribution, Metric, Percentiles
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.scoring.paired_metrics import FlippedSamples
from pytest_llmeval.text.wording import expected_one_of, quoted
from pytest_llmeval.types import JSON, EngineUse, ServerUse, StoreFlaws

__all__ = [
    "SCHEMA_VERSION",
    "SINCE_DIGEST",
    "Averages",
    "BudgetUse",
    "Comparison",
    "GateMode",
    "GateOutcome",
    "GateResult",
    "Group",
    "NamedReport",
    "PerSample",
    "Phases",
    "Regression",
    "Report",
    "Selected",
    "StoreUse",
    "SuiteReport",
    "Summary",
    "VariantComparison",
    "check_known",
    "compared_models",
    "definitions_of",
    "describe_environment",
    "described_group",
    "group_of_record",
    "group_of_suite",
    "use_of_model",
]


GateOutcome: TypeAlias = Literal["passed", "failed", "skipped"]
"""The outcome of a gate. ``skipped`` is undecided: a gate of a suite, or of the ini file, that sees only a selection of
the suite; a suite that only the session or only its baseline has; so few samples that no drop could be significant."""

GateMode: TypeAlias = Literal["significant", "margin", "non-inferior"]
"""The rule by which a drop against a baseline fails: if it is significant and beyond the margin; if it is beyond the
margin; unless its interval excludes a drop beyond the margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """The comparison of one metric of one suite with a baseline, over the ``n`` samples that both scored.

    ``baseline`` and ``current`` are the metric's values over these samples, ``difference`` is current minus baseline
    with its 95% interval, all in the metric's unit. ``drop`` is the difference turned so that more is worse, and
    ``margin`` the drop that is allowed. ``noise`` is a drop that is put down to rounding if no margin was named and the
    mode is ``significant``; else 0. ``p_value`` is one-sided: how likely a drop as large is if nothing has changed;
    ``p_adjusted`` is Holm's over the ``family`` of tests of the session. ``p_improved`` and ``p_improved_adjusted`` are
    about the other side. ``num_draws`` is None if the test is exact. ``num_worse`` and ``num_better`` are the samples
    that flipped each way (of a right or wrong answer), or whose value became worse or better. ``smallest_drop`` is the
    drop that this n and discordance detects with 90% power at the level of the first of Holm's steps.
    ``false_alarm_rate`` is how often a drop beyond the margin is seen if nothing has changed. ``num_left_out`` samples
    of either side have no partner, or no value of the metric in the baseline. ``num_clusters`` is None if samples are
    independent, and ``movers`` if samples have no value of the metric.
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
    """The result of one gate for one suite, and if there are several models for one of them.

    ``name`` is the text in ``gate[…]``: the rule of a threshold, or ``accuracy vs baseline``. ``origin`` says who asked
    for the gate: the suite itself, the ini file of the project, or the command line (with the environment). ``reason``
    is one line that says what was found; ``notes`` are further lines (samples that were left out, unscored ones that
    were allowed). ``value`` is the number that was compared with ``threshold``. ``path`` is the suite's node id and
    ``line`` the line of the gate in its file, if they are known. ``regression`` is the result of the test against a
    baseline. ``prompt_diff`` are the lines of a unified diff of how the questions are asked, if that changed; one gate
    of a suite has them.
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
    prompt_diff: tuple[str, ...] = ()


SCHEMA_VERSION = 3
"""The schema of reports that are written. It grows when a reader of older reports would misread newer ones."""

SINCE_DIGEST = 3
"""The first schema whose reports have a digest of all that they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts and metrics over the samples of a suite or of one category.

    ``num_expected`` were to run (selected and not skipped); ``num_scored`` of them were judged. ``not_measurable``
    counts the samples on which a metric has no meaning, by metric and reason. ``num_truncated`` replies ended at their
    limit of tokens, as far as that is known.
    """

    num_expected: int
    num_scored: int
    num_unscored: int
    num_no_answer: int
    metrics: Mapping[str, Metric]
    not_measurable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    num_truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Tokens and seconds of prefill (prompts, until a reply's first token) and of decode (all tokens after it).

    Tokens of prompts count for each sample, also if samples share computed parts of them.
    """

    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSample:
    """Tokens, seconds and cost of a scored sample, as means over ``n`` samples.

    Tokens are means over the ``num_counted`` whose tokens are known, ``cost`` over the ``num_priced`` that have one.
    """

    n: int
    num_prompt_tokens: float
    num_tokens: float
    seconds: float
    cost: float | None = None
    num_priced: int = 0
    num_counted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """The results of one suite, and if there are several models on one of them.

    ``models`` names those that answered it: one, unless its numbers mix them. Token counts and seconds are sums over
    its records. ``macro`` are the means of its metrics over its categories, each category counting equally; their ``n``
    counts categories. ``engine`` is how its log-likelihoods were computed, if the model tells. ``reliability`` are the
    bins of its expected calibration error, if its scorer gives probabilities. ``latency`` is about the model's seconds
    for a sample, ``tokens_per_second`` about all tokens of a sample by its seconds; both count only scored samples that
    were timed by themselves, and whose tokens were counted: shares of a batch's time are equal, and their percentiles
    say nothing. ``phases`` are where generated texts spent their time, as far as the model tells. ``cost`` is the sum
    over the ``num_priced`` records that have a cost (None: not counted, in reports of earlier versions), None if none
    has; ``judge_cost`` is the judges', of the records of which it is known. ``per_sample`` is None if no sample is
    scored. ``distributions`` are of the samples' values of each metric that is a mean of them.
    """

    info: SuiteInfo
    summary: Summary
    categories: Mapping[str, Summary]
    macro: Mapping[str, Metric] = field(default_factory=dict)
    num_skipped: int = 0
    models: tuple[str, ...] = ()
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    num_judge_requests: int = 0
    num_judge_tokens: int = 0
    judge_seconds: float = 0.0
    engine: EngineUse | None = None
    reliability: tuple[ReliabilityBin, ...] | None = None
    latency: Percentiles | None = None
    tokens_per_second: Percentiles | None = None
    phases: Phases | None = None
    cost: float | None = None
    num_priced: int | None = None
    judge_cost: float | None = None
    per_sample: PerSample | None = None
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def num_selected(self) -> int:
        """Return the number of samples that were to run, with those that were skipped then."""
        return self.summary.num_expected + self.num_skipped

    @property
    def is_selection(self) -> bool:
        """Tell whether the suite is known to have more samples than were to run."""
        return self.info.num_samples is not None and self.num_selected < self.info.num_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One suite on two models, over the samples that both scored: ``differences`` by metric, second minus first.

    ``movers`` are the samples at which the second is worse and better, for metrics of which samples have values.
    """

    suite: str
    first: str
    second: str
    differences: Mapping[str, Difference]
    movers: Mapping[str, FlippedSamples] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantComparison(Comparison):
    """One variant of a suite against its first, on one model, over the samples that both scored.

    ``suite`` is the name without the variant's; ``first`` and ``second`` are the names with it, as records have them.
    ``metric`` is the one that is tested: ``p_value`` is its paired test's, two-sided, and ``p_adjusted`` is Holm's over
    the ``family`` of these tests, one for each variant of the session that has one. None where there is no test.
    ``note`` says why the two are not compared, or how many samples are left out since they ask something else.
    """

    model: str | None = None
    metric: str | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """Metrics over the suites of one model (``model`` is None if there is one), for those that two suites or more have.

    Of a suite with variants the first counts: the others answer the same questions.

    ``macro`` counts every suite equally, ``micro`` every sample; the ``n`` of a macro average counts suites. Metrics
    that share no more than their name are in neither: ``unlike`` has the form of each suite's, by metric and suite.
    """

    model: str | None
    macro: Mapping[str, Metric]
    micro: Mapping[str, Metric]
    unlike: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_FLAWLESS = StoreFlaws()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUse:
    """The samples for which a session with a store (``--llm-store``) did not ask the model.

    ``num_reused`` of ``num_samples`` samples got all replies from the store; these were asked for from ``oldest`` to
    ``newest`` (ISO 8601 in UTC). ``problem`` is the reason why replies could no longer be kept. The replies of
    ``num_unreadable`` files, ``why_unreadable``, and ``num_damaged`` damaged lines were not used.
    """

    folder: str
    num_samples: int
    num_reused: int
    oldest: str | None = None
    newest: str | None = None
    problem: str | None = None
    num_unreadable: int = 0
    why_unreadable: str | None = None
    num_damaged: int = 0

    @classmethod
    def of(
        cls,
        folder: str,
        records: Iterable[Record],
        started: str,
        problem: str | None = None,
        flaws: StoreFlaws = _FLAWLESS,
    ) -> StoreUse:
        """Count the records of a session that ``started`` then: replies that were asked for before are reused."""
        num_samples = 0
        times: list[str] = []
        for record in records:
            num_samples += 1
            if record.asked_at is not None and record.asked_at < started:
                times.append(record.asked_at)
        return cls(
            folder=folder,
            num_samples=num_samples,
            num_reused=len(times),
            oldest=min(times, default=None),
            newest=max(times, default=None),
            problem=problem,
            num_unreadable=len(flaws.unreadable),
            why_unreadable=_joined("; ", *flaws.unreadable.values()) or None,
            num_damaged=sum(flaws.damaged.values()),
        )

    def __add__(self, other: StoreUse) -> StoreUse:
        """Add the counts of two parts of a run. They may have read copies of one store: its flaws are not added."""
        return StoreUse(
            folder=_joined(", ", self.folder, other.folder),
            num_samples=self.num_samples + other.num_samples,
            num_reused=self.num_reused + other.num_reused,
            oldest=min(filter(None, (self.oldest, other.oldest)), default=None),
            newest=max(filter(None, (self.newest, other.newest)), default=None),
            problem=_joined("; ", self.problem, other.problem) or None,
            num_unreadable=max(self.num_unreadable, other.num_unreadable),
            why_unreadable=_joined("; ", self.why_unreadable, other.why_unreadable) or None,
            num_damaged=max(self.num_damaged, other.num_damaged),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """The money and the tokens that a session with a budget has paid, its self-tests of servers included.

    ``most_cost`` and ``most_tokens`` are the limits (``--llm-budget``, ``--llm-budget-tokens``), None for no limit.
    ``ended`` says why nothing more was asked, if so.
    """

    cost: float
    num_tokens: int
    most_cost: float | None = None
    most_tokens: int | None = None
    ended: str | None = None

    @property
    def is_passed(self) -> bool:
        """Tell whether more was paid than the limit, as replies without bounds can have it."""
        return (self.most_cost is not None and self.cost > self.most_cost * (1 + 1e-9)) or (
            self.most_tokens is not None and self.num_tokens > self.most_tokens
        )

    def __add__(self, other: BudgetUse) -> BudgetUse:
        """Add two parts of a run, each with a budget of its own."""
        return BudgetUse(
            cost=self.cost + other.cost,
            num_tokens=self.num_tokens + other.num_tokens,
            most_cost=_sum_if_all(self.most_cost, other.most_cost),
            most_tokens=_sum_if_all(self.most_tokens, other.most_tokens),
            ended=_joined("; ", self.ended, other.ended) or None,
        )


_N = TypeVar("_N", int, float)


def _sum_if_all(one: _N | None, other: _N | None) -> _N | None:
    return None if one is None or other is None else one + other


def _joined(separator: str, *texts: str | None) -> str:
    """Join the texts, each once, also one that stands in a text which was joined before."""
    return separator.join(dict.fromkeys(part for text in texts if text for part in text.split(separator)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The selection that a session ran: options, as they were given, and hooks, ``by`` which tests were left out.

    ``by`` is empty if nothing was left out. ``is_by_outcome``: tests were chosen by how they had come out before.
    """

    by: tuple[str, ...] = ()
    is_by_outcome: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of a whole session.

    ``created`` is its start, ISO 8601 in UTC. ``collected`` are the names of the suites that it found, whether samples
    of them were to run or not; None if that was not recorded. ``num_failed_tests`` counts tests that failed although no
    record says why (such as being unscored, or wrong under ``--llm-strict``): hand-written tests, and samples with a
    fixture that failed after the score; gates and files that could not be collected are not among them; None if that
    was not recorded. ``selection`` says what was left out, and by what; see ``selected``. ``stopped`` says why the
    session ended early; ``problems`` are what makes its numbers incomplete. ``records`` may lie on disk and be read
    when they are asked for; those of a session that is still to be written hold no texts. ``definitions`` say what the
    names of metrics meant when the report was made, by name: ``kind``, ``higher_is_better``, ``version``; empty if that
    was not recorded. ``variants`` compares the variants of suites. ``judges`` are the models that scorers asked:
    ``role``, then the same keys as in ``models``, and ``use`` of those behind servers. ``store`` and ``budget`` are
    None for a session without one. ``origin`` is None if it was not recorded. ``is_brief``: it is a kept baseline
    (``--llm-update-baseline``), with what comparisons need and no more.

    ``altered`` is not a part of the file: its reader says there how it is known that the file is not as it was written.
    """

    schema: int = SCHEMA_VERSION
    is_brief: bool = False
    created: str
    seconds: float
    exit_code: int
    num_failed_tests: int | None = None
    selection: Selected = Selected()
    stopped: str | None = None
    problems: tuple[str, ...] = ()
    environment: Mapping[str, JSON]
    models: tuple[Mapping[str, JSON], ...]
    judges: tuple[Mapping[str, JSON], ...] = ()
    options: Mapping[str, JSON]
    origin: ReportOrigin | None = None
    collected: tuple[str, ...] | None = None
    definitions: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    suites: tuple[SuiteReport, ...]
    comparisons: tuple[Comparison, ...] = ()
    variants: tuple[VariantComparison, ...] = ()
    averages: tuple[Averages, ...] = ()
    gates: tuple[GateResult, ...] = ()
    store: StoreUse | None = None
    budget: BudgetUse | None = None
    records: Sequence[Record] = field(repr=False)
    altered: str | None = None

    def better_by_suite(self) -> dict[str, Mapping[str, str]]:
        """Return the better direction of each metric that is not known here, by suite."""
        return {suite.info.name: suite.info.better for suite in self.suites}

    @property
    def selected(self) -> Selected:
        """Return ``selection``, or for a report of an earlier schema, which has none, what its options say."""
        if self.schema >= _SINCE_SELECTION:
            return self.selection
        return Selected(by=tuple(f"--llm-{name} {self.options[name]}" for name in _SELECT if name in self.options))

    @property
    def suite_names(self) -> tuple[str, ...]:
        """Return the names of its suites, each once."""
        return tuple(dict.fromkeys(suite.info.name for suite in self.suites))

    def suites_called(self, name: str) -> frozenset[str]:
        """Return the names of the suites that a user means: one of them, or all variants of one.

        Raises ``ReportError`` for a name that no suite has.
        """
        infos = [suite.info for suite in self.suites]
        check_known("suite", name, dict.fromkeys(called for info in infos for called in (info.base, info.name)))
        return frozenset(info.name for info in infos if info.is_called((name,)))

    @property
    def model_names(self) -> tuple[str, ...]:
        """Return the models that answered its suites, each once."""
        return tuple(dict.fromkeys(model for suite in self.suites for model in suite.models))


NamedReport: TypeAlias = tuple[str, Report]
"""A report, and its file for messages."""

_SINCE_SELECTION = 3
_SELECT = ("limit", "shard")
"""Options of this package that leave tests out."""


def use_of_model(model: Mapping[str, Any]) -> ServerUse | None:
    """Return what was sent to one of ``Report.models`` or ``judges``, or None if it has no server or is damaged.

    Earlier versions have fewer keys and later ones may have more; a kept baseline has only the authors of replies.
    """
    use = model.get("use")
    if not isinstance(use, Mapping):
        return None
    return ServerUse(**{field.name: use[field.name] for field in fields(ServerUse) if field.name in use})


def definitions_of(suites: Iterable[SuiteReport]) -> dict[str, dict[str, JSON]]:
    """Return ``Report.definitions``: what the names of the suites' metrics mean in this version."""
    better: dict[str, str] = {}
    names: set[str] = set()
    for suite in suites:
        better |= suite.info.better
        names.update(suite.summary.metrics)
    return {
        name: {"kind": found.kind, "higher_is_better": found.higher_is_better, "version": found.version}
        for name, found in ((name, definition(name, better)) for name in sorted(names))
    }


def check_known(what: str, given: str | None, known: Iterable[str]) -> None:
    """Raise ``ReportError`` for the name of a suite, a model, … that a report does not have, unless it is None."""
    names = tuple(known)
    if given is not None and given not in names:
        raise ReportError(f"the report has no {what} {quoted(given)}{expected_one_of(given, names)}")


_VERSIONED = (
    *("pytest-llmeval-suites", "pytest", "pytest-xdist"),
    *("torch", "transformers", "tokenizers", "peft", "sentence-transformers"),
    *("sacrebleu", "rouge-score", "nltk", "math-verify"),
)
"""Distributions that decide what a model answers, or what number an answer gets."""


def describe_environment() -> dict[str, JSON]:
    """Return the versions of all that a number can depend on, read without importing any of it."""
    versions: dict[str, JSON] = {name: found for name in _VERSIONED if (found := installed_version(name)) is not None}
    return {"python": platform.python_version(), "platform": platform.platform(), "versions": versions}


Group: TypeAlias = tuple[str, str | None]
"""A suite, and one of the models if several were given: numbers are taken over its records."""


def compared_models(report: Report) -> tuple[str, ...]:
    """Return the models of a session that was given several, in their order; none for a session of one."""
    models = report.options.get("model")
    return tuple(map(str, models)) if isinstance(models, list | tuple) and len(models) > 1 else ()


def group_of_record(record: Record, compared: tuple[str, ...]) -> Group:
    """Return the group that counts the record, in a report whose ``compared_models`` are these."""
    return record.suite, record.model if record.model in compared else None


def group_of_suite(suite: SuiteReport, compared: tuple[str, ...]) -> Group:
    """Return the group that the suite's numbers are taken over, in a report whose ``compared_models`` are these."""
    first = suite.models[0] if suite.models else None
    return suite.info.name, first if first in compared else None


def described_group(group: Group) -> str:
    """Return the suite's name in words, with the model's if there are several."""
    suite, model = group
    return f"suite {suite!r}" if model is None else f"suite {suite!r} on {model}"
