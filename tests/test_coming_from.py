"""docs/coming_from.md: every command of ours that it shows runs, in a folder with the files that the page names, and
does what its row says.

A stub server stands in for the servers and the hosted model, and the demo model, in the hub's cache, for ``gpt2``.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.plugin.options import OPTIONS
from pytest_llmeval.suites.format.schema import json_schema
from tests.plugin.judge_for_tests import form_of
from tests.servers.fake_server import executable
from tests.servers.gguf_files import gguf_bytes
from tests.servers.stub import StubServer
from tests.suites.hub_cache import as_parquet, cache_files, configs_card
from tests.support import REPOSITORY
from tests.tiny_models import make_hub_cache

pytestmark = pytest.mark.forks_torch

PAGE = (REPOSITORY / "docs" / "coming_from.md").read_text(encoding="utf-8")
DEMO = REPOSITORY / "pytest_llmeval" / "demo_model"
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL))
COMMANDS = sorted({text for text in CODE if re.match(r"(pytest|llmeval) ", text)})

SUMS = """\
suite: sums
samples:
  - {id: q1, question: 1 + 1 =, target: 2}
  - {id: q2, question: 2 + 3 =, target: 5}
  - {id: q3, question: 4 + 4 =, target: 8}
prompt:
  template: "{{ question }}"
  fewshot: {count: 1, samples: [{question: 1 + 2 =, target: 3}, {question: 2 + 2 =, target: 4}], seed: 0}
generate: {max_tokens: 4}
score: number
"""
CAPITALS = """\
suite: capitals
choices: [Paris, Oslo]
samples:
  - {id: france, question: The capital of France is, target: 0}
  - {id: norway, question: The capital of Norway is, target: 1}
