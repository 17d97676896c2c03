"""Sessions of suites that ask turn by turn: from ``prompt.turns`` to conversations in the report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmeval.cli import main
from tests.servers.stub import StubServer
from tests.support import fake_model_conftest, model_calls

SUITE = """suite: s
prompt:
  chat: true
  system: Be brief.
  turns: ["{{ question }}", "{{ row.follow_up }}", Answer with one letter.]
score: exact
samples:
- {id: a, question: "First a?", follow_up: "Sure of a?", target: A}
- {id: b, question: "First b?", follow_up: "Sure of b?", target: A}
- {id: c, question: "First c?", follow_up: "Sure of c?", target: A}
"""
MODELS = '''
import json
from concurrent.futures import ThreadPoolExecutor

from pytest_llmeval.types import GenerateResponse, ModelIdentity

def replied(messages, epoch=0):
    """Replies with what tells the turn, the user's text and the repetition."""
    users = [one["content"] for one in messages if one["role"] == "user"]
    return f"{len(users)}{users[-1][:1]}{epoch}"

class Model:
    identity = ModelIdentity(name="m", backend="models.py", fingerprint="1")

    def generate(self, requests):
        return [self.answer(one) for one in requests]

    def answer(self, request):
        messages = [{"role": one.role, "content": one.content} for one in request.prompt]
        with open("asked.jsonl", "a") as file:
            file.write(json.dumps([one["content"] for one in messages]) + "\\n")
        text = f"<think>Hm.</think>{replied(messages, request.epoch)}"
        return GenerateResponse(text=text, num_prompt_tokens=len(messages), num_tokens=2, cost=0.5)

class Background(Model):
    num_concurrent = 4

    def __init__(self):
        self.pool = ThreadPoolExecutor(2)

    def submit(self, requests):
        return [self.pool.submit(self.answer, one) for one in requests]

def judge(prompt):
    shown = prompt[-1]["content"]
    score = 5 if "1F0" in shown else 2
    return json.dumps({"tone": {"reason": shown, "score": score}})
