"""What a session has gathered, and the parts of its report that are made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_llmeval.reporting.report.groups import Group, described_group
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Averages, Comparison, SuiteReport
from pytest_llmeval.reporting.report.suite_reports import averages_or_problem, suite_report
from pytest_llmeval.reporting.report.summaries import compare_models
from pytest_llmeval.scoring.metrics.summary import expanded, names_in
from pytest_llmeval.text.node_ids import SampleNode
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import JSON, EngineUse

__all__ = ["Gathered"]


@dataclass(slots=True, kw_only=True)
class Gathered:
    """Filled as reports arrive, in whatever order.

    ``compared`` are the models of a session of several; ``model_of_node`` finds them by their names in node ids.
    ``expected`` are the node ids of samples that were to run, ``skipped`` those that did not because they were skipped,
    ``recorded`` those of all records. ``problems`` are what makes the numbers incomplete.
    """

    compared: tuple[str, ...]
    model_of_node: Mapping[str, str]
    expected: dict[str, None] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    records: dict[tuple[Group, str], Record] = field(default_factory=dict)
    suites: dict[str, SuiteInfo] = field(default_factory=dict)
    models: dict[str, Mapping[str, JSON]] = field(default_factory=dict)
    engines: dict[Group, EngineUse] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def group_of(self, record: Record) -> Group:
        """A sample's model is what its node id says; a hand-written test's, what answered it."""
        if not self.compared:
            return record.suite, None
        if record.nodeid in self.expected:
            return record.suite, self.model_of_node.get(SampleNode.parse(record.nodeid).model or "")
        return record.suite, record.model if record.model in self.compared else None

    def ordered_records(self) -> tuple[Record, ...]:
        """Samples of suites as they were collected, then those of hand-written tests by node id, however they ran."""
        places = {nodeid: place for place, nodeid in enumerate(self.expected)}
        last = len(places)
        return tuple(sorted(self.records.values(), key=lambda one: (places.get(one.nodeid, last), one.nodeid)))

    def ordered_models(self, suites: Iterable[SuiteReport]) -> Iterator[Mapping[str, JSON]]:
        """As the suites name them, then those that recorded nothing, however they arrived."""
        names = dict.fromkeys(model for suite in suites for model in suite.models)
        for name in (*names, *sorted(self.models.keys() - names)):
            if name in self.models:
                yield self.models[name]

    def find_mixtures(self) -> None:
        """One group's numbers are of one suite and one model: a problem for each that mixes them."""
        models: dict[Group, dict[str, None]] = {}
        conflicting_records: dict[str, str] = {}
        for (group, _), record in self.records.items():
            if record.model is not None:
                models.setdefault(group, {})[record.model] = None
            if record.suite in self.suites and record.nodeid not in self.expected:
                conflicting_records.setdefault(record.suite, record.nodeid)
        for suite, nodeid in conflicting_records.items():
            path = self.suites[suite].path
            self.problems.append(
                f"suite {suite!r} is {path}, and {nodeid} records to it too: give those records another suite"
            )
        for group, names in models.items():
            if len(names) > 1:
                self.problems.append(
                    f"{described_group(group)} was answered by {' and by '.join(names)}: its numbers mix them"
                )

    def suite_reports(self, records: Sequence[Record]) -> Iterator[SuiteReport]:
        """Each suite, with several models on each of them. One that has no metrics is a problem and costs no other."""
        expected = self._expected_groups()
        groups: dict[Group, list[Record]] = {group: [] for group in expected}
        for record in records:
            groups.setdefault(self.group_of(record), []).append(record)
        suites = {suite: place for place, suite in enumerate(dict.fromkeys(suite for suite, _ in groups))}
        for group in sorted(groups, key=lambda group: (suites[group[0]], self._place_of(group[1]))):
            (name, model), members, own = group, groups[group], expected.get(group, [])
            skipped = sum(nodeid in self.skipped for nodeid in own)
            others = sum(record.nodeid not in self.expected for record in members)
            info = self.suites.get(name) or _recorded_info(name, members)
            counts = {"num_expected": len(own) - skipped + others, "num_skipped": skipped}
            engine = self.engines.get(group)
            yield suite_report(group, info, members, **counts, model=model, engine=engine, problems=self.problems)

    def _place_of(self, model: str | None) -> int:
        """Models in the order in which they were given, before them what is of none."""
        return self.compared.index(model) + 1 if model in self.compared else 0

    def num_expected(self, info: SuiteInfo) -> dict[Group, int]:
        """How many samples of the suite are to run, on each model where there are several."""
        nodes = (SampleNode.parse(nodeid) for nodeid in self.expected if nodeid.startswith(f"{info.path}::"))
        return Counter((info.name, self.model_of_node.get(node.model or "")) for node in nodes)

    def _expected_groups(self) -> dict[Group, list[str]]:
        """The node ids of samples that were to run, by group, in order of appearance."""
        by_path = {info.path: name for name, info in self.suites.items()}
        groups: dict[Group, list[str]] = {}
        for nodeid in self.expected:
            node = SampleNode.parse(nodeid)
            groups.setdefault((by_path[node.path], self.model_of_node.get(node.model or "")), []).append(nodeid)
        return groups

    def averages(self, suites: Sequence[SuiteReport], records: Sequence[Record]) -> tuple[Averages, ...]:
        """Over the suites of each model; none, and a problem, where they cannot be taken."""
        return averages_or_problem(suites, records, self.problems)

    def comparisons(self, records: Sequence[Record]) -> tuple[Comparison, ...]:
        """Every model against the first that has scores, suite by suite."""
        suites: dict[str, dict[str, list[Record]]] = {}
        for record in records:
            suite, model = self.group_of(record)
            if model is not None:
                suites.setdefault(suite, {}).setdefault(model, []).append(record)
        scored = {record.model for record in records if record.status != "unscored"}
        order = [model for model in self.compared if model in scored]
        comparisons: list[Comparison] = []
        for suite, by_model in suites.items():
            own = [record for members in by_model.values() for record in members]
            info = self.suites.get(suite) or _recorded_info(suite, own)
            try:
                names = expanded(info.metrics, [record.score for record in own])
                comparisons += compare_models(suite, by_model, order, names)
            except Exception as error:
                self.problems.append(f"the models of suite {suite!r} could not be compared: {describe(error)}")
        return tuple(comparisons)


def _recorded_info(name: str, records: Sequence[Record]) -> SuiteInfo:
    """A suite that only hand-written tests record to has the metrics that its records carry."""
    return SuiteInfo(name=name, metrics=names_in(record.score for record in records))
