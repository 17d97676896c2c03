"""The texts of few-shot examples that were rendered before: most samples of a suite share theirs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_llmeval.types import Message

__all__ = ["ExampleMemo", "RenderedExample"]

RenderedExample: TypeAlias = str | tuple[Message, Message]
"""An example as text, or as a turn of the user and one of the assistant."""


@dataclass(slots=True)
class ExampleMemo:
    """Rendered examples by their template and by the objects, not the values, that it was filled with: comparing those
    takes longer.

    Past ``max_characters`` everything is forgotten, so that a large data set whose every row becomes an example does
    not fill the memory.
    """

    max_characters: int = 32_000_000
    _num_characters: int = 0
    _known: dict[tuple[str, int, int], tuple[object, object, RenderedExample]] = field(default_factory=dict)

    def get(self, template: str, variables: object, answer: object) -> RenderedExample | None:
        """What was made of exactly these objects; None if it is not known."""
        found = self._known.get((template, id(variables), id(answer)))
        return found[2] if found is not None else None

    def keep(self, rendered: RenderedExample, template: str, variables: object, answer: object) -> None:
        """Remember it. The objects are kept too, so that no other object gets the ``id`` of one."""
        size = len(rendered) if isinstance(rendered, str) else sum(len(turn.content) for turn in rendered)
        if self._num_characters + size > self.max_characters:
            self._known.clear()
            self._num_characters = 0
        self._known[template, id(variables), id(answer)] = (variables, answer, rendered)
        self._num_characters += size
