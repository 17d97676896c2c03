"""The ``llmeval`` command: what can be done without running a suite."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from pytest_llmeval.commands import export, gate, history, merge, plot, show, store, suites, view
from pytest_llmeval.commands.output import say
from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.text.escaping import printable

__all__ = ["COMMANDS", "main"]

COMMANDS = (show, view, plot, gate, history, merge, export, store, suites)
"""The modules that add sub-commands, in the order in which ``llmeval --help`` lists them."""

_DISTRIBUTION = "pytest-llmeval-suites"
_INTERRUPTED = 130
"""The exit code that shells give a process that Ctrl-C ended."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports a usage error in one line, like every other mistake."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    """The option ``--version``, which looks the version up when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        sys.stdout.write(f"llmeval {version(_DISTRIBUTION)} ({_DISTRIBUTION})\n")
        parser.exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0; 1 if it cannot be done or a gate failed; 2 for a usage error."""
    parser = _Parser(
        prog="llmeval",
        description="LLM benchmarks as pytest suites: work with reports, presets and the suite format.",
        epilog="Exit codes: 0; 1 if the command cannot be carried out or a gate failed; 2 for a usage error.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_parsers(commands)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:  # argparse would name the help of all commands
        commands.choices[options.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return int(options.run(options))
    except LLMEvalError as error:
        from pytest_llmeval.text.redaction import redact

        say(options.command, redact(str(error)))
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
