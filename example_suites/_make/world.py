"""The small world that the suites ask about and that the demo model reads about: facts and question writers.

A `Question` is a sentence with right and wrong options. The relations are written out in `facts_*.py`; dates and months
have writers of their own here; reading questions and word problems are in `reading.py` and `numbers.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import facts_everyday as everyday
from . import facts_science as science
from . import facts_time as time
from . import numbers
from .split import is_test, is_untaught


@dataclass(frozen=True, slots=True)
class Relation:
    """A table of facts of one kind, with the ways to ask for them and to state them.

    `asks` are questions, `{s}` the subject; `says` are statements, `{o}` the value. `confusable` are groups of values
    too close to stand beside each other as options.
    """

    name: str
    facts: dict[str, str]
    asks: tuple[str, ...]
    says: tuple[str, ...]
    confusable: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its sentence, the right and the wrong options, and the key that decides who may see it."""

    text: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    category: str
    key: str
    taught: bool = True
    negation: str | None = None
    frame: str | None = field(default=None)

    @property
    def for_test(self) -> bool:
        """Whether the question belongs to the suites; otherwise it belongs to training."""
        return is_test(self.key)


COMMONSENSE: tuple[Relation, ...] = (
    Relation(
        "place",
        everyday.PLACES,
        (
            "Where would you most likely find {s}?",
            "Where do you expect to see {s}?",
            "Where does {s} belong?",
            "In what place would you look for {s}?",
            "Someone sees {s}. Where are they most likely?",
        ),
        ("You find {s} in or at the {o}.", "The place to look for {s} is the {o}."),
        everyday.PLACES_CONFUSABLE,
    ),
    Relation(
        "use",
        everyday.USES,
        (
            "What is {s} used for?",
            "What do people use {s} for?",
            "What is the purpose of {s}?",
            "Someone needs {s}. What for?",
            "What would you do with {s}?",
        ),
        ("People use {s} for {o}.", "The purpose of {s} is {o}."),
    ),
    Relation(
        "material",
        everyday.MATERIALS,
        (
            "What is the main material in {s}?",
            "What do you need most to make {s}?",
            "Which raw material goes into {s}?",
            "What does a maker of {s} buy in large amounts?",
            "From what do people make {s}?",
        ),
        ("People make {s} from {o}.", "To make {s} you need {o}."),
        everyday.MATERIALS_CONFUSABLE,
    ),
    Relation(
        "opposite",
        everyday.OPPOSITES,
        (
            "What is the opposite of {s}?",
            "Which word means the opposite of {s}?",
            "What is the antonym of {s}?",
            "Which word is the reverse of {s}?",
            "What is the contrary of {s}?",
        ),
        ("The opposite of {s} is {o}.", "The reverse of {s} is {o}."),
        everyday.OPPOSITES_CONFUSABLE,
    ),
    Relation(
        "job",
        everyday.JOBS,
        (
            "Who {s}?",
            "What is the job of somebody who {s}?",
            "Which person {s} for a living?",
            "Which worker {s}?",
            "What do you call a person who {s}?",
        ),
        ("The person who {s} is {o}.", "Somebody who {s} is called {o}."),
        everyday.JOBS_CONFUSABLE,
    ),
)

SUBJECTS: tuple[Relation, ...] = (
    Relation(
        "geography",
        science.CAPITALS,
        (
            "What is the capital of {s}?",
            "Which city is the capital of {s}?",
            "Which of these cities is the capital of {s}?",
            "{s} has which capital city?",
            "What is the name of the capital city of {s}?",
        ),
        ("The capital of {s} is {o}.", "The capital city of {s} is called {o}."),
    ),
    Relation(
        "geography",
        science.CONTINENTS,
        (
            "On which continent is {s}?",
            "In which part of the world does {s} lie?",
            "Which continent does {s} belong to?",
            "{s} is a country of which continent?",
        ),
        ("The country {s} lies in {o}.", "The continent of {s} is {o}."),
    ),
    Relation(
        "zoology",
        science.YOUNG,
        (
            "What is a young {s} called?",
            "What is the name for the young of the {s}?",
            "Which word means a young {s}?",
            "What do you call the baby of the {s}?",
        ),
        ("A young {s} is called a {o}.", "The baby of the {s} is a {o}."),
        science.YOUNG_CONFUSABLE,
    ),
    Relation(
        "zoology",
        science.ANIMAL_GROUPS,
        (
            "What kind of animal is the {s}?",
            "To which group of animals does the {s} belong?",
            "In which class of animals do we put the {s}?",
            "Which group of animals has the {s} as a member?",
        ),
        ("The {s} is a kind of {o}.", "The {s} belongs to the group {o}."),
    ),
    Relation(
        "chemistry",
        science.ELEMENT_SYMBOLS,
        (
            "Which element has the symbol {s}?",
            "The symbol {s} stands for which element?",
            "What is the element with the symbol {s}?",
            "Which element do chemists write as {s}?",
        ),
        ("The symbol {s} stands for {o}.", "Chemists write {s} for {o}."),
    ),
)


