"""The options of ``llmeval gate`` and ``llmeval compare``: those of pytest's gates under their short names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import GateOptions

__all__ = [
    "add_baseline_options",
    "add_gate_option",
    "add_output_options",
    "gate_options",
    "parsed_by",
    "used_baseline_options",
]

_MODES = ("significant", "margin", "non-inferior")
_OF_BASELINE = ("max_drop", "gate_mode", "compare", "alpha")


class _Group(Protocol):
    """A parser of argparse, or a group of one."""

    def add_argument(self, *names: str, **settings: Any) -> Any: ...


def add_gate_option(group: _Group, name: str, *, pytests: str | None = None, **settings: Any) -> None:
    """An option under its own name and, unmentioned, under pytest's: ``--llm-max-drop`` can be copied from a CI job."""
    group.add_argument(name, **settings)
    settings["dest"] = name.removeprefix("--").replace("-", "_")
    group.add_argument(pytests or f"--llm-{name.removeprefix('--')}", **{**settings, "help": argparse.SUPPRESS})


def add_baseline_options(parser: argparse.ArgumentParser) -> None:
    """How a report is compared with a baseline; each None where it was not given."""
    group = parser.add_argument_group("comparison with the baseline")
    add_gate_option(
        group,
        "--max-drop",
        action="append",
        type=parsed_by("gates.options:Margin.parse"),
        metavar="METRIC=DROP",
        help="a drop that is allowed, in the metric's unit: 'accuracy=0.01', 'boolq: accuracy=0.02'; can be repeated",
    )
    add_gate_option(
        group,
        "--gate-mode",
        choices=_MODES,
        help="fail on a drop that is significant and beyond the margin (the default), on any beyond the margin, or "
        "unless the interval excludes one beyond the margin",
    )
    add_gate_option(
        group,
        "--compare",
        choices=("all", "common"),
        help="all (the default): the suites have to be the same; common: compare the samples that are the same in both",
    )
    add_gate_option(
        group,
        "--alpha",
        type=parsed_by("gates.options:parse_alpha"),
        metavar="P",
        help="how often a false alarm is tolerated, over all tests together; default 0.05",
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """What is tolerated and what is not, and where the results go."""
    add_gate_option(
        parser,
        "--require",
        pytests="--llm-require-gates",
        action="store_true",
        help="a gate that cannot be decided fails",
    )
    add_gate_option(
        parser,
        "--allow-unscored",
        type=_count,
        default=0,
        metavar="N",
        help="samples that may be unscored; default 0",
    )
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: text")
    parser.add_argument("-o", "--output", type=Path, help="a file for the results; without it, standard output")


def used_baseline_options(options: argparse.Namespace) -> Sequence[str]:
    """The options of ``add_baseline_options`` that were given, as they are written."""
    return [f"--{name.replace('_', '-')}" for name in _OF_BASELINE if getattr(options, name) is not None]


def gate_options(options: argparse.Namespace, *, compares: bool) -> GateOptions:
    """What all of these were given; ``compares`` with a baseline."""
    from pytest_llmeval.gates.options import BaselineSettings, GateOptions

    given: dict[str, Any] = {
        "margins": None if options.max_drop is None else tuple(options.max_drop),
        "mode": options.gate_mode,
        "compare": options.compare,
        "alpha": options.alpha,
    }
    return GateOptions(
        given=tuple((gate, "option") for gate in getattr(options, "gate", None) or ()),
        comparison=BaselineSettings(**{name: value for name, value in given.items() if value is not None})
        if compares
        else None,
        allow_unscored=options.allow_unscored,
        require=options.require,
    )


def parsed_by(name: str) -> Callable[[str], Any]:
    """For argparse, which shows the message of no other error: what ``module:function`` makes of an option's text.

    It is imported when the option is given.
    """

    def parsed(text: str) -> Any:
        try:
            return resolve_name(f"pytest_llmeval.{name}")(text)
        except ValueError as error:
            found = "" if str(error).startswith("found ") else f", found {text!r}"
            raise argparse.ArgumentTypeError(f"{error}{found}") from None

    return parsed


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"expected a whole number of 0 or more, found {text!r}")
    return int(text)
