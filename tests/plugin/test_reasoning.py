"""Reasoning before an answer: split off whoever writes it, before any scorer reads the reply."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.inference.stored_lines import StoredRequest
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import GenerateRequest
from tests.support import REPOSITORY

MODELS = '''
import json
from concurrent.futures import ThreadPoolExecutor

from pytest_llmeval.types import GenerateResponse, ModelIdentity

REPLIES = {
    "whole": "<think>Six times seven.\\n\\nIs it 41? Question: no.</think>\\n\\nThe answer is 42.\\n\\nQuestion: 41?",
    "cut": "<think>Six times seven.\\n\\nMaybe 41. Or is the answer 42",
    "opened": "Six times seven. 41? Question: is it?\\n\\nNo.</think>The answer is 42.",
    "plain": "The answer is 42.\\n\\nQuestion: 41?",
    "gpt-oss": "<|channel|>analysis<|message|>41?<|end|><|start|>assistant<|channel|>final<|message|>The answer is 42.",
    "mention": "The answer is 42, and <think> is a tag.",
}

def reply_to(prompt):
    text = prompt if isinstance(prompt, str) else prompt[-1].content
    return REPLIES[text.split()[0]]

def function(prompt):
    return REPLIES[prompt.split()[0]]

def cut_at(text, stop):
    return text[: min((text.find(one) for one in stop if one in text), default=len(text))]

def stopping(prompt, stop):
    """Cuts in reasoning too, as a server does."""
    with open("asked.txt", "a") as file:
        print(prompt.split()[0], len(stop), file=file)
    return cut_at(function(prompt), stop)

def apart(prompt):
    reasoning, _, text = function(prompt).rpartition("</think>")
    return {"text": text, "reasoning": reasoning, "finish_reason": "length" if prompt.startswith("cut") else "stop"}

class Model:
    identity = ModelIdentity(name="m", backend="models.py", fingerprint="1")

    def generate(self, requests):
        with open("asked.txt", "a") as file:
            print(*(f"{request.prompt.split()[0]} {len(request.stop)}" for request in requests), sep="\\n", file=file)
        return [
            GenerateResponse(text=cut_at(reply_to(one.prompt), one.stop), num_prompt_tokens=7, num_tokens=5, cost=0.5)
            for one in requests
        ]

class Background(Model):
    num_concurrent = 4

    def __init__(self):
        self.pool = ThreadPoolExecutor(1)

    def submit(self, requests):
        return [self.pool.submit(lambda: self.generate([one])[0]) for one in requests]

def judge(prompt):
    """Gives the lowest mark in its reasoning, and the highest behind it."""
    seen = "the reasoning is shown" if "Six times" in prompt[-1]["content"] else "the answer alone is shown"
    return '<think>{"tone": {"score": 1}}</think>' + json.dumps({"tone": {"reason": seen, "score": 5}})
'''
IDS = ("whole", "cut", "opened", "plain", "gpt-oss", "mention")
ANSWERED = ("whole", "opened", "plain", "gpt-oss", "mention")
SUITE = """\
suite: sums
dataset: {path: rows.jsonl}
prompt: {template: "{{ id }} {{ question }}"}
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(models=MODELS)
    rows = [{"id": name, "question": "What is 6*7?", "target": "42"} for name in IDS]
    (llm_pytester.path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return llm_pytester


def run(project: pytest.Pytester, *args: str, suite: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """The records, by id."""
    project.makefile(".yaml", sums=SUITE + suite)
    result = project.runpytest_inprocess("-p", "no:cacheprovider", "--llm-report=r.json", *args, "sums.yaml")
    assert result.ret == code, result.stdout.str()
    return {record["id"]: record for record in report(project)["records"]}


def report(project: pytest.Pytester, name: str = "r.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / name).read_text("ascii"))
    return found


def right(records: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, record in records.items() if record["status"] == "correct"]


def asked(project: pytest.Pytester) -> list[str]:
    return (project.path / "asked.txt").read_text("utf-8").splitlines()


SCORERS = (
    *("score: number", "score: math", "score: contains", "score: {pattern: {pattern: 'answer is (\\d+)'}}"),
    *("score: {exact: {normalize: [{remove: '[^0-9]'}]}}", "score: f1"),
)
STOP = "generate: {stop: ['Question:']}\n"


@pytest.mark.parametrize("score", SCORERS)
def test_every_scorer_reads_the_answer(project: pytest.Pytester, score: str) -> None:
    records = run(project, "--llm-model=python:models:function", suite=f"{score}\n{STOP}")
    if "f1" not in score:  # which is a number
        assert right(records) == list(ANSWERED)
    cut = records["cut"]
    assert (cut["no_answer"], cut["answer"], cut["output"], cut["values"]) == (True, None, "", {**cut["values"]})
    assert not any(cut["values"].values())
    assert cut["reasoning"].endswith("Or is the answer 42")
    assert records["whole"]["output"].strip() == "The answer is 42."
    assert records["whole"]["reasoning"] == "Six times seven.\n\nIs it 41? Question: no."
    assert records["opened"]["reasoning"].startswith("Six times seven. 41?")
    assert (records["plain"]["reasoning"], records["mention"]["reasoning"]) == (None, None)


@pytest.mark.parametrize(
    ("score", "reply", "answer"),
    [
        ("letter", "<think>It is A or B. The answer is A.</think>\n\nB", "B"),
        ("letter", "thought without a beginning: A</think>B", "B"),
        ("letter", "<think>\nThe answer is A. No", None),
        ("yes_no", "<think>Yes? Or no?</think> No", "no"),
        ("yes_no", "<think>The answer is yes", None),
        ("json", '<think>{"a": 2}</think>{"a": 1}', '{"a": 1}'),
    ],
)
def test_labels_words_and_json(llm_pytester: pytest.Pytester, score: str, reply: str, answer: str | None) -> None:
    target = {"letter": "target: 1, choices: [x, y]", "yes_no": "target: false", "json": "target: '{\"a\": 1}'"}[score]
    settings = "{letter: {shuffle: false}}" if score == "letter" else score
    sample = f"samples: [{{id: a, question: q, {target}, response: {json.dumps(reply)}}}]"
    llm_pytester.makefile(".yaml", one=f"suite: one\n{sample}\nscore: {settings}\n")
    llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=r.json", "one.yaml")
    (record,) = report(llm_pytester)["records"]
    assert (record["answer"], record["no_answer"]) == (answer, answer is None)


@pytest.mark.parametrize("model", ["python:models:Model", "python:models:stopping", "python:models:Background"])
def test_a_model_that_stops_in_its_reasoning_is_asked_again(
    project: pytest.Pytester, workers: list[str], model: str
) -> None:
    """What it has opened is seen; nothing shows where another template has. What it replies is kept."""
    for _ in range(2):
        args = (*workers, f"--llm-model={model}", "--llm-store=kept", "--llm-store-max-age=7d")
        records = run(project, *args, suite=f"score: number\n{STOP}")
        assert right(records) == ["whole", "plain", "gpt-oss", "mention"]
        assert records["whole"]["output"].strip() == "The answer is 42."
        assert sorted(asked(project)) == sorted([*(f"{name} 1" for name in IDS), "whole 0", "cut 0"])
    records = run(
        project, *args, suite=f"score: {{pattern: {{pattern: '(4.)'}}}}\n{STOP.replace('{', '{reasoning: false, ')}"
    )
    assert records["cut"]["answer"] == "41"


@pytest.mark.parametrize("model", ["python:models:Model", "python:models:Background"])
def test_both_replies_of_one_that_is_asked_again_were_paid(project: pytest.Pytester, model: str) -> None:
    records = run(project, f"--llm-model={model}", suite=f"score: number\n{STOP}")
    paid = {name: (one["num_prompt_tokens"], one["num_tokens"], one["cost"]) for name, one in records.items()}
    assert paid == {name: (14, 10, 1.0) if name in ("whole", "cut") else (7, 5, 0.5) for name in IDS}


def test_what_a_function_tells_apart_itself(project: pytest.Pytester, workers: list[str]) -> None:
    records = run(project, *workers, "--llm-model=python:models:apart", suite="score: {pattern: {pattern: '(4.)'}}\n")
    assert records["whole"]["reasoning"].startswith("<think>Six times seven")
    assert (records["cut"]["num_truncated"], records["plain"]["num_truncated"]) == (1, 0)


def test_it_can_be_switched_off_and_have_other_tags(project: pytest.Pytester) -> None:
    model = "--llm-model=python:models:function"
    records = run(project, model, suite="score: {pattern: {pattern: '(4.)'}}\ngenerate: {reasoning: false}\n")
    assert records["whole"]["answer"] == "41"
    assert records["whole"]["output"].startswith("<think>Six")
    assert records["whole"]["reasoning"] is None
    own = "score: {pattern: {pattern: '(4.)'}}\ngenerate: {reasoning: [harmony, [Six, seven.]]}\n"
    records = run(project, model, suite=own)
    assert records["gpt-oss"]["reasoning"] == "41?"
    assert records["whole"]["reasoning"] == "times"
    fingerprints = {report(project)["suites"][0]["fingerprint"]}
    for suite in ("", "generate: {reasoning: false}\n", "generate: {reasoning: true}\n"):
        run(project, model, suite=f"score: {{pattern: {{pattern: '(4.)'}}}}\n{suite}")
        fingerprints.add(report(project)["suites"][0]["fingerprint"])
    assert len(fingerprints) == 2, "tags of one's own alone are in it"


ERRORS = {
    "reasoning: 3": "generate.reasoning: found 3 (a whole number), expected true, false, or a list of names",
    "reasoning: [thinks]": (
        "generate.reasoning.0: write your own tags as a pair, [<open>, </open>]; there are no tags 'thinks';"
    ),
    "reasoning: [think, [a, a]]": "generate.reasoning.1: expected a name, or an opening and another closing tag",
}


@pytest.mark.parametrize(("setting", "message"), ERRORS.items())
def test_tags_that_are_none(project: pytest.Pytester, setting: str, message: str) -> None:
    project.makefile(".yaml", sums=f"{SUITE}score: number\ngenerate: {{{setting}}}\n")
    result = project.runpytest_inprocess("--llm-model=python:models:function", "sums.yaml")
    assert result.ret == 2
    assert f"sums.yaml:5: {message}" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_repeated_questions_and_several_scorers(project: pytest.Pytester, workers: list[str]) -> None:
    suite = (
        "score: {several: {scorers: {one: {score: number}, "
        "two: {filters: [strip], score: {pattern: {pattern: '(4.)'}}}}}}\n"
        "epochs: {count: 2, reduce: [pass@1, mode]}\ngenerate: {temperature: 1, stop: ['Question:']}\n"
    )
    records = run(project, *workers, "--llm-model=python:models:function", suite=suite)
    whole, cut = records["whole"], records["cut"]
    assert (whole["values"]["pass@1"], whole["values"]["two.pass@1"], cut["values"]["pass@1"]) == (1.0, 1.0, 0.0)
    assert [text.strip() for text in whole["details"]["outputs"]] == ["The answer is 42."] * 2
    assert cut["details"]["outputs"] == ["", ""]
    assert [text[:9] for text in cut["details"]["reasonings"]] == ["Six times"] * 2
    assert "reasonings" not in records["plain"]["details"]


def test_replies_of_a_file_of_the_data_and_of_a_report(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    direct = run(project, "--llm-model=python:models:function", suite="score: number\n")
    kept = [
        {name: one[name] for name in ("status", "answer", "output", "reasoning", "no_answer")}
        for one in direct.values()
    ]
    assert right(direct) == ["whole", "opened", "plain", "gpt-oss", "mention"] or right(direct) == [
        *("opened", "gpt-oss", "mention")
    ]
    project.path.joinpath("r.json").rename(project.path / "first.json")
    replies = {name: direct[name] for name in IDS}
    again = run(project, "--llm-model=replay:first.json", suite="score: number\n")
    assert [{name: one[name] for name in kept[0]} for one in again.values()] == kept
    scope: dict[str, Any] = {}
    exec(MODELS, scope)  # the raw replies
    rows = [{"id": name, "response": scope["REPLIES"][name], "finish_reason": "length"} for name in replies]
    (project.path / "replies.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    from_file = run(project, "--llm-model=replay:replies.jsonl", suite="score: number\n")
    assert [{name: one[name] for name in kept[0]} for one in from_file.values()] == kept
    assert {one["num_truncated"] for one in from_file.values()} == {1}
    data = [{"id": row["id"], "question": "q", "target": "42", "response": row["response"]} for row in rows]
    (project.path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in data), "utf-8")
    of_data = run(project, suite="score: number\n")
    assert [{name: one[name] for name in kept[0]} for one in of_data.values()] == kept
    assert {one["num_truncated"] for one in of_data.values()} == {0}
    capsys.readouterr()
    assert main(["show", str(project.path / "r.json"), "--id", "whole"]) == 0
    shown = capsys.readouterr().out
    assert "  reasoning: Six times seven." in shown
    assert shown.index("reasoning:") < shown.index("output:")


def test_judges_reason_too_and_are_shown_no_reasoning(project: pytest.Pytester, workers: list[str]) -> None:
    suite = f"score: {{aspects: {{aspects: {{tone: Calm.}}, n_iter: 1}}}}\n{STOP}"
    model = "--llm-model=python:models:function"
    records = run(project, *workers, model, "--llm-judge=python:models:judge", suite=suite)
    verdicts = [verdict for one in records.values() for verdict in one["details"].get("verdicts", ())]
    assert {verdict["reasons"]["tone"] for verdict in verdicts} == {"the answer alone is shown"}
    assert {one["values"]["aspects"] for one in records.values()} == {5.0}
    assert {verdict["tries"] for verdict in verdicts} == {1}
    assert records["cut"]["no_answer"] is True


def test_the_store_keeps_texts_whole(project: pytest.Pytester, workers: list[str]) -> None:
    """One reply serves a suite with tags, without, and with other stop strings behind its reasoning."""
    model = ("--llm-model=python:models:Model", "--llm-store=store")
    first = run(project, *workers, *model, suite="score: number\n")
    num_asked = len(asked(project))
    second = run(project, *workers, *model, suite="score: number\ngenerate: {reasoning: false}\n")
    assert len(asked(project)) == num_asked
    assert first["whole"]["reasoning"] is not None
    assert second["whole"]["reasoning"] is None
    assert second["whole"]["output"].startswith("<think>")
    run(project, *workers, *model, suite=f"score: number\n{STOP}")
    num_asked = len(asked(project))
    third = run(project, *workers, *model, suite=f"score: number\n{STOP}")
    assert asked(project)[num_asked:] == ["cut 1", "cut 0"] * (len(asked(project)) > num_asked)
    assert third["whole"]["output"].strip() == "The answer is 42."
    off = run(project, *workers, *model, suite="score: number\ngenerate: {reasoning: false, stop: ['Question:']}\n")
    assert off["whole"]["output"] == "<think>Six times seven.\n\nIs it 41? "


def test_a_reply_that_was_stored_cut_is_not_whole(project: pytest.Pytester) -> None:
    """As an earlier version has kept it: the stop string ended the reasoning."""
    model = ("--llm-model=python:models:Model", "--llm-store=store")
    run(project, *model, suite="score: number\ngenerate: {reasoning: false, stop: ['Question:']}\n")
    records = run(project, *model, suite=f"score: number\n{STOP}")
    assert right(records) == ["whole", "plain", "gpt-oss", "mention"]
    assert asked(project)[len(IDS) :] == ["whole 1", "cut 1", "whole 0", "cut 0"]


SCHEMA_2 = REPOSITORY / "tests" / "reporting" / "schema2"
CHANGED = ("fingerprint", "values", "details", "answer", "status", "no_answer", "target")
"""What of a record scorers have changed since then, for reasons of their own."""


def test_suites_without_reasoning_are_as_they_were(llm_pytester: pytest.Pytester) -> None:
    """Beside an earlier version's report: records, and what hashes say of questions, prompts and generation."""
    shutil.copytree(SCHEMA_2, llm_pytester.path, dirs_exist_ok=True)
    before = report(llm_pytester, "report.json")
    stable = ("exact", "choice")
    paths = [f"suites/{one['name']}.yaml" for one in before["suites"] if one["name"] != "reasoning"]
    args = ("--llm-model=replay:replies.jsonl", "--llm-judge=python:models:Judge", "--llm-report-prompts=full")
    llm_pytester.runpytest_inprocess("-p", "no:xdist", *args, "--llm-report=now.json", *paths)
    now = report(llm_pytester, "now.json")
    then = {suite["name"]: suite for suite in before["suites"]}
    for suite in now["suites"]:
        old = then[suite["name"]]
        for part in ("questions", "prompt", "fewshot"):
            assert suite["fingerprint_parts"][part] == old["fingerprint_parts"][part], (suite["name"], part)
        if suite["name"] in stable:
            assert suite["fingerprint"] == old["fingerprint"]
    records = {(record["suite"], record["id"]): record for record in before["records"]}
    for record in now["records"]:
        old = records[record["suite"], record["id"]]
        assert (record["reasoning"], record["num_truncated"]) == (None, 0)
        kept = [name for name in old if record["suite"] in stable or name not in CHANGED]
        kept = [name for name in kept if name not in ("seconds", "judge_seconds", "details")]
        assert {name: record[name] for name in kept} == {name: old[name] for name in kept}


def test_keys_of_the_store_say_nothing_of_the_usual_tags() -> None:
    request = GenerateRequest("Say one", stop=("\n",))
    usual, own = (replace(request, reasoning=tags) for tags in (DEFAULT_TAGS, (("<a>", "</a>"),)))
    keys = [StoredRequest("m", one).key for one in (request, usual, own)]
    assert keys[0] == keys[1] != keys[2]
    assert json.loads(StoredRequest("m", usual).text).keys() == {
        *("kind", "prompt", "max_tokens", "stop", "temperature", "seed", "top_p", "epoch")
    }


CUT_JUDGE = """
import json

from pytest_llmeval.types import GenerateResponse

class Judge:
    text, reasoning, num_tokens = '{"tone": {"reason": "It is', None, None

    def generate(self, requests):
        with open("asked.txt", "a") as file:
            print(len(requests), file=file)
        return [
            GenerateResponse(text=self.text, finish_reason="length", num_tokens=self.num_tokens or one.max_tokens)
            for one in requests
        ]

class Thinking(Judge):
    text = "<think>The reply says"

class Silent(Judge):
    text = ""

class Full(Judge):
    num_tokens = 7
"""


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        (
            "Judge",
            "the verdict was cut at max_tokens (99): raise the scorer's setting max_tokens; it began '{\"tone\": {",
        ),
        (
            "Thinking",
            "the judge's reasoning was cut at max_tokens (99): raise the scorer's setting max_tokens; it began",
        ),
        ("Silent", "the verdict was cut at max_tokens (99): raise the scorer's setting max_tokens; it is empty"),
        ("Full", "the verdict was cut after 7 tokens, before its max_tokens (99): the context is full; it began"),
    ],
)
def test_a_verdict_that_was_cut_is_paid_once_and_shown(
    llm_pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], judge: str, told: str
) -> None:
    llm_pytester.makepyfile(judges=CUT_JUDGE)
    score = "score: {aspects: {aspects: {tone: Calm.}, n_iter: 1, max_tokens: 99}}"
    llm_pytester.makefile(".yaml", one=f"suite: one\nsamples: [{{id: a, question: q, response: r}}]\n{score}\n")
    args = ("-p", "no:xdist", f"--llm-judge=python:judges:{judge}", "--llm-report=r.json", "one.yaml")
    result = llm_pytester.runpytest_inprocess(*args)
    assert result.ret == 1
    assert told in result.stdout.str()
    assert asked(llm_pytester) == ["1"]
    (record,) = report(llm_pytester)["records"]
    assert told in record["reason"]
    assert record["details"]["verdicts"][0]["tries"] == 1
    capsys.readouterr()
    assert main(["show", str(llm_pytester.path / "r.json"), "--id", "a"]) == 0
    shown = capsys.readouterr().out
    assert f"verdict: none: {told}" in shown


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ("", "generate: {reasoning: false}\n", "hold reasoning, which was split off there and is not now"),
        ("generate: {reasoning: false}\n", "", "hold reasoning, which was judged as a part of them there and is split"),
    ],
)
def test_the_baseline_of_another_rule_is_refused(
    project: pytest.Pytester, workers: list[str], then: str, now: str, told: str
) -> None:
    model = "--llm-model=python:models:function"
    run(project, model, suite=f"score: number\n{then}")
    (project.path / "r.json").rename(project.path / "base.json")
    project.makefile(".yaml", sums=f"{SUITE}score: number\n{now}")
    for compare in ("all", "common"):
        baseline = ("--llm-baseline=base.json", f"--llm-compare={compare}")
        result = project.runpytest_inprocess(*workers, model, *baseline, "sums.yaml")
        assert result.ret == 1
        assert told in " ".join(result.stdout.str().split())
    # Its replies, scored by the rule of now, are no measurement of the model: that its own gate says.
    run(project, "--llm-model=replay:base.json", suite=f"score: number\n{now}")
    (project.path / "r.json").rename(project.path / "base2.json")
    result = project.runpytest_inprocess(*workers, model, "--llm-baseline=base2.json", "sums.yaml")
    assert "hold reasoning" not in result.stdout.str()


