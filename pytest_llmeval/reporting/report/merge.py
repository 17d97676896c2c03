"""Merges the parts of one run, after it has checked that they are; or puts several reports side by side.

The numbers of a merged report are computed from all records anew, never from the parts' numbers. Records stay where
they lie: the merged report chains them. Reports side by side are not a run, and no gates are decided on them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import accumulate
from operator import add
from pathlib import PurePath
from typing import Any, overload

from pytest_llmeval.data.code_version import SOURCE
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.origin import ReportOrigin
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import (
    Comparison,
    Group,
    NamedReport,
    Report,
    Selected,
    SuiteReport,
    compared_models,
    definitions_of,
    described_group,
    group_of_record,
    group_of_suite,
    use_of_model,
)
from pytest_llmeval.reporting.report.served_models import mixtures
from pytest_llmeval.reporting.report.summaries import GroupRecords, merged_uses, never_named, with_suites
from pytest_llmeval.reporting.report.verify import verify_report
from pytest_llmeval.types import JSON, ServerUse

__all__ = [
    "ChainedRecords",
    "merge_reports",
    "side_by_side",
]


_MODEL_KEYS = ("backend", "revision", "dtype", "fingerprint")
_SUITE_KEYS = (
    *("judged_by", "judge", "fingerprint", "scorer", "settings", "cluster", "primary_metric", "higher_is_better"),
    *("interval", "min_measurable", "num_samples", "overridden"),
)
"""Keys that are the same in all parts. ``path`` depends on a machine's root folder, ``metrics`` on the scores."""

_OK, _FAILED, _NOTHING_SELECTED = _ENDED = 0, 1, 5
"""pytest's exit codes of sessions that ran to their end."""

_MAX_SHOWN = 60
_MAX_SHOWN_OF_HASH = 12


def _asked_models(report: Report) -> tuple[str, ...]:
    """Return the values of ``--llm-model``, in their order; none if the report does not say."""
    given = report.options.get("model")
    if isinstance(given, list | tuple):
        return tuple(map(str, given))
    return () if given is None else (str(given),)


def _check_models(parts: Sequence[NamedReport]) -> None:
    """Raise ``ReportError`` unless the parts ran the same models; their devices may differ.

    A part that met no model (no sample of any suite was its own) goes with all others.
    """
    known: dict[str, tuple[str, Mapping[str, JSON]]] = {}
    first: NamedReport | None = None
    for name, report in parts:
        names = {str(model.get("name")) for model in report.models}
        if names:
            first = first or (name, report)
            others = {str(model.get("name")) for model in first[1].models}
            asked, asked_first = set(_asked_models(report)), set(_asked_models(first[1]))
            # One of several that were asked for can have failed to load on one machine.
            if names != others and (not asked or asked != asked_first):
                raise ReportError(
                    f"different models: {first[0]} ran {_listed(others)}, {name} ran {_listed(names)}; "
                    "only shards of one run are merged (to compare two models: llmeval compare)"
                )
        for model in report.models:
            other, same = known.setdefault(str(model.get("name")), (name, model))
            if differing := _differing(_with_source(same), _with_source(model), (*_MODEL_KEYS, SOURCE)):
                raise ReportError(
                    f"model {str(model.get('name'))!r} is not the same in {other} and {name}: {differing}; "
                    "only shards of one run are merged"
                )


