"""``llmeval store``: the replies that ``--llm-store`` has kept."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.commands.output import counted, say, write_out
from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.wording import WrittenAmount, parse_age, parse_size, size_text

if TYPE_CHECKING:
    from pytest_llmeval.inference.store import StoreEntry, Survey

__all__ = ["add_parsers"]

_ACTIONS = {
    "show": "print how many replies there are of each model, how large they are, and how old",
    "verify": "check each line; exit code 1 if one is damaged",
    "compact": "write one file, without damaged lines and replies that were replaced by newer ones",
    "clear": "remove replies by age, size or model",
}


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "store",
        help="show, check or clear the replies that --llm-store has kept",
        description="Show what a store of replies holds, verify each line, compact it (keep only the newest reply to "
        "each request) or clear replies by age, size or model. A store holds prompts and replies, whatever "
        "--llm-report-prompts says. Files that a session is writing to stay as they are.",
        epilog="Exit codes: 0; 1 if a line is damaged (verify), or if the action is not possible; 2 for a usage error.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, words in _ACTIONS.items():
        action = actions.add_parser(name, help=words, description=f"{words[:1].upper()}{words[1:]}.")
        action.add_argument(
            "folder", type=Path, nargs="?", default=Path(".llmeval"), help="the store; default: .llmeval"
        )
        if name == "clear":
            _add_filters(action)
        action.set_defaults(run=_store, refuse=action.error)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the filters. Given together, they choose replies of the model that are too old or beyond the size."""
    parser.add_argument(
        "--older-than", metavar="AGE", type=_typed(parse_age), help="clear replies that are older: 30d, 12h"
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        type=_typed(parse_size),
        help="clear the oldest until the rest is no larger: 500MB",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="clear replies of this model only, by its name in llmeval store show"
    )
    parser.add_argument("--all", action="store_true", help="clear all replies")


def _typed(parse: Callable[[str], WrittenAmount]) -> Callable[[str], WrittenAmount]:
    def typed(text: str) -> WrittenAmount:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, found {text!r}") from None

    return typed


def _store(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    _check_is_store(folder)
    match options.action:
        case "show":
            return _show(folder)
        case "verify":
            return _verify(folder)
        case "compact":
            return _clear(folder, lambda found: set())
    filters = options.older_than is not None or options.max_size is not None or options.model is not None
    if filters == options.all:
        options.refuse(
            "--all clears everything: it cannot be given with --older-than, --max-size or --model"
            if filters
            else "give --older-than, --max-size, --model or --all"
        )
    return _clear(folder, lambda found: _chosen(found, options))


def _check_is_store(folder: Path) -> None:
    from pytest_llmeval.inference.store import other_file

    if not os.path.isdir(folder):  # False, too, for a name that no file can have
        is_file = os.path.exists(folder)
        raise LLMEvalError(f"{folder}: it is a file, expected a folder" if is_file else f"there is no store {folder}")
    try:
        found = other_file(folder)
    except OSError as error:
        raise LLMEvalError(f"{folder}: cannot be read: {error.strerror or error}") from None
    if found is not None:
        raise LLMEvalError(f"{folder}: it is not a store of replies (it holds {found})")


def _show(folder: Path) -> int:
    from pytest_llmeval.inference.store import survey

    found = survey(folder)
    write_out(f"{printable(line)}\n" for line in _shown(folder, found))
    return 0


def _shown(folder: Path, found: Survey) -> Iterator[str]:
    from pytest_llmeval.inference.store import rights_of_others

    yield f"{folder}: {counted(len(found.entries), 'reply', 'replies')}, {_size(found)}"
    by_model: dict[str, list[StoreEntry]] = {}
    for entry in found.entries:
        by_model.setdefault(entry.name, []).append(entry)
    for name, own in sorted(by_model.items()):
        size = size_text(sum(entry.size for entry in own))
        times = [entry.time for entry in own]
        dates = " to ".join(dict.fromkeys((_date(min(times)), _date(max(times)))))
        yield f"  {name}: {len(own):,}, {size}, asked {dates} UTC"
    if found.num_replaced:
        were = "was" if found.num_replaced == 1 else "were"
        yield f"{found.num_replaced:,} more {were} replaced by newer ones: llmeval store compact removes them"
    if found.num_damaged:
        yield f"{counted(found.num_damaged, 'damaged line')}: llmeval store verify names them, compact removes them"
    if found.num_torn:
        yield f"{counted(found.num_torn, 'file')} with an unfinished end, as a killed process leaves it"
    if (rights := rights_of_others(folder)) is not None:
        yield rights
    yield "it holds prompts and replies, whatever --llm-report-prompts says"


def _size(found: Survey) -> str:
    return f"{size_text(sum(found.sizes.values()))} in {counted(len(found.sizes), 'file')}"


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(" ", timespec="minutes").removesuffix("+00:00")


def _verify(folder: Path) -> int:
    from pytest_llmeval.inference.store import damages, survey

    found = list(damages(folder))
    for damage in found:
        say("store", damage)
    whole = survey(folder)
    torn = f", {counted(whole.num_torn, 'unfinished end')}" if whole.num_torn else ""
    damaged = f"{counted(len(found), 'damaged line')}{torn}"
    write_out(f"{folder}: {counted(len(whole.entries), 'reply', 'replies')}, {damaged}\n")
    return 1 if found else 0


def _clear(folder: Path, choose: Callable[[Survey], set[StoreEntry]]) -> int:
    from pytest_llmeval.inference.store import clear, survey

    done = clear(folder, choose)
    left = survey(folder)
    removed = [f"{counted(len(done.gone), 'reply', 'replies')} cleared"]
    if done.found.num_replaced > left.num_replaced:
        removed.append(f"{done.found.num_replaced - left.num_replaced:,} that were replaced by newer ones removed")
    if done.found.num_damaged > left.num_damaged:
        removed.append(f"{counted(done.found.num_damaged - left.num_damaged, 'damaged line')} removed")
    text = f"{', '.join(removed)}, {len(left.entries):,} left; {_size(done.found)} -> {_size(left)}"
    write_out(f"{printable(str(folder))}: {text}\n")
    if done.num_grown:
        say("store", f"{counted(done.num_grown, 'file')} stayed, as a session is writing to it: run this again later")
    return 0


def _chosen(found: Survey, options: argparse.Namespace) -> set[StoreEntry]:
    """Return what ``clear`` is to remove: all replies of a model, or the oldest of them."""
    candidates = [entry for entry in found.entries if options.model in (None, entry.name)]
    if not candidates and options.model is not None:
        names = ", ".join(sorted({entry.name for entry in found.entries})) or "none"
        raise LLMEvalError(f"the store has no replies of {options.model!r}; its models: {names}")
    if options.older_than is None and options.max_size is None:
        return set(candidates)
    gone: set[StoreEntry] = set()
    if options.older_than is not None:
        latest = datetime.now(UTC).timestamp() - options.older_than.value
        gone.update(entry for entry in candidates if entry.time < latest)
    if options.max_size is not None:
        size = sum(entry.size for entry in found.entries) - sum(entry.size for entry in gone)
        for entry in sorted(candidates, key=lambda one: one.time):
            if size > options.max_size.value and entry not in gone:
                gone.add(entry)
                size -= entry.size
    return gone