def test_a_baseline_of_before_is_refused_where_its_replies_hold_reasoning(
    llm_pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(SCHEMA_2, llm_pytester.path, dirs_exist_ok=True)
    args = ("-p", "no:xdist", "--llm-model=replay:replies.jsonl", "--llm-report=now.json")
    llm_pytester.runpytest_inprocess(*args, "suites/reasoning.yaml", "suites/exact.yaml")
    found = report(llm_pytester, "now.json")
    (suite,) = (one for one in found["suites"] if one["name"] == "reasoning")
    assert suite["splits_reasoning"] is True
    capsys.readouterr()
    main(["compare", "report.json", "now.json", "--compare", "common"])
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("hold reasoning, which was judged as a part of them there") == 1


def test_tasks_of_lm_eval_leave_replies_whole(project: pytest.Pytester, workers: list[str]) -> None:
    """Its stop strings end a reply wherever they stand, and the whole of it is scored."""
    task = (
        "task: whole\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
        "output_type: generate_until\ndoc_to_text: '{{id}} {{question}}'\ndoc_to_target: '{{target}}'\n"
        "generation_kwargs: {until: ['Question:']}\nmetric_list: [{metric: exact_match}]\n"
    )
    project.makefile(".yaml", task=task)
    args = ("--llm-model=python:models:function", "--llm-report=r.json", "task.yaml")
    result = project.runpytest_inprocess(*workers, *args)
    assert result.ret == 0, result.stdout.str()
    found = report(project)
    assert found["suites"][0]["splits_reasoning"] is False
    outputs = [record["output"] for record in found["records"]]
    assert outputs[:2] == [
        "<think>Six times seven.\n\nIs it 41? ",
        "<think>Six times seven.\n\nMaybe 41. Or is the answer 42",
    ]
    assert {record["reasoning"] for record in found["records"]} == {None}
