"""Runs the Python functions of the tasks of the installed lm_eval package, for ``--llm-trust-task-code`` alone: their
values become columns of the task's rows.

A function's file has to lie in the installed package, and so does the task file that names it: an installed package is
its user's decision, and a YAML file from anywhere is not. One from anywhere may include such a task file, and give its
functions other rows.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.hub import HubDataset, load_split, table_of
from pytest_llmeval.data.rows import Row
from pytest_llmeval.data.yaml_reader import Document
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.rows_spec import RowsSpec
from pytest_llmeval.suites.lm_eval.groups import NOT_INSTALLED, installed_tasks
from pytest_llmeval.suites.lm_eval.task_file import FunctionReference, TaskFile, functions
from pytest_llmeval.suites.lm_eval.translate import FILE_BUILDERS, evaluated_split, example_split
from pytest_llmeval.suites.lm_eval.translate_scoring import WEIGHTED_F1
from pytest_llmeval.suites.lm_eval.translate_texts import is_a_number, may_be_a_number
from pytest_llmeval.suites.loading.sources import rows_of, shown_source
from pytest_llmeval.suites.loading.suite import Origin
from pytest_llmeval.text.wording import Keys, dotted, quoted

__all__ = ["CodedTask", "TaskCode", "coded_task", "load_task_code"]


_LM_EVAL_SEED = 0
"""The seed that lm-eval 0.4.13 gives Python's ``random`` before it loads a task (``--seed``)."""
_SUPPORTED = (
    ("process_docs",),
    ("doc_to_text",),
    ("doc_to_target",),
    ("doc_to_choice",),
    ("process_results",),
    ("fewshot_config", "process_docs"),
    ("fewshot_config", "samples"),
    ("fewshot_config", "doc_to_text"),
    ("fewshot_config", "doc_to_target"),
    ("fewshot_config", "doc_to_choice"),
)
_WITHOUT_EFFECT = (("doc_to_decontamination_query",),)


@dataclass(frozen=True, slots=True)
class TaskCode:
    """The functions of a task by the keys at which they stand."""

    task: TaskFile
    functions: dict[Keys, Callable[..., Any]] = field(default_factory=dict)

    def get(self, *keys: str) -> Callable[..., Any] | None:
        """Return the function at ``keys``, None if there is none."""
        return self.functions.get(keys)

    def call(self, keys: Keys, what: str, *args: Any) -> Any:
        """Call the function at ``keys`` for ``what``. ``SuiteError`` says at its line what it raised."""
        try:
            with _seeded():
                return self.functions[keys](*args)
        except Exception as error:
            name = type(error).__name__
            raise self.task.error_at(keys, f"the task's function raised {name} for {what}: {error}") from error


def load_task_code(task: TaskFile) -> TaskCode:
    """Import the functions that the task names. Raises ``SuiteError`` for one that may not be run here."""
    code = TaskCode(task)
    assert task.spec  # other mistakes are reported before anything is imported
    modules: dict[Path, ModuleType] = {}
    for keys, reference in functions(task.value):
        if keys in _WITHOUT_EFFECT:
            continue
        is_aggregation = keys[:1] == ("metric_list",) and keys[2:] == ("aggregation",)
        if keys not in _SUPPORTED and not is_aggregation:
            raise task.error_at(keys, f"found {quoted(str(reference))}; a function at this key is not run here")
        code.functions[keys] = _loaded(task, keys, reference, modules)
    return code


def _loaded(
    task: TaskFile, keys: Keys, reference: FunctionReference, modules: dict[Path, ModuleType]
) -> Callable[..., Any]:
    root = installed_tasks()
    folder = reference.source.path.resolve().parent
    module_name, _, name = reference.name.rpartition(".")
    if root is None:
        message = (
            f"found {quoted(str(reference))}; --llm-trust-task-code runs functions of the lm_eval package only, and"
        )
        raise task.error_at(keys, f"{message} {NOT_INSTALLED}")
    if not folder.is_relative_to(root):
        raise task.error_at(
            keys,
            f"found {quoted(str(reference))} in a task file that is not part of the installed lm_eval package; "
            "--llm-trust-task-code runs only functions of that package",
        )
    file = (folder / f"{module_name.replace('.', '/')}.py").resolve()
    try:
        if file.is_file() and file.is_relative_to(root):
            module = modules[file] = modules.get(file) or _fresh_module(file, root)
        elif module_name.split(".")[0] == "lm_eval":
            module = import_module(module_name)
        else:
            raise ImportError(f"there is no {file.name} in the folder of the task file")
        found = getattr(module, name)
    except Exception as error:
        message = f"{quoted(str(reference))} cannot be loaded: {type(error).__name__}: {error}"
        raise task.error_at(keys, message) from error
    if not callable(found):
        raise task.error_at(keys, f"{quoted(str(reference))} is not a function")
    return found  # type: ignore[no-any-return]


