"""Damaged, foreign and edited reports, and what takes a report: the command ``llmeval``, and a session's baseline."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.faults.ways import Content, Reports, Way, Wrong, model, project
from tests.reporting.reports import sealed

__all__ = ["reports"]


def _edited(edit: Callable[[Any], Any], name: str = "good") -> Content:
    """A report with something changed by hand."""

    def make(known: Reports) -> str:
        document = json.loads(known[name])
        edit(document)
        return json.dumps(document)

    return make


def _lowered(edit: Callable[[Any], Any], name: str = "good") -> Content:
    """A report with something changed by hand that says that it is of schema 2, which has no digest."""

    def make(known: Reports) -> str:
        document = json.loads(known[name])
        edit(document)
        del document["digest"], document["selection"]
        return json.dumps({**document, "schema": 2})

    return make


def _sealed(edit: Callable[[Any], Any], name: str = "good") -> Content:
    """A report with something changed by hand, and with the digest of what it is then."""

    def make(known: Reports) -> str:
        document = json.loads(known[name])
        edit(document)
        return json.dumps(sealed(document))

    return make


def _cut(share: float) -> Content:
    return lambda known: known["good"][: int(len(known["good"]) * share)]


def _set(*path: str | int, value: object) -> Callable[[Any], None]:
    def edit(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        assert path[-1] in document if isinstance(document, dict) else True, path
        document[path[-1]] = value

    return edit


def _removed(*path: str | int) -> Callable[[Any], None]:
    def edit(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return edit


def _all_correct(document: Any) -> None:
    for record in document["records"]:
        record["status"] = "correct"


def _twice(document: Any) -> None:
    document["records"] *= 2


def _only_right(document: Any) -> None:
    document["records"] = [record for record in document["records"] if record["status"] == "correct"]


def _with_failed_tests(document: Any) -> None:
    document |= {"exit_code": 1, "num_failed_tests": 3}


_SUMMARY = ("suites", 0)

_EDITS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a record less": (_removed("records", 0), "good"),
    "all but the right ones removed": (_only_right, "half"),
    "each record twice": (_twice, "good"),
    "a record of another suite": (_set("records", 0, "suite", value="other"), "good"),
    "two records of one id": (_set("records", 0, "id", value="s2"), "good"),
    "all said to be right": (_all_correct, "half"),
    "an edited accuracy": (_set(*_SUMMARY, "metrics", "accuracy", "value", value=1.0), "half"),
    "an edited count": (_set(*_SUMMARY, "num_scored", value=6), "half"),
    "fewer expected": (_set(*_SUMMARY, "num_expected", value=6), "half"),
    "an edited value": (_set("records", 1, "values", "accuracy", value=1.0), "half"),
    "an infinite value": (_set("records", 1, "values", "accuracy", value=1e999), "good"),
    "a value that is a text": (_set("records", 1, "values", "accuracy", value="1.0"), "good"),
    "another metric": (_set(*_SUMMARY, "metrics", value={}), "good"),
    "another category": (_set("records", 0, "category", value="easier"), "good"),
    "another fingerprint": (_set("records", 0, "fingerprint", value="0" * 64), "good"),
}
"""Edits of numbers and records, with the report that is edited."""

UNREADABLE: dict[str, Content] = {
    **{name: _edited(*edit) for name, edit in _EDITS.items()},
    **{f"{name}, of a lower schema": _lowered(*edit) for name, edit in _EDITS.items()},
    "a lower schema": _edited(_set("schema", value=2)),
    "no digest": _edited(_removed("digest")),
    "another digest": _edited(_set("digest", value="0" * 64)),
    "empty": "",
    "blank": "\n\n",
    "a folder": None,
    "null": "null",
    "a list": "[]",
    "an empty object": "{}",
    "a number": "1",
    "a text": "accuracy 1.0",
    "NaN": "NaN",
    "bytes": bytes(range(256)) * 20,
    "zeros": bytes(4000),
    "compressed": lambda known: gzip.compress(known["good"].encode()),
    "cut at 1%": _cut(0.01),
    "cut in half": _cut(0.5),
    "cut at the end": _cut(0.999),
    "two in one": lambda known: known["good"] + known["good"],
    "a journal": lambda known: known["journal"],
    "JSON Lines": lambda known: known["jsonl"],
    "a table": lambda known: known["csv"],
    "Markdown": lambda known: known["md"],
    "a list of reports": lambda known: f"[{known['good']}]",
    "deep": "[" * 100_000,
    "JUnit": '<?xml version="1.0"?><testsuites><testsuite tests="1"/></testsuites>',
    "of lm-eval": json.dumps({"results": {"sums": {"acc,none": 1.0}}, "versions": {"sums": 1}, "n-shot": {"sums": 0}}),
    "of inspect": json.dumps({"version": 2, "status": "success", "eval": {"task": "sums"}, "results": {"scores": []}}),
    "of pytest-json-report": json.dumps({"created": 1.0, "exitcode": 0, "summary": {"passed": 12}, "tests": []}),
    "of promptfoo": json.dumps({"evalId": "x", "results": {"version": 3, "stats": {"successes": 12, "failures": 0}}}),
    "of a later version": _edited(_set("schema", value=999)),
    "of version 0": _edited(_set("schema", value=0)),
    "of a version in words": _edited(_set("schema", value="latest")),
    "of no version": _edited(_removed("schema")),
    "without records": _edited(_removed("records")),
    "without suites": _edited(_removed("suites")),
    "no records": _edited(_set("records", value=[])),
    "no suites": _edited(_set("suites", value=[])),
    "records of another kind": _edited(_set("records", value={"s1": "correct"})),
    "a record that is none": _edited(_set("records", 0, value=None)),
    "a status of its own": _edited(_set("records", 0, "status", value="right")),
}
"""What is no report, or one that contradicts itself: refused wherever a report is taken."""


def reports() -> Iterator[Way]:
    gate = ("--gate", "accuracy >= 0")
    for name, content in UNREADABLE.items():
        files: dict[str, Content] = {"r.json": content, "good.json": lambda known: known["good"]}
        for use, arguments in {
            "gate": ("gate", "r.json", *gate),
            "gate with a baseline": ("gate", "good.json", "--baseline", "r.json"),
            "gate without gates": ("gate", "r.json"),
            "compare, before": ("compare", "r.json", "good.json"),
            "compare, after": ("compare", "good.json", "r.json"),
            "merge": ("merge", "r.json", "-o", "m.json"),
            "merge with another": ("merge", "other.json", "r.json", "-o", "m.json"),
        }.items():
            if use.startswith("merge") and name == "no suites":
                continue
            more: dict[str, Content] = {"other.json": lambda known: known["other"]}
            yield Way(name=f"{use}: {name}", command="llmeval", arguments=arguments, files={**files, **more})
        wrong = Wrong(name=name, arguments=(model("good"), "--llm-baseline=r.json", "sums.yaml"))
        for workers in (("-p", "no:xdist"), ("-n2",)):
            yield Way(
                name=f"baseline {' '.join(workers)}: {name}",
                arguments=(*workers, *wrong.arguments),
                files=project(wrong, files=files),
            )
    for name, way in _SAVED.items():
        yield Way(name=f"llmeval {name}", command="llmeval", arguments=way[0], files=way[1])


def _of(*names: str) -> dict[str, Content]:
    def content(name: str) -> Content:
        return lambda known: known[name]

    return {f"{name}.json": content(name) for name in names}


_SAVED: dict[str, tuple[tuple[str, ...], dict[str, Content]]] = {
    "gate that fails": (("gate", "bad.json", "--gate", "accuracy >= 0.9"), _of("bad")),
    "gate of the suite": (("gate", "gated.json"), _of("gated")),
    "gate of no suite": (("gate", "good.json", "--gate", "none: accuracy >= 0"), _of("good")),
    "gate of no metric": (("gate", "good.json", "--gate", "brier <= 1"), _of("good")),
    "gate of no category": (("gate", "good.json", "--gate", "category.none.accuracy >= 0"), _of("good")),
    "gate that is none": (("gate", "good.json", "--gate", "accuracy"), _of("good")),
    "gate, none": (("gate", "good.json"), _of("good")),
    "gate on unscored samples": (("gate", "unscored.json", "--gate", "accuracy >= 0"), _of("unscored")),
    "gate on a run that was stopped": (("gate", "stopped.json", "--gate", "accuracy >= 0"), _of("stopped")),
    "gate on a shard, of the suite": (("gate", "shard1.json"), _of("shard1")),
    "gate on a shard, required": (("gate", "shard1.json", "--require"), _of("shard1")),
    "gate on a run without samples": (("gate", "nothing.json", "--gate", "accuracy >= 0"), _of("nothing")),
    "gate on a run without samples, none": (("gate", "nothing.json"), _of("nothing")),
    "gate, no file": (("gate", "gone.json", "--gate", "accuracy >= 0"), {}),
    "gate on partly merged": (("gate", "partial.json", "--gate", "accuracy >= 0"), _of("partial")),
    "gate, worse than the baseline": (("gate", "bad.json", "--baseline", "good.json"), _of("bad", "good")),
    "gate, other baseline": (("gate", "good.json", "--baseline", "other.json"), _of("good", "other")),
    "gate, changed baseline": (("gate", "good.json", "--baseline", "changed.json"), _of("good", "changed")),
    "gate, stopped baseline": (("gate", "good.json", "--baseline", "stopped.json"), _of("good", "stopped")),
    "gate, unscored baseline": (("gate", "good.json", "--baseline", "unscored.json"), _of("good", "unscored")),
    "gate, empty baseline": (("gate", "good.json", "--baseline", "nothing.json"), _of("good", "nothing")),
    "gate, no baseline": (("gate", "good.json", "--baseline", "gone.json"), _of("good")),
    "compare, worse": (("compare", "good.json", "bad.json"), _of("good", "bad")),
    "compare, half": (("compare", "good.json", "half.json"), _of("good", "half")),
    "compare, another": (("compare", "good.json", "other.json"), _of("good", "other")),
    "compare, changed": (("compare", "changed.json", "good.json"), _of("good", "changed")),
    "compare, unscored": (("compare", "good.json", "unscored.json"), _of("good", "unscored")),
    "compare, stopped": (("compare", "good.json", "stopped.json"), _of("good", "stopped")),
    "compare, no samples": (("compare", "good.json", "nothing.json"), _of("good", "nothing")),
    "compare, no samples before": (("compare", "nothing.json", "good.json"), _of("good", "nothing")),
    "compare, one file": (("compare", "good.json"), _of("good")),
    "compare, no common": (("compare", "changed.json", "good.json", "--compare", "common"), _of("good", "changed")),
    "merge, one shard": (("merge", "shard1.json", "-o", "m.json"), _of("shard1")),
    "merge, one shard twice": (
        ("merge", "shard1.json", "copy.json", "-o", "m.json"),
        {**_of("shard1"), "copy.json": lambda known: known["shard1"]},
    ),
    "merge, one file twice": (("merge", "shard1.json", "./shard1.json", "-o", "m.json"), _of("shard1")),
    "merge, another": (("merge", "shard1.json", "other.json", "-o", "m.json"), _of("shard1", "other")),
    "merge, a whole one": (("merge", "shard1.json", "good.json", "-o", "m.json"), _of("shard1", "good")),
    "merge, stopped": (("merge", "shard1.json", "stopped.json", "-o", "m.json"), _of("shard1", "stopped")),
    "merge, over a part": (("merge", "shard1.json", "shard2.json", "-o", "shard1.json"), _of("shard1", "shard2")),
    "merge, to a folder": (
        ("merge", "shard1.json", "shard2.json", "-o", "out.json"),
        {**_of("shard1", "shard2"), "out.json": None},
    ),
    "merge, another number": (
        ("merge", "a.json", "shard2.json", "-o", "m.json"),
        {
            "a.json": _sealed(_set("options", "shard", value="1/3"), "shard1"),
            **_of("shard2"),
        },
    ),
    "merge, a part that failed": (
        ("merge", "a.json", "shard2.json", "-o", "m.json"),
        {"a.json": _sealed(_with_failed_tests, "shard1"), **_of("shard2")},
    ),
    "merge, a part that ended in error": (
        ("merge", "a.json", "shard2.json", "-o", "m.json"),
        {"a.json": _sealed(_set("exit_code", value=3), "shard1"), **_of("shard2")},
    ),
}
