"""Word problems of one step and plain sums, all with small whole numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass

PEOPLE: tuple[str, ...] = (
    "Anna", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah",
)  # fmt: skip
NEW_PEOPLE: tuple[str, ...] = ("Olga", "Peter", "Rita", "Sam", "Tina", "Victor", "Wendy", "Yusuf")
"""People of the suites alone: no question about them occurs in the training text."""
THINGS: tuple[str, ...] = (
    "apples", "books", "coins", "eggs", "stamps", "marbles", "pencils", "shells", "tickets", "cards", "balls", "cakes",
)  # fmt: skip
BOXES: tuple[str, ...] = ("boxes", "bags", "baskets", "jars")


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem with its worked solution; `key` names its numbers and operations, whoever owns the apples."""

    question: str
    solution: str
    answer: int
    key: str


ADD: tuple[str, ...] = (
    "{p} has {a} {t}. {p} buys {b} more. How many {t} does {p} have now?",
    "{p} has {a} {t} and finds {b} more. How many {t} does {p} have now?",
    "There are {a} {t} on the table. {p} puts {b} more there. How many {t} are on the table now?",
    "{p} has {a} {t} and {q} has {b} {t}. How many {t} do they have together?",
)
TAKE: tuple[str, ...] = (
    "{p} has {a} {t}. {p} gives {b} to {q}. How many {t} are left?",
    "{p} has {a} {t} and loses {b} of them. How many {t} are left?",
    "There are {a} {t} in a box. {p} takes out {b}. How many {t} are left in the box?",
    "{p} had {a} {t} and sold {b}. How many {t} are left?",
)
TIMES: tuple[str, ...] = (
    "{p} has {a} {x} with {b} {t} in each. How many {t} are there in all?",
    "There are {a} {x}. Each holds {b} {t}. How many {t} are there in all?",
    "{p} packs {b} {t} into each of {a} {x}. How many {t} are there in all?",
)


def word_problem(rng: random.Random, people: tuple[str, ...] = PEOPLE) -> Problem:
    """Draws one problem about `people`: an addition, a subtraction or a multiplication."""
    kind = rng.choice(("add", "add", "take", "take", "times"))
    person, friend = rng.sample(people, 2)
    words = {"p": person, "q": friend, "t": rng.choice(THINGS), "x": rng.choice(BOXES)}
    if kind == "add":
        a, b = rng.randint(2, 10), rng.randint(2, 10)
        template, sign, answer = rng.choice(ADD), "+", a + b
    elif kind == "take":
        b = rng.randint(2, 9)
        a = b + rng.randint(2, 9)
        template, sign, answer = rng.choice(TAKE), "-", a - b
    else:
        a, b = rng.randint(2, 6), rng.randint(2, 6)
        template, sign, answer = rng.choice(TIMES), "*", a * b
    return Problem(
        question=template.format(a=a, b=b, **words),
        solution=f"{a} {sign} {b} = {answer} {words['t']}.\n#### {answer}",
        answer=answer,
        key=f"{kind} {a} {b}",
    )


@dataclass(frozen=True, slots=True)
class Sum:
    """A plain sum in one of several wordings; `key` is the fact, the same for all wordings and both orders."""

    question: str
    answer: int
    key: str


SUM_WORDINGS: tuple[str, ...] = ("What is {s}?", "How much is {s}?", "Which number is {s}?")


def _all_sums() -> list[tuple[str, int, str]]:
    """Every addition, subtraction and multiplication that is asked: its text, its result and its key."""
    add = [(f"{a} + {b}", a + b, f"{min(a, b)} + {max(a, b)}") for a in range(1, 11) for b in range(1, 11)]
    take = [(f"{a + b} - {b}", a, f"{a + b} - {b}") for a in range(1, 11) for b in range(1, 10)]
    times = [(f"{a} x {b}", a * b, f"{min(a, b)} x {max(a, b)}") for a in range(2, 7) for b in range(2, 7)]
    return add + take + times


ALL_SUMS: tuple[tuple[str, int, str], ...] = tuple(_all_sums())


def plain_sum(rng: random.Random) -> Sum:
    """Draws an addition, a subtraction or a multiplication."""
    text, answer, key = rng.choice(ALL_SUMS)
    return Sum(rng.choice(SUM_WORDINGS).format(s=text), answer, key)


def sum_distractors(rng: random.Random, answer: int, count: int) -> list[str]:
    """Wrong results close to the right one."""
    near = [n for n in range(max(0, answer - 12), answer + 13) if n != answer]
    return [str(n) for n in rng.sample(near, count)]
