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
    "Dunmere", "Farrowdale", "Hexbridge", "Lindlow", "Norwell", "Ambleton", "Kestrel Bay", "Stonecross",
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
    "castle", "lighthouse", "market", "museum", "harbour", "windmill", "theatre", "railway station", "library",
    "bridge", "park", "church",
)  # fmt: skip


NUM_QUESTIONS = 4
SIGHT_STATEMENTS: tuple[str, ...] = (
    "The only sights of {t} are a {s}.",
    "In {t} there is nothing to see but a {s}.",
    "Apart from houses {t} has only a {s}.",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """A passage, a question and whether the answer is yes."""

    passage: str
    question: str
    answer: bool


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing that can be said of a person: its values, sentences that say it, questions that ask it."""

    values: tuple[str, ...]
    statements: tuple[str, ...]
    questions: tuple[str, ...]


ATTRIBUTES: dict[str, Attribute] = {
    "town": Attribute(
        TOWNS,
        ("{n} lives in {v}.", "{n} has a house in {v}.", "The home of {n} is in {v}."),
        ("Does {n} live in {v}?", "Is the home of {n} in {v}?"),
    ),
    "job": Attribute(
        JOBS,
        ("{n} works as a {v}.", "{n} is a {v}.", "{n} earns a living as a {v}."),
        ("Is {n} a {v}?", "Does {n} work as a {v}?"),
    ),
    "pet": Attribute(
        PETS,
        ("{n} has one pet, a {v}.", "{n} keeps one animal, a {v}.", "The only pet of {n} is a {v}."),
        ("Does {n} have a {v}?", "Does {n} own a {v}?"),
    ),
    "hobby": Attribute(
        HOBBIES,
        ("{n} has one hobby, {v}.", "The hobby of {n} is {v}.", "The only hobby of {n} is {v}."),
        ("Is {v} the hobby of {n}?", "Does {n} have {v} as a hobby?"),
    ),
    "food": Attribute(
        FOODS,
        ("{n} likes {v} best.", "The favourite food of {n} is {v}.", "The food that {n} likes best is {v}."),
        ("Does {n} like {v} best?", "Is {v} the favourite food of {n}?"),
    ),
}


def _sentence(rng: random.Random, attribute: str, name: str, value: str) -> str:
    return rng.choice(ATTRIBUTES[attribute].statements).format(n=name, v=value)


def _ask(rng: random.Random, attribute: str, name: str, value: str) -> str:
    return rng.choice(ATTRIBUTES[attribute].questions).format(n=name, v=value)


def _person(rng: random.Random) -> list[Reading]:
    """One person with two to four attributes: the value asked for is in the passage, or another one is."""
    name = rng.choice(NAMES)
    chosen = rng.sample(sorted(ATTRIBUTES), rng.choice((2, 3, 3, 4)))
    values = {key: rng.choice(ATTRIBUTES[key].values) for key in chosen}
    passage = " ".join(_sentence(rng, key, name, values[key]) for key in chosen)
    found = []
    for _ in range(NUM_QUESTIONS):
        asked = rng.choice(chosen)
        answer = rng.random() < 0.5
        others = [value for value in ATTRIBUTES[asked].values if value != values[asked]]
        value = values[asked] if answer else rng.choice(others)
        found.append(Reading(passage, _ask(rng, asked, name, value), answer))
    return found


def _two_people(rng: random.Random) -> list[Reading]:
    """Two people who differ in one attribute, so that the name has to be matched too."""
    first, second = rng.sample(NAMES, 2)
    key = rng.choice(sorted(ATTRIBUTES))
    mine, yours = rng.sample(ATTRIBUTES[key].values, 2)
    passage = f"{_sentence(rng, key, first, mine)} {_sentence(rng, key, second, yours)}"
    found = []
    for _ in range(NUM_QUESTIONS):
        name, own, other = rng.choice(((first, mine, yours), (second, yours, mine)))
        answer = rng.random() < 0.5
        found.append(Reading(passage, _ask(rng, key, name, own if answer else other), answer))
    return found


def _town(rng: random.Random) -> list[Reading]:
    """A town with two or three sights."""
    town = rng.choice(TOWNS)
    sights = rng.sample(SIGHTS, rng.choice((2, 3)))
    missing = [sight for sight in SIGHTS if sight not in sights]
    listed = ", a ".join(sights[:-1]) + " and a " + sights[-1]
    passage = rng.choice(SIGHT_STATEMENTS).format(t=town, s=listed)
    found = []
    for _ in range(NUM_QUESTIONS):
        answer = rng.random() < 0.5
        question = rng.choice(("Is there a {s} in {t}?", "Does {t} have a {s}?"))
        found.append(Reading(passage, question.format(s=rng.choice(sights if answer else missing), t=town), answer))
    return found


def reading(rng: random.Random) -> list[Reading]:
    """Draws a passage with questions: mostly about one person, some about towns, some about two people."""
    writer = rng.choice((_person, _person, _town, _town, _two_people))
    return writer(rng)
