"""Reports made by hand, for tests of what is written and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import GateOutcome, GateResult, Report, SuiteReport, Summary
from pytest_llmeval.scoring.metrics.summary import Metric

HOSTILE = (
    '=HYPERLINK("http://evil.example","x")',
    "a | b || c \\| d \\",
    "`code` ``more`` ```\nfence\n```",
    "<img src=x onerror=alert(1)><script>alert(1)</script>&lt;b&gt;<!-- -->",
    "[link](javascript:alert(1)) ![image](https://evil.example/x.png) [ref][1]\n\n[1]: https://evil.example",
    "<https://evil.example> https://evil.example www.evil.example me@evil.example",
    "@everyone closes #12 and GH-12, org/repo#3",
    "# heading\n- list\n1. list\n> quote\n---\n| a |\n|---|\n",
    "*a* **b** _c_ __d__ ~~e~~ $\\sqrt{x}$ :tada: ![",
    "\x1b[2J\x1b]8;;http://evil.example\x07red\x1b[0m\r\u202eevil\u2028line\x85next\x00",
    "::error file=a,line=1::smuggled\n::add-mask::x\n##[error]x",
    "\ud800 lone",
    "",
    " ",
    "-1.5",
    "+1+cmd|' /C calc'!A0",
    "\t=1",
    "\r\n=1",
    "＝1",
    '"quoted", "text"',
)


def metric(value: float | None, n: int = 4, **further: float | int) -> Metric:
    if value is None:
        return Metric(value=None, n=0, kind="mean")
    interval = {"ci_low": value - 0.1, "ci_high": value + 0.1}
    return Metric(value=value, n=n, kind="proportion", **{**interval, **further})  # type: ignore[arg-type]


def summary(metrics: Mapping[str, Metric], num_scored: int = 4, num_unscored: int = 0) -> Summary:
    return Summary(
        num_expected=num_scored + num_unscored,
        num_scored=num_scored,
        num_unscored=num_unscored,
        num_no_answer=0,
        metrics=metrics,
    )


def suite_report(name: str = "boolq", *, scorer: str = "choice", models: Sequence[str] = ("gpt2",)) -> SuiteReport:
    return SuiteReport(
        info=SuiteInfo(name=name, path=f"suites/{name}.yaml", scorer=scorer),
        summary=summary({"accuracy": metric(0.75)}),
        categories={},
        models=tuple(models),
    )


def record(id: str = "q1", **values: object) -> Record:
    settings: dict[str, object] = {
        "suite": "boolq",
        "id": id,
        "nodeid": f"suites/boolq.yaml::{id}",
        "status": "correct",
        "model": "gpt2",
        "answer": "yes",
        "target": "yes",
        "values": {"accuracy": 1.0},
        **values,
    }
    return Record(**settings)  # type: ignore[arg-type]


def report(
    suites: Sequence[SuiteReport] | None = None, records: Sequence[Record] | None = None, **values: object
) -> Report:
    settings: dict[str, object] = {
        "created": "2026-11-22T00:30:15+00:00",
        "seconds": 12.34,
        "environment": {},
        "models": ({"name": "gpt2", "device": "cpu", "dtype": "float32"},),
        "options": {},
        "exit_code": 0,
        "suites": (suite_report(),) if suites is None else tuple(suites),
        "records": (record(),) if records is None else tuple(records),
        **values,
    }
    return Report(**settings)  # type: ignore[arg-type]


def gate(outcome: GateOutcome = "failed", name: str = "accuracy >= 0.6", **values: object) -> GateResult:
    settings: dict[str, object] = {
        "name": name,
        "kind": "threshold",
        "origin": "suite",
        "outcome": outcome,
        "reason": "accuracy is 0.550, n 200",
        "suite": "boolq",
        "path": "suites/boolq.yaml",
        "line": 12,
        **values,
    }
    return GateResult(**settings)  # type: ignore[arg-type]


def hostile_report(texts: Sequence[str] = HOSTILE) -> Report:
    """A report of which every text that a model, a data set, a file or a library wrote is hostile."""
    joined = " ".join(texts)
    name, odd_metric = joined, f"x{joined}"
    hostile = SuiteReport(
        info=SuiteInfo(name=name, path=f"{joined}.yaml", description=joined, scorer="choice"),
        summary=summary({"accuracy": metric(0.75), odd_metric: metric(0.5)}, num_unscored=2),
        categories={text: summary({"accuracy": metric(0.5)}) for text in (joined, *texts)},
        macro={odd_metric: metric(0.5, 2)},
        models=(joined, "second"),
    )
    records = [
        record(
            text + str(place),
            suite=name,
            model=joined,
            nodeid=joined,
            category=text,
            answer=text,
            target=text,
            output=text,
            question=text,
            prompt=[{"role": "user", "content": text}],
            choices=(text, text),
            details={text: text},
            values={"accuracy": 0.0, odd_metric: float("-inf")},
            cluster=text,
        )
        for place, text in enumerate(texts)
    ]
    unscored = [record(text, suite=name, status="unscored", reason=text, nodeid=text, answer=None) for text in texts]
    return report(
        [hostile],
        [*records, *unscored],
        models=({"name": joined, "device": joined, "dtype": "float32"},),
        gates=(
            gate(name=joined, reason=joined, suite=name, model=joined, path=joined, notes=tuple(texts)),
            *(gate(outcome="skipped", name=text, reason=text, suite=text, path=text) for text in texts),
        ),
        problems=tuple(texts),
        stopped=joined,
        created=joined,
    )
