"""What a session found, as it is written to a report and read from one (``storage/report_file``)."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from typing import Any, Literal, TypeAlias

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.scoring.comparison.differences import Difference
from pytest_llmeval.scoring.comparison.flipped_samples import FlippedSamples
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.distribution import Distribution
from pytest_llmeval.scoring.metrics.percentiles import Percentiles
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.text.model_names import plain_name
from pytest_llmeval.text.wording import expected_one_of, quoted
from pytest_llmeval.types import JSON, EngineUse, ServerUse, StoreFlaws

__all__ = [
    "ABSENT",
    "SCHEMA_VERSION",
    "SINCE_DIGEST",
    "Averages",
    "Comparison",
    "GateMode",
    "GateOutcome",
    "GateResult",
    "Group",
    "PerSample",
    "Phases",
    "Regression",
    "Report",
    "Selected",
    "StoreUse",
    "SuiteReport",
    "Summary",
    "check_known",
    "compared_models",
    "definitions_of",
    "describe_environment",
    "described_group",
    "group_of_record",
    "group_of_suite",
    "suite_of_baseline",
    "use_of_model",
]


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


SCHEMA_VERSION = 3
"""Grows when a reader of older reports would misread newer ones."""

SINCE_DIGEST = 3
"""The first schema whose reports have a digest of all that they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts and metrics over some samples: a suite's, or one category's.

    ``num_expected`` were to run (selected and not skipped); ``num_scored`` of them were judged. ``not_measurable``
    counts those of them for which a metric has no meaning, by metric and reason. ``num_truncated`` replies ended at
    their limit of tokens, as far as that is known.
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
    """Prefill is reading prompts until a reply's first token, decode is writing all others.

    Tokens of prompts count for each sample, also where samples share what is computed of them.
    """

    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSample:
    """What one of ``n`` scored samples took, as means over them.

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
    """What the session found about one suite; where several models were given, on one of them.

    ``models`` names those that answered it: one, unless its numbers mix them. Token counts and seconds are sums over
    its records. ``macro`` are its metrics' means over its categories, every category counting equally; their ``n``
    counts categories. ``engine`` is how its log-likelihoods were computed, where the model tells. ``reliability`` are
    the bins of its expected calibration error, where its scorer gives probabilities. ``latency`` is of the model's
    seconds for a sample, ``tokens_per_second`` of all its tokens by its seconds; of the scored samples that were timed
    by themselves, and of those whose tokens were counted: shares of a batch's time are equal, and their percentiles say
    nothing. ``phases`` are where generated texts spent their time, as far as the model tells. ``cost`` is the sum over
    the ``num_priced`` records that have one (None: not counted, in reports of earlier versions), None where none has;
    ``per_sample`` what a scored sample took, None where none is scored.
    ``distributions`` are of the samples' values of each metric that is a mean of them.
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
    per_sample: PerSample | None = None
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def num_selected(self) -> int:
        """Samples that were to run: also those that were skipped then."""
        return self.summary.num_expected + self.num_skipped

    @property
    def is_selection(self) -> bool:
        """Whether the suite is known to have more samples than were to run."""
        return self.info.num_samples is not None and self.num_selected < self.info.num_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One suite on two models, over the samples that both scored: ``differences`` by metric, second minus first.

    ``movers`` are the samples that the second is worse and better at, of metrics that samples have values of.
    """

    suite: str
    first: str
    second: str
    differences: Mapping[str, Difference]
    movers: Mapping[str, FlippedSamples] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """Metrics over the suites of one model (None where there is one): of each that at least two suites have.

    ``macro`` counts every suite equally, ``micro`` every sample; a macro average's ``n`` counts suites. Metrics that
    share no more than their name are in neither: ``unlike`` has what each suite's is, by metric and suite.
    """

    model: str | None
    macro: Mapping[str, Metric]
    micro: Mapping[str, Metric]
    unlike: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_FLAWLESS = StoreFlaws()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUse:
    """What a session with a store (``--llm-store``) did not ask for.

    ``num_reused`` of ``num_samples`` samples got all replies from the store; these were asked for from ``oldest`` to
    ``newest`` (ISO 8601 in UTC). ``problem`` is why replies could no longer be kept. Not used are the replies of
    ``num_unreadable`` files, ``why_unreadable``, and ``num_damaged`` damaged lines.
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
        """Of a session that ``started`` then: what was asked for before is reused."""
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
        """Of two parts of a run. They may have read copies of one store: its flaws are not added up."""
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


