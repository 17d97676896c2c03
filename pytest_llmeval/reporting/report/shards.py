"""Which parts of a run a report holds: what ``--llm-shard`` said, as it stands in the report's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.report import Report

__all__ = ["Shards", "joined_shards", "missing_problem", "shards_of", "without_missing"]

_SHARD = re.compile(r"(?P<number>[0-9]{1,9})/(?P<count>[0-9]{1,9})")
_MISSING = "the report lacks "


@dataclass(frozen=True, slots=True)
class Shards:
    """Parts ``numbers`` (from 1) of a run that was cut into ``count``."""

    numbers: frozenset[int]
    count: int

    @property
    def missing(self) -> tuple[int, ...]:
        """The parts that are not there, in order."""
        return tuple(number for number in range(1, self.count + 1) if number not in self.numbers)

    def texts(self) -> list[str]:
        """As the option is written, in order."""
        return [f"{number}/{self.count}" for number in sorted(self.numbers)]


def shards_of(name: str, report: Report) -> Shards | None:
    """The shards that the report holds, None where it is of no sharded run. Raises ``ReportError``, naming ``name``."""
    given = report.options.get("shard")
    if given is None:
        return None
    found = [_SHARD.fullmatch(str(text)) for text in (given if isinstance(given, list | tuple) else [given])]
    numbers = {int(one["number"]) for one in found if one is not None}
    counts = {int(one["count"]) for one in found if one is not None}
    if None in found or len(counts) != 1 or not numbers or min(numbers) < 1 or max(numbers) > min(counts):
        raise ReportError(f"{name}: option 'shard' is {given!r}; expected a shard such as '2/5'")
    return Shards(frozenset(numbers), counts.pop())


def joined_shards(parts: Sequence[tuple[str, Report]]) -> Shards | None:
    """The shards of all parts together, None where none is a shard.

    Raises ``ReportError`` for shards of differently cut runs, and for one shard given twice.
    """
    found = [(name, shards) for name, shards in ((name, shards_of(name, report)) for name, report in parts) if shards]
    owners: dict[int, str] = {}
    for name, shards in found:
        first_name, first = found[0]
        if shards.count != first.count:
            raise ReportError(
                f"{first_name} is shard {', '.join(first.texts())} and {name} is {', '.join(shards.texts())}: "
                "they are shards of different runs"
            )
        for number in sorted(shards.numbers):
            if number in owners:
                raise ReportError(f"{owners[number]} and {name} are both shard {number}/{shards.count}: give one")
            owners[number] = name
    return Shards(frozenset(owners), found[0][1].count) if found else None


def missing_problem(shards: Shards) -> str:
    """The problem that a report has which lacks some shards."""
    texts = [f"{number}/{shards.count}" for number in shards.missing]
    return f"{_MISSING}shard{'' if len(texts) == 1 else 's'} {', '.join(texts)}"


def without_missing(problems: Iterable[str]) -> list[str]:
    """The problems without ``missing_problem``'s: a report made of others says for itself what it lacks."""
    return [problem for problem in problems if not problem.startswith(_MISSING)]