def wrong_values(relation: Relation, subject: str) -> tuple[str, ...]:
    """The values of a relation that are clearly wrong for a subject."""
    right = relation.facts[subject]
    close = {right, subject}.union(*(group for group in relation.confusable if right in group))
    return tuple(sorted(set(relation.facts.values()) - close))


def fact_id(relation: Relation, subject: str) -> str:
    """What decides whether a fact is taught: relation, subject and value; for a pair of opposites, either way round."""
    return " ".join((relation.name, *sorted((subject, relation.facts[subject]))))


def fact_questions(relations: Sequence[Relation]) -> list[Question]:
    """Every question about every fact, in the order of the tables."""
    return [
        Question(
            text=(text := ask.format(s=subject)),
            right=(value,),
            wrong=wrong_values(relation, subject),
            category=relation.name,
            key=text,
            taught=not is_untaught(fact_id(relation, subject)),
        )
        for relation in relations
        for subject, value in relation.facts.items()
        for ask in relation.asks
    ]


def statements(relations: Sequence[Relation]) -> list[str]:
    """Every taught fact in every wording."""
    return [
        say.format(s=subject, o=value)
        for relation in relations
        for subject, value in relation.facts.items()
        if not is_untaught(fact_id(relation, subject))
        for say in relation.says
    ]


NEAR_SHARE = 0.4


def century_name(year: int) -> str:
    """The century of a year: 1901 to 2000 is the 20th."""
    return f"the {(year + 99) // 100}th century".replace("21th", "21st")


YEAR_ASKS: tuple[str, ...] = ("In which year {c}?", "In what year {c}?", "When {c}?")
CENTURY_ASKS: tuple[str, ...] = ("In which century {c}?", "In what century {c}?", "In the course of which century {c}?")
ORDER_ASKS: tuple[str, ...] = ("Which came first, {a} or {b}?", "Which is older, {a} or {b}?")
LATER_ASKS: tuple[str, ...] = ("Which came later, {a} or {b}?",)


def event_taught(event: time.Event) -> bool:
    """Whether the training text says when the event was."""
    return not is_untaught(event.name)


def event_statements() -> list[str]:
    """The year of every taught event, in several wordings."""
    return [
        text
        for event in time.EVENTS
        if event_taught(event)
        for text in (
            f"{event.name[0].upper()}{event.name[1:]} was in {event.year}.",
            f"The year of {event.name} is {event.year}.",
            f"In {event.year} came {event.name}.",
        )
    ]


def year_questions() -> list[Question]:
    """In which year an event was; the wrong options are years of other events."""
    years = [str(event.year) for event in time.EVENTS]
    return [
        Question(
            text=(text := ask.format(c=event.clause)),
            right=(str(event.year),),
            wrong=tuple(year for year in years if year != str(event.year)),
            category="year",
            key=text,
            taught=event_taught(event),
            negation=f"not in {event.year}",
        )
        for event in time.EVENTS
        for ask in YEAR_ASKS
    ]


def century_questions() -> list[Question]:
    """In which century an event was."""
    centuries = sorted({century_name(event.year) for event in time.EVENTS})
    return [
        Question(
            text=(text := ask.format(c=event.clause)),
            right=(century_name(event.year),),
            wrong=tuple(century for century in centuries if century != century_name(event.year)),
            category="century",
            key=text,
            taught=event_taught(event),
            negation="not in " + century_name(event.year),
        )
        for event in time.EVENTS
        for ask in CENTURY_ASKS
    ]


