"""Checks that training text and suites share no question: `python -m example_suites._make.apart`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from .corpus import LINE_PREFIXES, Corpus, Document
from .write_suites import SEED, held_out_lines

NUM_DOCUMENTS = 100_000


def overlaps(text: str, forbidden: frozenset[str], prefixes: Sequence[str] = LINE_PREFIXES) -> list[str]:
    """The forbidden lines that occur in a training text, with or without one of the formats' prefixes before them."""
    found = []
    for line in text.split("\n"):
        bare = next((line[len(prefix) :] for prefix in prefixes if line.startswith(prefix)), line)
        if line in forbidden or bare in forbidden:
            found.append(line)
    return found


def check(documents: Iterable[Document], forbidden: frozenset[str]) -> None:
    """Raises a ValueError that names the first question of a suite found in a training document.

    A suite's prompt contains its question (for reading questions, its passage) on a line of its own, so that a text
    without these lines contains none of the prompts either.
    """
    for document in documents:
        if found := overlaps(document.text, forbidden):
            raise ValueError(f"a question of a suite occurs in the training text: {found[0]!r}")


def main(num_documents: int = NUM_DOCUMENTS) -> None:
    """Draws documents as training does, from its beginning to its end, and checks each of them."""
    corpus = Corpus(SEED)
    check((corpus.document(number / num_documents) for number in range(num_documents)), held_out_lines())
    sys.stdout.write(f"no question of a suite in {num_documents} documents\n")


if __name__ == "__main__":
    main()