def _with_source(model: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return what is known of a model with the hash of its code, which is among its details, if it is Python code."""
    details = model.get("details")
    return {**model, SOURCE: details.get(SOURCE) if isinstance(details, Mapping) else None}


def _check_suites(parts: Sequence[NamedReport]) -> None:
    """Raise ``ReportError`` unless suites of one name are equal: questions, prompt, scorer, settings, judge, gates."""
    known: dict[str, tuple[str, SuiteInfo]] = {}
    for name, report in parts:
        for suite in report.suites:
            info = suite.info
            other, same = known.setdefault(info.name, (name, info))
            differing = _differing(asdict(same), asdict(info), _SUITE_KEYS)
            if differing and same.fingerprint != info.fingerprint and (parts_of := _differing_parts(same, info)):
                differing = f"other {parts_of}"
            if not differing and list(same.gates) != list(info.gates):
                differing = f"its gates are {_listed(same.gates)} and {_listed(info.gates)}"
            if differing:
                raise ReportError(
                    f"suite {info.name!r} is not the same in {other} and {name}: {differing}; "
                    "only shards of one run are merged"
                )


def _uncollected(parts: Sequence[NamedReport]) -> Iterator[str]:
    """Yield a text for each suite that a part found and another part did not; parts that do not say are left out."""
    finders: dict[str, str] = {}
    for name, report in parts:
        for suite in report.collected or ():
            finders.setdefault(suite, name)
    for name, report in parts:
        if report.collected is not None:
            for suite in sorted(finders.keys() - set(report.collected)):
                yield f"{name} did not collect the suite {suite!r}, which {finders[suite]} did"


def _ends_badly(parts: Sequence[NamedReport]) -> Iterator[str]:
    """Yield a text for each part that did not end as a run does that did all it had to do; gates may have failed."""
    for name, report in parts:
        if report.stopped is not None:
            yield f"{name} stopped early: {report.stopped}"
        elif report.exit_code not in _ENDED:
            yield f"{name} ended with exit code {report.exit_code}"
        elif report.exit_code == _FAILED and (num_failed := report.num_failed_tests):
            yield f"{name} ended with {num_failed} failed test{'' if num_failed == 1 else 's'}"
        elif report.exit_code == _FAILED and not _says_why(report):
            guess = "gates and samples says why: a test failed"  # of an older version
            if num_failed is not None:
                guess = "gates, samples and tests says why"
            yield f"{name} ended with exit code 1, and none of its {guess}"


def _says_why(report: Report) -> bool:
    return (
        bool(report.problems)
        or any(gate.outcome == "failed" for gate in report.gates)
        or any(suite.summary.num_unscored for suite in report.suites)
        or bool(report.options.get("strict"))
    )


def _check_definitions(parts: Sequence[NamedReport]) -> None:
    """Raise ``ReportError`` unless the names of metrics mean the same in all parts, and in this version."""
    own = definitions_of(suite for _, report in parts for suite in report.suites)
    for name, report in parts:
        for metric, meant in report.definitions.items():
            if metric in own and (differing := _differing(own[metric], meant, tuple(own[metric]))):
                raise ReportError(
                    f"metric {metric!r} has another definition in {name} than in this version: {differing}; "
                    "merge with the version that made the reports"
                )


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Describe the first of the keys that differs, with both values; the text is empty if none does."""
    for key in keys:
        first, second = one.get(key), other.get(key)
        if first != second:
            return f"{key} is {_shortened_value(first)} and {_shortened_value(second)}"
    return ""


def _differing_parts(one: SuiteInfo, other: SuiteInfo) -> str:
    names = one.fingerprint_parts.keys() & other.fingerprint_parts.keys()
    return ", ".join(sorted(name for name in names if one.fingerprint_parts[name] != other.fingerprint_parts[name]))


def _shortened_value(value: object) -> str:
    """Shorten a value for a message; of a hash the beginning is shown."""
    text = "none" if value is None else " and ".join(value) or "none" if isinstance(value, tuple) else str(value)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN if ' ' in text else _MAX_SHOWN_OF_HASH]}…"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


_SHARD = re.compile(r"(?P<number>[0-9]{1,9})/(?P<count>[0-9]{1,9})")
_MISSING = "the report lacks "


@dataclass(frozen=True, slots=True)
class Shards:
    """The parts ``numbers`` (from 1) of a run that was cut into ``count``."""

    numbers: frozenset[int]
    count: int

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(number for number in range(1, self.count + 1) if number not in self.numbers)

    def texts(self) -> list[str]:
        """Return the parts in their order, each as the option is written."""
        return [f"{number}/{self.count}" for number in sorted(self.numbers)]


