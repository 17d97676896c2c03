"""Compares every preset with what it follows, and writes the table of docs/benchmarks.md.

    python -m tests.tools.benchmarks

The comparisons are those of the tests (``tests/presets/comparisons.py`` says how a preset is added). What needs files
that are not part of the repository is recorded in the preset's ``checked``, after "recorded"; where the files are, it
is compared anew, and the command fails if something else is recorded. ``tests/presets/test_benchmarks_page.py`` holds
the page to it.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from pytest_llmeval.suites.presets import Preset, all_presets
from tests.presets.comparisons import CASES, CHATS, DATA, PUBLISHED, compared_together, is_known_to_differ
from tests.presets.other_checks import CHECKS, UNCHECKED
from tests.support import REPOSITORY
from tests.tools.other_tools import with_tables
from tests.tools.reference import cell, table_of

__all__ = ["COMMAND", "PATH", "page", "problems"]

PATH = REPOSITORY / "docs" / "benchmarks.md"
COMMAND = "python -m tests.tools.benchmarks"
_MANY = 8
"""A family with more presets has one row together."""


def page() -> str:
    """Compare all presets, and return the page with their table."""
    head = ("preset", "what it is", "questions", "number", "checked")
    table = "\n".join(table_of(head, map(_row, _rows()))).strip()
    return with_tables(PATH.read_text(encoding="utf-8"), {"presets": table})


def problems() -> Iterator[str]:
    """Yield a line for each preset that is not equal to what it follows, or that has recorded something else."""
    for presets in _rows():
        names = [preset.name for preset in presets]
        found = compared_together(
            case for case in (*CASES, *CHATS) if case.preset in names and not is_known_to_differ(case)
        )
        differences = list(found[0].differences)
        if presets[0].name in CHECKS:
            differences += CHECKS[presets[0].name].run().differences
        yield from (f"{names[0]}: {difference}" for difference in differences)
        published = [case for case in PUBLISHED if case.preset in names]
        if published and DATA.is_dir():
            line = str(compared_together(published)[0])
            if not _further(presets).endswith(line):
                yield f"{names[0]}: its `checked` should end in '; recorded <date> on <file>: {line}'"


def _rows() -> list[list[Preset]]:
    found: list[list[Preset]] = []
    for _, members in itertools.groupby(all_presets(), key=lambda preset: preset.family):
        presets = list(members)
        found += [presets] if len(presets) > _MANY else [[preset] for preset in presets]
    return found


def _row(presets: Sequence[Preset]) -> tuple[str, ...]:
    first = presets[0]
    name = f"`{first.name}`" if len(presets) == 1 else f"`{first.family}-…` ({len(presets)} tasks)"
    counts = [preset.questions for preset in presets if preset.questions is not None]
    questions = f"{sum(counts):,}" if counts else "your own"
    return name, cell(first.description), questions, cell(first.formula), cell(_checked(presets))


def _checked(presets: Sequence[Preset]) -> str:
    """Return what the presets were compared with in this run, and what their ``checked`` says besides."""
    names, found = [preset.name for preset in presets], []
    if cases := [case for case in CASES if case.preset in names]:
        comparison, tasks = compared_together(cases)
        found.append(f"lm-eval {metadata.version('lm_eval')}, {_shown(tasks)}: {comparison}")
    if chats := [case for case in CHATS if case.preset in names and not is_known_to_differ(case)]:
        found.append(f"in a chat, {compared_together(chats)[0]}")
    if names[0] in CHECKS:
        found.append(f"{CHECKS[names[0]].what}: {CHECKS[names[0]].run()}")
    if not found:
        return presets[0].checked or UNCHECKED[names[0]]
    return "; ".join((*found, *filter(None, [_further(presets)])))


def _shown(tasks: Sequence[str]) -> str:
    if len(tasks) > _MANY:
        return f"`{tasks[0]}` and {len(tasks) - 1} more"
    return ", ".join(f"`{task}`" for task in tasks)


def _further(presets: Sequence[Preset]) -> str:
    """Return what ``checked`` says after its first part: what no comparison of this run finds."""
    return presets[0].checked.partition("; ")[2]


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    PATH.write_text(page(), encoding="utf-8")
    sys.exit("\n".join(problems()) or None)
