"""Sessions of suites with tools: from ``prompt.tools`` to calls in the report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.tables.samples import sample_fields
from pytest_llmeval.text.tool_schemas import tool_schemas

TOOL = json.dumps(
    {
        "name": "weather",
        "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
)
SUITE = f"""suite: s
prompt:
  chat: true
  tools: [{TOOL}]
score: tool_calls
samples:
- {{id: a, question: "Weather in Paris?", target: [{{weather: {{city: Paris}}}}]}}
- {{id: b, question: "Weather in Rome?", target: [{{weather: {{city: Rome}}}}]}}
- {{id: c, question: "Hello", target: []}}
"""
MODELS = """
import json

def called(messages, tools):
    (tool,) = tools
    text = messages[-1]["content"]
    if "Weather" not in text:
        return "Hello to you"
    return {"tool_calls": [{"function": {"name": tool["function"]["name"], "arguments": '{"city": "Paris"}'}}]}

def written(messages, tools):
    answer = called(messages, tools)
    if isinstance(answer, str):
        return answer
    call = answer["tool_calls"][0]["function"]
    return f'<tool_call>{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}</tool_call>'

def shows(messages, tools):
    return json.dumps([tool["function"]["name"] for tool in tools])

def plain(messages):
    return "a"
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(models=MODELS)
    (llm_pytester.path / "s.yaml").write_text(SUITE)
    return llm_pytester


def run(project: pytest.Pytester, *args: str) -> dict[str, Any]:
    """The records of a session, by id."""
    report = project.path / "r.json"
    result = project.runpytest_inprocess("s.yaml", f"--llm-report={report}", *args)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    return {record["id"]: record for record in json.loads(report.read_text())["records"]}


@pytest.mark.parametrize("model", ["called", "written"])
def test_calls_are_scored_and_kept(project: pytest.Pytester, workers: tuple[str, ...], model: str) -> None:
    records = run(project, f"--llm-model=python:models:{model}", *workers)
    assert {id_: record["status"] for id_, record in records.items()} == {"a": "correct", "b": "wrong", "c": "correct"}
    call = {"name": "weather", "arguments": {"city": "Paris"}}
    shown = {"tools": [tool["function"] for tool in tool_schemas(TOOL)]}
    assert records["a"]["details"] == {**shown, "tool_calls": [call]}
    assert records["a"]["answer"] == records["a"]["target"] == 'weather(city="Paris")'
    assert records["b"]["details"] == {
        **shown,
        "tool_calls": [call],
        "problem": 'weather: city is "Paris", expected "Rome"',
    }
    assert records["c"]["answer"] == records["c"]["target"] == "no call"
    assert records["c"]["not_measurable"] == {"accuracy_arguments": "no call is expected"}


def test_replies_are_scored_again_from_a_report_and_a_store(project: pytest.Pytester) -> None:
    store = f"--llm-store={project.path / 'store'}"
    first = run(project, "--llm-model=python:models:called", store)
    (project.path / "r.json").rename(project.path / "old.json")
    again = run(project, "--llm-model=replay:old.json")
    for id_, record in first.items():
        assert again[id_]["details"] == record["details"]
        assert again[id_]["values"] == record["values"]
    lines = "".join(path.read_text() for path in (project.path / "store").rglob("*.jsonl"))
    assert '"tool_calls":[{"name":"weather"' in lines


def test_tools_and_what_is_wrong_are_shown(project: pytest.Pytester) -> None:
    (function,) = [tool["function"] for tool in tool_schemas(TOOL)]
    result = project.runpytest_inprocess("s.yaml::a", "--llm-show-prompts")
    result.stdout.fnmatch_lines([f"<tools> {json.dumps(function)}".replace("[", "[[]"), "<user> Weather in Paris?"])
    result = project.runpytest_inprocess("s.yaml", "--llm-model=python:models:called", "--llm-show-wrong=1")
    result.stdout.fnmatch_lines(
        [
            "*answer: weather(city=*Paris*)",
            "*expected: weather(city=*Rome*)",
            '*problem: weather: city is "Paris", expected *',
        ]
    )
    result.stdout.no_fnmatch_line("*output:*")  # a reply of calls alone has no text