def _shards_of(name: str, report: Report) -> Shards | None:
    """Return the shards that the report holds, or None if its run had none. Raises ``ReportError``, naming ``name``."""
    given = report.options.get("shard")
    if given is None:
        return None
    found = [_SHARD.fullmatch(str(text)) for text in (given if isinstance(given, list | tuple) else [given])]
    numbers = {int(one["number"]) for one in found if one is not None}
    counts = {int(one["count"]) for one in found if one is not None}
    if None in found or len(counts) != 1 or not numbers or min(numbers) < 1 or max(numbers) > min(counts):
        raise ReportError(f"{name}: option 'shard' is {given!r}; expected a shard such as '2/5'")
    return Shards(frozenset(numbers), counts.pop())


def _joined_shards(parts: Sequence[tuple[str, Report]]) -> Shards | None:
    """Return the shards of all parts together, or None if no part is a shard.

    Raises ``ReportError`` for shards of differently cut runs, and for one shard given twice.
    """
    found = [(name, shards) for name, shards in ((name, _shards_of(name, report)) for name, report in parts) if shards]
    owners: dict[int, str] = {}
    for name, shards in found:
        first_name, first = found[0]
        if shards.count != first.count:
            raise ReportError(
                f"{first_name} is shard {', '.join(first.texts())} and {name} is {', '.join(shards.texts())}: "
                "they are shards of different runs"
            )
        for number in sorted(shards.numbers):
            if number in owners:
                raise ReportError(f"{owners[number]} and {name} are both shard {number}/{shards.count}: give one")
            owners[number] = name
    return Shards(frozenset(owners), found[0][1].count) if found else None


def _missing_problem(shards: Shards) -> str:
    """Return the problem of a report that lacks some shards."""
    texts = [f"{number}/{shards.count}" for number in shards.missing]
    return f"{_MISSING}shard{'' if len(texts) == 1 else 's'} {', '.join(texts)}"


def _without_missing(problems: Iterable[str]) -> list[str]:
    """Return the problems without those of ``_missing_problem``: a merged report says for itself what it lacks."""
    return [problem for problem in problems if not problem.startswith(_MISSING)]


