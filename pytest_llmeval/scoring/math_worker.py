"""The program that reads and compares LaTeX, run as a process of its own by ``math_process.py``.

It is a file to run, not a module to import, and needs the standard library and Math-Verify alone. It reads one JSON
document per line from its standard input (first the caller's ``sys.path``, then comparisons) and writes one per line to
its standard output. It ends when its input does, so that it cannot outlive whoever started it.

Math-Verify and sympy compute with what a model wrote. The processor time and the memory of each comparison are bounded
by the system, which ends this process, and not by a timer inside it, which would wait for the one long computation. No
code of a reply is ever run; should a library come to evaluate text, what it would do to files, processes and networks
ends the process too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_MAX_SHOWN = 200
_MIB = 2**20

_FORBIDDEN = (
    *("os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv"),
    *("os.remove", "os.rename", "os.rmdir", "os.spawn", "os.startfile", "os.symlink", "os.system", "os.truncate"),
    *("shutil.", "socket.", "subprocess.", "pty.", "webbrowser.", "urllib.", "ftplib.", "smtplib."),
)
_EXIT_FORBIDDEN = 3


def main() -> None:
    """Serve comparisons until standard input ends."""
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which then closes our input
    channel = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(2, 1)  # what a library prints must not be taken for a reply
    known = set(sys.path)
    sys.path += [path for path in json.loads(sys.stdin.readline()) if path not in known]
    try:
        comparisons = _comparisons()
        broken = {name: problem for name, compare in comparisons.items() if (problem := _problem(compare)) is not None}
    except Exception as error:
        print(json.dumps({"problem": f"{type(error).__name__}: {error}"}), file=channel)
        return
    forbid_side_effects()
    print(json.dumps({}), file=channel)
    for line in sys.stdin:
        request = json.loads(line)
        problem = broken.get(request["compare"])
        answer = {"problem": problem} if problem is not None else _answer(comparisons, request)
        print(json.dumps(answer), file=channel)


def _problem(compare: Callable[[str, str], dict[str, Any]]) -> str | None:
    """Why a comparison does not work with the libraries that are installed, which must not look like a wrong answer."""
    try:
        found = compare(r"\frac{1}{2}", "0.5")
        error = "" if found["equal"] else f" ({found})"
    except Exception as failure:
        error = f" ({type(failure).__name__}: {failure})"
    return f"with the libraries installed here 1/2 and 0.5 are not equal{error[:_MAX_SHOWN]}" if error else None


def _answer(comparisons: dict[str, Callable[[str, str], dict[str, Any]]], request: dict[str, Any]) -> dict[str, Any]:
    _bound_memory(request["memory_mb"])
    _bound_processor_time(request["timeout_s"])
    try:
        return comparisons[request["compare"]](request["target"], request["reply"])
    except MemoryError:
        return {"problem": "memory"}
    except ImportError as error:
        return {"problem": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}
    except Exception as error:  # what cannot be read, or subtracted, is not equal
        return {"equal": False, "note": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}
    finally:
        _bound_processor_time(0.0)


def _bound_processor_time(seconds: float) -> None:
    """The system ends this process once it has used so much more processor time; 0 is no bound."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _bound_memory(megabytes: int) -> None:
    """Let the process grow by so many MiB, where the system says how large it is and keeps to such a bound (Linux)."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * _MIB, most))
    except (ImportError, OSError, ValueError):
        return  # the bound on time is left


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


if __name__ == "__main__":
    main()
