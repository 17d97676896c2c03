"""Several reports shown as one, each with models of its own: not a run, and nothing to decide gates on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import overload

from pytest_llmeval.reporting.report.groups import Group, compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.merge import ChainedRecords
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, Report

__all__ = ["side_by_side"]


class _Renamed(Sequence[Record]):
    """Records read where they lie, with their models under other names."""

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
    """One report with the suites, comparisons, gates and records of all; each comes with the path of its file.

    Models keep their names; those that several reports have get the name of the file behind theirs. Numbers stay as
    they are, and there are no averages. One report alone is returned as it is.
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
        models=tuple({"name": name} for name in names),
        suites=tuple(suite for report in renamed for suite in report.suites),
        comparisons=tuple(one for report in renamed for one in report.comparisons),
        gates=tuple(gate for report in renamed for gate in report.gates),
        averages=(),
        records=ChainedRecords([report.records for report in renamed]),
    )


def _models_of(report: Report) -> dict[Group, str]:
    """What the models of each group are called; empty where a suite was answered without one."""
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
        gates=tuple(
            gate if gate.suite is None else replace(gate, model=named(gate.suite, gate.model)) for gate in report.gates
        ),
        records=_Renamed(report.records, models, compared),
    )


def _file_names(paths: Sequence[str]) -> list[str]:
    """The files' names without folders and suffixes, all different."""
    stems = [PurePath(path).stem for path in paths]
    with_folders = [f"{PurePath(path).parent.name} {stem}".strip() for path, stem in zip(paths, stems, strict=True)]
    names = [long if stems.count(stem) > 1 else stem for stem, long in zip(stems, with_folders, strict=True)]
    return [
        name if names.count(name) == 1 else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]
