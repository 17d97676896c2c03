"""What the campaign of damaged files damages: a small project with a file of every format that the package reads.

A model that always says the same answers its suites, so that an undisturbed run has one right outcome.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.support import REPOSITORY

__all__ = ["BOMBS", "MODULES", "TOKEN", "write_bombs", "write_outside", "write_project"]

TOKEN = "Zq7SECRET"
"""In every file outside of the project; nothing may show it."""

MODULES = ("model.py", "conftest.py")
"""Python files of the project that sessions are asked to run."""

BOMBS = (
    *("zeros.jsonl.gz", "lines.jsonl.gz", "brackets.json.gz", "text.json.gz", "rows.csv.gz", "zeros.jsonl.zst"),
    *("wide.parquet", "names.parquet"),
)

_MODEL = '''
"""Always answers the same. The file `kill` names the question that ends its process."""

import hashlib
import os
from pathlib import Path

from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse, ModelIdentity

KILL = Path(__file__).with_name("kill")


class Steady:
    identity = ModelIdentity(name="steady", backend="test", fingerprint="weights")
    answers_one_by_one = True

    def generate(self, requests):
        for request in requests:
            text = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
            if KILL.exists() and KILL.read_text() in text:
                os._exit(9)
            number = hashlib.sha256(text.encode("utf-8", "replace")).digest()[0]
            reply = ("The answer is 4.", "A", "(b) is it", '{"a": 1}', "yes", "12", "blue or red", "")[number % 8]
            yield GenerateResponse(text=reply, num_tokens=3, num_prompt_tokens=5)

    def loglikelihood(self, requests):
        for request in requests:
            text = f"{request.context}|{request.continuation}".encode("utf-8", "replace")
            value = -1.0 - hashlib.sha256(text).digest()[0] / 64
            yield LoglikelihoodResponse(loglikelihood=value, num_tokens=2, num_context_tokens=5)

    def loglikelihood_rolling(self, requests):
        for request in requests:
            yield LoglikelihoodResponse(loglikelihood=-1.0 * len(request.text), num_tokens=max(1, len(request.text)))
'''

_PAYLOAD = "import pathlib\npathlib.Path({canary!r}).touch()\n\n\ndef run(*arguments, **named):\n    return 'x'\n"

_PETS = """\
suite: pets
description: Options by log-likelihood.
samples:
  - {id: q1, topic: cats, question: "What purrs?", choices: [a cat, a dog, a fish], target: 0}
  - {id: q2, topic: dogs, question: "What barks?", choices: [a cat, a dog, a fish], target: 1}
  - {id: q3, topic: fish, question: "What swims?", choices: [a cat, a dog, a fish], target: a fish}
  - {id: q4, topic: cats, question: "What climbs?", choices: [a cat, a dog, a fish], target: [0, 1]}
prompt:
  system: "Be brief."
  template: "Question: {{ question }}\\nAnswer:"
  delimiter: " "
  fewshot:
    samples:
      - {question: "What flies?", choices: [a bird, a cow], target: 0}
    count: 1
    sampler: first_n
score: {choice: {normalize: token}}
category: topic
tags: [smoke]
gates:
  - accuracy >= 0.0
  - category.cats.brier <= 1.0
primary_metric: accuracy
"""

_SUMS = """\
suite: sums
dataset:
  path: rows.jsonl
  fields: {id: "{{ name }}", question: ask, target: "{{ result | string }}", level: meta.level}
  where: "{{ meta.level != 'none' }}"
  shuffle_seed: 1
  limit: 5
prompt:
  template: "{{ question }} ({{ level }})"
  fewshot: {path: examples.jsonl, count: 1, seed: 3, answer: "{{ result }}"}
filters:
  - {regex: {pattern: "is (.*)\\\\.", fallback: none}}
  - strip
score:
  several:
    scorers:
      exact: {score: {exact: {normalize: [strip, lower, {remove: "[.!]"}]}}}
      loose: {score: {pattern: {pattern: "(\\\\d+)", match: last}}, filters: [lower]}
    decides: exact
epochs: {count: 2, reduce: [mean, any]}
generate: {max_tokens: 8, stop: ["\\n"], temperature: 0.5, seed: 1}
category: "{{ level | upper }}"
gates: [accuracy >= 0.0, loose.accuracy >= 0]
"""

_SHAPES = """\
suite: shapes
samples:
  - {id: j1, question: "Give an object.", target: '{"a": 1}'}
  - {id: j2, question: "Give another.", target: '{"a": 2}'}