def test_calls_from_a_file_of_replies(project: pytest.Pytester) -> None:
    rows = [
        {"id": "a", "tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}]},
        {"id": "b", "response": '{"name": "weather", "parameters": {"city": "Rome"}}'},
        {"id": "c", "response": "Hello", "tool_calls": []},
    ]
    (project.path / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (project.path / "replies.csv").write_text(
        'id,response,tool_calls\na,,"[{""name"": ""weather"", ""arguments"": {""city"": ""Paris""}}]"\n'
        "b,\"[weather(city='Rome')]\",\nc,Hello,[]\n"  # an empty cell does not say that there are no calls
    )
    for file in ("replies.jsonl", "replies.csv"):
        records = run(project, f"--llm-model=replay:{file}")
        assert {record["status"] for record in records.values()} == {"correct"}


def test_tools_of_a_file_and_of_a_column(project: pytest.Pytester) -> None:
    (project.path / "tools.yaml").write_text("- {name: of_file}\n")
    rows = [{"question": "a", "own": {"functions": [{"name": "of_row"}]}}, {"question": "b", "own": {"functions": []}}]
    (project.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (project.path / "s.yaml").write_text(
        "suite: s\nprompt: {chat: true, tools: tools.yaml, tools_column: own.functions}\nscore: exact\n"
        "dataset: {path: rows.jsonl}\ntarget: \"{{ 'x' }}\"\n"
    )
    records = run(project, "--llm-model=python:models:shows")
    assert [record["output"] for record in records.values()] == ['["of_row"]', '["of_file"]']


def test_one_of_several_scorers_knows_the_tools_and_each_repetition_is_judged(project: pytest.Pytester) -> None:
    """BFCL's rule finds that an argument is missing which the schema requires, although the truth lets it out."""
    (project.path / "models.py").write_text(
        "def model(messages, tools, epoch):\n    return {'tool_calls': [{'name': 'weather', 'args': {}}][epoch:]}\n"
    )
    (project.path / "s.yaml").write_text(
        SUITE.partition("score:")[0] + "score: {several: {decides: bfcl, scorers: {bfcl: {score: {tool_calls: "
        "{rule: bfcl}}}, subset: {score: {tool_calls: {rule: bfcl, order: subset}}}}}}\n"
        "generate: {temperature: 1}\nepochs: {count: 2}\n"
        'samples: [{id: a, question: q, target: [{weather: {city: [Paris, ""]}}]}]\n'
    )
    (record,) = run(project, "--llm-model=python:models:model").values()
    assert (record["values"]["accuracy_name"], record["values"]["accuracy"]) == (0.5, 0)
    assert record["values"]["subset.accuracy_name"] == 0.5
    assert record["details"]["tool_calls"] == [[{"name": "weather", "arguments": {}}], []]
    shown = dict(
        sample_fields(Record(suite="s", id="a", status="wrong", details=record["details"]), prompt=True, whole=True)
    )
    assert shown["tools"] == json.dumps(tool_schemas(TOOL)[0]["function"])
    assert shown["output 1 of 2 (wrong)"] == "weather()"  # which has no text


REFUSED = {
    "no chat": (
        SUITE.replace("chat: true", "chat: false"),
        "s.yaml:4: prompt.tools: only a chat has tools; add prompt.chat: true",
    ),
    "no tools": (SUITE.replace('"weather"', "3"), "s.yaml:4: prompt.tools: entry 1 has no name, expected a list of"),
    "no JSON": (SUITE.replace('"string"', ".nan"), "s.yaml:4: prompt.tools: the functions cannot be written as JSON"),
    "no file": (SUITE.replace(f"[{TOOL}]", "t.json"), "s.yaml:4: prompt.tools: "),
    "no column": (
        SUITE.replace("  tools:", "  tools_column: tool\n  tools:"),
        "s.yaml:4: prompt.tools_column: sample 'a' (s.yaml:8): there is no column 'tool'",
    ),
    "log-likelihoods": (
        SUITE.partition("score:")[0] + "score: choice\nsamples: [{question: q, choices: [a, b], target: a}]\n",
        "s.yaml:4: prompt.tools: choice compares log-likelihoods, and only replies have tools; remove them",
    ),
    "a target that is too deep": (
        SUITE.replace("score: tool_calls\nsamples:", "score: tool_calls\ndataset: {path: deep.jsonl}").partition(
            "\n- "
        )[0],
        "deep.jsonl:1: sample '1': target: is nested more than 100 levels deep",
    ),
    "a target that is none": (SUITE.replace("target: []", "target: 3"), "s.yaml:9: sample 'c': the target is 3"),
    "a mapping for another scorer": (
        SUITE.replace("score: tool_calls", "score: exact"),
        "s.yaml:7: sample 'a': target.0: found a mapping",
    ),
}


@pytest.mark.parametrize(("suite", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_suite_is_refused_in_one_line(project: pytest.Pytester, suite: str, message: str) -> None:
    (project.path / "s.yaml").write_text(suite)
    (project.path / "deep.jsonl").write_text(f'{{"question": "q", "target": [{{"f": {"[" * 200}{"]" * 200}}}]}}\n')
    result = project.runpytest_inprocess("-p", "no:xdist", "s.yaml", "--llm-model=python:models:called")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    lines = [line for line in result.outlines if line.startswith(("s.yaml:", "deep.jsonl:"))]
    assert len(lines) == 1
    assert lines[0].startswith(message)


@pytest.mark.parametrize("model", ["python:models:plain", "demo"])
def test_a_model_that_takes_no_tools_is_one_line(project: pytest.Pytester, model: str) -> None:
    result = project.runpytest_inprocess("-p", "no:xdist", "s.yaml", f"--llm-model={model}")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (line,) = [line for line in result.outlines if line.startswith("s.yaml:")]
    assert line.startswith(f"s.yaml:4: prompt.tools: {model}: the ")
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_fingerprint_says_that_the_tools_are_others(project: pytest.Pytester) -> None:
    run(project, "--llm-model=python:models:called")
    base = json.loads((project.path / "r.json").read_text())["suites"][0]
    (project.path / "s.yaml").write_text(SUITE.replace('"string"', '"integer"'))
    run(project, "--llm-model=python:models:called")
    other = json.loads((project.path / "r.json").read_text())["suites"][0]
    assert base["fingerprint"] != other["fingerprint"]
    changed = {name for name, part in base["fingerprint_parts"].items() if other["fingerprint_parts"][name] != part}
    assert changed == {"prompt"}
    assert base["asked_with"]["prompt.tools"] != other["asked_with"]["prompt.tools"]