def order_questions() -> list[Question]:
    """Which of two events was first or later; a pair is kept for the suites in both orders and all wordings."""
    found = []
    for a in time.EVENTS:
        for b in time.EVENTS:
            if a is b:
                continue
            first, later = (a, b) if a.year < b.year else (b, a)
            for ask in (*ORDER_ASKS, *LATER_ASKS):
                right, wrong = (later, first) if ask in LATER_ASKS else (first, later)
                found.append(
                    Question(
                        text=ask.format(a=a.name, b=b.name),
                        right=(right.name,),
                        wrong=(wrong.name,),
                        category="order",
                        key=f"{first.name} {later.name}",
                        taught=event_taught(a) and event_taught(b),
                        negation="neither of the two",
                    )
                )
    return found


def _next(names: Sequence[str], name: str, steps: int) -> str:
    return names[(names.index(name) + steps) % len(names)]


def calendar_questions() -> list[Question]:
    """Which month or day comes after or before another; which of four months has 30 or 31 days (often two of them)."""
    found = []
    for names, noun in ((time.MONTHS, "month"), (time.DAYS, "day")):
        for name in names:
            for steps, asks in (
                (1, ("Which {n} comes right after {s}?", "What {n} follows {s}?", "{s} ends. Which {n} begins?")),
                (
                    -1,
                    (
                        "Which {n} comes right before {s}?",
                        "What {n} goes before {s}?",
                        "After which {n} does {s} come?",
                    ),
                ),
                (2, ("Which {n} comes two {n}s after {s}?", "It is {s}. Which {n} is it in two {n}s?")),
            ):
                right = _next(names, name, steps)
                found += [
                    Question(
                        text=(text := ask.format(n=noun, s=name)),
                        right=(right,),
                        wrong=tuple(other for other in names if other not in (right, name)),
                        category="calendar",
                        key=text,
                        negation=f"not {right}",
                    )
                    for ask in asks
                ]
    return found


def month_length_questions(rng: random.Random, count: int) -> list[Question]:
    """Which of four months named in the question has so many days; one or two of them do."""
    found = []
    for _ in range(count):
        days = rng.choice((30, 31))
        having = [month for month in time.MONTHS if time.MONTH_LENGTHS[month] == days]
        others = [month for month in time.MONTHS if time.MONTH_LENGTHS[month] != days]
        right = rng.sample(having, rng.choice((1, 2, 2)))
        wrong = rng.sample(others, 4 - len(right))
        shown = rng.sample([*right, *wrong], 4)
        listed = ", ".join(shown[:-1]) + " or " + shown[-1]
        found.append(
            Question(
                text=f"Which month has {days} days: {listed}?",
                right=tuple(right),
                wrong=tuple(wrong),
                category="calendar",
                key=f"{days} {' '.join(sorted(shown))}",
            )
        )
    return found


def sum_question(rng: random.Random) -> Question:
    """A plain sum with four results to choose from."""
    drawn = numbers.plain_sum(rng)
    return Question(
        text=drawn.question,
        right=(str(drawn.answer),),
        wrong=tuple(numbers.sum_distractors(rng, drawn.answer, 8)),
        category="elementary_mathematics",
        key=drawn.question,
        taught=not is_untaught(drawn.key),
    )


def sum_statements() -> list[str]:
    """Every taught sum with its result."""
    return [f"{text} = {result}" for text, result, key in numbers.ALL_SUMS if not is_untaught(key)]


CALENDAR: tuple[str, ...] = (*time.MONTHS, *time.DAYS)


def far_values(question: Question) -> tuple[str, ...]:
    """Options that are wrong because they are no answer to a question of this kind at all."""
    if question.category in ("year", "century", "order"):
        return CALENDAR
    if question.category == "calendar":
        return tuple(event.name for event in time.EVENTS)
    near = {*question.right, *question.wrong}
    group = COMMONSENSE if any(relation.name == question.category for relation in COMMONSENSE) else SUBJECTS
    return tuple(
        value
        for relation in group
        if relation.name != question.category
        for value in sorted(set(relation.facts.values()) - near)
    )


def options_of(rng: random.Random, question: Question, count: int) -> list[str]:
    """The right options and wrong ones in a drawn order.

    Easy on purpose: most wrong options answer questions of another kind; in `NEAR_SHARE` of the questions one of them
    is of the right kind.
    """
    room = max(1, count - len(question.right))
    wrong = rng.sample(question.wrong, min(room, 1 if rng.random() < NEAR_SHARE else 0))
    wrong += rng.sample(far_values(question), room - len(wrong))
    if question.category == "order" and question.wrong[0] not in wrong:
        wrong[0] = question.wrong[0]
    return rng.sample([*question.right, *wrong], len(question.right) + len(wrong))
