"""What reads and compares LaTeX in a process of its own (see ``bounded_worker.py``), with Math-Verify alone.

Math-Verify and sympy compute with what a model wrote. No code of a reply is ever run; should a library come to evaluate
text, what it would do to files, processes and networks ends the process too.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

_MAX_SHOWN = 200

_FORBIDDEN = (
    *("os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv"),
    *("os.remove", "os.rename", "os.rmdir", "os.spawn", "os.startfile", "os.symlink", "os.system", "os.truncate"),
    *("shutil.", "socket.", "subprocess.", "pty.", "webbrowser.", "urllib.", "ftplib.", "smtplib."),
)
_EXIT_FORBIDDEN = 3


def services() -> dict[str, Callable[[str, str], dict[str, Any]]]:
    """The comparisons by name, each of a target and a reply."""
    comparisons = {name: _checked(compare) for name, compare in _comparisons().items()}
    forbid_side_effects()
    return comparisons


def _checked(compare: Callable[[str, str], dict[str, Any]]) -> Callable[[str, str], dict[str, Any]]:
    """The comparison, which raises for nothing that cannot be read."""
    broken = _problem(compare)

    def checked(target: str, reply: str) -> dict[str, Any]:
        if broken is not None:
            return {"problem": broken}
        try:
            return compare(target, reply)
        except (MemoryError, ImportError):
            raise
        except Exception as error:  # what cannot be read, or subtracted, is not equal
            return {"equal": False, "note": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}

    return checked


def _problem(compare: Callable[[str, str], dict[str, Any]]) -> str | None:
    """Why a comparison does not work with the libraries that are installed, which must not look like a wrong answer."""
    try:
        found = compare(r"\frac{1}{2}", "0.5")
        error = "" if found["equal"] else f" ({found})"
    except Exception as failure:
        error = f" ({type(failure).__name__}: {failure})"
    return f"with the libraries installed here 1/2 and 0.5 are not equal{error[:_MAX_SHOWN]}" if error else None


def forbid_side_effects() -> None:
    """From here on, writing a file, starting a process or opening a connection ends this process."""
    sys.dont_write_bytecode = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and (
            any(letter in str(arguments[1]) for letter in "wax+")
            if isinstance(arguments[1], str)
            else bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        )
        if writes or event.startswith(_FORBIDDEN):
            os._exit(_EXIT_FORBIDDEN)

    sys.addaudithook(hook)


def _comparisons() -> dict[str, Callable[[str, str], dict[str, Any]]]:
    """The comparisons by name, each of a target and a reply; the libraries are loaded here."""
    logging.disable(logging.CRITICAL)  # Math-Verify warns of the timers that are off, and of all that it cannot read
    # sympy can do without, and starts quicker: what it computes then depends on no other library that is installed.
    sys.modules.update(dict.fromkeys(("numpy", "scipy", "matplotlib")))  # type: ignore[arg-type]
    import sympy
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig
    from sympy.parsing.latex import _parse_latex_antlr as parser_of_sympy

    # It asks for version 4.11 of the ANTLR runtime by name; later ones up to 4.13 read the same tables (format 4).
    parser_of_sympy.version = lambda name: "4.11"
    parse_latex = parser_of_sympy.parse_latex

    box_first = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(latex: str) -> list[Any]:
        found: list[Any] = parse(f"\\boxed{{{latex}}}", box_first, extraction_mode="first_match", parsing_timeout=None)
        return found

    def math_verify(target: str, reply: str) -> dict[str, Any]:
        """Two expressions, by value."""
        expected, found = read(target), read(reply)
        equal = verify(expected, found, allow_set_relation_comp=True, timeout_seconds=None)
        return _verdict(equal, expected, found)

    def searched(target: str, reply: str) -> dict[str, Any]:
        """Two texts, searched by Math-Verify itself: lm-eval's minerva_math, metric math_verify."""
        expected, found = parse(target, parsing_timeout=None), parse(reply, parsing_timeout=None)
        return _verdict(verify(expected, found, timeout_seconds=None), expected, found)

    def minerva(target: str, reply: str) -> dict[str, Any]:
        """Two normalised answers whose difference sympy can simplify to 0: ``is_equiv`` of lm-eval's minerva_math."""
        expected, found = parse_latex(target), parse_latex(reply)
        return _verdict(bool(sympy.simplify(found - expected) == 0), [expected], [found])

    return {"math_verify": math_verify, "searched": searched, "minerva": minerva}


def _verdict(equal: bool, expected: list[Any], found: list[Any]) -> dict[str, Any]:
    verdict = {"equal": bool(equal), "target": _shown(expected), "reply": _shown(found)}
    unread = " and ".join(name for name in ("target", "reply") if verdict[name] is None)
    return verdict if equal or not unread else {**verdict, "note": f"no mathematics could be read in the {unread}"}


def _shown(parsed: list[Any]) -> str | None:
    """What was read, for the report; None where it is text alone."""
    if not parsed or isinstance(parsed[0], str):
        return None
    try:
        return str(parsed[0])[:_MAX_SHOWN]
    except Exception as error:  # a number of more digits than Python writes
        return f"({type(error).__name__})"
