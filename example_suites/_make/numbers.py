"""Word problems of one and two steps, and plain sums, all with small whole numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass

PEOPLE: tuple[str, ...] = (
    "Anna", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah",
)  # fmt: skip
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
    steps: int


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
ADD_TAKE: tuple[str, ...] = (
    "{p} has {a} {t}. {p} buys {b} more and then gives {c} to {q}. How many {t} are left?",
    "{p} has {a} {t}, finds {b} more and then loses {c}. How many {t} are left?",
)
TIMES_ADD: tuple[str, ...] = (
    "{p} has {a} {x} with {b} {t} in each and {c} more {t}. How many {t} are there in all?",
    "There are {a} {x}. Each holds {b} {t}. {p} brings {c} more {t}. How many {t} are there in all?",
)


def word_problem(rng: random.Random) -> Problem:
    """Draws one problem; two in three have one step."""
    kind = rng.choice(("add", "add", "take", "take", "times", "times", "add take", "times add"))
    person, friend = rng.sample(PEOPLE, 2)
    words = {"p": person, "q": friend, "t": rng.choice(THINGS), "x": rng.choice(BOXES)}
    a, b, c = 0, 0, 0
    if kind == "add":
        a, b = rng.randint(2, 20), rng.randint(2, 12)
        template, steps = rng.choice(ADD), [(a, "+", b, a + b)]
    elif kind == "take":
        b = rng.randint(2, 12)
        a = b + rng.randint(2, 15)
        template, steps = rng.choice(TAKE), [(a, "-", b, a - b)]
    elif kind == "times":
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        template, steps = rng.choice(TIMES), [(a, "*", b, a * b)]
    elif kind == "add take":
        a, b = rng.randint(2, 12), rng.randint(2, 9)
        c = rng.randint(1, min(9, a + b - 2))
        template, steps = rng.choice(ADD_TAKE), [(a, "+", b, a + b), (a + b, "-", c, a + b - c)]
    else:
        a, b, c = rng.randint(2, 6), rng.randint(2, 6), rng.randint(2, 9)
        template, steps = rng.choice(TIMES_ADD), [(a, "*", b, a * b), (a * b, "+", c, a * b + c)]
    answer = steps[-1][3]
    lines = [f"{x} {op} {y} = {z} {words['t']}." for x, op, y, z in steps]
    return Problem(
        question=template.format(a=a, b=b, c=c, **words),
        solution="\n".join([*lines, f"#### {answer}"]),
        answer=answer,
        key=f"{kind} {a} {b} {c}",
        steps=len(steps),
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
    add = [(f"{a} + {b}", a + b, f"{min(a, b)} + {max(a, b)}") for a in range(1, 13) for b in range(1, 13)]
    take = [(f"{a + b} - {b}", a, f"{a + b} - {b}") for a in range(1, 11) for b in range(1, 10)]
    times = [(f"{a} x {b}", a * b, f"{min(a, b)} x {max(a, b)}") for a in range(2, 10) for b in range(2, 10)]
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
