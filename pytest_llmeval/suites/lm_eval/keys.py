"""The keys of lm-eval's task files: which are acted on, which have no effect on any number, and which are refused.

Without effect on a number, in lm-eval 0.4.13 too, and accepted: ``task_alias``, ``group_alias`` and ``metadata`` (for
tables), ``tag`` (for selecting), ``should_decontaminate`` and ``doc_to_decontamination_query`` (of a check that is no
longer there), ``higher_is_better`` and ``weight_by_size`` of a metric, ``trust_remote_code`` of ``dataset_kwargs``, and
for multiple choice the arguments of exact_match, which compare texts. Every other key is acted on or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_llmeval.suites.lm_eval.task_yaml import FunctionReference, TaskFile
from pytest_llmeval.text.wording import Keys, quoted

__all__ = ["TASK_KEYS", "check_fewshot_config", "check_keys", "functions", "refuse_functions"]

_ACTED_ON = [
    "task",
    "dataset_path",
    "dataset_name",
    "dataset_kwargs",
    "training_split",
    "validation_split",
    "test_split",
    "fewshot_split",
    "doc_to_text",
    "doc_to_target",
    "doc_to_choice",
    "description",
    "target_delimiter",
    "fewshot_delimiter",
    "fewshot_config",
    "num_fewshot",
    "metric_list",
    "output_type",
    "generation_kwargs",
    "repeats",
    "filter_list",
    "gen_prefix",
    "process_docs",
    "process_results",
]
_WITHOUT_EFFECT = [
    "task_alias",
    "tag",
    "metadata",
    "should_decontaminate",
    "doc_to_decontamination_query",
    "group_alias",
]
_REFUSED = {
    "class": "a task that is a Python class cannot be read as data",
    "use_prompt": "prompts of promptsource are not available; write the template as doc_to_text",
    "doc_to_image": "images cannot be shown to a model here",
    "doc_to_audio": "sound cannot be played to a model here",
    "custom_dataset": "a data set that Python makes cannot be read as data; name one with dataset_path",
}
TASK_KEYS = frozenset((*_ACTED_ON, *_WITHOUT_EFFECT, *_REFUSED, "unsafe_code", "include"))
"""All keys that a task file can have in lm-eval 0.4.13."""

_FEWSHOT_KEYS = frozenset(
    [
        "sampler",
        "split",
        "process_docs",
        "fewshot_indices",
        "samples",
        "doc_to_text",
        "doc_to_choice",
        "doc_to_target",
        "gen_prefix",
        "fewshot_delimiter",
        "target_delimiter",
    ]
)


def check_keys(task: TaskFile) -> None:
    """Raise ``SuiteError`` for a key that lm-eval does not know, or on which nothing here acts."""
    for key, value in task.value.items():
        if key not in TASK_KEYS:
            raise task.unknown_key((key,), sorted(TASK_KEYS))
        if key in _REFUSED and value is not None:
            raise task.error_at((key,), _REFUSED[key])
        if key == "unsafe_code" and value is not False:
            raise task.error_at((key,), "code that a model writes is not run here")


def check_fewshot_config(task: TaskFile) -> dict[str, Any]:
    """The value of ``fewshot_config``, its keys checked. Raises ``SuiteError``."""
    given = task.value.get("fewshot_config")
    config: dict[str, Any] = {} if given is None else task.checked(("fewshot_config",), given, dict, "a mapping")
    for key in config:
        if key not in _FEWSHOT_KEYS:
            raise task.unknown_key(("fewshot_config", key), sorted(_FEWSHOT_KEYS))
    if config.get("fewshot_indices") is not None:
        keys = ("fewshot_config", "fewshot_indices")
        raise task.error_at(keys, "lm-eval 0.4.13 reads it and does not act on it; remove it")
    return config


def functions(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, FunctionReference]]:
    """Every ``!function`` in a task file, with its keys."""
    if isinstance(value, FunctionReference):
        yield keys, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from functions(part, (*keys, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from functions(part, (*keys, index))


def refuse_functions(task: TaskFile) -> None:
    """Raise ``SuiteError`` for the first ``!function``: no code runs from a task file."""
    for keys, function in functions(task.value):
        advice = "--llm-trust-task-code runs it for the tasks of the installed lm_eval package"
        raise task.error_at(keys, f"found {quoted(str(function))}, which runs Python; {advice}")
