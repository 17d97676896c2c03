"""docs/coming_from.md: every command of ours that it shows runs, in a folder with the files that the page names.

A stub server stands in for the servers and the hosted model, and the demo model, in the hub's cache, for ``gpt2``.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.plugin.options.table import OPTIONS
from pytest_llmeval.suites.format.json_schema import json_schema
from tests.plugin.judge_for_tests import form_of
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
    numbers = [int(number) for number in re.findall(r"\\d+", question)]
    text = str(sum(numbers[-2:])) if numbers else "A. Paris"
    return {"text": text, "num_tokens": 5 if planning else 2, "trace": ["planned"] if planning else []}
"""
JUDGE = """
def embed(texts):
    return [[float(len(text)), 1.0] for text in texts]
"""


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
        "gsm8k.jsonl": [{"question": "What is 2 + 3?", "answer": "Two and three.\n#### 5"}],
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
    (folder / "checkpoint").symlink_to(DEMO)
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


PRINTED = {
    "--distribution": r"suite +metric +n +mean +sd +min +p50 +p95 +max",
    "--id r1": r"(?s)^r1 \(.*question: .*verdict 1 of \d+: faithfulness",
}
"""What commands with these options print, beside ending well."""


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
        printed = capsys.readouterr().out
        for option, pattern in PRINTED.items():
            assert option not in command or re.search(pattern, printed), printed
        return
    result = project.runpytest(*arguments, "-Wdefault")
    assert result.ret == 0
    if "--llm-max-drop" in command:
        result.stdout.re_match_lines([r"passed: search, ndcg@10 vs baseline: .*"])
