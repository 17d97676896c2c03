"""``llmeval schema``: the JSON Schema of a suite file."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pytest_llmeval.commands.output import write_out

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("schema", help="print the JSON Schema of a suite file, for editors")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pytest_llmeval.suites.format.json_schema import json_schema

    write_out(json.dumps(json_schema(), indent=2) + "\n", is_json=True)
    return 0
