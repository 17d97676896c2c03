"""The demo model's reading matter: documents in many formats, drawn from the training side of the world.

No document holds a question of a suite (`split.is_test` keeps them apart, `write_suites.held_out_lines` checks it), and
facts that `split.is_untaught` names occur nowhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from . import facts_everyday, world
from .facts_time import FRAMES
from .numbers import word_problem
from .reading import reading
from .split import is_test
from .world import Question

LETTERS = "ABCDE"
# How often each kind of document is drawn.
MIXTURE: dict[str, float] = {
    "statements": 0.03,
    "answers": 0.2,
    "lettered_request": 0.2,
    "lettered_shots": 0.33,
    "reading": 0.14,
    "word_problem": 0.1,
}
LETTER_REQUEST = "Respond only with the letter of the correct answer:"
LINE_PREFIXES: tuple[str, ...] = ("Question: ", "QUESTION: ", "Passage: ")


@dataclass(slots=True)
class Document:
    """A text and the spans of it, [start, end) in characters, that are answers and count most in training."""

    text: str = ""
    answers: list[tuple[int, int]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Appends what is given to the model."""
        self.text += text

    def answer(self, text: str) -> None:
        """Appends what the model should say, with the space before it."""
        start = len(self.text)
        self.text += text
        self.answers.append((start, len(self.text)))


def _taught(questions: list[Question]) -> list[Question]:
    return [question for question in questions if question.taught and not question.for_test]


class Corpus:
    """Draws documents; the same seed gives the same documents."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed} corpus")
        self.marked = 0.0  # how many of the lettered lists say behind each option whether it is right
        by_kind = [world.fact_questions([relation]) for relation in (*world.COMMONSENSE, *world.SUBJECTS)]
        dated = [world.year_questions(), world.century_questions(), world.order_questions(), world.calendar_questions()]
        months = world.month_length_questions(random.Random(f"{seed} months"), 3000)
        self.facts = [_taught(questions) for questions in by_kind]
        self.dated = [_taught(questions) for questions in (*dated, months)]
        relations = (*world.COMMONSENSE, *world.SUBJECTS)
        self.statements = [world.statements([relation]) for relation in relations] + [world.event_statements()]
        self.statements.append(world.sum_statements())
        values = {value for relation in relations for value in relation.facts.values()}
        self.writers: dict[str, Callable[[], Document]] = {
            "statements": self._statements,
            "answers": self._answers,
            "lettered_request": self._lettered_request,
            "lettered_shots": self._lettered_shots,
            "reading": self._reading,
            "word_problem": self._word_problem,
        }
        dates = {answer for questions in self.dated for question in questions for answer in question.right}
        self.words = sorted(values | dates | set(facts_everyday.PLACES) | set(facts_everyday.USES))

    def document(self, progress: float) -> Document:
        """One document, of a kind drawn as `MIXTURE` says; `progress` goes from 0 to 1.

        In the first third some lettered lists say behind each option whether it is right.
        """
        self.marked = max(0.0, 0.5 - 1.5 * progress)
        (kind,) = self.rng.choices(list(MIXTURE), list(MIXTURE.values()))
        return self.writers[kind]()

    def _question(self) -> Question:
        """Any question with options: facts, dates or a sum."""
        kind = self.rng.random()
        if kind < 0.15:
            while True:
                question = world.sum_question(self.rng)
                if question.taught and not question.for_test:
                    return question
        return self.rng.choice(self.rng.choice(self.facts if kind < 0.68 else self.dated))

    def _options(self, question: Question) -> tuple[list[str], list[str]]:
        """Options in a drawn order, and the right ones among them; a right one may be any of several."""
        options = world.options_of(self.rng, question, self.rng.choice((3, 4, 4, 4, 5)))
        return options, [option for option in options if option in question.right]

    def _statements(self) -> Document:
        doc = Document()
        for number in range(6):
            line = self.rng.choice(self.rng.choice(self.statements))
            cut = line.rindex(" ")
            doc.add(("\n" if number else "") + line[:cut])
            doc.answer(line[cut:])
        return doc

    def _frame(self, doc: Document) -> None:
        if self.rng.random() < 0.6:
            doc.add(self.rng.choice(FRAMES) + "\n")

    def _answers(self) -> Document:
        """One to four questions with their answers in words."""
        doc = Document()
        capitals = self.rng.random() < 0.4
        if capitals:
            self._frame(doc)
        elif self.rng.random() < 0.15:
            doc.add("Answer every question in one or two words.\n\n")
        for number in range(self.rng.choice((1, 3, 5))):
            question = self.rng.choice(self.rng.choice(self.dated)) if capitals else self._question()
            head, tail = ("QUESTION: ", "\nANSWER:") if capitals else ("Question: ", "\nAnswer:")
            doc.add(("\n\n" if number else "") + head + question.text + tail)
            doc.answer(" " + self.rng.choice(question.right))
        return doc

    def _listed(self, doc: Document, question: Question) -> str:
        """Writes the lettered options and gives the letter of a right one."""
        options, right = self._options(question)
        self._write_options(doc, options, right)
        return LETTERS[options.index(self.rng.choice(right))]

    def _write_options(self, doc: Document, options: list[str], right: list[str]) -> None:
        """Writes a lettered list; a marked one says yes or no behind each option."""
        marked = self.rng.random() < self.marked
        for place, option in enumerate(options):
            doc.add(("\n" if place else "") + f"{LETTERS[place]}. {option}")
            if marked:
                doc.answer(" yes" if option in right else " no")

    def _lettered_request(self) -> Document:
        """A question, lettered options and the request for a letter."""
        doc = Document()
        question = self._question()
        if self.rng.random() < 0.5:
            self._frame(doc)
            doc.add("QUESTION: ")
        doc.add(question.text + "\n\n")
        letter = self._listed(doc, question)
        doc.add("\n\n" + LETTER_REQUEST)
        doc.answer(" " + letter)
        return doc

    def _lettered_shots(self) -> Document:
        """One to four lettered questions, each with its letter."""
        doc = Document()
        for number in range(self.rng.choice((2, 4, 4))):
            question = self._question()
            doc.add(("\n\n" if number else "") + f"Question: {question.text}\n")
            letter = self._listed(doc, question)
            doc.add("\nAnswer:")
            doc.answer(" " + letter)
        return doc

    def _reading(self) -> Document:
        """One to three passages with one or two questions each."""
        doc = Document()
        for number in range(self.rng.choice((1, 2, 3))):
            drawn = reading(self.rng)
            while is_test(drawn[0].passage):
                drawn = reading(self.rng)
            doc.add(("\n\n" if number else "") + f"Passage: {drawn[0].passage}")
            for one in drawn:
                doc.add(f"\nQuestion: {one.question}\nAnswer:")
                doc.answer(" yes" if one.answer else " no")
        return doc

    def _word_problem(self) -> Document:
        """Up to three word problems with their solutions."""
        doc = Document()
        for number in range(self.rng.choice((1, 2, 3))):
            problem = word_problem(self.rng)
            while is_test(problem.key):
                problem = word_problem(self.rng)
            doc.add(("\n\n" if number else "") + f"Question: {problem.question}\nAnswer:")
            doc.answer(" " + problem.solution)
        return doc
