"""Runs the Python functions of the tasks of the installed lm_eval package, for ``--llm-trust-task-code`` alone.

A function's file has to lie in the installed package, and so does the task file that names it: what an installed
package does is its user's decision, what a YAML file from anywhere names is not. One from anywhere may include such a
task file, and give its functions other rows.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_llmeval.suites.lm_eval.groups import NOT_INSTALLED, installed_tasks
from pytest_llmeval.suites.lm_eval.task_file import FunctionReference, TaskFile, functions
from pytest_llmeval.text.wording import Keys, quoted

__all__ = ["TaskCode", "load_task_code"]

_LM_EVAL_SEED = 0
"""What lm-eval 0.4.13 seeds Python's ``random`` with before it loads a task (``--seed``)."""
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
        """Return the function at ``keys``, None where there is none."""
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
    """Import the functions that the task names. Raises ``SuiteError`` for one that is not to be run, or not here."""
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
