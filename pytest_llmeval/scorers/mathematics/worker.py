"""Reads and compares LaTeX in a process of its own (see ``bounded_worker.py``), with Math-Verify alone.

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
_ROUNDED = 1e-6
"""The largest distance of a decimal from an irrational number that it rounds, as a part of it."""
_SAME = 1e-30
"""The largest distance of two numbers with roots and powers that are equal when they are computed."""
_DIGITS = 50

_FORBIDDEN = (
    *("os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv"),
    *("os.remove", "os.rename", "os.rmdir", "os.spawn", "os.startfile", "os.symlink", "os.system", "os.truncate"),
    *("shutil.", "socket.", "subprocess.", "pty.", "webbrowser.", "urllib.", "ftplib.", "smtplib."),
)

_EXIT_FORBIDDEN = 3


def services() -> dict[str, Callable[..., dict[str, Any]]]:
    """Return the comparisons by name, each of a target and a reply; ``math_verify`` takes ``rel_tol`` too."""
    comparisons = {name: _checked(compare) for name, compare in _comparisons().items()}
    forbid_side_effects()
    return comparisons


def _checked(compare: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return the comparison as one that raises for nothing that cannot be read."""
    broken = _problem(compare)

    def checked(target: str, reply: str, **settings: Any) -> dict[str, Any]:
        if broken is not None:
            return {"problem": broken}
        try:
            return compare(target, reply, **settings)
        except (MemoryError, ImportError):
            raise
        except Exception as error:  # what cannot be read, or subtracted, is not equal
            return {"equal": False, "note": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}

    return checked


def _problem(compare: Callable[..., dict[str, Any]]) -> str | None:
    """Return why a comparison does not work with the libraries that are installed, which must not look like a wrong
    answer.
    """
    try:
        found = compare(r"\frac{1}{2}", "0.5")
        error = "" if found["equal"] else f" ({found})"
    except Exception as failure:
        error = f" ({type(failure).__name__}: {failure})"
    return f"with the libraries installed here 1/2 and 0.5 are not equal{error[:_MAX_SHOWN]}" if error else None


def forbid_side_effects() -> None:
    """End this process if it writes a file, starts a process or opens a connection from here on."""
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


def _comparisons() -> dict[str, Callable[..., dict[str, Any]]]:
    """Return the comparisons by name, each of a target and a reply; the libraries are loaded here."""
    logging.disable(logging.CRITICAL)  # Math-Verify warns of the timers that are off, and of all that it cannot read
    # sympy can do without, and starts quicker: what it computes then depends on no other library that is installed.
    sys.modules.update(dict.fromkeys(("numpy", "scipy", "matplotlib")))  # type: ignore[arg-type]
    import sympy
    from math_verify import grader, parse, verify
    from math_verify.parser import LatexExtractionConfig, NormalizationConfig
    from sympy.parsing.latex import _parse_latex_antlr as parser_of_sympy

    # It asks for version 4.11 of the ANTLR runtime by name; later ones up to 4.13 read the same tables (format 4).
    parser_of_sympy.version = lambda name: "4.11"
    parse_latex = parser_of_sympy.parse_latex

    # Units were taken off before: what is left at the end of "2t" and "3h" are variables.
    as_it_is = NormalizationConfig(units=False, malformed_operators=True, nits=True)
    box_first = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=as_it_is)]
    by_rounding, by_symbols = grader.sympy_numeric_eq, grader.sympy_symbolic_eq

    def read(latex: str) -> list[Any]:
        found: list[Any] = parse(f"\\boxed{{{latex}}}", box_first, extraction_mode="first_match", parsing_timeout=None)
        return found

    def math_verify(target: str, reply: str, rel_tol: float | None = None) -> dict[str, Any]:
        """Compare two expressions by value. Numbers are not rounded to six decimals, as Math-Verify does."""
        expected, found = read(target), read(reply)
        grader.sympy_numeric_eq = lambda one, other, *_: _equal_numbers(one, other, rel_tol)
        grader.sympy_symbolic_eq = lambda one, other: by_symbols(_exact(one), _exact(other))
        try:
            equal = verify(expected, found, allow_set_relation_comp=True, timeout_seconds=None)
        finally:
            grader.sympy_numeric_eq, grader.sympy_symbolic_eq = by_rounding, by_symbols
        return _verdict(equal, expected, found)

    def searched(target: str, reply: str) -> dict[str, Any]:
        """Compare two texts that Math-Verify searches itself: lm-eval's minerva_math, metric math_verify."""
        expected, found = parse(target, parsing_timeout=None), parse(reply, parsing_timeout=None)
        return _verdict(verify(expected, found, timeout_seconds=None), expected, found)

    def minerva(target: str, reply: str) -> dict[str, Any]:
        """Return whether sympy can simplify the difference of two normalised answers to 0: ``is_equiv`` of lm-eval's
        minerva_math.
        """
        expected, found = parse_latex(target), parse_latex(reply)
        return _verdict(bool(sympy.simplify(found - expected) == 0), [expected], [found])

    return {"math_verify": math_verify, "searched": searched, "minerva": minerva}


