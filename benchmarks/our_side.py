"""A work as pytest runs it with this plugin: a suite file, its command line, what the report says."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measured_process import CommandFailed, run_measured
from benchmarks.side_of_bench import Outcome
from benchmarks.works_for_bench import STOP, Work
from tests.support import REPOSITORY

__all__ = ["run_pytest"]

_CONFTEST = """\
from pathlib import Path

from benchmarks.ended_texts import end_ours, ends_of

end_ours(ends_of(Path(__file__).with_name("prompts.jsonl")))
"""
_LAST_LINE = re.compile(r"\bin (?P<seconds>\d+\.\d+)s\b")


def run_pytest(
    work: Work,
    model: Path | str,
    folder: Path,
    variables: dict[str, str],
    *,
    arguments: Sequence[str] = (),
    placement: Sequence[str] = ("--llm-device", "cpu", "--llm-dtype", "float32"),
) -> Outcome:
    """Run ``work`` in a process of its own; ``folder`` is empty and takes all files. Raises ``CommandFailed``.

    ``arguments`` are more options of pytest's. ``model`` is a folder, or what else ``--llm-model`` takes.
    """
    work.write(folder / "prompts.jsonl")
    (folder / "suite.yaml").write_text(yaml.safe_dump(_suite(work), sort_keys=False), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else one of a folder above would rule
    if work.has_ends:
        (folder / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
        variables = variables | {"PYTHONPATH": str(REPOSITORY)}
    report = folder / "report.json"
    command = [
        *(sys.executable, "-m", "pytest", "suite.yaml"),
        *("--llm-model", str(model), *placement, "--llm-report", str(report)),
        *arguments,
    ]
    measured = run_measured(command, folder=folder, variables=variables, log=folder / "log.txt")
    document = json.loads(report.read_text(encoding="ascii"))
    unscored = [record["reason"] for record in document["records"] if record["status"] == "unscored"]
    if unscored or len(document["records"]) != len(work.prompts):
        raise CommandFailed(
            f"{' '.join(command)}: {len(document['records'])} records for {len(work.prompts)} prompts, "
            f"{len(unscored)} of them unscored {unscored[:1]}"
        )
    return Outcome(
        process_seconds=measured.seconds,
        engine_seconds=sum(suite["seconds"] for suite in document["suites"]),
        session_seconds=float(_LAST_LINE.findall(measured.output)[-1]),
        peak_mib=measured.peak_mib,
        responses={record["id"]: _response(work, record) for record in document["records"]},
    )


def _suite(work: Work) -> dict[str, Any]:
    suite: dict[str, Any] = {
        "suite": work.name,
        "dataset": {"path": "prompts.jsonl"},
        "prompt": {"template": "{{ context }}", "delimiter": " "},
    }
    if work.kind == "choice":
        return suite | {"score": {"choice": {"normalize": "sum"}}}
    if work.kind == "generation":
        return suite | {"score": "exact", "generate": {"max_tokens": work.max_new_tokens, "stop": [STOP]}}
    return suite | {"score": {"perplexity": {"windows": "disjoint"}}}


def _response(work: Work, record: dict[str, Any]) -> tuple[float, ...] | str:
    if work.kind == "generation":
        return str(record["output"])
    if work.kind == "rolling":
        return (float(record["values"]["loglikelihood"]),)
    return tuple(map(float, record["details"]["loglikelihoods"]))