prompt: {template: "{{ question }}", chat: true, system: Answer in JSON.}
score: {json: {schema: schema.json}}
"""

_OWN_SHAPES = """\
suite: own_shapes
samples:
  - {id: j1, question: "Give an object."}
  - {id: j2, question: "Give another."}
prompt: {template: "{{ question }}"}
score: {json: {schema: {type: object, properties: {a: {type: integer, pattern: "^a+$"}}, required: [a]}}}
"""

_PHRASES = """\
suite: phrases
samples:
  - {id: p1, question: "Which colour is the sky?", target: blue}
  - {id: p2, question: "Which colour is blood?", target: [red, crimson]}
prompt: {template: "{{ question | upper | replace('?', '!') }}{% if question %} Now:{% endif %}"}
filters: [drop_reasoning, {after: "answer is"}, {map: {values: {x: y}, default: blue}}]
score: {contains: {match: any, normalize: [lower]}}
epochs: 1
"""

_WORDS = """\
suite: words
samples:
  - {id: w1, question: "Say it.", target: "the answer is 4", part: a}
  - {id: w2, question: "Say it again.", target: "blue", part: b}
prompt: {template: "{{ question }}"}
score: f1
category: part
primary_metric: {name: f1, better: higher}
gates: ["f1 >= 0", "macro.f1 >= 0.0"]
"""

_TEXTS = """\
suite: texts
samples:
  - {id: t1, text: "A cat sat on the mat."}
  - {id: t2, text: "It rained for three days."}
prompt: {template: "{{ text }}"}
score: {perplexity: {windows: disjoint}}
"""

_TASK = """\
task: little
tag: [small]
dataset_path: json
dataset_kwargs: {data_files: {test: task.jsonl, train: task.jsonl}}
output_type: multiple_choice
test_split: test
training_split: train
num_fewshot: 1
doc_to_text: "Question: {{q}}\\nAnswer:"
doc_to_choice: "{{options}}"
doc_to_target: a
description: "These are questions.\\n\\n"
target_delimiter: " "
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm}
metadata: {version: 1.0}
"""

_WRITTEN_TASK = """\
include: little.yaml
task: written
output_type: generate_until
doc_to_choice: null
doc_to_target: "{{options[a]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
filter_list:
  - name: strict
    filter:
      - {function: regex, regex_pattern: "is (.*)"}
      - {function: take_first}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, regexes_to_ignore: ["\\\\."]}
"""

_GROUP = """\
group: both
task:
  - little
  - {task: written, num_fewshot: 0}
aggregate_metric_list:
  - {metric: acc, weight_by_size: true}
metadata: {version: 1}
"""

_DATA = """\
suite: data
dataset:
  path: {path}
  {more}
