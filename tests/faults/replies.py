"""Replies that models should not write: drawn by a seed, for a scorer with its own weak spots."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.faults.judges import Judge

__all__ = ["KINDS", "MARKER", "draw_kind", "draw_loglikelihoods", "draw_reply"]

MARKER = "smuggled-in"
"""Stands in what tries to be a command: it must not come out as one."""

_NESTED = 100_000


def _size(rng: random.Random) -> int:
    return rng.choices((10_000, 100_000, 1_000_000, 3_000_000), (40, 40, 17, 3))[0]


def _repeated(piece: str, rng: random.Random) -> str:
    return piece * max(1, _size(rng) // len(piece))


def _one_of(*pieces: str) -> Callable[[random.Random, Judge], str]:
    return lambda rng, judge: _repeated(rng.choice(pieces), rng)


def _given(*texts: str) -> Callable[[random.Random, Judge], str]:
    return lambda rng, judge: rng.choice(texts)


def _nested(begin: str, middle: str, end: str, rng: random.Random, most: int = _NESTED) -> str:
    depth = min(most, rng.choice((50, 900, 5_000, _NESTED)))
    return begin * depth + middle + end * (depth if rng.random() < 0.7 else 0)


_JSON_LEVELS = (("[", "1", "]"), ('{"a":', "1", "}"), ('[{"more":', "[]", "}]"), ("[[],", "1", "]"))


def _deep_json(rng: random.Random, judge: Judge) -> str:
    begin, middle, end = rng.choice(
        (("[", "1", "]"), ('{"a":', "1", "}"), ('[{"more":', "[]", "}]"), ("[[],", "1", "]"))
    )
    text = begin * _NESTED + middle + end * _NESTED
    return rng.choice((text, f"```json\n{text}\n```", begin * _NESTED))


def _wide_json(rng: random.Random, judge: Judge) -> str:
    count = _size(rng) // 10
    return rng.choice(
        (
            "[" + ",".join(map(str, range(count))) + "]",
            "{" + ",".join(f'"k{number}":{number}' for number in range(count)) + "}",
            '{"many":[' + ",".join(["0.01"] * count) + "]}",
            "{" + ",".join(['"city":"Q"'] * count) + "}",
            '{"city":"' + "Qa" * count + '"}',
            '{"city":"' + "\\ud800" * count + '"}',
            "{" + ",".join(f'"{"x" * 40}{number}":1' for number in range(1_000)) + "}",
        )
    )


def _json_number(rng: random.Random, judge: Judge) -> str:
    number = rng.choice(("1e999999", "-1e-999999", "NaN", "-Infinity", "9" * 1_000_000, "0." + "1" * 500_000, "1e400"))
    return rng.choice((number, f"[{number}]", f'{{"many": [{number}, 1], "city": "x"}}'))


def _latex(rng: random.Random, judge: Judge) -> str:
    bomb = rng.choice(
        (
            lambda: _nested(r"\frac{1}{", "2", "}", rng, 5_000),
            lambda: _nested(r"\sqrt{", "2", "}", rng, 5_000),
            lambda: _nested(r"\left(", "1", r"\right)", rng, 5_000),
            lambda: _nested("{", "1", "}", rng),
            lambda: _nested("9^{", "9", "}", rng, 1_000),
            lambda: _nested("(", "7", ")!", rng, 1_000),
            lambda: "9^{9^{9^{9}}}",
            lambda: "9^9^9^9",
            lambda: "99999999!",
            lambda: r"\sum_{n=1}^{10^{12}} \frac{1}{n^3+n!}",
            lambda: r"\int_0^{99} e^{x^{x^{x}}} \sin(x^x) dx",
            lambda: r"\binom{10^9}{10^8}",
            lambda: r"\prod_{k=1}^{10^9} k^k",
            lambda: "10^{10^{9}}+1",
            lambda: "9" * rng.choice((1_000, 9_000, 1_000_000)),
            lambda: "0." + "3" * rng.choice((1_000, 9_000, 1_000_000)),
            lambda: "1e999999",
            lambda: r"\{" + ",".join(map(str, range(2_000))) + r"\}",
            lambda: r"\cup".join(f"({number},{number + 1}]" for number in range(500)),
            lambda: r"\begin{pmatrix}" + r"\\".join(["1&2&3&4&5"] * 300) + r"\end{pmatrix}",
            lambda: "+".join(f"x^{{{number}}}" for number in range(1_000)),
            lambda: "(x+y+z)^{200}",
            lambda: "(x+1)^{99999}",
            lambda: r"\sqrt{2}" * 1_000,
            lambda: "1+" * 5_000 + "1",
            lambda: "-" * 5_000 + "1",
            lambda: r"\sin" * 3_000 + "x",
            lambda: r"\lim_{x\to 0}" * 500 + "x",
        )
    )()
    return rng.choice(_AROUND_LATEX).format(bomb)


_AROUND_LATEX = (
    *("{}", r"So \boxed{{{}}}", "${}$", "The answer is {}."),
    "Final Answer: The final answer is {}. I hope it is correct.",
)


def _number(rng: random.Random, judge: Judge) -> str:
    digits = rng.choice(("1", "0", "98", "1,000,", "1 000 ", "0.1", "-1", "1/", "٤", "４８", "²", "Ⅷ", "𝟜", "१"))
    return rng.choice(("{}", "the answer is {}", "#### {}", r"\boxed{{{}}}")).format(_repeated(digits, rng))


def _candidates(rng: random.Random, judge: Judge) -> str:
    forms = ("The answer is {}. ", "{}\n", r"\boxed{{{}}}, ", "#### {}\n", "{} or ", "Maybe ({})? ", "answer: {}\n")
    form = rng.choice(forms)
    return "".join(form.format(rng.choice(judge.wrong)) for _ in range(rng.choice((1_000, 30_000))))


def _trigger(rng: random.Random, judge: Judge) -> str:
    pieces = judge.triggers or ("a", "1 ", "(")
    if rng.random() < 0.3:
        return "".join(rng.choice(pieces) for _ in range(_size(rng) // 20))
    text = _repeated(rng.choice(pieces), rng)
    return rng.choice(("", "x", "\n", "1")) + text + rng.choice(("", "!", "\n", "\x00"))


def _spaced(rng: random.Random, judge: Judge) -> str:
    """What patterns end with is looked for behind much white space."""
    piece = rng.choice((*(judge.triggers or ("a",)), "the answer is", "#"))
    return (piece + rng.choice((" ", "\n", "\t", "\u3000", "\x1f")) * rng.choice((100, 5_000))) * 20


def _zalgo(rng: random.Random, judge: Judge) -> str:
    marks = "".join(chr(rng.randrange(0x300, 0x370)) for _ in range(rng.choice((20, 5_000))))
    return ("Z" + marks) * rng.choice((1, 100))


def _random_characters(rng: random.Random, judge: Judge) -> str:
    return "".join(chr(rng.randrange(0x110000)) for _ in range(rng.choice((100, 50_000))))


def _around_right(rng: random.Random, judge: Judge) -> str:
    """The right answer in the midst of it: whatever that is worth."""
    other = draw_reply(rng, judge, exclude=("around right",))[1]
    return rng.choice((f"{judge.right}\n{other}", f"{other}\n{judge.right}", f"{other} {judge.right} {other}"))


_CODE = (
    "__import__('os').system('touch made')",
    "!!python/object/apply:os.system ['touch made']\n- &a [*a, *a]\n",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for x in range(10**9) %}{{ x }}{% endfor %}",
    "{{ 7 * 7 }}${7*7}#{7*7}<%= 7*7 %>",
    "<script>alert(1)</script><img src=x onerror=alert(1)><!-- --><![CDATA[ ]]>",
    "%s%s%n {0.__class__} {} {x!r:>999999999}",
    '=HYPERLINK("http://evil.example","x")',
    "../../../../etc/passwd",
    "; rm -rf made; $(touch made) `touch made` | touch made",
    "' OR 1=1; DROP TABLE records; --",
    "@pytest.mark.skip\ndef test_it(): raise SystemExit(0)",
    "PASSED [100%]\n==== 99 passed in 0.01s ====",
)
_TERMINAL = (
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31m\x9d0;title\x9c\x90q\x9c",
    "\r\x08\x08\x7f\x1b[1A\x1b[K",
    "\u202eevil\u202c \u2066x\u2069\u200f\u061c\u2028\u2029\x85",
    "\x1b7\x1b[?1049h\x1b[6n",
)
_COMMANDS = (
    f"::error::{MARKER}\n",
    f"::add-mask::{MARKER}\n",
    f"##[error]{MARKER}\n",
    f"  ::set-output name={MARKER}::x\n",
)

_PUNCTUATION = (*"(){}[]\\\"'$#*`-_^&,.;/|<%", "()", "{}", "\\\\")
_LEVELS = (
    *(("(", "a", ")"), ("{", "a", "}"), ("<think>", "a", "</think>"), (r"\boxed{", "7", "}"), ("**", "x", "**")),
    ("> ", "x", ""),
)
_NO_NUMBERS = (
    *(
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "1e999999",
        "-1e999999",
        "1e-999999",
        "None",
        "null",
        "true",
        "[]",
        "{}",
    ),
    *("0x10", "1_000", "--1", "1/0", "0/0", "+", "½/0", "1e1000", "1e1001"),
)

KINDS: Mapping[str, Callable[[random.Random, Judge], str]] = {
    "one letter": _one_of("A", "x", "é", "字", "😀", "Q", "i", "Z"),
    "one digit": _one_of("1", "0", "9"),
    "white space": _one_of(" ", "\n", "\t", "\r\n", "\u3000", "\x0b", "\u2028"),
    "punctuation": _one_of(
        "(",
        ")",
        "()",
        "{",
        "}",
        "{}",
        "[",
        "]",
        "\\",
        "\\\\",
        '"',
        "'",
        "$",
        "#",
        "*",
        "`",
        "-",
        "_",
        "^",
        "&",
        ",",
        ".",
        ";",
        "/",
        "|",
        "<",
        "%",
    ),
    "deep JSON": _deep_json,
    "wide JSON": _wide_json,
    "number in JSON": _json_number,
    "LaTeX": _latex,
    "number": _number,
    "candidates": _candidates,
    "own pattern": _trigger,
    "spaced pattern": _spaced,
    "nested": lambda rng, judge: _nested(
        *rng.choice(
            (
                ("(", "a", ")"),
                ("{", "a", "}"),
                ("<think>", "a", "</think>"),
                (r"\boxed{", "7", "}"),
                ("**", "x", "**"),
                ("> ", "x", ""),
            )
        ),
        rng,
    ),
    "surrogates": _one_of("\ud800", "\udfff", "\ud800\udc00", "a\ud800"),
    "NUL and controls": _one_of("\x00", "\x00a", "\x01\x02\x03", "\x1a", "\ufeff", "\ufffe", "\U0010ffff"),
    "invisible": _one_of("\u200b", "\u200d", "\u00ad", "\u202e", "\u2066", "\ue000", "\U000e0041"),
    "combining": _zalgo,
    "expanding": _one_of("\ufdfa", "ß", "İ", "ŉ", "ﬃ", "\u0390", "\u1e9e"),
    "any characters": _random_characters,
    "terminal": lambda rng, judge: rng.choice(_TERMINAL) * rng.choice((1, 5_000)),
    "workflow command": lambda rng, judge: rng.choice(_COMMANDS) * rng.choice((1, 1_000)),
    "code": lambda rng, judge: rng.choice(_CODE) * rng.choice((1, 1, 5_000)),
    "lines": _one_of("x\n", "\nx", "- x\n", "| a | b |\n", "```\n", "# x\n", "1. x\n", "a\r", "a\u2028"),
    "nearly nothing": _given("", " ", "\n", "\x00", "\ufeff", "\u200b", "'", '"', "\\", "{", "$", "\ud800", "."),
    "words of no number": _given(*_NO_NUMBERS),
    "around right": _around_right,
}
"""Kinds of replies by name. Only "around right" can be right."""


def draw_kind(rng: random.Random, judge: Judge, *, exclude: tuple[str, ...] = ()) -> str:
    """The kind of the reply that ``draw_reply`` draws."""
    kinds = judge.fitting if rng.random() < 0.35 else KINDS
    return rng.choice([name for name in kinds if name not in exclude])


def draw_reply(rng: random.Random, judge: Judge, *, exclude: tuple[str, ...] = ()) -> tuple[str, str]:
    """A kind, and a reply of that kind."""
    kind = draw_kind(rng, judge, exclude=exclude)
    return kind, KINDS[kind](rng, judge)


_LIKELIHOODS = (
    float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -1e308, 1e308, -5e-324, -1e-300, -1.0, -745.2, -710.0,
)  # fmt: skip


def draw_loglikelihoods(rng: random.Random, count: int) -> list[tuple[float, int]]:
    """Log-likelihoods and numbers of tokens that no model should give."""
    if rng.random() < 0.3:
        return [(rng.choice(_LIKELIHOODS), rng.choice((0, 1, 10**9)))] * count
    return [(rng.choice(_LIKELIHOODS), rng.choice((0, 1, 3, -1, 10**12))) for _ in range(count)]
