"""A judge behind a server that is faulty in every way of judges: no fault becomes a number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.plugin.judge_for_tests import form_of, records_of, report_of
from tests.servers.stub import StubServer

pytestmark = pytest.mark.usefixtures("quick_retries")

GOOD, BAD = "a good one", "a bad one"
COUNT = 39
"""Three for each fault."""
RIGHT = {f"r{number}": number % 2 == 0 for number in range(COUNT)}
"""What a judge without faults says of each sample."""

SCORES = {
    "equivalence": "{equivalence: {math: false}}",
    "aspects": "{aspects: {aspects: [clarity, accuracy], n_iter: 2}}",
    "rubric": "{rubric: {criteria: {kind: It is kind.}}}",
    "rag": "{rag: {metrics: [faithfulness, context_precision, context_recall]}}",
}

MOSTLY_SLOW = ["equivalence", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("aspects", "rubric", "rag"))]
"""What one kind of scorer shows of all of them; the others are in the slow tier."""

Say = Callable[[dict[str, Any]], str]


def suite(kind: str) -> str:
    rows = [
        {
            "id": name,
            "question": f"Number {name}?",
            "response": reply,
            "target": "T",
            "contexts": [f"Number {name}? {reply}"],
        }
        for name, is_good in RIGHT.items()
        for reply in (GOOD if is_good else BAD,)
    ]
    return f"suite: judged\nsamples: {json.dumps(rows)}\nscore: {SCORES[kind]}\n"


def verdict(body: dict[str, Any]) -> dict[str, Any]:
    """What a judge without faults says: the form that is asked for, filled in."""
    system, user = (turn["content"] for turn in body["messages"])
    is_good = GOOD in user.rpartition("Reply:\n")[2]
    form: dict[str, Any] = form_of(system)
    if "claims" in form:
        return {"claims": [user.rpartition("Answer:\n")[2]]}
    if "reason" in form:  # and one more: equivalent, supported, relevant
        return dict.fromkeys(form, is_good) | {"reason": "r"}
    for entry in form.values():
        entry |= {"score": 5 if is_good else 1} if "score" in entry else {"label": "pass" if is_good else "fail"}
    return form


def name_in(body: dict[str, Any]) -> str:
    found = re.search(r"Number (r\d+)\?", body["messages"][-1]["content"])
    return "" if found is None else found[1]


def without_one(body: dict[str, Any]) -> str:
    found = verdict(body)
    del found[next(iter(found))]
    return json.dumps(found)


def with_one_more(body: dict[str, Any]) -> str:
    return json.dumps({**verdict(body), "overall": {"reason": "r", "score": 5, "label": "pass"}})


def of_unknown_value(body: dict[str, Any]) -> str:
    return re.sub(
        r'("score": |"label": |"equivalent": |"supported": |"relevant": |"claims": )[^,}]+',
        r'\1"excellent"',
        json.dumps(verdict(body)),
    )


FAULTS: dict[str, Say] = {
    "prose before": lambda body: f"Here is my verdict:\n{json.dumps(verdict(body))}",
    "prose after": lambda body: f"{json.dumps(verdict(body))}\nI hope this helps!",
    "prose alone": lambda body: "The reply is excellent: 5 out of 5, pass, equivalent: true.",
    "cut": lambda body: json.dumps(verdict(body))[:-3],
    "cut in a fence": lambda body: f"```json\n{json.dumps(verdict(body))[:-1]}",
    "two verdicts": lambda body: f"{json.dumps(verdict(body))}\n{json.dumps(verdict(body))}",
    "a list": lambda body: json.dumps([verdict(body)]),
    "one too few": without_one,
    "one too many": with_one_more,
    "an unknown value": of_unknown_value,
    "refusal": lambda body: "I cannot help with that.",
    "silence": lambda body: "",
    "white space": lambda body: " \n ",
}


def fault_of(name: str) -> str | None:
    """Of three samples in a row two have one fault, whatever is asked of them; the third has none."""
    number = int(name.removeprefix("r"))
    return list(FAULTS)[number // 3] if number % 3 < 2 else None


def faulty(body: dict[str, Any]) -> str:
    fault = fault_of(name_in(body))
    return json.dumps(verdict(body)) if fault is None else FAULTS[fault](body)


def judged(
    pytester: pytest.Pytester, workers: list[str], kind: str, say: Say, *, faults: tuple[str, ...] = ()
) -> tuple[pytest.RunResult, StubServer]:
    pytester.makefile(".yaml", judged=suite(kind))
    with StubServer("vllm", instant=True, faults=faults, says=say) as stub:
        result = pytester.runpytest(*workers, f"--llm-judge={stub.url}", "--llm-report=report.json", "judged.yaml")
    return result, stub


def is_right(record: dict[str, Any]) -> bool:
    """Whether the record's numbers are those that the judge without faults gives, all of them."""
    values, good = record["values"], RIGHT[record["id"]]
    values = {name: value for name, value in values.items() if not name.startswith("decided_by")}
    if "aspects" in values:
        return set(values.values()) == {5 if good else 1}
    if "faithfulness" in values:
        return set(values.values()) == {float(good)} and record["status"] == "scored"
    return set(values.values()) == {float(good)} and record["status"] == ("correct" if good else "wrong")