'''


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(models=MODELS)
    return llm_pytester


def run(project: pytest.Pytester, *args: str, suite: str = SUITE, code: int = 0) -> dict[str, dict[str, Any]]:
    """The records of a session, by id."""
    (project.path / "s.yaml").write_text(suite)
    result = project.runpytest_inprocess("-p", "no:cacheprovider", "s.yaml", "--llm-report=r.json", *args)
    assert result.ret == code, result.stdout.str()
    return {record["id"]: record for record in report(project)["records"]}


def report(project: pytest.Pytester) -> Any:
    return json.loads((project.path / "r.json").read_text())


def asked(project: pytest.Pytester) -> list[list[str]]:
    """What reached the model since the last call."""
    path = project.path / "asked.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


def shown_sample(project: pytest.Pytester, capsys: pytest.CaptureFixture[str], id_: str = "a") -> list[str]:
    """The lines that ``llmeval show`` prints of a sample."""
    capsys.readouterr()
    assert main(["show", str(project.path / "r.json"), "--id", id_]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_last_reply_is_scored_and_an_error_names_its_turn(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    script = fake_model_conftest(
        replies={"user: Answer with": "A", "user: Sure of": "Yes.", "First": "Maybe."}, errors={"Sure of c": "too long"}
    )
    project.makeconftest(script)
    records = run(project, *workers, code=1)
    assert [record["status"] for record in records.values()] == ["correct", "correct", "unscored"]
    record = records["a"]
    assert record["output"] == record["answer"] == "A"
    assert record["details"]["conversation"] == [
        {"user": "First a?", "reply": "Maybe."},
        {"user": "Sure of a?", "reply": "Yes."},
        {"user": "Answer with one letter.", "reply": "A"},
    ]
    assert records["c"]["reason"] == "turn 2 of 3: too long"
    prompts = [prompt for call in model_calls(project.path, "generate") for prompt in call["prompts"]]
    turns = ["system: Be brief.\nuser: First a?", "assistant: Maybe.\nuser: Sure of a?"]
    turns.append("assistant: Yes.\nuser: Answer with one letter.")
    assert [prompt for prompt in prompts if "First a" in prompt] == [
        "\n".join(turns[: number + 1]) for number in range(3)
    ]
    # The words of all prompts and replies.
    assert record["num_tokens"] == 3
    assert record["num_prompt_tokens"] == sum(len(prompt.split()) for prompt in prompts if "First a" in prompt)


@pytest.mark.parametrize("model", ["Model", "Background"])
def test_a_store_asks_for_what_follows_a_change_alone(project: pytest.Pytester, model: str) -> None:
    args = (f"--llm-model=python:models:{model}", "--llm-store=store")
    first = run(project, *args)
    assert len(asked(project)) == 9
    assert first["a"]["output"] == "3A0"
    assert (first["a"]["cost"], first["a"]["num_tokens"], first["a"]["num_prompt_tokens"]) == (1.5, 6, 2 + 4 + 6)
    again = run(project, *args)
    assert asked(project) == []
    assert [record["is_reused"] for record in again.values()] == [True] * 3
    assert again["b"]["details"] == first["b"]["details"]
    assert {turn["reasoning"] for turn in first["b"]["details"]["conversation"]} == {"Hm."}
    run(project, *args, suite=SUITE.replace("Answer with one", "Give one"))
    assert sorted(asked(project)) == [
        ["Be brief.", f"First {id_}?", "1F0", f"Sure of {id_}?", "2S0", "Give one letter."] for id_ in "abc"
    ]


def test_each_repetition_is_a_conversation_of_its_own(
    project: pytest.Pytester, workers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    suite = SUITE + "generate: {temperature: 1}\nepochs: 2\n"
    (record, *_) = run(project, *workers, "--llm-model=python:models:Model", suite=suite).values()
    assert record["details"]["outputs"] == ["3A0", "3A1"]
    assert [[turn["reply"] for turn in talk] for talk in record["details"]["conversation"]] == [
        ["1F0", "2S0", "3A0"],
        ["1F1", "2S1", "3A1"],
    ]
    assert ["Be brief.", "First a?", "1F1", "Sure of a?"] in asked(project)
    shown = shown_sample(project, capsys)
    assert "  user, turn 2 of 3 of output 2: Sure of a?" in shown
    assert "  reply, turn 2 of 3 of output 2: 2S1" in shown
    assert "  reply, turn 3 of 3 of output 2, wrong: 3A1" in shown
    (project.path / "r.json").rename(project.path / "old.json")
    (again, *_) = run(project, "--llm-model=replay:old.json", suite=suite).values()
    assert again["details"] == record["details"]


def test_replies_of_a_report_or_of_a_file_are_scored_again(project: pytest.Pytester) -> None:
    first = run(project, "--llm-model=python:models:Model")
    (project.path / "r.json").rename(project.path / "old.json")
    again = run(project, "--llm-model=replay:old.json")
    for id_, record in first.items():
        assert (again[id_]["details"], again[id_]["values"]) == (record["details"], record["values"])
    again = run(project, "--llm-model=replay:old.json", "--llm-report-prompts=hash")
    assert [[*turn] for turn in again["a"]["details"]["conversation"]] == [["reply", "reasoning"]] * 3
    rows = [{"id": "a", "response": ["x", "y", "A"]}, {"id": "b", "response": "A"}, {"id": "c", "response": ["x", "A"]}]
    (project.path / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run(project, "--llm-model=replay:replies.jsonl", code=1)
    assert [record["status"] for record in found.values()] == ["correct", "correct", "unscored"]
    assert [turn["reply"] for turn in found["a"]["details"]["conversation"]] == ["x", "y", "A"]
    assert [turn["reply"] for turn in found["b"]["details"]["conversation"]] == [None, None, "A"]
    assert found["c"]["reason"].endswith("found 2 responses, and the suite asks each sample once, in 3 turns")
    shorter = SUITE.replace(", Answer with one letter.]", "]")
    found = run(project, "--llm-model=replay:old.json", suite=shorter, code=1)
    assert found["a"]["reason"].endswith("found replies to 3 turns, and the suite asks 2 turns")


def test_replies_to_all_turns_of_a_file_are_judged_without_their_reasoning(project: pytest.Pytester) -> None:
    rows = [{"id": id_, "response": ["<think>x</think>A", "A", "<think>y</think>A"]} for id_ in "abc"]
    (project.path / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite = SUITE.replace("chat: true", "score_turns: all")
    (record, *_) = run(project, "--llm-model=replay:replies.jsonl", suite=suite).values()
    assert [turn["status"] for turn in record["details"]["turns"]] == ["correct"] * 3
    assert [turn.get("reasoning") for turn in record["details"]["conversation"]] == ["x", None, "y"]


SCORED = """suite: s
prompt:
  chat: true
  turns:
  - {user: "{{ question }}", target: "{{ row.first }}"}
  - Why?
  - {user: Again., score: {contains: {}}, target: [3, x]}
  - Once more.
score: exact
samples:
- {id: a, question: "Is it A?", first: 1I0, target: 4O0}
- {id: b, question: "Is it B?", first: 1B0, target: 4O0}
- {id: c, question: "Is it C?", first: 1I0, target: 4O1}
"""


def test_each_scored_turn_has_to_be_right(
    project: pytest.Pytester, workers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    records = run(project, *workers, "--llm-model=python:models:replied", suite=SCORED)
    assert {id_: record["status"] for id_, record in records.items()} == {"a": "correct", "b": "wrong", "c": "wrong"}
    assert {id_: record["values"]["accuracy"] for id_, record in records.items()} == {"a": 1, "b": 0, "c": 0}
    statuses = {id_: [turn and turn["status"] for turn in one["details"]["turns"]] for id_, one in records.items()}
    assert statuses == {
        "a": ["correct", None, "correct", "correct"],
        "b": ["wrong", None, "correct", "correct"],
        "c": ["correct", None, "correct", "wrong"],
    }
    assert records["b"]["answer"] == records["b"]["output"] == "4O0"
    shown = [line for line in shown_sample(project, capsys, "b") if ", turn " in line]
    assert shown == [
        "  user, turn 1 of 4: Is it B?",
        "  reply, turn 1 of 4, wrong: 1I0",
        "  expected, turn 1 of 4: 1B0",
        "  user, turn 2 of 4: Why?",
        "  reply, turn 2 of 4: 2W0",
        "  user, turn 3 of 4: Again.",
        "  reply, turn 3 of 4, correct: 3A0",
        "  user, turn 4 of 4: Once more.",
        "  reply, turn 4 of 4, correct: 4O0",
    ]
    model = "--llm-model=python:models:replied"
    strict = project.runpytest_inprocess("s.yaml", model, "--llm-strict")
    strict.stdout.fnmatch_lines(["wrong: turn 1 of 4: expected '1B0', found '1I0'", "*Is it B?", "reply: '1I0'"])
    project.runpytest_inprocess("s.yaml", model, "--junitxml=j.xml", "-o", "junit_family=xunit1")
    assert "turn 1 of 4: expected '1B0', found '1I0'" in (project.path / "j.xml").read_text().replace("&apos;", "'")
    settings = report(project)["suites"][0]["settings"]["turns"]
    assert settings == {"1": True, "3": {"kind": "contains", "match": "any", "normalize": []}}
    first = report(project)["suites"][0]["fingerprint"]
    (project.path / "r.json").rename(project.path / "old.json")
    again = run(project, "--llm-model=replay:old.json", suite=SCORED)
    assert {id_: record["details"] for id_, record in again.items()} == {
        id_: record["details"] for id_, record in records.items()
    }
    assert report(project)["suites"][0]["fingerprint"] == first
    run(project, "--llm-model=replay:old.json", suite=SCORED.replace("first: 1B0", "first: 1I0"))
    assert report(project)["suites"][0]["fingerprint"] != first


def test_scores_of_repetitions_and_a_turn_whose_reply_is_not_known(project: pytest.Pytester) -> None:
    suite = SCORED + "generate: {temperature: 1}\nepochs: {count: 2, reduce: [mean, pass@2]}\n"
    records = run(project, "--llm-model=python:models:replied", suite=suite)
    assert records["a"]["values"] == {"accuracy": 0.5, "pass@2": 1.0}
    assert records["b"]["status"] == "wrong"
    turns = [one["details"]["turns"][0]["status"] for one in records["a"]["details"]["epochs"]]
    assert turns == ["correct", "wrong"]
    rows = [{"id": id_, "response": "4O0"} for id_ in "abc"]
    (project.path / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run(project, "--llm-model=replay:replies.jsonl", suite=SCORED, code=1)
    assert {record["reason"] for record in found.values()} == {"turn 1 of 4: the reply to it is not known"}


def test_turns_of_a_column_are_scored_by_their_own_targets_or_all(project: pytest.Pytester) -> None:
    rows = [
        {"id": "a", "turns": [{"user": "One", "target": "1O0"}, "Two"], "target": "2T0"},
        {"id": "b", "turns": [{"user": "One", "target": "x"}, {"user": "Two", "target": "2T0"}], "target": "y"},
    ]
    (project.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite = COLUMN.replace("talk.turns", "turns").replace("target: \"{{ 'x' }}\"\n", "")
    records = run(project, "--llm-model=python:models:replied", suite=suite)
    assert [record["status"] for record in records.values()] == ["correct", "wrong"]
    assert records["b"]["target"] == "2T0"
    suite = SUITE.replace("chat: true", "chat: true\n  score_turns: all").replace("target: A", "target: 3A0")
    found = run(project, "--llm-model=python:models:replied", suite=suite)
    assert [turn["status"] for turn in found["a"]["details"]["turns"]] == ["wrong", "wrong", "correct"]


def test_a_judge_reads_the_conversation_before_each_reply(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    suite = SUITE.replace("score: exact", "score: {aspects: {aspects: {tone: Calm.}, n_iter: 1}}")
    args = (*workers, "--llm-model=python:models:replied", "--llm-judge=python:models:judge")
    (record, *_) = run(project, *args, suite=suite).values()
    (verdict,) = record["details"]["verdicts"]
    shown = verdict["reasons"]["tone"]
    assert shown.startswith(
        "Conversation:\n```\nUser: First a?\n\nAssistant: 1F0\n\nUser: Sure of a?\n\nAssistant: 2S0\n\n"
        "User: Answer with one letter.\n```\n\n"
    )
    every = suite.replace("chat: true", "chat: true\n  score_turns: all")
    (record, *_) = run(project, *args, suite=every).values()
    assert record["status"] == "scored"
    first, second, _ = record["details"]["turns"]
    assert first["details"]["verdicts"][0]["reasons"]["tone"].startswith("Question:\n```\nFirst a?\n```")
    assert "User: Sure of a?\n```" in second["details"]["verdicts"][0]["reasons"]["tone"]
    assert record["values"]["aspects"] == 5.0
    assert record["num_judge_requests"] == 3
    shown_prompts = project.runpytest_inprocess("-p", "no:xdist", "s.yaml", "--llm-show-prompts", *args[-1:])
    assert shown_prompts.ret == 0


COLUMN = """suite: s
prompt: {turns: talk.turns}
score: exact
dataset: {path: rows.jsonl}
target: "{{ 'x' }}"
"""


def test_turns_of_a_column_and_prompts_that_are_shown(project: pytest.Pytester) -> None:
    rows = [{"id": "a", "talk": {"turns": ["Is {{ it }} so?", "Why?"]}}, {"id": "b", "talk": {"turns": '["One."]'}}]
    (project.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    records = run(project, "--llm-model=python:models:Model", suite=COLUMN)
    assert sorted(asked(project)) == [["Is {{ it }} so?"], ["Is {{ it }} so?", "1I0", "Why?"], ["One."]]
    assert records["b"]["details"]["conversation"][0]["user"] == "One."
    result = project.runpytest_inprocess("-p", "no:xdist", "s.yaml", "--llm-show-prompts")
    result.stdout.fnmatch_lines(
        ["<user> Is {{ it }} so?", "<assistant> ⟦reply of*", "<user> Why?", "<assistant> ⟦reply of*"], consecutive=True
    )


def test_the_few_tokens_of_a_letter_do_not_cut_the_other_turns(project: pytest.Pytester) -> None:
    suite = """suite: s
prompt: {turns: ["{{ lettered_choices }} Think aloud.", Which letter?]}
score: letter
samples: [{id: a, question: "?", choices: [x, y], target: y}]
"""
    with StubServer("vllm", instant=True) as stub:
        (record,) = run(project, "--llm-model", stub.url, suite=suite).values()
    assert (record["num_tokens"], record["num_truncated"]) == (2 * 256, 2)


def test_a_server_gets_each_turn_with_the_replies_so_far(project: pytest.Pytester) -> None:
    with StubServer("vllm", instant=True) as stub:
        records = run(project, "--llm-model", stub.url, suite=SUITE + "generate: {max_tokens: 3}\n")
        bodies = [body["messages"] for body in stub.bodies("/v1/chat/completions")]
    for record in records.values():
        messages = [{"role": "system", "content": "Be brief."}]
        for turn in record["details"]["conversation"]:
            messages.append({"role": "user", "content": turn["user"]})
            assert messages in bodies
            messages.append({"role": "assistant", "content": turn["reply"]})


def test_the_fingerprint_has_the_turns(project: pytest.Pytester) -> None:
    (first, second) = (
        (run(project, "--llm-model=python:models:Model", suite=suite), report(project)["suites"][0])
        for suite in (SUITE, SUITE.replace("one letter", "a letter"))
    )
    assert first[0]["a"]["fingerprint"] != second[0]["a"]["fingerprint"]
    parts = first[1]["fingerprint_parts"]
    assert {name for name, part in second[1]["fingerprint_parts"].items() if parts[name] != part} == {"prompt"}


HEAD, _, REST = SUITE.partition('["{{ question')
REST = REST.partition("]\n")[2]
REFUSED = {
    "no chat": (SUITE.replace("chat: true", "chat: false"), "s.yaml:3: prompt.chat: turns are a chat; remove this"),
    "no turns": (HEAD + "[]\n" + REST, "s.yaml:5: prompt.turns: found an empty list, expected a list of templates"),
    "a template": (HEAD + '"{{ question }}"\n' + REST, "s.yaml:5: prompt.turns: found '{{ question }}' (text), expect"),
    "two prompts": (
        SUITE.replace("  system:", "  template: x\n  system:"),
        "s.yaml:4: prompt.template: prompt.turns are the whole prompt but for the system text; remove template",
    ),
    "no column": (HEAD + "turns\n" + REST, "s.yaml:5: prompt.turns: sample 'a' (s.yaml:8): there is no column 'turns'"),
    "no list": (
        HEAD + "follow_up\n" + REST,
        "s.yaml:5: prompt.turns: sample 'a' (s.yaml:8): the column 'follow_up' holds 'Sure of a?' (text), expected a",
    ),
    "an empty turn": (
        SUITE.replace("Sure of a?", ""),
        "s.yaml:5: prompt.turns: sample 'a' (s.yaml:8): turn 2 of 3 is empty",
    ),
    "an own score of the last turn": (
        SCORED.replace("- Once more.", "- {user: x, score: contains}"),
        "s.yaml:8: prompt.turns.3.score: the suite's own score judges the last turn; move this scorer there, and",
    ),
    "a judge of a turn": (
        SCORED.replace("{contains: {}}", "aspects"),
        "s.yaml:7: prompt.turns.2.score: aspects needs more than a reply, which only the suite's own score gets; write",
    ),
    "an unknown scorer": (
        SCORED.replace("{contains: {}}", "contain"),
        "s.yaml:7: prompt.turns.2.score: there is no scorer 'contain'; did you mean 'contains'?",
    ),
    "a key of a turn": (
        SCORED.replace("{user: Again.", "{usr: Again."),
        "s.yaml:7: unknown key 'usr' in prompt.turns.2",
    ),
    "no template": (
        SUITE.replace('"{{ row.follow_up }}"', "3"),
        "s.yaml:5: prompt.turns.1: found 3 (a whole number), expected a template, or {user: …, target: …}",
    ),
    "a comparison of an earlier turn": (
        SUITE.replace("chat: true", "score_turns: all").replace("exact", "{pairwise: {against: follow_up}}"),
        "s.yaml:5: prompt.turns: sample 'a' (s.yaml:8): pairwise compares the last reply with another; it cannot score",
    ),
    "log-likelihoods": (
        SUITE.partition("score:")[0]
        + "score: choice\nsamples: [{question: q, follow_up: f, choices: [a, b], target: a}]\n",
        "s.yaml:5: prompt.turns: choice compares log-likelihoods, and a turn is asked for a reply; use prompt.template",
    ),
}


def test_a_suite_is_refused_in_one_line(project: pytest.Pytester) -> None:
    for name, (suite, message) in REFUSED.items():
        (project.path / "s.yaml").write_text(suite)
        result = project.runpytest_inprocess("-p", "no:xdist", "s.yaml", "--llm-model=python:models:Model")
        assert result.ret == pytest.ExitCode.INTERRUPTED, name
        (line,) = [line for line in result.outlines if line.startswith("s.yaml:")]
        assert line.startswith(message), (name, line)
