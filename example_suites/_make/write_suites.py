"""Writes the data files of example_suites/ from the world: `python -m example_suites._make.write_suites`.

Seeded, and the same bytes on every machine. Only questions that `split.is_test` keeps for the suites are written; the
few-shot examples of the MMLU-style suite are the exception, they come from the training side.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import assistant, every_key, world
from .facts_time import FRAMES
from .numbers import NEW_PEOPLE, Problem, word_problem
from .reading import Reading, reading
from .split import is_test
from .world import Question

SEED = 20
ROOT = Path(__file__).resolve().parent.parent
ROWS_PER_CATEGORY = 18
QUESTIONS_PER_RELATION = 15
NUM_READINGS = 72
NUM_PROBLEMS = 64
NUM_SHOTS_PER_SUBJECT = 4

Row = dict[str, Any]
T = TypeVar("T")


def draw(rng: random.Random, questions: Iterable[Question], count: int, *, for_test: bool = True) -> list[Question]:
    """Draws questions of one side of the split, no two about the same fact while that can be helped."""
    pool = [question for question in questions if question.for_test is for_test]
    rng.shuffle(pool)
    chosen: list[Question] = []
    facts: set[tuple[str, ...]] = set()
    for question in pool:
        fact = (question.category, *question.right, *(question.key.split()[-1:]))
        if fact not in facts and len(chosen) < count:
            facts.add(fact)
            chosen.append(question)
    for question in pool:
        if len(chosen) < count and question not in chosen:
            chosen.append(question)
    return chosen


def draw_new(make: Callable[[], T], key: Callable[[T], str], text: Callable[[T], str], count: int) -> list[T]:
    """Calls `make` until it has given `count` things with different texts whose keys belong to the test side."""
    found: dict[str, T] = {}
    while len(found) < count:
        thing = make()
        if is_test(key(thing)):
            found.setdefault(text(thing), thing)
    return list(found.values())


def chronologic(rng: random.Random) -> list[Row]:
    """Dates and order of events, in four categories; one row in three has no line about its source."""
    months = world.month_length_questions(rng, 200)
    calendar = draw(rng, world.calendar_questions(), ROWS_PER_CATEGORY - 6)
    parts = [
        draw(rng, world.year_questions(), ROWS_PER_CATEGORY),
        draw(rng, world.century_questions(), ROWS_PER_CATEGORY),
        draw(rng, world.order_questions(), ROWS_PER_CATEGORY),
        [*calendar, *draw(rng, months, 6)],
    ]
    rows: list[Row] = []
    for question in (question for part in parts for question in part):
        options = world.options_of(rng, question, 4)
        wrong = [option for option in options if option not in question.right]
        answers = [(text, "correct", 1.0) for text in question.right] + [(text, "distractor", 0.0) for text in wrong]
        if question.negation is not None:
            answers.append((question.negation, "negation", 0.0))
        rows.append(
            {
                "id": f"chrono-{len(rows) + 1:03}",
                "metadata_frame": rng.choice((None, rng.choice(FRAMES), rng.choice(FRAMES))),
                "main_question": question.text,
                "question_category": question.category,
                "answer_strings": [text for text, _, _ in answers],
                "answer_types": [kind for _, kind, _ in answers],
                "answer_probabilities": [probability for _, _, probability in answers],
            }
        )
    return rows


def boolq(rng: random.Random) -> list[Row]:
    """Yes/no questions about passages, as many yes as no."""
    drawn: list[Reading] = draw_new(lambda: reading(rng)[0], lambda r: r.passage, lambda r: r.passage, NUM_READINGS * 3)
    half = NUM_READINGS // 2
    chosen = [r for r in drawn if r.answer][:half] + [r for r in drawn if not r.answer][:half]
    rng.shuffle(chosen)
    return [{"passage": r.passage, "question": r.question, "answer": r.answer} for r in chosen]


def gsm8k(rng: random.Random) -> list[Row]:
    """Word problems with their worked solutions."""
    found: dict[str, Problem] = {}
    while len(found) < NUM_PROBLEMS:
        problem = word_problem(rng, NEW_PEOPLE)
        if any(name in problem.question for name in NEW_PEOPLE):
            found.setdefault(problem.question, problem)
    problems = list(found.values())
    return [{"question": p.question, "answer": p.solution} for p in problems]


def csqa(rng: random.Random) -> list[Row]:
    """Everyday five-way questions in CommonsenseQA's nesting."""
    rows: list[Row] = []
    for relation in world.COMMONSENSE:
        subjects = {ask.format(s=s): s for s in relation.facts for ask in relation.asks}
        drawn = draw(rng, world.fact_questions([relation]), QUESTIONS_PER_RELATION)
        for number, question in enumerate(drawn, start=1):
            options = world.options_of(rng, question, 5)
            rows.append(
                {
                    "id": f"csqa-{relation.name}-{number:02}",
                    "question": {
                        "question_concept": subjects[question.text],
                        "choices": [
                            {"label": label, "text": text} for label, text in zip("ABCDE", options, strict=True)
                        ],
                        "stem": question.text,
                    },
                    "answerKey": "ABCDE"[options.index(question.right[0])],
                }
            )
    return rows