def _joined(separator: str, *texts: str | None) -> str:
    """Each text once, also one that stands in a text which was joined before."""
    return separator.join(dict.fromkeys(part for text in texts if text for part in text.split(separator)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The selection that a session ran: options, as they were given, and hooks ``by`` which tests were left out.

    None of them where nothing was left out. ``is_by_outcome``: tests were chosen by how they had come out before.
    """

    by: tuple[str, ...] = ()
    is_by_outcome: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole session.

    ``created`` is its start, ISO 8601 in UTC. ``collected`` are the names of the suites that it found, whether samples
    of them were to run or not; None where that was not recorded. ``num_failed_tests`` counts tests that failed where
    no record says why (it is unscored, or wrong under ``--llm-strict``): hand-written ones, and samples with a fixture
    that failed after the score; gates and what could not be collected are not among them; None where that was not
    recorded. ``selection`` says what was left out, and by what; see ``selected``. ``stopped`` says why it ended early;
    ``problems`` are what makes its numbers incomplete. ``records`` may lie on disk and be read when they are asked for;
    those of a session that is still to be written hold no texts. ``definitions`` say what its metrics' names meant when
    it was made, by name: ``kind``, ``higher_is_better``, ``version``; empty where that was not recorded. ``judges`` are
    the models that scorers asked: ``role``, what is known of each as of ``models``, and of those behind servers
    ``use``. ``store`` is None for a session without one. ``altered`` is no part of a report's file: it says how the
    reader of a file knows that it is not as it was written.
    """

    schema: int = SCHEMA_VERSION
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
    collected: tuple[str, ...] | None = None
    definitions: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    suites: tuple[SuiteReport, ...]
    comparisons: tuple[Comparison, ...] = ()
    averages: tuple[Averages, ...] = ()
    gates: tuple[GateResult, ...] = ()
    store: StoreUse | None = None
    records: Sequence[Record] = field(repr=False)
    altered: str | None = None

    def better_by_suite(self) -> dict[str, Mapping[str, str]]:
        """Which way is better of the metrics that each suite names and that are not known here."""
        return {suite.info.name: suite.info.better for suite in self.suites}

    @property
    def selected(self) -> Selected:
        """``selection``; of a report of an earlier schema, which has none, what its options say."""
        if self.schema >= _SINCE_SELECTION:
            return self.selection
        return Selected(by=tuple(f"--llm-{name} {self.options[name]}" for name in _SELECT if name in self.options))

    @property
    def suite_names(self) -> tuple[str, ...]:
        """Its suites, each once."""
        return tuple(dict.fromkeys(suite.info.name for suite in self.suites))

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that answered its suites, each once."""
        return tuple(dict.fromkeys(model for suite in self.suites for model in suite.models))


_SINCE_SELECTION = 3
_SELECT = ("limit", "shard")
"""Options of ours that leave tests out."""


def use_of_model(model: Mapping[str, Any]) -> ServerUse | None:
    """What was sent to one of ``Report.models`` or ``judges``; None for one behind no server, and where it is damaged.

    Unknown keys are left out: a later version may have more.
    """
    use = model.get("use")
    if not isinstance(use, Mapping):
        return None
    try:
        known = {"replicas": {}, "served_models": {}, "system_fingerprints": {}, **use}  # new since there were uses
        return ServerUse(**{field.name: known[field.name] for field in fields(ServerUse)})
    except KeyError:
        return None


def definitions_of(suites: Iterable[SuiteReport]) -> dict[str, dict[str, JSON]]:
    """``Report.definitions``: what the names of the suites' metrics mean in this version."""
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
    """Raise ``ReportError`` for a suite, a model, … that a report does not have; None is none."""
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
    """Versions of what a number can depend on, read without importing any of it."""
    versions: dict[str, JSON] = {}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "platform": platform.platform(), "versions": versions}


ABSENT = "not in the baseline"

Group: TypeAlias = tuple[str, str | None]
"""What numbers are taken over: a suite, and where several models were given one of them."""


def compared_models(report: Report) -> tuple[str, ...]:
    """The models of a session that was given several, in their order; none for a session of one."""
    models = report.options.get("model")
    return tuple(map(str, models)) if isinstance(models, list | tuple) and len(models) > 1 else ()


def group_of_record(record: Record, compared: tuple[str, ...]) -> Group:
    """The group that counts the record, in a report whose ``compared_models`` are these."""
    return record.suite, record.model if record.model in compared else None


def group_of_suite(suite: SuiteReport, compared: tuple[str, ...]) -> Group:
    """The group that the suite's numbers are taken over, in a report whose ``compared_models`` are these."""
    first = suite.models[0] if suite.models else None
    return suite.info.name, first if first in compared else None


def suite_of_baseline(baseline: Report, name: str, model: str | None) -> SuiteReport | str:
    """The suite of this name that one on ``model`` is compared with; where there is none, why (``ABSENT``, …).

    Where the baseline has it on one model, that is the one; else on the same model.
    """
    partners = [one for one in baseline.suites if one.info.name == name]
    if not partners:
        return ABSENT
    if len(partners) == 1:
        return partners[0]
    for named in (str, plain_name):  # reports of schema 1 and 2 have names with arguments that decide no reply
        same = [one for one in partners if model is not None and one.models and named(one.models[0]) == named(model)]
        if len(same) == 1:
            return same[0]
    models = ", ".join(quoted(one.models[0]) for one in partners if one.models)
    own = "a model without a name" if model is None else quoted(model)
    return f"the baseline has this suite on {models}, and not on {own}"


def described_group(group: Group) -> str:
    suite, model = group
    return f"suite {suite!r}" if model is None else f"suite {suite!r} on {model}"
