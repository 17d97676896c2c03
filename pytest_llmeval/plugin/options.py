"""Every option, once: its name, what it means, and how its text becomes a value.

A parser raises ``ValueError`` with what is expected, or with what was found and expected, or ``OptionError`` with the
whole message. This module is imported by every pytest run that has the plugin installed: what few runs need is imported
when its option is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from pytest_llmeval.reporting.writers.formats import folder_suffix, suffixes
from pytest_llmeval.roles import ROLES

__all__ = ["OPTIONS", "Option", "SampleLimit", "Shard"]


@dataclass(frozen=True, slots=True)
class SampleLimit:
    """The number of samples of each suite that run: ``count`` of them, the first or a random choice by ``seed``."""

    count: int
    first: bool = False
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"first:{self.count}" if self.first else f"{self.count}:seed={self.seed}" if self.seed else str(self.count)
        )


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the ``count`` parts of a session; ``number`` counts from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("expected some text")
    return value


def _model(value: str) -> str:
    return _text(value).strip()


def _imported(name: str) -> Callable[[str], Any]:
    """Return a parser that is imported when its option is given, from its name ``module:function``."""
    return lambda value: resolve_name(f"pytest_llmeval.{name}")(_text(value))


def _flag(value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[value.strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _device(value: str) -> str:
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", value):
        raise ValueError("expected cpu, cuda, cuda:N or mps")
    return value


_BOUND = "1,000,000,000"


def _positive(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        most = f" and below {_BOUND}" if re.fullmatch(r"[0-9]{10,}", value) else ""
        raise ValueError(f"expected a whole number above 0{most}")
    return int(value)


def _money(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", value) or float(value) == 0:
        most = f", below {_BOUND} and with 9 decimals at most" if re.fullmatch(r"[0-9.]{10,}", value) else ""
        raise ValueError(f"expected an amount of money above 0, such as 5 or 0.50{most}")
    return float(value)


def _gpus(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}|0?\.[0-9]{1,4}", value):
        raise ValueError("expected a whole number, or a part of one GPU, such as 0.5")
    return float(value)


def _address(value: str) -> str:
    found = _text(value).strip()
    if not re.fullmatch(r"local|auto|[^\s/:]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}", found):
        raise ValueError("expected local, auto or HOST:PORT")
    return found


def _limit(value: str) -> SampleLimit:
    found = re.fullmatch(r"(first:)?([0-9]{1,9})|([0-9]{1,9}):seed=([0-9]{1,9})", value)
    if found is None or int(found[2] or found[3]) == 0:
        raise ValueError("expected N, N:seed=S or first:N, with N from 1 to 999,999,999")
    return SampleLimit(int(found[2] or found[3]), first=found[1] is not None, seed=int(found[4] or 0))


def _suite(value: str) -> str:
    if not all(name.strip().removeprefix("lm_eval:").strip() for name in value.split(",")):
        raise ValueError("expected the name of a preset, a group of presets, or lm_eval:NAME")
    return value.strip()


def _path_or_none(value: str) -> Path | None:
    """Return a path; ``none`` for no path, though the ini file or the environment gives one."""
    return None if value == "none" else _path(value)


def _path(value: str) -> Path:
    return Path(_text(value))


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"expected {', '.join(names[:-1])} or {names[-1]}")
        return value

    return parse


def _sandbox(value: str) -> str:
    from pytest_llmeval.scoring.sandbox.launch import parse_sandbox

    return parse_sandbox(value)


def _update(value: str) -> str:
    if value not in ("passed", "accept"):
        raise ValueError("expected accept, or passed, which is the same as no value; name paths before the option")
    return value


def _count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError("expected a whole number, 0 or more")
    return int(value)


def _shard(value: str) -> Shard:
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", value.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError("expected I/N with I from 1 to N, such as 2/5")
    return Shard(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``parse`` turns its text into a value, by default that of a flag.

    ``without_value`` is its value if the command line gives the option without one; None if it needs one.
    ``field`` is its field in ``Settings`` if that has another name. ``ini_field`` is the field for the value of the ini
    file, if the command line adds to that value and does not replace it. With ``is_seen_from_ini`` the value is a path,
    which in the ini file is relative to that file's folder.
    """

    name: str
    help: str
    field: str | None = None
    ini_field: str | None = None
    metavar: str = "VALUE"
    kind: Literal["text", "number", "flag", "list"] = "text"
    without_value: str | None = None
    parse: Callable[[str], Any] = _flag
    is_seen_from_ini: bool = False

    @property
    def flag(self) -> str:
        return "--llm-" + self.name.replace("_", "-")

    @property
    def ini(self) -> str:
        return "llm_" + self.name

    @property
    def variable(self) -> str:
        return "PYTEST_LLM_" + self.name.upper()


