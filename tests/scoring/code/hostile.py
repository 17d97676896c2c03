"""Programs that want to be called right, and are not: none of them computes what the tests ask for.

They stand in text files beside this one, each below a line ``### what it tries``.
"""

from __future__ import annotations

from pathlib import Path

TESTS = """\
assert double(2) == 4
assert double("ab") == "abab"
assert double([1, 2]) == [1, 2, 1, 2]
assert double(-1.5) == -3.0
"""
RIGHT = "def double(x):\n    return x * 2\n"


def read(name: str) -> dict[str, str]:
    """Return the programs of a file by what they try."""
    _, *parts = Path(__file__).with_name(name).read_text(encoding="utf-8").split("### ")
    return {title: program for title, _, program in (part.partition("\n") for part in parts)}


HOSTILE = read("hostile.txt") | {
    "null bytes": "def double(x):\n    return None\n\x00",
    "deep brackets": f"x = {'(' * 5000}{')' * 5000}\n",
}
HARMFUL = read("harmful.txt")
"""Programs that only a sandbox keeps from harm, or that take the whole time."""