@pytest.mark.parametrize("kind", MOSTLY_SLOW)
def test_a_judge_without_faults(llm_pytester: pytest.Pytester, workers: list[str], kind: str) -> None:
    result, stub = judged(llm_pytester, workers, kind, lambda body: json.dumps(verdict(body)))
    assert result.ret == 0, result.stdout.str()
    records = records_of(llm_pytester.path)
    assert len(records) == COUNT
    assert all(map(is_right, records.values()))
    (found,) = report_of(llm_pytester.path)["suites"]
    assert found["judged_by"][0].startswith(f"{stub.url} (server, ")
    assert stub.bodies("/v1/chat/completions")


@pytest.mark.parametrize("kind", SCORES)
def test_no_fault_becomes_a_number(llm_pytester: pytest.Pytester, workers: list[str], kind: str) -> None:
    """Two thirds of the samples have a fault in all of their tries; the others have their own numbers."""
    assert 3 * len(FAULTS) == COUNT
    result, _ = judged(llm_pytester, workers, kind, faulty)
    assert result.ret == 1, result.stdout.str()
    records = records_of(llm_pytester.path)
    assert len(records) == COUNT
    for name, record in records.items():
        if fault_of(name) is None:
            assert is_right(record)
            continue
        assert record["status"] == "unscored", fault_of(name)
        assert record["reason"].startswith("no verdict: "), record["reason"]
        assert not record["values"]
        first = record["details"]["verdicts"][0]
        assert first["problem"] in record["reason"]
        assert first["tries"] == 3
    (found,) = report_of(llm_pytester.path)["suites"]
    assert (found["num_expected"], found["num_scored"]) == (COUNT, len(FAULTS))


@pytest.mark.parametrize("kind", MOSTLY_SLOW)
def test_a_fault_that_passes_gives_the_right_number(
    llm_pytester: pytest.Pytester, workers: list[str], kind: str
) -> None:
    """The first draw is prose, the next is cut, the last is a verdict: the seed says which it is."""

    def say(body: dict[str, Any]) -> str:
        key = (name_in(body), str(body["messages"]))
        number = seen[key] = seen.get(key, 0) + 1
        text = json.dumps(verdict(body))
        return ("Well … " + text, text[:-2], text)[(number - 1) // num_askings % 3]

    seen: dict[tuple[str, str], int] = {}
    num_askings = 2 if kind == "aspects" else 1
    result, _ = judged(llm_pytester, workers, kind, say)
    assert result.ret == 0, result.stdout.str()
    records = records_of(llm_pytester.path)
    assert all(map(is_right, records.values()))
    assert {one["tries"] for record in records.values() for one in record["details"]["verdicts"]} == {3}


def test_the_tries_are_other_draws(llm_pytester: pytest.Pytester) -> None:
    _, stub = judged(llm_pytester, ["-p", "no:xdist"], "equivalence", FAULTS["refusal"])
    drawn: dict[str, list[tuple[object, object]]] = {}
    for body in stub.bodies("/v1/chat/completions"):
        if name := name_in(body):
            drawn.setdefault(name, []).append((body.get("seed"), body.get("temperature")))
    assert len(drawn) == COUNT
    for draws in drawn.values():
        assert [temperature for _, temperature in draws] == [0, 0.7, 0.7]
        assert draws[1][0] != draws[2][0]


@pytest.mark.parametrize("kind", MOSTLY_SLOW)
def test_errors_of_the_server_are_no_numbers(llm_pytester: pytest.Pytester, workers: list[str], kind: str) -> None:
    """Three in ten requests fail, and are asked again by the model itself."""
    result, stub = judged(
        llm_pytester, workers, kind, lambda body: json.dumps(verdict(body)), faults=("errors-30:0.3",)
    )
    assert result.ret in (0, 1)
    assert stub.statuses[500] > 0
    records = records_of(llm_pytester.path)
    assert len(records) == COUNT
    for record in records.values():
        if record["status"] == "unscored":
            assert record["reason"].startswith("no verdict: ")
            assert not record["values"]
        else:
            assert is_right(record)
    assert sum(record["status"] != "unscored" for record in records.values()) > COUNT // 2
