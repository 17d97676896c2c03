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
EARLY = 0.25
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
        by_kind = [world.fact_questions([relation]) for relation in (*world.COMMONSENSE, *world.SUBJECTS)]
        dated = [world.year_questions(), world.century_questions(), world.order_questions(), world.calendar_questions()]
        months = world.month_length_questions(random.Random(f"{seed} months"), 3000)
        self.facts = [_taught(questions) for questions in by_kind]
        self.dated = [_taught(questions) for questions in (*dated, months)]
        relations = (*world.COMMONSENSE, *world.SUBJECTS)
        self.statements = [world.statements([relation]) for relation in relations] + [world.event_statements()]
        self.statements.append(world.sum_statements())
        values = {value for relation in relations for value in relation.facts.values()}
        self.words = sorted(values | set(facts_everyday.PLACES) | set(facts_everyday.USES))

    def document(self, progress: float) -> Document:
        """One document; at first (`progress` below EARLY) only what has its answer in the text."""
        if progress < EARLY:
            writers: list[tuple[float, Callable[[], Document]]] = [
                (0.50, self._list_drill),
                (0.15, self._copy_drill),
                (0.22, self._reading),
                (0.13, self._word_problem),
            ]
        else:
            writers = [
                (0.07, self._list_drill),
                (0.02, self._copy_drill),
                (0.06, self._statements),
                (0.18, self._answers),
                (0.22, self._lettered_request),
                (0.15, self._lettered_shots),
                (0.15, self._reading),
                (0.15, self._word_problem),
            ]
        weights = [weight for weight, _ in writers]
        (chosen,) = self.rng.choices([writer for _, writer in writers], weights)
        return chosen()

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
        options = world.options_of(self.rng, question, self.rng.choice((2, 3, 4, 4, 4, 5, 5)))
        if question.negation is not None and self.rng.random() < 0.1:
            options.insert(self.rng.randrange(len(options) + 1), question.negation)
        return options[: len(LETTERS)], [option for option in options[: len(LETTERS)] if option in question.right]

    def _statements(self) -> Document:
        doc = Document()
        for number in range(4):
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
        for number in range(1 if capitals else self.rng.choice((1, 1, 2, 3))):
            question = self.rng.choice(self.rng.choice(self.dated)) if capitals else self._question()
            head, tail = ("QUESTION: ", "\nANSWER:") if capitals else ("Question: ", "\nAnswer:")
            doc.add(("\n\n" if number else "") + head + question.text + tail)
            doc.answer(" " + self.rng.choice(question.right))
        return doc

    def _listed(self, doc: Document, question: Question) -> str:
        """Writes the lettered options and gives the letter of a right one."""
        options, right = self._options(question)
        doc.add("\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)))
        return LETTERS[options.index(self.rng.choice(right))] if right else LETTERS[0]

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
        for number in range(self.rng.choice((1, 2, 3, 4))):
            question = self._question()
            doc.add(("\n\n" if number else "") + f"Question: {question.text}\n")
            letter = self._listed(doc, question)
            doc.add("\nAnswer:")
            doc.answer(" " + letter)
        return doc

    def _list_drill(self) -> Document:
        """A lettered list and several questions about what stands where in it."""
        doc = Document()
        options = self.rng.sample(self.words, self.rng.choice((2, 3, 4, 5)))
        doc.add("\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)) + "\n")
        for _ in range(self.rng.choice((4, 6, 8))):
            place = self.rng.randrange(len(options))
            if self.rng.random() < 0.75:
                doc.add(f"\nWhich letter is {options[place]}?")
                doc.answer(f" {LETTERS[place]}")
            else:
                doc.add(f"\nWhat is {LETTERS[place]}?")
                doc.answer(f" {options[place]}")
        return doc

    def _copy_drill(self) -> Document:
        """A few words and numbers, and the same again."""
        doc = Document()
        parts = [
            str(self.rng.randint(1, 99)) if self.rng.random() < 0.5 else self.rng.choice(self.words)
            for _ in range(self.rng.randint(3, 8))
        ]
        doc.add("Say again: " + ", ".join(parts) + "\nAnswer:")
        doc.answer(" " + ", ".join(parts))
        return doc

    def _reading(self) -> Document:
        """A passage with one to four questions."""
        drawn = reading(self.rng)
        while is_test(drawn[0].passage):
            drawn = reading(self.rng)
        doc = Document()
        doc.add(f"Passage: {drawn[0].passage}")
        for one in drawn[: self.rng.choice((1, 2, 3, 4))]:
            doc.add(f"\nQuestion: {one.question}\nAnswer:")
            doc.answer(" yes" if one.answer else " no")
        return doc

    def _word_problem(self) -> Document:
        problem = word_problem(self.rng)
        while is_test(problem.key):
            problem = word_problem(self.rng)
        doc = Document()
        doc.add(f"Question: {problem.question}\nAnswer:")
        doc.answer(" " + problem.solution)
        return doc