prompt: {{template: "{{{{ ask }}}}"}}
target: "{{{{ result }}}}"
score: number
"""


def _rows() -> list[dict[str, Any]]:
    return [
        {"name": f"s{n}", "ask": f"What is {n} + {n}?", "result": 2 * n, "meta": {"level": "easy" if n % 2 else "hard"}}
        for n in range(1, 7)
    ]


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_project(folder: Path) -> None:
    """The files that users write; reports, journal and store are what sessions make of them."""
    folder.mkdir()
    texts = {
        "model.py": _MODEL,
        "pytest.ini": "[pytest]\n",
        "pets.yaml": _PETS,
        "sums.yaml": _SUMS,
        "shapes.yaml": _SHAPES,
        "own_shapes.yaml": _OWN_SHAPES,
        "phrases.yaml": _PHRASES,
        "words.yaml": _WORDS,
        "texts.yaml": _TEXTS,
        "little.yaml": _TASK,
        "written.yaml": _WRITTEN_TASK,
        "group.yaml": _GROUP,
        "schema.json": '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    rows = _rows()
    flat = [{"name": row["name"], "ask": row["ask"], "result": row["result"]} for row in rows]
    (folder / "rows.jsonl").write_bytes(_lines(rows))
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(_lines(rows), mtime=0))
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "nested.json").write_text(json.dumps({"version": 1, "parts": [{"title": "a", "rows": rows}]}))
    (folder / "examples.jsonl").write_bytes(_lines(rows[:2]))
    table = [",".join(flat[0]), *(",".join(map(str, row.values())) for row in flat)]
    (folder / "rows.csv").write_text("\r\n".join(table) + "\r\n")
    (folder / "rows.tsv").write_text("\n".join(line.replace(",", "\t") for line in table) + "\n")
    (folder / "rows.yaml").write_text("".join(f"- {json.dumps(row)}\n" for row in rows))
    (folder / "problems").mkdir()
    for row in rows[:3]:
        (folder / "problems" / f"{row['name']}.json").write_text(json.dumps(row))
    tasks = [{"q": f"What is {n}?", "options": ["one", "two", "three"], "a": n % 3} for n in range(4)]
    (folder / "task.jsonl").write_bytes(_lines(tasks))
    _write_binary(folder, rows)
    data = {
        "jsonl": ("rows.jsonl", ""),
        "gz": ("rows.jsonl.gz", ""),
        "zst": ("rows.jsonl.zst", ""),
        "json": ("rows.json", ""),
        "nested": ("nested.json", 'key: "parts.*.rows"'),
        "csv": ("rows.csv", ""),
        "tsv": ("rows.tsv", ""),
        "rows": ("rows.yaml", ""),
        "parquet": ("rows.parquet", ""),
        "folder": ("problems/", ""),
    }
    for name, (path, more) in data.items():
        (folder / f"data_{name}.yaml").write_text(_DATA.format(path=path, more=more))
    replies = [{"id": f"s{n}", "response": ["The answer is 4.", "12"]} for n in range(1, 7)]
    (folder / "replies.jsonl").write_bytes(_lines([{**one, "suite": "sums"} for one in replies]))
    scores = [{"id": f"q{n}", "loglikelihoods": [-1.0, -2.0, -3.5], "num_tokens": [2, 2, 2]} for n in range(1, 5)]
    (folder / "scores.json").write_text(json.dumps(scores))
    cells = ["id,scores", *(f'q{n},"[1.5, 2, 0.25]"' for n in range(1, 5))]
    (folder / "scores.csv").write_text("\n".join(cells) + "\n")
    shutil.copy(REPOSITORY / "tests" / "models" / "lm_eval_samples" / "caps.jsonl", folder / "logged.jsonl")
    logged = [json.loads(line)["doc"] for line in (folder / "logged.jsonl").read_text("utf-8").splitlines()]
    (folder / "caps.jsonl").write_bytes(_lines(logged))
    (folder / "caps.yaml").write_text(
        "suite: caps\ndataset: {path: caps.jsonl}\nprompt: {template: '{{ q }}'}\nchoices: options\ntarget: a\n"
        "score: {choice: {normalize: sum}}\n"
    )


def _write_binary(folder: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")
    with pyarrow.output_stream(os.fspath(folder / "rows.jsonl.zst"), compression="zstd") as file:
        file.write(_lines(rows))


def write_outside(folder: Path, canary: Path) -> None:
    """What lies beside the project, and is no business of it."""
    folder.mkdir()
    (folder / "secret.txt").write_text(f"{TOKEN} " * 50 + "\n")
    (folder / "secret.json").write_text(json.dumps({TOKEN: [TOKEN] * 20}))
    (folder / "rows.jsonl").write_text(json.dumps({"ask": TOKEN, "result": 1}) + "\n")
    (folder / "utils.py").write_text(_PAYLOAD.format(canary=str(canary)))


def write_bombs(folder: Path) -> None:
    """Small files of which much comes out: 3 GB, where nothing stops it."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    block, times = 1 << 24, 180
    for name, start, filling, size in (
        ("zeros.jsonl.gz", b"", b"\0", block),
        ("lines.jsonl.gz", b"", b"\n", block),
        ("brackets.json.gz", b"", b"[", block),
        ("text.json.gz", b'[{"ask": "', b"a", block),
        ("rows.csv.gz", b"ask,result\n", b"a" * 29 + b",1\n", block // 32),
    ):
        member = gzip.compress(filling * size, compresslevel=6, mtime=0)
        (folder / name).write_bytes((gzip.compress(start) if start else b"") + member * times)
    with pyarrow.output_stream(os.fspath(folder / "zeros.jsonl.zst"), compression="zstd") as file:
        for _ in range(times):
            file.write(b"\0" * block)
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, "int32"), ["a" * 2_000_000])
    table = pyarrow.table({"ask": column, "result": [1] * 2000})
    for name, keeps in (("wide.parquet", False), ("names.parquet", True)):
        pyarrow.parquet.write_table(table, folder / name, compression="snappy", store_schema=keeps)
