"""Loads a task file as a suite, and writes it as one."""

from __future__ import annotations

import json
import os
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import Document, parse_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.format.rows_spec import RowsSpec
from pytest_llmeval.suites.lm_eval.groups import Leaf, is_group, leaves_of, read_leaf
from pytest_llmeval.suites.lm_eval.process_results import SCORER, ResultsSpec, results_scoring, task_results_scorer
from pytest_llmeval.suites.lm_eval.task_code import CodedTask, coded_task, load_task_code
from pytest_llmeval.suites.lm_eval.task_file import TaskFile, functions, read_task_file
from pytest_llmeval.suites.lm_eval.translate import (
    NativeSuite,
    TaskOrigin,
    evaluated_rows,
    own_rows,
    translate,
    with_own_rows,
)
from pytest_llmeval.suites.lm_eval.translate_scoring import MetricPair
from pytest_llmeval.suites.lm_eval.translate_texts import is_a_number, may_be_a_number
from pytest_llmeval.suites.loading.loader import RowReader, suite_of
from pytest_llmeval.suites.loading.sources import rows_of
from pytest_llmeval.suites.loading.suite import NO_SCORERS, Origin, Suite

__all__ = ["convert", "load_task", "metric_pairs", "read_tasks"]

_PLAIN = re.compile(r"[^\W\d][\w ./@^-]*")
_MAX_INLINE = 90
"""The most characters of a list that stands on one line of YAML."""


def read_tasks(source: Source) -> list[Leaf]:
    """Return what the file stands for: itself, or the tasks of the group that it is. Raises ``SuiteError``."""
    task = read_task_file(source)
    return leaves_of(task) if is_group(task) else [Leaf(source)]


def load_task(
    leaf: Leaf,
    *,
    overrides: Sequence[Override] = (),
    scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
    trust_code: bool = False,
) -> Suite:
    """Return the task as a suite, with its samples. Raises ``SuiteError`` for what has no equivalent here.

    ``trust_code`` lets the functions of a task run, if it is one of the installed lm_eval package.
    """
    task = read_leaf(leaf)
    read_rows: RowReader = rows_of
    if not trust_code or next(functions(task.value), None) is None:
        native, _ = translate(task, multiple_input=_is_multiple_input(task, own_rows(task, overrides)))
    else:
        native, _, coded, results = translate_coded(task, own_rows(task, overrides))
        read_rows = coded.read_rows
        if results is not None:
            scorers = ChainMap({SCORER: task_results_scorer(results)}, scorers)  # type: ignore[arg-type]
    return suite_of(
        native.document(),
        overrides=with_own_rows(native, overrides),
        origin_of=partial(TaskOrigin, native=native),
        scorers=scorers,
        read_rows=read_rows,
    )


def translate_coded(
    task: TaskFile, rows: RowsSpec | None = None
) -> tuple[NativeSuite, tuple[MetricPair, ...], CodedTask, ResultsSpec | None]:
    """Return a task whose functions are run: its suite, metrics, rows and results. Raises ``SuiteError``.

    ``rows`` is where the evaluated rows come from, if not from where the task says.
    """
    code = load_task_code(task)
    coded = coded_task(code, rows)
    results = scoring = None
    if ("process_results",) in code.functions:
        scoring, results = results_scoring(code)
    native, pairs = translate(coded.task, multiple_input=coded.multiple_input, scoring=scoring)
    return native, pairs, coded, results


def _translated(task: TaskFile) -> tuple[NativeSuite, tuple[MetricPair, ...]]:
    return translate(task, multiple_input=_is_multiple_input(task, None))


def _is_multiple_input(task: TaskFile, rows: RowsSpec | None) -> bool:
    """Tell whether ``doc_to_text`` is the index of an option, by the first row of ``rows`` or of the task's own data.

    Mistakes in the rows or in the task are reported later, when they are read completely.
    """
    spec = task.spec
    text = spec.doc_to_text
    if spec.output_type != "multiple_choice" or spec.doc_to_choice is None or not may_be_a_number(text):
        return False
    if not isinstance(text, str):
        return True
    try:
        named = RowsSpec.model_validate(evaluated_rows(task).value) if rows is None else rows
        first = next(iter(rows_of(named, ("dataset",), Origin(Document(task.source, {}, {})))))
    except SuiteError:
        return False
    return is_a_number(text, first.columns)


def metric_pairs(path: str | os.PathLike[str], *, trust_code: bool = False) -> tuple[MetricPair, ...]:
    """Return what each metric of a task is called here: ``acc,none`` is ``MetricPair("acc", "none",
    "accuracy_sum_first")``.

    ``trust_code``: for a task of the installed lm_eval package that calls functions. Raises ``SuiteError``.
    """
    task = _single(path)
    return translate_coded(task)[1] if trust_code else _translated(task)[1]


def convert(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> str:
    """Return the text of a suite file that does what the task file does. Raises ``SuiteError``.

    A data file is named as seen from ``folder``, in which the suite will stand; by default that of the task file.
    """
    task = _single(path)
    try:
        native, pairs = _translated(task)
    except SuiteError as error:
        if "--llm-trust-task-code" not in error.message:
            raise
        what = error.message.partition(", which runs Python")[0]
        message = f"{what}, which runs Python: a suite is data and has no place for it"
        raise SuiteError(message, path=error.path, line=error.line) from None
    value = native.value if folder is None else _moved(native.value, task.source.path.parent, Path(folder))
    names = [f"# {pair.metric},{pair.pipeline} in lm-eval is {pair.name} here" for pair in pairs]
    return "\n".join([f"# lm-eval's task {native.value['suite']}", *names, "", _as_yaml(value, task.source)])


def _moved(value: Mapping[str, Any], here: Path, folder: Path) -> dict[str, Any]:
    """Return the suite with its data files as seen from ``folder``, which are named as seen from ``here``."""

    def moved(rows: Mapping[str, Any]) -> dict[str, Any]:
        path = rows.get("path")
        if path is None or os.path.isabs(path):
            return dict(rows)
        whole = os.path.normpath(os.path.join(os.path.realpath(here), path))
        try:
            path = Path(os.path.relpath(whole, os.path.realpath(folder))).as_posix()
        except ValueError:  # on another drive
            path = whole
        return {**rows, "path": path}

    changed = {**value, "dataset": moved(value["dataset"])}
    prompt = value.get("prompt", {})
    if "fewshot" in prompt:
        changed["prompt"] = {**prompt, "fewshot": moved(prompt["fewshot"])}
    return changed


def _single(path: str | os.PathLike[str]) -> TaskFile:
    source = Source(Path(path), os.fspath(path))
    task = read_task_file(source)
    if is_group(task):
        raise SuiteError("is a group: convert its tasks one by one", path=source.shown)
    return task


def _as_yaml(value: Mapping[str, Any], source: Source) -> str:
    """Return the mapping as YAML that is read back as it was; ``source`` is named should it not be readable."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    if parse_yaml(text, source).value != value:  # JSON is YAML too, and leaves nothing to interpret
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    return text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = (
        "\n" in text and text[0].strip() and text.rstrip(" \n") == text and " \n" not in text and "\t" not in text
    )
    style = "|" if is_block else None if _PLAIN.fullmatch(text) and text == text.strip() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.SequenceNode:
    is_short = not any(isinstance(value, dict | list) or "\n" in str(value)[:-1] for value in values)
    inline = is_short and sum(len(str(value)) + 4 for value in values) < _MAX_INLINE
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=inline)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)
