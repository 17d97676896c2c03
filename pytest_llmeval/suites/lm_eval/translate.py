"""A task of lm-eval as a suite: the same rows, prompts, requests and numbers in the suite format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_llmeval.suites.lm_eval.data import evaluated_rows, example_rows
from pytest_llmeval.suites.lm_eval.native import NativeSuite
from pytest_llmeval.suites.lm_eval.scores import MetricPair, Scoring, looks_at_choices, scoring_of
from pytest_llmeval.suites.lm_eval.task_file import GenerationKwargs, TaskFile, TaskSpec, functions
from pytest_llmeval.suites.lm_eval.texts import choices_rule, prompt_template, target_rule, text_template
from pytest_llmeval.text.wording import Keys

__all__ = ["translate"]

_GENERATION: Keys = ("generation_kwargs",)
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""In the order in which lm-eval looks for them."""
_DEFAULT_MAX_TOKENS = 256
_DATASET_OF_LM_EVAL = {"columns_first": True, "python_values": True, "first_id": 0}


def translate(
    task: TaskFile, *, multiple_input: bool = False, scoring: Scoring | None = None
) -> tuple[NativeSuite, tuple[MetricPair, ...]]:
    """Return the suite, and what its metrics are called in lm-eval. Raises ``SuiteError`` for what has no equivalent
    here.

    ``multiple_input``: ``doc_to_text`` is the index of the right option, each option belongs into the prompt, and
    ``doc_to_target`` follows it. ``scoring``: how replies are scored, where that is not said by the task's metrics.
    """
    spec, output_type = task.spec, task.spec.output_type
    for keys, function in functions(task.value):
        advice = "--llm-trust-task-code runs it for the tasks of the installed lm_eval package"
        raise task.error_at(keys, f"found {function.described}, which runs Python; {advice}")
    native = NativeSuite(task)
    native.put(("suite",), spec.task, ("task",))
    has_results = scoring is not None  # a function judges them, and need not look at the target
    scoring = scoring or scoring_of(task)
    _dataset(native)
    if multiple_input:
        scoring = _multiple_input(native, scoring)
    else:
        _fields(native, output_type, or_text=has_results)
    _prompt(native, output_type, multiple_input=multiple_input)
    source: Keys = ("metric_list",) if "metric_list" in task.value else ("output_type",)
    if scoring.filters:
        native.put(("filters",), scoring.filters, ("filter_list",))
    native.put(("score",), scoring.score, source)
    if scoring.epochs is not None:
        native.put(("epochs",), scoring.epochs, ("repeats",))
    if output_type == "generate_until":
        for key, (value, keys) in _generation(task).items():
            native.put(("generate", key), value, keys)
    return native, scoring.pairs


def _dataset(native: NativeSuite) -> None:
    rows = evaluated_rows(native.task)
    for key, value in rows.value.items():
        native.put(("dataset", key), value, rows.source if key == "split" else ("dataset_path",))
    native.value["dataset"].update(_DATASET_OF_LM_EVAL)


def _fields(native: NativeSuite, output_type: str, *, or_text: bool) -> None:
    """Translate the fields of samples. ``or_text``: a target of one word that is no column is this word, as in lm-eval,
    and no mistake.
    """
    task = native.task
    choices = task.spec.doc_to_choice
    if output_type == "multiple_choice" and choices is None:
        raise task.error("the key 'doc_to_choice' is missing, which holds the options", ("output_type",))
    if output_type == "loglikelihood_rolling":
        return
    target = task.required("doc_to_target")
    rule = target_rule(task, target, ("doc_to_target",), has_choices=choices is not None, or_text=or_text)
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
    target = target_rule(task, task.required("doc_to_text"), ("doc_to_text",), has_choices=True)
    native.put(("target",), target, ("doc_to_text",))
    choices = choices_rule(task, task.required("doc_to_choice"), ("doc_to_choice",))
    native.put(("choices",), choices, ("doc_to_choice",))
    text = prompt_template(task, task.required("doc_to_target"), ("doc_to_target",))
    return replace(scoring, score={"choice": {**scoring.score["choice"], "continuation": text}})


def _prompt(native: NativeSuite, output_type: str, *, multiple_input: bool = False) -> None:
    task = native.task
    if output_type == "loglikelihood_rolling":
        text = prompt_template(task, task.required("doc_to_target"), ("doc_to_target",))
        native.put(("prompt", "template"), text, ("doc_to_target",))
        return
    text = "" if multiple_input else prompt_template(task, task.required("doc_to_text"), ("doc_to_text",))
    native.put(("prompt", "template"), text, ("doc_to_text",))
    if multiple_input:
        native.put((*_FEWSHOT, "template"), "{{ choices[target] }}", ("doc_to_choice",))
    spec = task.spec
    if spec.description:
        native.put(("prompt", "system"), text_template(spec.description), ("description",))
        native.put(("prompt", "system_delimiter"), "", ("description",))
    delimiter = " " if spec.target_delimiter is None else spec.target_delimiter
    native.put(("prompt", "delimiter"), "" if output_type == "loglikelihood" else delimiter, ("target_delimiter",))
    if spec.gen_prefix:
        native.put(("prompt", "prefix"), text_template(spec.gen_prefix), ("gen_prefix",))
    _fewshot(native, output_type, delimiter)


