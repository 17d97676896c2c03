"""The roles in which a scorer asks another model: a table with one entry for each.

Options, fixtures, header, report and kinds of models go by this table. It is imported by every pytest run that has the
plugin installed, so it imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["MODEL_FIXTURES", "ROLES", "Role", "RoleDefinition"]

Role: TypeAlias = Literal["judge", "embedder"]
"""The roles for which a scorer asks another model: a ``judge`` gives verdicts, an ``embedder`` embeddings of texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDefinition:
    """One role: it has an option ``--llm-NAME`` and a fixture ``llm_NAME``.

    ``task`` and ``asked_when`` complete the option's help: "The model that … if …". ``method`` is the method of the
    model that is asked. ``most`` is the number of models that a session may have; several are a panel. With
    ``has_json_replies`` its replies are JSON, and it is found out how a server can be held to that.
    """

    name: Role
    method: Literal["generate", "embed"]
    task: str
    asked_when: str
    most: int = 1
    has_json_replies: bool = False

    @property
    def fixture(self) -> str:
        """Return the name of the fixture that gives the model."""
        return f"llm_{self.name}"

    @property
    def with_article(self) -> str:
        """Return the name with its indefinite article: ``an embedder``."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"

    @property
    def help(self) -> str:
        """Return the option's help."""
        several = " Several form a panel." if self.most > 1 else ""
        return f"The model that {self.task} if {self.asked_when}; a SPEC as for --llm-model.{several}"


_TABLE = (
    RoleDefinition(
        name="judge",
        method="generate",
        task="gives verdicts on replies",
        asked_when="a suite's scorer asks a judge (aspects, rubric, equivalence, pairwise, rag)",
        most=16,
        has_json_replies=True,
    ),
    RoleDefinition(
        name="embedder",
        method="embed",
        task="gives the embeddings of texts",
        asked_when="a suite's scorer compares texts by their meaning (similarity, rag)",
    ),
)

ROLES: Mapping[Role, RoleDefinition] = {role.name: role for role in _TABLE}
"""The roles by name, in the order in which the header and reports list them."""

MODEL_FIXTURES = ("llm_model", *(role.fixture for role in _TABLE))
"""The fixtures that give a model."""