class ChainedRecords(Sequence[Record]):
    """The records of several reports, one after the other, each read where it lies."""

    def __init__(self, parts: Sequence[Sequence[Record]]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = list(accumulate(len(part) for part in self._parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Record]:
        for part in self._parts:
            yield from part

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        index = place + len(self) if place < 0 else place
        if not 0 <= index < len(self):
            raise IndexError(f"record {place} of {len(self)}")
        part = bisect_right(self._ends, index)
        return self._parts[part][index - (self._ends[part - 1] if part else 0)]


def merge_reports(parts: Sequence[NamedReport], *, partial: bool = False) -> Report:
    """Return the report of a run from the reports of its parts, each with a name for messages, in any order.

    Each part is verified first. Gates are not merged: a part's gates saw only that part. Raises ``ReportError`` for
    other suites, models or metric definitions, for a sample that two parts have, and, unless ``partial``, for shards
    that are missing, for parts that did not collect the suites of others, and for parts that did not end well (stopped
    early, or with a test that failed; gates may have failed, and samples may be unscored); with ``partial`` these are
    problems of the merged report. Its exit code is not the 1 of a part: it counts problems and unscored samples, until
    gates are decided on the whole.
    """
    if kept := [name for name, report in parts if report.is_brief]:
        raise ReportError(f"{kept[0]} is a kept baseline (--llm-update-baseline): merge the shards' own reports")
    shards = _joined_shards(parts)
    _check_models(parts)
    _check_suites(parts)
    _check_definitions(parts)
    parts = _sorted_parts(parts)
    reports = [report for _, report in parts]
    options = _merged_options(reports, shards)
    compared = compared_models(replace(reports[0], options=options))
    groups = _grouped_records([(name, verify_report(report, f"the report {name}")) for name, report in parts], compared)
    if shards is not None and shards.missing and not partial:
        raise ReportError(f"{_missing_problem(shards)}: give these too, or --partial to merge what there is")
    lacking = [*_uncollected(parts), *_ends_badly(parts)]
    if lacking and not partial:
        raise ReportError(f"{'; '.join(lacking)}: run it again, or --partial to merge what there is")
    problems = list(dict.fromkeys(problem for _, report in parts for problem in _without_missing(report.problems)))
    problems += lacking
    models, judges = tuple(_merged_models(reports)), tuple(_merged_judges(reports))
    problems += [text for text in mixtures([*models, *judges]) if text not in problems]
    if shards is not None and shards.missing:
        problems.append(_missing_problem(shards))
    merged = Report(
        created=min(report.created for report in reports),
        seconds=sum(report.seconds for report in reports),
        environment=_common_values([report.environment for report in reports]),
        models=models,
        judges=judges,
        options=options,
        origin=ReportOrigin.common([report.origin for report in reports]),
        collected=_merged_names(report.collected for report in reports),
        num_failed_tests=_sum_of_known(report.num_failed_tests for report in reports),
        exit_code=_OK,
        selection=_merged_selection(reports, shards),
        suites=(),
        records=ChainedRecords([report.records for report in reports]),
        stopped="; ".join(dict.fromkeys(report.stopped for report in reports if report.stopped)) or None,
        budget=reduce(add, budgets) if (budgets := [one.budget for one in reports if one.budget is not None]) else None,
        store=reduce(add, stores) if (stores := [one.store for one in reports if one.store is not None]) else None,
    )
    merged = with_suites(merged, _merged_groups(parts, groups, compared), compared, problems, of_session=False)
    problems += [text for text in never_named(merged) if text not in problems]
    merged = replace(merged, problems=tuple(problems))
    return replace(merged, exit_code=_exit_code(merged, reports))


def _sorted_parts(parts: Sequence[NamedReport]) -> list[NamedReport]:
    """Sort by shard, then by the time of the start, then by the first record, whatever the order of the call."""

    def place(part: NamedReport) -> tuple[int, str, tuple[str, str, str]]:
        name, report = part
        shards = _shards_of(name, report)
        first = next(iter(report.records), None)
        key = ("", "", "") if first is None else (first.suite, first.model or "", first.id)
        return (0 if shards is None else min(shards.numbers), report.created, key)

    return sorted(parts, key=place)


def _grouped_records(parts: Sequence[NamedReport], compared: tuple[str, ...]) -> dict[Group, list[Record]]:
    """Return the records without their texts, by group. Raises ``ReportError`` for a sample that two parts have."""
    groups: dict[Group, list[Record]] = {}
    owners: dict[tuple[Group, str], str] = {}
    for name, report in parts:
        for record in report.records:
            group = group_of_record(record, compared)
            other = owners.setdefault((group, record.id), name)
            if other != name:
                raise ReportError(
                    f"sample {record.id!r} of {described_group(group)} is in {other} and in {name}: "
                    "parts of one run have no sample in common"
                )
            groups.setdefault(group, []).append(record)
    return groups


def _merged_groups(
    parts: Sequence[NamedReport], groups: Mapping[Group, Sequence[Record]], compared: tuple[str, ...]
) -> dict[Group, GroupRecords]:
    members: dict[Group, list[SuiteReport]] = {}
    for _, report in parts:
        for suite in report.suites:
            members.setdefault(group_of_suite(suite, compared), []).append(suite)
    found: dict[Group, GroupRecords] = {}
    for group, own in members.items():
        engine = None
        for suite in own:
            engine = engine if suite.engine is None else merged_uses(engine, suite.engine)
        found[group] = GroupRecords(
            records=groups.get(group, ()),
            info=replace(
                own[0].info, metrics=tuple(dict.fromkeys(name for suite in own for name in suite.info.metrics))
            ),
            num_expected=sum(suite.summary.num_expected for suite in own),
            num_skipped=sum(suite.num_skipped for suite in own),
            model=group[1] or next((suite.models[0] for suite in own if suite.models), None),
            engine=engine,
        )
    return found


def _merged_models(reports: Iterable[Report]) -> Iterator[Mapping[str, JSON]]:
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        for model in report.models:
            by_name.setdefault(str(model.get("name")), []).append(model)
    for members in by_name.values():
        devices = dict.fromkeys(str(model["device"]) for model in members if model.get("device"))
        yield _with_uses({**_common_values(members), "device": ", ".join(devices) or None}, members)


def _with_uses(merged: dict[str, JSON], members: Sequence[Mapping[str, Any]]) -> dict[str, JSON]:
    """Add up what all parts have sent to a model behind a server."""
    uses = [use for use in map(use_of_model, members) if use is not None]
    return {**merged, "use": asdict(sum(uses, ServerUse()))} if uses else merged


def _merged_judges(reports: Iterable[Report]) -> Iterator[Mapping[str, JSON]]:
    by_name: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for report in reports:
        for judge in report.judges:
            by_name.setdefault((str(judge.get("role")), str(judge.get("name"))), []).append(judge)
    for members in by_name.values():
        yield _with_uses(_common_values(members), members)


def _merged_options(reports: Sequence[Report], shards: Shards | None) -> dict[str, JSON]:
    """Return the options of all parts, with each value of those that differ; shards only if some are missing.

    The models are one list: the first part's, in its order, then what others were asked for besides.
    """
    options = _common_values(
        [{name: value for name, value in report.options.items() if name != "shard"} for report in reports]
    )
    asked = [_asked_models(report) for report in reports if report.models] or [_asked_models(reports[0])]
    if models := dict.fromkeys(model for one in asked for model in one):
        options["model"] = list[JSON](models)
    if shards is not None and shards.missing:
        options["shard"] = list[JSON](shards.texts())
    return options


def _merged_selection(reports: Sequence[Report], shards: Shards | None) -> Selected:
    """Return the selections of the parts. Shards count only if some are missing: together they leave nothing out."""
    by = dict.fromkeys(one for report in reports for one in report.selected.by if not one.startswith(_BY_SHARD))
    if shards is not None and shards.missing:
        by[f"{_BY_SHARD}{', '.join(shards.texts())}"] = None
    return Selected(by=tuple(by), is_by_outcome=any(report.selected.is_by_outcome for report in reports))


_BY_SHARD = "--llm-shard "


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _merged_names(parts: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    known = [names for names in parts if names is not None]
    return tuple(sorted({name for names in known for name in names})) if known else None


def _common_values(mappings: Sequence[Mapping[str, Any]]) -> dict[str, JSON]:
    """Return what the mappings share; a value that differs becomes a list of all. Inner mappings are merged too."""
    merged: dict[str, JSON] = {}
    for key in dict.fromkeys(key for mapping in mappings for key in mapping):
        values = [mapping.get(key) for mapping in mappings]
        if all(isinstance(value, Mapping) for value in values):
            merged[key] = _common_values([value for value in values if isinstance(value, Mapping)])
        elif all(value == values[0] for value in values):
            merged[key] = values[0]
        else:
            distinct: list[JSON] = []
            for value in values:
                if value not in distinct:
                    distinct.append(value)
            merged[key] = distinct
    return merged


def _exit_code(merged: Report, reports: Sequence[Report]) -> int:
    """Return a part's exit code that is neither 0 nor 1 (an interruption), else 1 if something is missing.

    Missing are what problems tell, unscored samples, and a part that stopped early. The 1 of a part can be that of a
    gate, which saw only its part. The 5 of a part that selected nothing counts only if no other part selected anything.
    """
    codes = {report.exit_code for report in reports}
    codes = codes - {_NOTHING_SELECTED} or codes
    others = codes - {_OK, _FAILED}
    if others:
        return max(others)
    missing = merged.problems or merged.stopped or any(suite.summary.num_unscored for suite in merged.suites)
    return _FAILED if missing else _OK


class _Renamed(Sequence[Record]):
    """Records that are read where they lie, with other names of their models."""

    def __init__(self, records: Sequence[Record], models: Mapping[Group, str], compared: tuple[str, ...]) -> None:
        self._records, self._models, self._compared = records, models, compared

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return map(self._renamed, self._records)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self._renamed(record) for record in self._records[place]]
        return self._renamed(self._records[place])

    def _renamed(self, record: Record) -> Record:
        model = self._models.get(group_of_record(record, self._compared))
        return record if model is None else replace(record, model=model)


def side_by_side(reports: Sequence[tuple[str, Report]]) -> Report:
    """Return one report with the suites, comparisons, gates and records of all; each comes with the path of its file.

    Models keep their names; if several reports have a model of the same name, the name of the file stands behind it.
    Numbers stay as they are, and there are no averages. One report alone is returned as it is.
    """
    if len(reports) == 1:
        return reports[0][1]
    given = [name for _, report in reports for name in dict.fromkeys(_models_of(report).values())]
    renamed = []
    for file, (_, report) in zip(_file_names([path for path, _ in reports]), reports, strict=True):
        models = {
            group: file if not name else f"{name} ({file})" if given.count(name) > 1 else name
            for group, name in _models_of(report).items()
        }
        renamed.append(_with_models(report, models))
    names = dict.fromkeys(model for report in renamed for model in report.model_names)
    return replace(
        renamed[0],
        options={"model": list(names)},
        origin=None,
        models=tuple({"name": name} for name in names),
        suites=tuple(suite for report in renamed for suite in report.suites),
        comparisons=tuple(one for report in renamed for one in report.comparisons),
        variants=tuple(one for report in renamed for one in report.variants),
        gates=tuple(gate for report in renamed for gate in report.gates),
        averages=(),
        records=ChainedRecords([report.records for report in renamed]),
    )


def _models_of(report: Report) -> dict[Group, str]:
    """Return the names of the models of each group; a name is empty if a suite was answered without a model."""
    compared = compared_models(report)
    return {group_of_suite(suite, compared): ", ".join(suite.models) for suite in report.suites}


def _with_models(report: Report, models: Mapping[Group, str]) -> Report:
    compared = compared_models(report)

    def named(suite: str, model: str | None) -> str | None:
        return models.get((suite, model if model in compared else None), model)

    def renamed(one: Comparison) -> Comparison:
        first, second = (named(one.suite, model) or model for model in (one.first, one.second))
        return replace(one, first=first, second=second)

    return replace(
        report,
        suites=tuple(replace(suite, models=(models[group_of_suite(suite, compared)],)) for suite in report.suites),
        comparisons=tuple(map(renamed, report.comparisons)),
        variants=tuple(replace(one, model=named(one.second, one.model)) for one in report.variants),
        gates=tuple(
            gate if gate.suite is None else replace(gate, model=named(gate.suite, gate.model)) for gate in report.gates
        ),
        records=_Renamed(report.records, models, compared),
    )


def _file_names(paths: Sequence[str]) -> list[str]:
    """Return the names of the files without folders and suffixes, all different."""
    stems = [PurePath(path).stem for path in paths]
    with_folders = [f"{PurePath(path).parent.name} {stem}".strip() for path, stem in zip(paths, stems, strict=True)]
    names = [long if stems.count(stem) > 1 else stem for stem, long in zip(stems, with_folders, strict=True)]
    return [
        name if names.count(name) == 1 else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]