def _fewshot(native: NativeSuite, output_type: str, delimiter: str) -> None:
    task = native.task
    config = task.spec.fewshot
    native.put((*_FEWSHOT, "count"), task.spec.num_fewshot or 0, ("num_fewshot",))
    sampler = config.sampler
    rows, spare = example_rows(task)
    native.put((*_FEWSHOT, "sampler"), "lm_eval" if sampler == "default" else sampler, ("fewshot_config",))
    if sampler == "default":
        native.put((*_FEWSHOT, "spare"), spare, ("fewshot_split",))
    if rows is None:
        samples = config.samples
        keys = ("fewshot_config", "samples")
        if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
            raise task.wrong(keys, samples, "a list of mappings")
        native.put((*_FEWSHOT, "samples"), samples, keys)
    elif rows.value != {key: value for key, value in native.value["dataset"].items() if key in rows.value}:
        for key, value in rows.value.items():
            native.put((*_FEWSHOT, key), value, rows.source)
    native.put((*_FEWSHOT, "delimiter"), _fewshot_delimiter(task.spec), ("fewshot_delimiter",))
    if rows is None and looks_at_choices(task):  # examples without choices cannot be scored
        answer = prompt_template(task, str(task.required("doc_to_target")), ("doc_to_target",))
        native.put((*_FEWSHOT, "answer"), answer, ("doc_to_target",))
    if output_type == "loglikelihood" and delimiter:
        native.put((*_FEWSHOT, "answer_delimiter"), delimiter, ("target_delimiter",))
    _example_texts(native, output_type)


def _example_texts(native: NativeSuite, output_type: str) -> None:
    """Translate what ``fewshot_config`` says of examples alone."""
    task, config = native.task, native.task.spec.fewshot
    at: Keys = ("fewshot_config",)
    if config.doc_to_text is not None:
        keys = (*at, "doc_to_text")
        native.put((*_FEWSHOT, "template"), prompt_template(task, config.doc_to_text, keys), keys)
    fields = native.value["prompt"]["fewshot"].setdefault("fields", {})
    if config.doc_to_choice is not None:
        name = "choices" if output_type == "multiple_choice" else "doc_choices"
        fields[name] = choices_rule(task, config.doc_to_choice, (*at, "doc_to_choice"))
    if config.doc_to_target is not None:
        has_choices = task.spec.doc_to_choice is not None
        name = "doc_target" if has_choices and output_type == "generate_until" else "target"
        fields[name] = target_rule(task, config.doc_to_target, (*at, "doc_to_target"), has_choices=has_choices)
    if not fields:
        del native.value["prompt"]["fewshot"]["fields"]
    prefix = None if config.gen_prefix is None else text_template(config.gen_prefix)
    for key, ours, text in (
        ("gen_prefix", "prefix", prefix),
        ("target_delimiter", "answer_delimiter", config.target_delimiter),
        ("fewshot_delimiter", "delimiter", config.fewshot_delimiter),
    ):
        if text is not None:
            native.put((*_FEWSHOT, ours), text, (*at, key))


def _fewshot_delimiter(spec: TaskSpec) -> str:
    return "\n\n" if spec.fewshot_delimiter is None else spec.fewshot_delimiter


def _generation(task: TaskFile) -> dict[str, tuple[Any, Keys]]:
    """Return the settings of ``generate``, each with its keys in the task file. Raises ``SuiteError``.

    As lm-eval's ``normalize_gen_kwargs`` has it: ``do_sample: false`` is greedy whatever the temperature is.
    """
    given = task.spec.generation_kwargs or GenerationKwargs()
    if given.do_sample and not given.temperature > 0:
        raise task.error_at((*_GENERATION, "do_sample"), "found true, which needs a temperature above 0")
    temperature = 0.0 if given.do_sample is False else given.temperature
    max_key = next((key for key in _MAX_TOKENS if getattr(given, key) is not None), None)
    max_tokens = (getattr(given, max_key), (*_GENERATION, max_key)) if max_key else (_DEFAULT_MAX_TOKENS, _GENERATION)
    stops = [_fewshot_delimiter(task.spec)] if given.until is None else [*given.until]
    settings: dict[str, tuple[Any, Keys]] = {
        "max_tokens": max_tokens,
        "stop": (stops, (*_GENERATION, "until")),
        "temperature": (temperature, (*_GENERATION, "temperature")),
        "reasoning": (False, _GENERATION),  # lm-eval scores the whole of a reply
    }
    if temperature > 0 and given.top_p is not None:
        settings["top_p"] = (given.top_p, (*_GENERATION, "top_p"))
    elif temperature <= 0 and given.top_p not in (None, 1) and given.do_sample is None:
        message = "greedy decoding takes the likeliest token; set do_sample: true"
        raise task.error_at((*_GENERATION, "top_p"), message)
    if temperature > 0 and given.top_k is not None:  # without sampling it does nothing, as in transformers
        settings["top_k"] = (given.top_k, (*_GENERATION, "top_k"))
    if given.repetition_penalty not in (None, 1):  # which transformers applies to greedy replies too
        settings["repetition_penalty"] = (given.repetition_penalty, (*_GENERATION, "repetition_penalty"))
    return settings