score: letter
"""
TASK = """\
task: my_task
dataset_path: json
dataset_kwargs: {data_files: {test: tasks/rows.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
"""
SUPPORT = """\
suite: support
samples: [{id: a, question: How do I return it?, target: By post.}]
generate: {max_tokens: 4}
score: {rubric: {criteria: {polite: The reply is polite.}}}
"""
ASPECTS = "suite: aspects\nsamples: [{id: q1, question: Why?, response: Because., target: Because.}]\nscore: aspects\n"
RAG = "suite: rag\ndataset: {path: rag.jsonl}\nscore: rag\n"
SEARCH = "suite: search\ndataset: {path: queries.jsonl}\nscore: retrieval\n"
BOOLQ = """\
suite: boolq
samples: [{id: a, question: Is it wet?, target: true}, {id: b, question: Is it dry?, target: false}]
score: {yes_no: {by: loglikelihood, tie_is_no: true}}
"""
AGENTS = """
import re


def crew(question, planning=False):
    # Right everywhere: it adds the last two numbers, and finds the letter of a capital.
    numbers = [int(number) for number in re.findall(r"\\d+", question)]
    city = "Paris" if "France" in question else "Oslo"
    text = f"The answer is {sum(numbers[-2:])}." if numbers else re.search(rf"(.)\\. {city}", question)[1]
    return {"text": text, "num_tokens": 5 if planning else 2, "trace": ["planned"] if planning else []}
"""
JUDGE = """
def embed(texts):
    return [[float(len(text)), 1.0] for text in texts]
"""


def logs_of_sums() -> dict[str, Any]:
    """The right replies to ``sums``, as logs of other programs have them."""
    replies = {"q1": "2", "q2": "5", "q3": "8"}
    samples = [
        {"id": name, "epoch": 1, "output": {"completion": text}, "scores": {"match": {"value": "C"}}}
        for name, text in replies.items()
    ]
    results = [{"vars": {"id": name}, "response": {"output": text}, "score": 1} for name, text in replies.items()]
    return {
        "log.json": {"version": 2, "results": {"scores": [{"name": "match"}]}, "samples": samples},
        "promptfoo.json": {"results": {"prompts": [{"raw": "q"}], "results": results}, "config": {"tests": []}},
    }


def verdict(body: dict[str, Any]) -> str:
    """What a judge that likes everything says, in the form that it is shown."""
    form = form_of(body["messages"][0]["content"])
    if "claims" in form:
        return '{"claims": ["It is so."]}'
    if "supported" in form or "relevant" in form:
        return json.dumps({"reason": "seen"} | {name: True for name in form if name != "reason"})
    for entry in form.values():
        if isinstance(entry, dict):
            entry["reason"] = "seen"
    return json.dumps(form)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """What stands in the place of a server's address, or of a hosted model."""
    with (
        StubServer("vllm") as local,
        StubServer("vllm") as replica,
        StubServer("openai", name="gpt-5-mini", says=verdict) as hosted,
    ):
        yield {
            "http://localhost:8000/v1": local.url,
            "http://localhost:9011/v1": local.url,
            "http://localhost:8001/v1": replica.url,
            "openai:gpt-5-mini": f"openai:gpt-5-mini?base_url={hosted.url}&api_key_env=OPENAI_API_KEY&dialect=openai",
        }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that the page names."""
    folder = tmp_path_factory.mktemp("project")
    texts = {
        "suites/sums.yaml": SUMS,
        "suites/capitals.yaml": CAPITALS,
        "tasks/my_task.yaml": TASK,
        "support.yaml": SUPPORT,
        "aspects.yaml": ASPECTS,
        "rag.yaml": RAG,
        "search.yaml": SEARCH,
        "boolq.yaml": BOOLQ,
        "my_agents.py": AGENTS,
        "my_judge.py": JUDGE,
        "test_gsm8k.py": re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0],
        "bm25.run": "".join(f"q{number} Q0 x 1 2 bm25\nq{number} Q0 d{number} 2 1 bm25\n" for number in range(12)),
        "dense.run": "".join(f"q{number} Q0 d{number} 1 1 dense\n" for number in range(12)),
    }
    rows: dict[str, list[dict[str, Any]]] = {
        "tasks/rows.jsonl": [{"question": "Is ice cold?", "choices": ["yes", "no"], "answer": 0}],
        "rag.jsonl": [{"id": "r1", "question": "Is it so?", "response": "So.", "target": "So.", "contexts": ["So."]}],
        "queries.jsonl": [{"id": f"q{number}", "qrels": {f"d{number}": 2}, "question": "?"} for number in range(12)],
        "gsm8k.jsonl": [
            {"question": "What is 2 + 3?", "answer": "Two and three.\n#### 5"},
            {"question": "What is 600 + 400?", "answer": "1 * 1000 = 1000\n#### 1,000"},
            {"question": "What is 3 + 4, if 1 + 1 is 2, and 5 less than 3 + 2 is 0?", "answer": "2 and 0\n#### 2.0"},
        ],
        "few.jsonl": [{"logit_yes": 1.0, "logit_no": 0.5}],
        "logits.jsonl": [
            {"id": "a", "logit_yes": 1.0, "logit_no": 0.5},
            {"id": "b", "logit_yes": 0.1, "logit_no": 0.1},
        ],
        "samples_my_task.jsonl": [sample_of_lm_eval()],
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, lines in rows.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for name, content in logs_of_sums().items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "checkpoint").symlink_to(DEMO)
    executable(folder)
    executable(folder, "llama-server")
    (folder / "m.gguf").write_bytes(gguf_bytes())
    lay_out_the_cache(folder / "home")
    return folder


@pytest.fixture
def project(llm_pytester: pytest.Pytester, template: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A copy of it, and the hub's cache that lies in it."""
    ignore = shutil.ignore_patterns("home")
    shutil.copytree(template, llm_pytester.path, symlinks=True, dirs_exist_ok=True, ignore=ignore)
    home = template / "home"
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
    for name, value in (("OPENAI_API_KEY", "sk-none"), ("KEY_TWO", "none")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(template), prepend=os.pathsep)  # for vllm and llama-server
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    return llm_pytester


def sample_of_lm_eval() -> dict[str, Any]:
    """A line as ``--log_samples`` writes it."""
    return {
        "doc_id": 0,
        "doc": {"question": "Is ice cold?", "choices": ["yes", "no"], "answer": 0},
        "target": "0",
        "arguments": {
            "gen_args_0": {"arg_0": "Is ice cold?", "arg_1": " yes"},
            "gen_args_1": {"arg_0": "Is ice cold?", "arg_1": " no"},
        },
        "resps": [[["-1.0", "True"]], [["-2.0", "False"]]],
        "filtered_resps": [["-1.0", "True"], ["-2.0", "False"]],
        "filter": "none",
        "metrics": ["acc"],
    }


def lay_out_the_cache(home: Path) -> None:
    """As downloads of gpt2 and of ARC would have left it."""
    row = {
        "id": "Mercury_1",
        "question": "Which is a planet?",
        "choices": {"text": ["Mars", "Milk"], "label": ["A", "B"]},
        "answerKey": "A",
    }
    splits = {split: f"ARC-Easy/{split}.parquet" for split in ("train", "validation", "test")}
    files = {path: as_parquet([row, {**row, "id": "Mercury_2"}]) for path in splits.values()}
    cache_files(home, "allenai/ai2_arc", "a" * 40, {"README.md": configs_card({"ARC-Easy": splits}), **files})
    make_hub_cache(home / "hub", "gpt2", DEMO)


REPORTS = {
    "report.json": ["suites/sums.yaml", "suites/capitals.yaml", "--llm-model=demo"],
    "rag.json": ["rag.yaml", "--llm-judge=openai:gpt-5-mini", "--llm-embedder=python:my_judge:embed"],
    "search.json": ["search.yaml", "--llm-model=replay:bm25.run"],
    "dense.json": ["search.yaml", "--llm-model=replay:dense.run"],
}
"""How the reports came about that commands read."""


def test_the_page_has_commands_for_all() -> None:
    assert len(COMMANDS) >= 50
    assert PAGE.count("\n## ") == 11


def test_options_exist() -> None:
    known = {option.flag for option in OPTIONS}
    assert set(re.findall(r"--llm-[a-z-]+", PAGE)) <= known


def test_settings_in_cells_are_settings() -> None:
    """Every mapping in a cell holds keys of a suite, names of scorers, or settings of these."""
    schema = json.dumps(json_schema())
    ours = [line.split(" | ", 1)[1] for line in PAGE.splitlines() if line.startswith("| ")]
    inside = re.findall(r"`([^`]+)`", "\n".join(ours))
    cells = [text for text in inside if re.match(r"[a-z_]+: \S", text) and "…" not in text]
    assert len(cells) >= 20
    for cell in cells:
        found = yaml.safe_load(cell)
        assert isinstance(found, dict), cell
        for key in found:
            assert f'"{key}"' in schema, cell


SAMPLES = {
    "::q1": {"sums": 1},
    "-k q1": {"sums": 1},
    "first:2": {"sums": 2, "capitals": 2},
    "--llm-limit 2": {"sums": 2},
    "few.jsonl": {"boolq": 1},
    "suites/sums.yaml": {"sums": 3},
    "suites/": {"sums": 3, "capitals": 2},
    "tasks/my_task.yaml": {"my_task": 1},
    "lm_eval:arc_easy": {"arc_easy": 2},
    "support.yaml": {"support": 1},
    "aspects.yaml": {"aspects": 1},
    "rag.yaml": {"rag": 1},
    "search.yaml": {"search": 12},
    "boolq.yaml": {"boolq": 2},
    "test_gsm8k.py": {"GSM8K": 3},
}
"""How many samples of which suites each model is scored on; the first of these words that are in a command decide."""

Outcome = Callable[[Path, dict[str, Any]], bool]


def records_of(report: dict[str, Any], suite: str = "sums") -> list[dict[str, Any]]:
    return [record for record in report["records"] if record["suite"] == suite]


def are_right(_: Path, report: dict[str, Any]) -> bool:
    return all(record["status"] == "correct" for record in report["records"])


def ndcg(expected: float) -> Outcome:
    def check(_: Path, report: dict[str, Any]) -> bool:
        metrics: dict[str, Any] = report["suites"][0]["metrics"]
        return bool(metrics["ndcg@10"]["value"] == pytest.approx(expected))

    return check


def prompts_hold(*words: str) -> Outcome:
    def check(_: Path, report: dict[str, Any]) -> bool:
        return all(word in json.dumps(record["prompt"]) for record in records_of(report) for word in words)

    return check


OUTCOMES: list[tuple[str, Outcome]] = [
    ("python:my_agents:crew", are_right),
    ("replay:samples_my_task.jsonl", are_right),
    ("replay:logits.jsonl", are_right),
    ("replay:log.json", are_right),
    ("replay:promptfoo.json", are_right),
    ("replay:few.jsonl", lambda _, report: [suite["num_skipped"] for suite in report["suites"]] == [1]),
    ("replay:bm25.run", ndcg(1 / math.log2(3))),  # the one of grade 2 stands second
    ("replay:dense.run", ndcg(1.0)),
    ("fewshot.count=2", prompts_hold("1 + 2 = 3", "2 + 2 = 4")),
    ("prompt.template=", prompts_hold("Add: ")),
    ("prompt.system=Be brief.", prompts_hold("Be brief.")),
    ("epochs=3", lambda _, report: all(len(one["details"]["outputs"]) == 3 for one in records_of(report))),
    ("generate.max_tokens=8", lambda _, report: all(len(suite["overridden"]) == 2 for suite in report["suites"])),
    ("--llm-gate ", lambda _, report: [gate["outcome"] for gate in report["gates"]] == ["passed"]),
    ("--llm-baseline", lambda _, report: {gate["outcome"] for gate in report["gates"]} == {"passed"}),
    ("planning=true", lambda _, report: len(report["comparisons"]) == 1),
    ("--llm-model=gpt2 --llm-model=./checkpoint", lambda _, report: len(report["comparisons"]) == 2),
    ("--llm-report results/report.json", lambda place, _: (place / "results/report.json").is_file()),
    ("--llm-report suites/", lambda place, _: bool(list((place / "suites").glob("*.md")))),
    ("--llm-report out.csv", lambda place, _: "sums,gpt2,q1," in (place / "out.csv").read_text()),
    ("--llm-report-records wrong", lambda place, _: len((place / "log.jsonl").read_text().splitlines()) >= 1),
]
"""What the report, or the folder, of a command shows that has these words."""

PRINTED = {
    "compare search.json dense.json": r"ndcg@10 0\.631 -> 1\.000",
    "presets gsm8k": r"decides: strict",
    "presets": r"(?m)^gsm8k +",
    "convert": "",
    "export": "",
    "--distribution": r"suite +metric +n +mean +sd +min +p50 +p95 +max",
    "rag.json --id r1": r"(?s)^r1 \(.*question: .*verdict 1 of \d+: faithfulness",
    "report.json --id q1": r"(?s)^q1 \(sums, .*question: 1 \+ 1 =.*1 sample$",
    "--samples all": r"5 samples",
    "--samples wrong": r"(?s)\): wrong.*\d samples?$",
    "show report.json": r"sums +3 +",
    "view report.json": r"^report\.html$",
}
"""What our own commands with these words print; the first that are in one decide."""


def first_in(command: str, words: Iterable[str]) -> str:
    return next(one for one in words if one in command)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(
    project: pytest.Pytester, servers: dict[str, str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def words_of(text: str) -> list[str]:
        for name, place in servers.items():
            text = text.replace(name, place)
        return shlex.split(text)

    for name, arguments in REPORTS.items():
        if re.search(rf"(?<!-report )\b{name}\b", command):
            made = project.runpytest(*words_of(shlex.join(arguments)), f"--llm-report={name}", "-Wdefault")
            assert made.ret == 0, name
    program, *arguments = words_of(command)
    if program == "llmeval":
        capsys.readouterr()
        assert main(arguments) in (0, None)
        told = capsys.readouterr()
        printed = told.out or told.err
        assert re.search(PRINTED[first_in(command, PRINTED)], printed.strip()), printed
        return
    is_dry = "--llm-show-prompts" in command
    own = [] if is_dry else ["--llm-report=outcome.json", "--llm-report-prompts=full"]
    result = project.runpytest(*arguments, *own, "-Wdefault")
    assert result.ret == 0
    if is_dry:
        result.stdout.fnmatch_lines(["*1 + 1 =*"])
        return
    report = json.loads((project.path / "outcome.json").read_text())
    expected = SAMPLES[first_in(command, SAMPLES)]
    assert not report["problems"]
    found = {(suite["name"], model): suite["num_scored"] for suite in report["suites"] for model in suite["models"]}
    num_models = max(1, len(re.findall(r"--llm-model[ =]", command)))
    assert sorted((name, count) for (name, _), count in found.items()) == sorted([*expected.items()] * num_models)
    assert not any(suite["num_unscored"] for suite in report["suites"])
    for words, holds in OUTCOMES:
        assert words not in command or holds(project.path, report), (words, report)
    if "--llm-max-drop" in command:
        result.stdout.re_match_lines([r"passed: search, ndcg@10 vs baseline: .*"])


def test_every_outcome_is_of_a_command() -> None:
    for words in [*SAMPLES, *PRINTED, *(words for words, _ in OUTCOMES)]:
        assert any(words in command for command in COMMANDS), words


def test_an_export_has_their_keys(project: pytest.Pytester) -> None:
    assert project.runpytest("test_gsm8k.py", "--llm-model=python:my_agents:crew", "--llm-report=report.json").ret == 0
    assert main(["export", "report.json", "--to", "questions", "-o", "results/gsm8k.json"]) in (0, None)
    questions = json.loads((project.path / "results/gsm8k.json").read_text())["questions"]
    assert [set(one) for one in questions] == [{"qid", "question", "gold", "pred", "correct"}] * 3
    assert [(one["pred"], one["correct"]) for one in questions] == [("5", True), ("1000", True), ("2", True)]


def test_a_converted_task_gives_the_same(project: pytest.Pytester) -> None:
    replies = "--llm-model=replay:samples_my_task.jsonl"
    assert main(["convert", "tasks/my_task.yaml", "-o", "my_task.suite.yaml"]) in (0, None)
    statuses = []
    for suite in ("tasks/my_task.yaml", "my_task.suite.yaml"):
        assert project.runpytest(suite, replies, "--llm-report=report.json").ret == 0
        statuses.append([one["status"] for one in json.loads((project.path / "report.json").read_text())["records"]])
    assert statuses == [["correct"], ["correct"]]


def test_csqa_by_the_letter_that_the_reply_states(project: pytest.Pytester) -> None:
    """The row of the preset; alone it compares log-likelihoods, which a function does not give."""
    labels = "ABCDE"
    row = {
        "question": {"stem": "Which?", "choices": [{"label": label, "text": label.lower() * 3} for label in labels]},
        "answerKey": "B",
    }
    (cell,) = re.findall(r"`(preset: csqa)` with `(score: .*?)`:", PAGE)
    project.path.joinpath("q.jsonl").write_text(json.dumps(row) + "\n")
    project.makepyfile(stating='def crew(question):\n    return "Not A: the answer is (B)"\n')
    for name, lines in (("by_letter", cell), ("alone", cell[:1])):
        project.makefile(".yaml", **{name: "\n".join((f"suite: {name}", "dataset: {path: q.jsonl}", *lines))})
    model = "--llm-model=python:stating:crew"
    assert project.runpytest("by_letter.yaml", model, "--llm-report=report.json").ret == 0
    assert [one["status"] for one in json.loads((project.path / "report.json").read_text())["records"]] == ["correct"]
    project.runpytest("alone.yaml", model).stdout.fnmatch_lines(["*score: choice compares log-likelihoods*"])


def test_surplus_replies_are_counted(project: pytest.Pytester) -> None:
    project.path.joinpath("few.jsonl").write_text('{"logit_yes": 1.0, "logit_no": 0.5}\n' * 5)
    command = next(command for command in COMMANDS if "few.jsonl" in command)
    result = project.runpytest(*shlex.split(command)[1:], "-Wdefault")
    result.stdout.fnmatch_lines(["*few.jsonl: the last 3 replies are left out, since suite 'boolq' has 2 samples"])


def test_a_hosted_judge_is_asked_nothing_by_the_resume_command(project: pytest.Pytester, workers: list[str]) -> None:
    """Not by its store alone either: what the name stands for may have changed."""
    (command,) = [one for one in COMMANDS if "--llm-store --llm-store-max-age" in one]
    for_ever = re.sub(r" --llm-store-max-age \S+", "", command)
    with StubServer("openai", name="gpt-5-mini", says=verdict) as hosted:
        spec = f"openai:gpt-5-mini?base_url={hosted.url}&api_key_env=OPENAI_API_KEY&dialect=openai"
        asked = []
        for one in (command, command, for_ever):
            before = len(hosted.seen)
            arguments = shlex.split(one.replace("openai:gpt-5-mini", spec))[1:]
            result = project.runpytest(*workers, *arguments, "--llm-report=report.json", "-Wdefault")
            assert result.ret == 0, result.stdout.str()
            (record,) = json.loads((project.path / "report.json").read_text())["records"]
            assert set(record["values"]) == {"aspects", "aspect_accuracy", "aspect_completeness", "aspect_clarity"}
            asked.append(sum("Because." in json.dumps(seen.body) for seen in hosted.seen[before:]))
    assert asked == [3, 0, 3]


def test_cells_on_data_are_of_use(project: pytest.Pytester) -> None:
    """Each ``dataset`` that names a separator, a key or a second file reads what the row says."""
    files = {
        "rows.csv": "question;target\n1 + 1;2\n",
        "data.json": {"data": [{"question": "1 + 1", "target": 2}]},
        "of ids": {"a": {"question": "1 + 1"}},
        "answers.json": {"a": {"target": 2}},
    }
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        project.path.joinpath(name.replace("of ids", "ids.json")).write_text(text)
    (field,) = re.findall(r"`(dataset: \{path: data.json, key: data\})`", PAGE)
    (of_ids,) = re.findall(r"`(key: '\*')`", PAGE)
    (join,) = re.findall(r"`(join: \{path: answers.json, on: id\})`", PAGE)
    (separator,) = re.findall(r"`(dataset: \{path: rows.csv, separator: \";\"\})`", PAGE)
    joined = f"dataset: {{path: ids.json, {of_ids}, {join}}}"
    for number, line in enumerate((field, separator, joined)):
        suite = f"suite: s{number}\n{line}\nprompt: {{template: '{{{{ question }}}} ='}}\nscore: number\n"
        project.makefile(".yaml", **{f"s{number}": suite})
    model = "--llm-model=python:my_agents:crew"
    assert project.runpytest("s0.yaml", "s1.yaml", "s2.yaml", model, "--llm-report=report.json").ret == 0
    records = json.loads((project.path / "report.json").read_text())["records"]
    assert [(one["id"], one["status"]) for one in records] == [("1", "correct"), ("1", "correct"), ("a", "correct")]


def test_recorded_ratings_are_read_as_the_page_says(project: pytest.Pytester) -> None:
    (line,) = re.findall(r"`(score: \{aspects: \{recorded: .*?\}\}\})`", PAGE)
    rows = "samples: [{id: a, question: q, response: r, rated_accuracy: 5, rated_clarity: 2}]"
    project.makefile(".yaml", rated=f"suite: rated\n{rows}\n{line}\n")
    assert project.runpytest("rated.yaml", "--llm-report=report.json").ret == 0
    (record,) = json.loads((project.path / "report.json").read_text())["records"]
    assert record["values"] == {"aspects": 3.5, "aspect_accuracy": 5, "aspect_clarity": 2}