def _fresh_module(file: Path, root: Path) -> ModuleType:
    """Return the module, run anew, so that a stream of random numbers in it begins where it begins in every other
    process.

    Under the name that lm-eval gives it, by which ``datasets`` finds again what it made with its functions.
    """
    name = ".".join(("lm_eval.tasks", *file.relative_to(root).with_suffix("").parts))
    spec = util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {file.name}")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed random numbers in this context: a function that shuffles gives the same in every process, and takes nothing
    from the streams of others.
    """
    state = random.getstate()
    random.seed(_LM_EVAL_SEED)
    try:
        yield
    finally:
        random.setstate(state)


_TEXTS = ("doc_to_text", "doc_to_target", "doc_to_choice")
_PREFIX = "task_code_"


@dataclass(slots=True)
class CodedTask:
    """A task with columns where the original has functions; ``read_rows`` gives the rows that hold them.

    ``multiple_input``: its ``doc_to_text`` is the index of the option that belongs into the prompt.
    """

    task: TaskFile
    code: TaskCode
    multiple_input: bool = False
    _documents: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = field(default_factory=dict)

    def read_rows(self, spec: RowsSpec, keys: Keys, origin: Origin) -> Iterator[Row]:
        """Yield the processed documents of a split, with the columns of the functions. Raises ``SuiteError``."""
        as_examples = keys != ("dataset",)
        shares_rows = not as_examples  # examples may be drawn from the rows that are evaluated
        if self._is_of_task(spec):
            documents = self.documents(spec.split or "", as_examples=as_examples)
            shown = f"{self.task.value.get('dataset_path')}"
            source = Source(Path(f"{shown} ({spec.split or ''})"), shown)
        else:
            documents = self._own_documents(spec, keys, origin)
            shown = shown_source(spec, origin)
            source = Source(Path(shown), shown)
        for number, document in enumerate(documents, 1):
            made = dict(self._columns(document, number, as_examples=as_examples, both=shares_rows))
            yield Row({**document, **made}, source, number, None)

    def documents(self, split: str, *, as_examples: bool = False) -> list[dict[str, Any]]:
        """Return the documents of a split after ``process_docs``, which runs once for each split."""
        function = self._process_docs(as_examples=as_examples)
        key = (split, function)
        if key not in self._documents:
            self._documents[key] = self._processed(self._table(split), function, f"the split {split}")
        return self._documents[key]

    def first_document(self, rows: RowsSpec | None) -> list[dict[str, Any]]:
        """Return the first document that is evaluated, of ``rows`` where they are not the task's own; none where none
        is.
        """
        if rows is None or self._is_of_task(rows):
            return self.documents(evaluated_split(self.code.task)[1])[:1]
        return self._own_documents(rows, ("dataset",), Origin(Document(self.code.task.source, {}, {})))[:1]

    def _is_of_task(self, spec: RowsSpec) -> bool:
        """Tell whether ``spec`` is what the task itself says of its rows, but for the split."""
        named = (self.task.value.get("dataset_path"), self.task.value.get("dataset_name"))
        revision = self.code.task.spec.load_arguments.get("revision")
        return spec.path is None and (spec.hub, spec.config, spec.revision) == (*named, revision)

    def _own_documents(self, spec: RowsSpec, keys: Keys, origin: Origin) -> list[dict[str, Any]]:
        rows = [row.columns for row in rows_of(spec, keys, origin)]
        function = self._process_docs(as_examples=keys != ("dataset",))
        what = shown_source(spec, origin)
        if self.code.get(*function) is None:
            return rows
        try:
            table = table_of(rows)
        except ValueError as problem:
            message = f"{dotted(keys)}: {what} makes no table, which the task's function needs: {problem}"
            raise origin.error(message, keys) from None
        return self._processed(table, function, what)

    def _process_docs(self, *, as_examples: bool) -> tuple[str, ...]:
        own = ("fewshot_config", "process_docs")
        return own if as_examples and own in self.code.functions else ("process_docs",)

    def _processed(self, table: Any, function: tuple[str, ...], what: str) -> list[dict[str, Any]]:
        made: Iterable[Any] = table if self.code.get(*function) is None else self.code.call(function, what, table)
        return [dict(document) for document in made]

    def _table(self, split: str) -> Any:
        task = self.code.task
        path, arguments = task.required("dataset_path"), task.spec.load_arguments
        revision, streaming = arguments.pop("revision", None), arguments.pop("streaming", False)
        dataset = HubDataset(
            path,
            config=task.spec.dataset_name,
            split=split,
            revision=revision,
            streaming=bool(streaming),
            arguments=arguments,
            is_local=path in FILE_BUILDERS,
        )

        def error(message: str, key: str) -> SuiteError:
            at = "dataset_name" if key == "config" else "dataset_path"
            return task.error_at((at,), message)

        return load_split(dataset, error)

    def _columns(
        self, document: Mapping[str, Any], number: int, *, as_examples: bool, both: bool
    ) -> Iterator[tuple[str, Any]]:
        for name in _TEXTS:
            example: Keys = ("fewshot_config", name)
            has_own = example in self.code.functions
            if (name,) in self.code.functions and not (as_examples and has_own):
                yield _PREFIX + name, self._called((name,), document, number)
            if has_own and as_examples:
                yield f"{_PREFIX}example_{name}", self._called(example, document, number)
            elif has_own and both:
                with suppress(SuiteError):  # the document need not be an example
                    yield f"{_PREFIX}example_{name}", self._called(example, document, number)

    def _called(self, keys: Keys, document: Mapping[str, Any], number: int) -> Any:
        made = self.code.call(keys, f"document {number - 1}", copy.deepcopy(dict(document)))
        return list(made) if isinstance(made, tuple) else made


def coded_task(code: TaskCode, rows: RowsSpec | None = None) -> CodedTask:
    """Return the task without its functions, and the rows that have their values. Raises ``SuiteError``.

    ``rows`` is where the evaluated rows come from, if not from where the task says.
    """
    task = code.task
    value = {key: part for key, part in task.value.items() if key not in ("process_docs", "process_results")}
    for key in ("doc_to_decontamination_query", "dataset_kwargs"):
        value.pop(key, None)
    if value.get("dataset_path") in FILE_BUILDERS:  # read with all its arguments by read_rows only
        value["dataset_path"] = f"files read by datasets as {value['dataset_path']}"
    if isinstance(value.get("metric_list"), list):
        value["metric_list"] = [_with_known_aggregation(code, place) for place in range(len(value["metric_list"]))]
    config = dict(task.value.get("fewshot_config") or {})
    config.pop("process_docs", None)
    samples = code.get("fewshot_config", "samples")
    if samples is not None:
        config["samples"] = code.call(("fewshot_config", "samples"), "the examples")
    for name in _TEXTS:
        if (name,) in code.functions:
            value[name] = _PREFIX + name
        if ("fewshot_config", name) in code.functions:
            config[name] = f"{_PREFIX}example_{name}"
    if config or "fewshot_config" in value:
        value["fewshot_config"] = config
    coded = CodedTask(replace(task, value=value), code)
    text, has_choices = value.get("doc_to_text"), value.get("doc_to_choice") is not None
    if ("doc_to_text",) in code.functions and has_choices:
        first = coded.first_document(rows)
        coded.multiple_input = any(isinstance(coded._called(("doc_to_text",), one, 1), int) for one in first)
    elif task.spec.output_type == "multiple_choice" and has_choices and may_be_a_number(text):
        with suppress(SuiteError):  # what is wrong with the rows is said, with its place, where they are read for good
            coded.multiple_input = any(is_a_number(text, one) for one in coded.first_document(rows))
    if config.get("samples") is not None and example_split(task) is None:
        config["samples"] = [
            {**sample, **dict(coded._columns(sample, number, as_examples=True, both=False))}
            for number, sample in enumerate(config["samples"], 1)
        ]
    return coded


def _with_known_aggregation(code: TaskCode, place: int) -> Any:
    """Return a metric whose aggregation is a function of lm-eval's own, as the name that stands for it here."""
    entry, keys = code.task.value["metric_list"][place], ("metric_list", place, "aggregation")
    function = code.functions.get(keys)
    if function is None:
        return entry
    if (function.__module__, function.__name__) != ("lm_eval.utils", "weighted_f1_score"):
        message = f"the function {function.__name__} is not run here; only weighted_f1_score is supported"
        raise code.task.error_at(keys, message)
    return {**entry, "aggregation": WEIGHTED_F1}