def _equal_numbers(one: Any, other: Any, rel_tol: float | None) -> bool:
    """Return whether two expressions of sympy are equal as numbers; False also for those that only algebra can compare.

    Rational numbers are compared exactly. No decimal is equal to an irrational number: there, one that differs by at
    most a millionth of it is taken for its rounding. ``rel_tol`` is allowed instead of either.
    """
    import sympy

    try:
        if isinstance(one, sympy.MatrixBase) and isinstance(other, sympy.MatrixBase):
            pairs = zip(one.doit().flat(), other.doit().flat(), strict=True)
            return one.shape == other.shape and all(_equal_numbers(each, its, rel_tol) for each, its in pairs)
        if _percentages(one) != _percentages(other) and _equal_numbers(_plain(one), _plain(other), rel_tol):
            return True
        one, other = _exact(one.doit()), _exact(other.doit())
        if one == other:
            return True
        if not (one.is_number and other.is_number and one.is_finite and other.is_finite):
            return False
        are_rational = [_is_rational(each) for each in (one, other)]
        if all(are_rational) and rel_tol is None:
            return False
        allowed = (_ROUNDED if any(are_rational) else _SAME) if rel_tol is None else rel_tol
        values = [each.evalf(_DIGITS) for each in (one, other)]
        return bool(abs(values[0] - values[1]) <= allowed * max(map(abs, values)))
    except (AttributeError, TypeError, ValueError):  # what has no value, or none that can be compared
        return False


def _percentages(number: Any) -> int:
    """Return how often a number is multiplied by Math-Verify's sign of a percentage."""
    from sympy import Rational, UnevaluatedExpr

    return number.args.count(UnevaluatedExpr(Rational(1, 100))) if number.is_Mul else 0


def _plain(number: Any) -> Any:
    """Return the 35 of 35%."""
    from sympy import Integer, Rational, UnevaluatedExpr

    return number.xreplace({UnevaluatedExpr(Rational(1, 100)): Integer(1)})


def _exact(expression: Any) -> Any:
    """Return the expression with fractions for its decimals, which sympy reads as floating-point numbers."""
    from sympy import Float, Rational

    return expression.xreplace({number: Rational(str(number)) for number in expression.atoms(Float)})


def _is_rational(number: Any) -> bool:
    return all(part.is_Rational for part in number.as_real_imag())


def _verdict(equal: bool, expected: list[Any], found: list[Any]) -> dict[str, Any]:
    verdict = {"equal": bool(equal), "target": _shown(expected), "reply": _shown(found)}
    unread = " and ".join(name for name in ("target", "reply") if verdict[name] is None)
    return verdict if equal or not unread else {**verdict, "note": f"no mathematics could be read in the {unread}"}


def _shown(parsed: list[Any]) -> str | None:
    """Return what was read, for the report; None where it is text alone."""
    if not parsed or isinstance(parsed[0], str):
        return None
    try:
        return str(parsed[0])[:_MAX_SHOWN]
    except Exception as error:  # a number of more digits than Python writes
        return f"({type(error).__name__})"
