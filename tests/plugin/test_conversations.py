"""Sessions of suites with ``prompt.messages``: from a column to the report and back."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from pytest_llmeval.cli import main
from tests.support import REPOSITORY
from tests.tiny_models import CHAT_TEMPLATE

CALL = {"id": "c1", "type": "function", "function": {"name": "balance", "arguments": '{"account": 7}'}}
TALK = [
    {"role": "system", "content": "You are a bank."},
    {"role": "user", "content": "How much is on my account?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "12.5", "tool_call_id": "c1", "name": "balance"},
]
ROWS = [
    {"id": "a", "talk": TALK, "target": "12.5"},
    {"id": "b", "talk": json.dumps([*TALK, {"role": "assistant", "content": "You have"}]), "target": "goes on"},
]
SUITE = "suite: s\ndataset: {path: rows.jsonl}\nprompt: {messages: talk}\nscore: contains\n"
MODELS = """
import json

def model(messages):
    if messages[-1]["role"] == "assistant":
        return " it goes on"
    (call,) = messages[-2]["tool_calls"]
    return f"{messages[-1]['content']} of account {json.loads(call['function']['arguments'])['account']}"

def judge(messages):
    question = messages[-1]["content"]
    is_whole = "<assistant> [calls balance(account=7)]\\n\\n<tool balance> 12.5" in question
    return json.dumps({"reason": "", "equivalent": is_whole})
"""
STORE = ("--llm-store=store", "--llm-store-max-age=7d")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(models=MODELS)
    (llm_pytester.path / "s.yaml").write_text(SUITE)
    (llm_pytester.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return llm_pytester


def run(project: pytest.Pytester, *args: str) -> dict[str, Any]:
    """The records of a session, by id."""
    result = project.runpytest_inprocess("s.yaml", "--llm-report=r.json", *args)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    report: dict[str, Any] = json.loads((project.path / "r.json").read_text())
    assert report["suites"][0]["asked_with"] == {"prompt.messages": "column talk"}
    return {record["id"]: record for record in report["records"]}


def test_from_a_column_to_the_report_a_store_and_a_replay(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    first = run(project, "--llm-model=python:models:model", *STORE, *workers)
    assert {id_: record["status"] for id_, record in first.items()} == {"a": "correct", "b": "correct"}
    assert first["a"]["output"] == "12.5 of account 7"
    assert first["a"]["prompt"] == TALK
    assert first["b"]["prompt"][-1] == {"role": "assistant", "content": "You have"}
    kept = run(project, "--llm-model=python:models:model", *STORE, *workers)
    assert [record["is_reused"] for record in kept.values()] == [True, True]
    assert [record["output"] for record in kept.values()] == [record["output"] for record in first.values()]
    (project.path / "r.json").rename(project.path / "old.json")
    again = run(project, "--llm-model=replay:old.json")
    assert [record["status"] for record in again.values()] == ["correct", "correct"]
    assert [record["fingerprint"] for record in again.values()] == [record["fingerprint"] for record in first.values()]


def test_the_conversation_is_shown(project: pytest.Pytester) -> None:
    shown = project.runpytest_inprocess("s.yaml", "--llm-show-prompts")
    shown.stdout.fnmatch_lines(
        [
            "(turns, before the model's chat template)",
            "<system> You are a bank.",
            "<user> How much is on my account?",
            "<assistant> [[]calls balance(account=7)]",
            "<tool balance> 12.5",
            "<assistant> ⟦reply of up to 256 tokens⟧",
            "target: 12.5",
        ],
        consecutive=True,
    )
    shown.stdout.fnmatch_lines(["<assistant> You have⟦reply of up to 256 tokens⟧"])


def test_it_is_read_turn_by_turn_and_judged_whole(project: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    (project.path / "s.yaml").write_text(SUITE.replace("score: contains", "score: {equivalence: {math: false}}"))
    records = run(project, "--llm-model=python:models:model", "--llm-judge=python:models:judge")
    assert [record["status"] for record in records.values()] == ["correct", "correct"]
    assert main(["show", str(project.path / "r.json"), "--prompts", "--id", "a"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "system, message 1 of 4: You are a bank." in lines
    assert "assistant, message 3 of 4: calls balance(account=7)" in lines
    assert "tool balance, message 4 of 4: 12.5" in lines


@pytest.mark.forks_torch
def test_what_a_checkpoint_cannot_read_is_a_line_and_the_others_go_on(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    """Options are scored after the other conversations."""
    demo, model = REPOSITORY / "pytest_llmeval" / "demo_model", llm_pytester.path / "model"
    shutil.copytree(demo, model, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (model / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    rows = [
        {"id": "read", "talk": [user, assistant, user]},
        {"id": "begun", "talk": [user, {"role": "assistant", "content": "The answer:"}]},
        {"id": "refused", "talk": [user, {"role": "system", "content": "s"}, user]},
        {"id": "long", "talk": [user, assistant] * 500 + [user]},
    ]
    (llm_pytester.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (llm_pytester.path / "s.yaml").write_text(SUITE.replace("contains", "choice\nchoices: [' x', ' y']\ntarget: 0"))
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-model=model", "--llm-report=r.json", "s.yaml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    report: dict[str, Any] = json.loads((llm_pytester.path / "r.json").read_text())
    unscored = {record["id"] for record in report["records"] if record["status"] == "unscored"}
    assert unscored == {"refused", "long"}
    result.stdout.fnmatch_lines_random(
        [
            "*rows.jsonl:3: sample 'refused': the tokenizer's chat template refuses the prompt: *system comes first "
            "(its messages: user, system, user)",
            "*rows.jsonl:4: sample 'long': * too many*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