OPTIONS: tuple[Option, ...] = (
    Option(
        name="model",
        field="model_specs",
        kind="list",
        metavar="SPEC",
        parse=_model,
        help="The model that answers: 'demo' or 'demo-assistant' (they ship with it), a Hugging Face id, a checkpoint "
        "folder, http://HOST:PORT/v1 (a server), openai:NAME, anthropic:NAME, ollama:NAME, vllm:NAME_OR_FOLDER or "
        "llama-cpp:FILE.gguf (a server that the session starts and ends), replay:FILE (replies from a file), "
        "python:MODULE:NAME (a function or class), random or majority (guessing). "
        "Given several times, every suite runs on each, and they are compared with the first.",
    ),
    *(
        Option(name=role.name, field="role_specs", kind="list", metavar="SPEC", parse=_model, help=role.help)
        for role in ROLES.values()
    ),
    Option(
        name="engine",
        metavar="HOW",
        parse=_one_of("auto", "tree", "plain"),
        help="How log-likelihoods are computed: auto, tree (shared prefixes once) or plain (padded batches, the "
        "reference).",
    ),
    Option(
        name="revision",
        metavar="REV",
        parse=_text,
        help="Branch, tag or commit of a model on the Hugging Face hub.",
    ),
    Option(
        name="device",
        metavar="DEVICE",
        parse=_device,
        help="cpu, cuda, cuda:N or mps. Default: MPS on Apple silicon, then CUDA, then CPU.",
    ),
    Option(
        name="dtype",
        metavar="DTYPE",
        parse=_one_of("auto", "float32", "bfloat16", "float16"),
        help="auto (the checkpoint's own), float32, bfloat16 or float16. Default: float32 on CPU, else auto.",
    ),
    Option(
        name="batch_size",
        metavar="N",
        kind="number",
        parse=_positive,
        help="Requests in one forward pass, and samples computed ahead. Default: chosen by the number of tokens.",
    ),
    Option(
        name="ray",
        metavar="ADDRESS",
        parse=_address,
        help="Let replicas (copies) of the model share the work on a Ray cluster: local (one that is started on this "
        "machine for the session), auto (one that runs here) or the address of its head. For checkpoints and "
        "python:MODULE:NAME.",
    ),
    Option(
        name="replicas",
        metavar="N",
        kind="number",
        parse=_positive,
        help="How many replicas --llm-ray starts (default: one for each GPU of the cluster, or one for each machine "
        "if there are no GPUs), or how many servers a model has that the session starts (default: one).",
    ),
    Option(
        name="replica_cpus",
        metavar="N",
        kind="number",
        parse=_positive,
        help="CPUs of a replica, and so its threads. Default: 1 beside a GPU, else those of the machine, "
        "shared among its replicas.",
    ),
    Option(
        name="replica_gpus",
        metavar="N",
        parse=_gpus,
        help="GPUs of a replica: a whole number, or a part of one, such as 0.5. Default: 1 if the cluster has GPUs.",
    ),
    Option(
        name="trust_remote_code",
        kind="flag",
        help="Allow a model to run Python code that comes with its checkpoint.",
    ),
    Option(
        name="allow_pickle",
        kind="flag",
        help="Allow weights in pickle files (.bin, .pt), which can run code when they are loaded. "
        "Default: safetensors only.",
    ),
    Option(
        name="model_arg",
        kind="list",
        metavar="KEY=VALUE",
        parse=_imported("models.settings:parse_model_arg"),
        help="How the model is loaded: peft=FOLDER, quantization_config={…}, device_map=auto, tokenizer=ID, "
        "max_length=N, attn_implementation=NAME, subfolder=NAME, add_bos=true. How a server is asked: base_url=URL "
        "(several share the work), api_key_env=VARIABLE, dialect=NAME, tokenizer=ID, max_connections=N, "
        "requests_per_minute=N, timeout=SECONDS, extra_body={…}, max_length=N, max_tokens_field=NAME, price_in=PRICE, "
        "price_out=PRICE. How a server is started: launch.SETTING=VALUE (launch.tensor_parallel_size=2), "
        "launch.command=PATH, launch.timeout=SECONDS. max_connections, timeout and prices hold for Python "
        "functions too. Can be given several times.",
    ),
    Option(
        name="set",
        kind="list",
        metavar="'SUITE: KEY=VALUE'",
        parse=_imported("suites.format.overrides:parse_override"),
        help="Change a key of a suite for this run: 'mmlu: prompt.fewshot.count=5'; the suite '*' is every suite. "
        "Can be given several times.",
    ),
    Option(
        name="variant",
        kind="list",
        metavar="'SUITE: NAME: KEY=VALUE'",
        parse=_imported("suites.format.variants:parse_variant"),
        help="Run a variant of a suite beside it, with a changed key: 'boolq: hot: generate.temperature=1'. Given "
        "again with the same name, it changes a further key.",
    ),
    Option(
        name="suite",
        kind="list",
        metavar="NAME",
        parse=_suite,
        help="Run a published benchmark by its name: a preset (gsm8k), a group of presets (leaderboard-v1; `llmeval "
        "presets` lists both), or a task, group or tag of the installed lm_eval package (lm_eval:arc_easy). "
        "Separate several with commas, or give the option several times.",
    ),
    Option(
        name="data",
        kind="text",
        metavar="FOLDER",
        parse=_path,
        help="The folder that holds local copies of published benchmarks, for --llm-suite: gsm8k/test.jsonl. What is "
        "not there comes from the hub.",
    ),
    Option(
        name="lm_eval",
        kind="flag",
        help="Collect lm-eval's task files from folders too; those named on the command line are always collected.",
    ),
    Option(
        name="trust_task_code",
        kind="flag",
        help="Let tasks of the installed lm_eval package run the Python functions (!function) that they name.",
    ),
    Option(
        name="allow_code",
        kind="flag",
        help="Let suites with score: code run the code that the model writes, in the sandbox of --llm-sandbox.",
    ),
    Option(
        name="sandbox",
        metavar="KIND",
        parse=_sandbox,
        help="Where code of replies runs: auto (the default: bubblewrap, else docker), bubblewrap, docker or "
        "docker:IMAGE (Docker or Podman), or none (with limits of time and memory only).",
    ),
    Option(
        name="limit",
        metavar="N",
        parse=_limit,
        help="Run N samples of each suite, a seeded random choice: the same ones each time, or others with N:seed=2 "
        "(first:N: the first N). A quick look, not a result.",
    ),
    Option(name="strict", kind="flag", help="A wrong answer fails its test."),
    Option(
        name="show_prompts",
        kind="flag",
        help="Print the exact prompt of each selected sample, with the scored part marked, and run nothing.",
    ),
    Option(
        name="show_wrong",
        metavar="N",
        kind="number",
        parse=_count,
        help="Show the first N wrong answers of each suite at the end: question, reply, what was expected, and the "
        "probabilities of the options. Default: 5 with -vv, else 0.",
    ),
    Option(
        name="report",
        kind="list",
        metavar="FILE",
        parse=_imported("reporting.writers.formats:parse_target"),
        help=f"Write the report: metrics, and a record for every sample, as FILE{suffixes()}; in a folder, a "
        f"{folder_suffix()} file that is named after the model and the time. Can be given several times.",
    ),
    Option(
        name="report_prompts",
        metavar="HOW",
        parse=_one_of("none", "hash", "full"),
        help="Prompts in the report: none, hash or full (the default).",
    ),
    Option(
        name="report_records",
        metavar="WHICH",
        parse=_one_of("all", "wrong", "none"),
        help="Samples whose texts (question, prompt, reply, answer) the report has: all (the default), wrong "
        "(the wrong and unscored ones) or none. The numbers of all samples are there in any case.",
    ),
    Option(
        name="report_origin",
        metavar="WHAT",
        parse=_one_of("all", "none"),
        help="What the report says about its origin: all (the default: commit, branch, run of the CI service, "
        "labels) or none.",
    ),
    Option(
        name="label",
        kind="list",
        metavar="KEY=VALUE",
        parse=_imported("reporting.report.origin:parse_label"),
        help="A label that the report has, such as team=search; llmeval history shows it. Can be given several times.",
    ),
    Option(
        name="store",
        metavar="FOLDER",
        parse=_path_or_none,
        without_value=".llmeval",
        is_seen_from_ini=True,
        help="Keep the model's replies in this folder (default: .llmeval), and ask for none of them again. It "
        "holds prompts and replies, whatever --llm-report-prompts says. none: no store, even if the ini file names "
        "one.",
    ),
    Option(
        name="store_refresh",
        kind="flag",
        help="Use no reply that the store has: ask for all again, and replace them.",
    ),
    Option(
        name="store_max_age",
        metavar="AGE",
        parse=_imported("text.wording:parse_age"),
        help="Reuse replies of the store only up to this age: 12h, 7d. Without it, replies of any age are "
        "reused, but none of a model that may have changed behind its name (a hosted one, Python code).",
    ),
    Option(
        name="budget",
        metavar="COST",
        parse=_money,
        help="Stop asking before more than this could be paid, in the currency of price_in and price_out. The "
        "remaining samples are unscored; with --llm-store the next run continues with them.",
    ),
    Option(
        name="budget_tokens",
        metavar="N",
        parse=_positive,
        help="Stop asking before more than N tokens could be used, of prompts and replies together, by "
        "servers and Python functions.",
    ),
    Option(
        name="gate",
        kind="list",
        ini_field="project_gate",
        metavar="'SUITE: RULE'",
        parse=_imported("suites.format.gates_spec:GivenGate.parse"),
        help="Fail the run unless the rule holds: 'boolq: accuracy >= 0.6', 'mmlu: ci_low(category.law.accuracy) > "
        "0.5'; a rule alone is for every suite. Can be given several times. Gates of the ini file are added to these, "
        "and are decided on whole suites only.",
    ),
    Option(
        name="baseline",
        ini_field="project_baseline",
        metavar="REPORT.json",
        parse=_path,
        help="Fail the run if a suite got worse than in this earlier report, sample by sample and with "
        "statistics. A pattern for several reports ('runs/*.json') compares with the mean of the last ones, and with "
        "the oldest.",
    ),
    Option(
        name="baseline_last",
        metavar="K",
        kind="number",
        parse=_imported("gates.options:parse_number_of_reports"),
        help="Compare with the mean of the last K reports, where --llm-baseline names several. Default: 5.",
    ),
    Option(
        name="update_baseline",
        metavar="WHEN",
        parse=_update,
        without_value="passed",
        help="Write the file that --llm-baseline names, with what later comparisons need, if whole suites ran, every "
        "sample was scored and no gate failed. accept: also if the comparison with the earlier file failed, or if a "
        "suite of that file did not run.",
    ),
    Option(
        name="max_drop",
        kind="list",
        metavar="'METRIC=MARGIN'",
        parse=_imported("gates.options:Margin.parse"),
        help="How much worse than the baseline a metric may be: accuracy=0.01, or 'boolq: brier=0.02'; with a "
        "percent sign, a share of the baseline's value. Default: 0, for each suite's primary metric. Can be given "
        "several times.",
    ),
    Option(
        name="gate_mode",
        metavar="MODE",
        parse=_one_of("significant", "margin", "non-inferior"),
        help="When a drop fails: significant (the default: significant and beyond the margin), margin (beyond the "
        "margin), non-inferior (unless the interval excludes a drop beyond the margin).",
    ),
    Option(
        name="compare",
        metavar="WHAT",
        parse=_one_of("all", "common", "questions"),
        help="Samples compared with the baseline: all (the default; a suite that has changed is refused), common "
        "(those that have not changed), or questions (those whose question, target and scorer are the same, whatever "
        "the prompt, its examples and the generation settings).",
    ),
    Option(
        name="alpha",
        metavar="P",
        parse=_imported("gates.options:parse_alpha"),
        help="The probability that a session in which nothing got worse fails against its baseline. Default: 0.05.",
    ),
    Option(
        name="allow_unscored",
        metavar="N",
        kind="number",
        parse=_count,
        help="Let up to N samples of the session's suites be unscored without failing it or its gates.",
    ),
    Option(
        name="require_gates",
        kind="flag",
        ini_field="project_require_gates",
        help="A gate that could not be decided (a suite's own gate on a selection of its suite) fails: for CI.",
    ),
    Option(
        name="shard",
        metavar="I/N",
        parse=_shard,
        help="Run a stable part of the session, the I-th of N, for several machines; `llmeval merge` joins the "
        "reports.",
    ),
)
