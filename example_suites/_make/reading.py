"""Reading questions: a passage about invented people and places, and a yes/no question that the passage decides."""

from __future__ import annotations

import random
from dataclasses import dataclass

NAMES: tuple[str, ...] = (
    "Mara", "Oskar", "Lena", "Tomas", "Ines", "Paul", "Nora", "Felix", "Ada", "Hugo", "Vera", "Simon",
    "Clara", "Jonas", "Edith", "Marco", "Olga", "Peter", "Ruth", "Karim", "Selma", "Anton", "Julia", "Victor",
)  # fmt: skip
TOWNS: tuple[str, ...] = (
    "Tollen", "Brackwick", "Marrowby", "Estermoor", "Pelhaven", "Quillby", "Sandreth", "Owlsford",
    "Dunmere", "Farrowdale", "Hexbridge", "Lindlow", "Norwell", "Ambleton", "Stonecross",
)  # fmt: skip
JOBS: tuple[str, ...] = (
    "baker", "teacher", "dentist", "farmer", "plumber", "nurse", "painter", "tailor", "sailor", "judge",
    "butcher", "carpenter",
)  # fmt: skip
PETS: tuple[str, ...] = ("dog", "cat", "parrot", "rabbit", "goat", "pony", "hamster", "tortoise", "goldfish", "donkey")
HOBBIES: tuple[str, ...] = (
    "swimming", "chess", "gardening", "cycling", "singing", "fishing", "sewing", "skating", "climbing", "dancing",
)  # fmt: skip
FOODS: tuple[str, ...] = (
    "soup", "pancakes", "apples", "cheese", "pasta", "mushrooms", "olives", "rice", "cherries", "honey",
)  # fmt: skip
SIGHTS: tuple[str, ...] = (
    "castle", "lighthouse", "market", "museum", "harbour", "windmill", "theatre", "library",
    "bridge", "park", "church",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A passage, a question and whether the answer is yes."""

    passage: str
    question: str
    answer: bool


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing that can be said of a person: values, sentences that say it or deny it, questions that ask it."""

    values: tuple[str, ...]
    statements: tuple[str, ...]
    denials: tuple[str, ...]
    questions: tuple[str, ...]


ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        TOWNS,
        ("{n} lives in {v}.", "The home of {n} is in {v}."),
        ("{n} does not live in {v}.", "The home of {n} is not in {v}."),
        ("Does {n} live in {v}?", "Is the home of {n} in {v}?"),
    ),
    Attribute(
        JOBS,
        ("{n} works as a {v}.", "{n} is a {v}."),
        ("{n} does not work as a {v}.", "{n} is not a {v}."),
        ("Is {n} a {v}?", "Does {n} work as a {v}?"),
    ),
    Attribute(
        PETS,
        ("{n} has a {v}.", "{n} owns a {v}."),
        ("{n} does not have a {v}.", "{n} does not own a {v}."),
        ("Does {n} have a {v}?", "Does {n} own a {v}?"),
    ),
    Attribute(
        (*HOBBIES, *FOODS),
        ("{n} likes {v}.", "{n} is fond of {v}."),
        ("{n} does not like {v}.", "{n} is not fond of {v}."),
        ("Does {n} like {v}?", "Is {n} fond of {v}?"),
    ),
    Attribute(
        SIGHTS,
        ("The town of {n} has a {v}.", "There is a {v} in the town of {n}."),
        ("The town of {n} does not have a {v}.", "There is not a {v} in the town of {n}."),
        ("Does the town of {n} have a {v}?", "Is there a {v} in the town of {n}?"),
    ),
)


def reading(rng: random.Random) -> list[Reading]:
    """Draws a passage of one or two sentences about one person, and a question about each of them."""
    name = rng.choice(NAMES)
    chosen = [(attribute, rng.choice(attribute.values), rng.random() < 0.5) for attribute in rng.sample(ATTRIBUTES, 2)]
    chosen = chosen[: rng.choice((1, 1, 2))]
    passage = " ".join(
        rng.choice(attribute.statements if said else attribute.denials).format(n=name, v=value)
        for attribute, value, said in chosen
    )
    asked = rng.sample(chosen, len(chosen))
    return [
        Reading(passage, rng.choice(attribute.questions).format(n=name, v=value), said)
        for attribute, value, said in asked
    ]
