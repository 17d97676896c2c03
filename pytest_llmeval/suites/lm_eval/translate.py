"""A task of lm-eval as a suite: the same rows, prompts, requests and numbers in the suite format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_llmeval.suites.lm_eval.data import evaluated_rows, example_rows
from pytest_llmeval.suites.lm_eval.filters import looks_at_choices
from pytest_llmeval.suites.lm_eval.generation import generation
from pytest_llmeval.suites.lm_eval.keys import check_fewshot_config, check_keys, refuse_functions
from pytest_llmeval.suites.lm_eval.native import NativeSuite
from pytest_llmeval.suites.lm_eval.scores import MetricPair, Scoring, read_metrics, scoring_of
from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.suites.lm_eval.texts import choices_rule, prompt_template, target_rule, text_template
from pytest_llmeval.text.wording import Keys, describe, expected_one_of

__all__ = ["OUTPUT_TYPES", "translate"]

OUTPUT_TYPES = ("multiple_choice", "generate_until", "loglikelihood", "loglikelihood_rolling")
_FEWSHOT: Keys = ("prompt", "fewshot")
_DATASET_OF_LM_EVAL = {"columns_first": True, "python_values": True, "first_id": 0}


def translate(
    task: TaskFile, *, multiple_input: bool = False, scoring: Scoring | None = None
) -> tuple[NativeSuite, tuple[MetricPair, ...]]:
    """The suite, and what its metrics are called in lm-eval. Raises ``SuiteError`` for what has no like here.

    ``multiple_input``: ``doc_to_text`` is the index of the right option, each option belongs into the prompt, and
    ``doc_to_target`` follows it. ``scoring``: how replies are scored, where that is not said by the task's metrics.
    """
    check_keys(task)
    refuse_functions(task)
    native = NativeSuite(task)
    name = task.value.get("task")
    if not isinstance(name, str) or not name.strip():
        raise task.wrong(("task",), name, "the task's name")
    native.put(("suite",), name, ("task",))
    output_type = task.value.get("output_type", "generate_until")
    if output_type not in OUTPUT_TYPES:
        message = f"found {describe(output_type)}{expected_one_of(str(output_type), OUTPUT_TYPES)}"
        raise task.error_at(("output_type",), message)
    scoring = scoring or scoring_of(task, read_metrics(task, output_type))
    _dataset(native)
    if multiple_input:
        scoring = _multiple_input(native, scoring)
    else:
        _fields(native, output_type)
    _prompt(native, output_type, multiple_input=multiple_input)
    source: Keys = ("metric_list",) if "metric_list" in task.value else ("output_type",)
    if scoring.filters:
        native.put(("filters",), scoring.filters, ("filter_list",))
    native.put(("score",), scoring.score, source)
    if scoring.epochs is not None:
        native.put(("epochs",), scoring.epochs, ("repeats",))
    if output_type == "generate_until":
        for key, (value, keys) in generation(task, _text(task, "fewshot_delimiter", "\n\n")).items():
            native.put(("generate", key), value, keys)
    return native, scoring.pairs


def _dataset(native: NativeSuite) -> None:
    rows = evaluated_rows(native.task)
    for key, value in rows.value.items():
        native.put(("dataset", key), value, rows.source if key == "split" else ("dataset_path",))
    native.value["dataset"].update(_DATASET_OF_LM_EVAL)


def _fields(native: NativeSuite, output_type: str) -> None:
    task = native.task
    choices = task.value.get("doc_to_choice")
    if output_type == "multiple_choice" and choices is None:
        raise task.error("the key 'doc_to_choice' is missing, which holds the options", ("output_type",))
    if output_type == "loglikelihood_rolling":
        return
    target = _required(task, "doc_to_target")
    rule = target_rule(task, target, ("doc_to_target",), has_choices=choices is not None)
    if choices is None:
        native.put(("target",), rule, ("doc_to_target",))
        if looks_at_choices(task):
            # lm-eval looks for a column of this name; an example that stands in the task file may have none.
            native.put(("choices",), "{{ choices if choices is defined else [] }}", ("filter_list",))
        return
    options = choices_rule(task, choices, ("doc_to_choice",))
    if output_type == "multiple_choice":
        native.put(("choices",), options, ("doc_to_choice",))
        native.put(("target",), rule, ("doc_to_target",))
        return
    native.put(("dataset", "fields", "doc_choices"), options, ("doc_to_choice",))
    native.put(("dataset", "fields", "doc_target"), rule, ("doc_to_target",))
    native.put(("target",), "{{ doc_choices[doc_target] }}", ("doc_to_target",))


def _multiple_input(native: NativeSuite, scoring: Scoring) -> Scoring:
    task = native.task
    target = target_rule(task, _required(task, "doc_to_text"), ("doc_to_text",), has_choices=True)
    native.put(("target",), target, ("doc_to_text",))
    native.put(
        ("choices",), choices_rule(task, _required(task, "doc_to_choice"), ("doc_to_choice",)), ("doc_to_choice",)
    )
    text = prompt_template(task, _required(task, "doc_to_target"), ("doc_to_target",))
    return replace(scoring, score={"choice": {**scoring.score["choice"], "continuation": text}})


def _prompt(native: NativeSuite, output_type: str, *, multiple_input: bool = False) -> None:
    task = native.task
    if output_type == "loglikelihood_rolling":
        text = prompt_template(task, _required(task, "doc_to_target"), ("doc_to_target",))
        native.put(("prompt", "template"), text, ("doc_to_target",))
        return
    text = "" if multiple_input else prompt_template(task, _required(task, "doc_to_text"), ("doc_to_text",))
    native.put(("prompt", "template"), text, ("doc_to_text",))
    if multiple_input:
        native.put((*_FEWSHOT, "template"), "{{ choices[target] }}", ("doc_to_choice",))
    description = _text(task, "description", "")
    if description:
        native.put(("prompt", "system"), text_template(description), ("description",))
        native.put(("prompt", "system_delimiter"), "", ("description",))
    delimiter = _text(task, "target_delimiter", " ")
    native.put(("prompt", "delimiter"), "" if output_type == "loglikelihood" else delimiter, ("target_delimiter",))
    prefix = _text(task, "gen_prefix", "")
    if prefix:
        native.put(("prompt", "prefix"), text_template(prefix), ("gen_prefix",))
    _fewshot(native, output_type, delimiter)


def _fewshot(native: NativeSuite, output_type: str, delimiter: str) -> None:
    task = native.task
    config = check_fewshot_config(task)
    count = task.value.get("num_fewshot")
    if count is None:
        count = 0
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise task.wrong(("num_fewshot",), count, "a whole number")
    native.put((*_FEWSHOT, "count"), count, ("num_fewshot",))
    sampler = config.get("sampler", "default")
    if sampler not in ("default", "first_n"):
        raise task.wrong(("fewshot_config", "sampler"), sampler, "default or first_n")
    rows, spare = example_rows(task, config)
    native.put((*_FEWSHOT, "sampler"), "lm_eval" if sampler == "default" else sampler, ("fewshot_config",))
    if sampler == "default":
        native.put((*_FEWSHOT, "spare"), spare, ("fewshot_split",))
    if rows is None:
        samples = config["samples"]
        keys = ("fewshot_config", "samples")
        if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
            raise task.wrong(keys, samples, "a list of mappings")
        native.put((*_FEWSHOT, "samples"), samples, keys)
    elif rows.value != {key: value for key, value in native.value["dataset"].items() if key in rows.value}:
        for key, value in rows.value.items():
            native.put((*_FEWSHOT, key), value, rows.source)
    native.put((*_FEWSHOT, "delimiter"), _text(task, "fewshot_delimiter", "\n\n"), ("fewshot_delimiter",))
    if rows is None and looks_at_choices(task):  # examples that have no choices are no questions that could be scored
        answer = prompt_template(task, str(_required(task, "doc_to_target")), ("doc_to_target",))
        native.put((*_FEWSHOT, "answer"), answer, ("doc_to_target",))
    if output_type == "loglikelihood" and delimiter:
        native.put((*_FEWSHOT, "answer_delimiter"), delimiter, ("target_delimiter",))
    _example_texts(native, config, output_type)


def _example_texts(native: NativeSuite, config: dict[str, Any], output_type: str) -> None:
    """What ``fewshot_config`` says of examples alone."""
    task = native.task
    at: Keys = ("fewshot_config",)
    if config.get("doc_to_text") is not None:
        keys = (*at, "doc_to_text")
        native.put((*_FEWSHOT, "template"), prompt_template(task, config["doc_to_text"], keys), keys)
    fields = native.value["prompt"]["fewshot"].setdefault("fields", {})
    if config.get("doc_to_choice") is not None:
        keys = (*at, "doc_to_choice")
        name = "choices" if output_type == "multiple_choice" else "doc_choices"
        fields[name] = choices_rule(task, config["doc_to_choice"], keys)
    if config.get("doc_to_target") is not None:
        keys = (*at, "doc_to_target")
        has_choices = task.value.get("doc_to_choice") is not None
        name = "doc_target" if has_choices and output_type == "generate_until" else "target"
        fields[name] = target_rule(task, config["doc_to_target"], keys, has_choices=has_choices)
    if not fields:
        del native.value["prompt"]["fewshot"]["fields"]
    for key, ours in (
        ("gen_prefix", "prefix"),
        ("target_delimiter", "answer_delimiter"),
        ("fewshot_delimiter", "delimiter"),
    ):
        value = config.get(key)
        if value is not None:
            keys = (*at, key)
            task.checked(keys, value, str, "text")
            native.put((*_FEWSHOT, ours), text_template(value) if key == "gen_prefix" else value, keys)


def _required(task: TaskFile, key: str) -> Any:
    if task.value.get(key) is None:
        raise task.error(f"the key {key!r} is missing", ("task",))
    return task.value[key]


def _text(task: TaskFile, key: str, default: str) -> str:
    value = task.value.get(key)
    return default if value is None else task.checked((key,), value, str, "text")