def _mmlu_row(rng: random.Random, question: Question) -> Row:
    options = world.options_of(rng, question, 4)
    return {
        "question": question.text,
        "subject": question.category,
        "choices": options,
        "answer": options.index(question.right[0]),
    }


def _sums(rng: random.Random) -> list[Question]:
    seen = {question.text: question for question in (world.sum_question(rng) for _ in range(400))}
    return list(seen.values())


def _by_subject(rng: random.Random) -> list[list[Question]]:
    names = sorted({relation.name for relation in world.SUBJECTS})
    facts = [world.fact_questions([r for r in world.SUBJECTS if r.name == name]) for name in names]
    return [*facts, _sums(rng)]


def mmlu(rng: random.Random, count: int, *, for_test: bool) -> list[Row]:
    """Four subjects, four options each, `count` rows a subject; for few-shot examples only facts that are taught."""
    rows = []
    for questions in _by_subject(rng):
        usable = questions if for_test else [question for question in questions if question.taught]
        rows += [_mmlu_row(rng, question) for question in draw(rng, usable, count, for_test=for_test)]
    return rows


def jsonl(rows: Sequence[Row]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def data_files() -> dict[str, str]:
    """Every generated file: its path in example_suites/ and its text."""

    def rng(name: str) -> random.Random:
        return random.Random(f"{SEED} {name}")

    return {
        "chronologic/events.jsonl": jsonl(chronologic(rng("chronologic"))),
        "boolq/boolq.jsonl": jsonl(boolq(rng("boolq"))),
        "gsm8k/gsm8k.jsonl": jsonl(gsm8k(rng("gsm8k"))),
        "csqa/csqa.jsonl": jsonl(csqa(rng("csqa"))),
        "mmlu/mmlu.jsonl": jsonl(mmlu(rng("mmlu"), ROWS_PER_CATEGORY, for_test=True)),
        "mmlu/dev.jsonl": jsonl(mmlu(rng("mmlu dev"), NUM_SHOTS_PER_SUBJECT, for_test=False)),
        "every_key/every_key.yaml": every_key.suite_text(rng("every_key")),
        "every_key/sums.json": every_key.sums_text(rng("sums")),
        **{f"assistant/{name}.jsonl": jsonl(rows) for name, rows in assistant.rows().items()},
    }


def held_out_lines() -> frozenset[str]:
    """Every question (for reading questions also every passage) of the suites: lines that training must not contain."""
    files = data_files()
    rows = {name: [json.loads(line) for line in text.splitlines()] for name, text in files.items() if ".jsonl" in name}
    lines = {row["main_question"] for row in rows["chronologic/events.jsonl"]}
    lines |= {row["passage"] for row in rows["boolq/boolq.jsonl"]}
    lines |= {row["question"] for row in rows["gsm8k/gsm8k.jsonl"]}
    lines |= {row["question"]["stem"] for row in rows["csqa/csqa.jsonl"]}
    lines |= {row["question"] for row in rows["mmlu/mmlu.jsonl"]}
    lines |= set(every_key.held_out(files["every_key/every_key.yaml"], files["every_key/sums.json"]))
    return frozenset(lines)


def main() -> None:
    """Writes the files."""
    for name, text in data_files().items():
        path = ROOT / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        sys.stdout.write(f"{name}: {len(text)} characters\n")


if __name__ == "__main__":
    main()
