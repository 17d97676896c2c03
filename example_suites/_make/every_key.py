"""The suite that shows every key of the format: its comments, and its questions drawn from the world."""

from __future__ import annotations

import json
import random

from . import world
from .numbers import NEW_PEOPLE, word_problem
from .world import Question

NUM_SAMPLES = 32
NUM_SUMS = 64

HEAD = """\
suite: every_key                     # the first key, and the suite's name in reports
description: Every key of the format that goes with inline samples, on capitals, opposites and everyday things.

samples:                             # instead of `dataset:`; id, question, choices, target, category are columns
"""

TAIL = """
prompt:
  system: "Answer every question in one or two words."   # said once, before the few-shot examples
  template: "Question: {{ question }}\\nAnswer:"
  delimiter: " "                     # between the prompt and an option, and before a few-shot answer
  fewshot:
    samples:                         # or `path:`, a data file whose columns have the same names
      - {question: "What is the capital of France?", target: Paris}
      - {question: "What is the opposite of hot?", target: cold}
    count: 2
    sampler: first_n                 # first_n: always the same, in this order; seeded: drawn for each sample
    seed: 0                          # what `seeded` draws with; first_n has no use for it
    delimiter: "\\n\\n"                # between system text, examples and question
    answer: "{{ target }}"           # what a few-shot example answers
  chat: false                        # true: through the chat template of the tokenizer or the server

score: {choice: {normalize: token}}  # token (the default), sum, char or byte
category: topic                      # a column, or a template
cluster: "{{ choices[target] }}"     # what belongs together, as a passage does; standard errors count these, 10 or more
tags: [smoke, inline]                # pytest marks: `pytest -m smoke`
gates:                               # rules that fail the run; also from outside: `--llm-gate 'every_key: skill > 0.5'`
  - accuracy >= 0.75
  - ci_low(accuracy) > 0.25          # a bound of the 95% interval: better than guessing
  - category.job.brier <= 0.25       # one category; macro.brier is the mean over all
primary_metric: accuracy             # what a baseline is compared by; {name: wit, better: lower} for one of your own
generate: {max_tokens: 16, stop: ["\\n"], temperature: 0, seed: 0}   # for scorers that generate; choice does not
"""


def _sample_line(number: int, question: Question, options: list[str]) -> str:
    choices = ", ".join(json.dumps(option, ensure_ascii=False) for option in options)
    target = options.index(question.right[0])
    text = json.dumps(question.text, ensure_ascii=False)
    return (
        f"  - {{id: q{number:02}, topic: {question.category}, question: {text},\n"
        f"     choices: [{choices}], target: {target}}}\n"
    )


def _inline_questions(rng: random.Random) -> list[Question]:
    relations = [*world.COMMONSENSE, *world.SUBJECTS[:1]]
    drawn: list[Question] = []
    for relation in relations:
        pool = [question for question in world.fact_questions([relation]) if question.for_test]
        drawn += rng.sample(pool, -(-NUM_SAMPLES // len(relations)))
    return drawn[:NUM_SAMPLES]


def suite_text(rng: random.Random) -> str:
    """The YAML file: comments and samples."""
    lines = [
        _sample_line(number, question, world.options_of(rng, question, 4))
        for number, question in enumerate(_inline_questions(rng), start=1)
    ]
    return HEAD + "".join(lines) + TAIL


def sums_text(rng: random.Random) -> str:
    """The JSON data file of the suite that shows the keys of `dataset:`: sums, with a level to select by."""
    rows: dict[str, dict[str, object]] = {}
    while len(rows) < NUM_SUMS:
        problem = word_problem(rng, NEW_PEOPLE)
        if problem.question not in rows and any(name in problem.question for name in NEW_PEOPLE):
            level = "easy" if problem.answer <= 12 else "hard"
            rows[problem.question] = {
                "meta": {"number": len(rows) + 1, "level": level},
                "ask": problem.question,
                "result": str(problem.answer),
            }
    return json.dumps({"version": 1, "questions": list(rows.values())}, indent=1, ensure_ascii=False) + "\n"


def held_out(suite: str, sums: str) -> list[str]:
    """The questions of both files."""
    inline = [
        json.loads(line.split("question: ", 1)[1].rstrip(","))
        for line in suite.splitlines()
        if line.startswith("  - {id: q")
    ]
    return inline + [row["ask"] for row in json.loads(sums)["questions"]]
