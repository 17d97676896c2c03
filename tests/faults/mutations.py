"""Damages files: bytes, lines, and values of JSON and YAML, by a stream of random numbers."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Payloads", "damaged_bytes", "damaged_json", "damaged_json_lines", "damaged_lines", "damaged_yaml"]

_BYTES = (
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\x1b[2J",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b"'",
    b"\\",
)
_SURROGATE = "\ud83d"
_LONG = 400_000


@dataclass(frozen=True, slots=True)
class Payloads:
    """Hostile texts. ``canary`` is a file that code makes if it runs, ``secret`` one that nothing may read."""

    canary: str
    secret: str

    @property
    def templates(self) -> tuple[str, ...]:
        return (
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            f"{{{{ cycler.__init__.__globals__.os.system('touch {self.canary}') }}}}",
            f"{{{{ self.__init__.__globals__.__builtins__.open('{self.secret}').read() }}}}",
            f"{{{{ lipsum.__globals__['os'].popen('touch {self.canary}').read() }}}}",
            f"{{{{ question.__class__.__base__.__subclasses__()[80]('touch {self.canary}', shell=True) }}}}",
            f"{{% include '{self.secret}' %}}",
            f"{{% import '{self.secret}' as x %}}{{{{ x }}}}",
            f"{{% extends '{self.secret}' %}}",
            "{% for i in range(10**9) %}x{% endfor %}",
            "{{ 'a' * 10**10 }}",
            "{{ range(10**9) | list }}",
            "{{ 10**10**10 }}",
            "{{ 1 << 10**9 }}",
            "{{ (1,) * 10**9 }}",
            "{{ 'a' | center(10**10) }}",
            "{{ '%*d' % (10**10, 1) }}",
            "{{ '{:>9999999999}'.format(1) }}",
            "{{ 'x'.zfill(10**10) }}",
            "{{ 'x'.translate({120: 'y' * 10**7}) }}",
            "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
            "{% set x = namespace(v='a') %}{% for i in range(40) %}{% set x.v = x.v ~ x.v %}{% endfor %}{{ x.v }}",
            "{% for i in range(10**5) %}{% for j in range(10**5) %}{{ i }}{% endfor %}{% endfor %}",
            "{{ lipsum(n=10**6) }}",
            "{{ '{0.__class__}'.format(question) }}",
            "{{ question | regex_replace('(a+)+$', 'b') }}",
            "{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' | regex_replace('(a+)+$', 'b') }}",
            "{{ question | attr('__class__') }}",
            "{{ question | batch(10**9) | list }}",
            "{{ question | indent(10**9) }}",
            "{{ question | wordwrap(0) }}",
            "{{ question | slice(0) | list }}",
            "{{ question | tojson(indent=10**9) }}",
            "{{ [question] | sort(attribute='x.' * 10**5) }}",
            "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
            "{{ " + "-" * 100_000 + "1 }}",
            "{{ " + "1+" * 50_000 + "1 }}",
            "{{",
            "{% raw %}",
            "{{ undefined.x }}",
            "{{ loop }}",
            "{% call %}",
            "{{ question | no_such_filter }}",
            "{{ \ud800 }}",
            "{{ question | list | literal }}",
            "{{ ('[' * 100_000) | literal }}",
            "{{ '9' * 5000 | int }}",
            "{{ ('9' * 5000) | int + 1 }}",
            "{{ ('9' * 5000) | literal }}",
            "{{ 1e308 * 10 }}",
            "{{ 1 / 0 }}",
            "{{ 'inf' | float | int }}",
            "{{ (0).__class__ }}",
            "{{ question[10**30] }}",
            "{{ choices[10**30] }}",
            "{{ 2 ** -10**30 }}",
            "{{ 0 ** -1 }}",
            "{{ -1 | round(10**30) }}",
            "{{ question[::0] }}",
        )

    @property
    def regexes(self) -> tuple[str, ...]:
        return (
            "(a+)+$",
            "(a|a)*b",
            "((a{1,1000}){1,1000}){1,1000}",
            "(?P<n>x)(?P<n>y)",
            "[",
            "(",
            "(?<=a+)b(c)",
            "(.*)*\\1",
            "(" + "a" * 100_000 + ")",
            "(" * 500 + ")" * 500,
            "(x)" * 200,
            "(\\d{1,99999999999})",
            "(?:(a))*" * 50,
            "(\\N{NO SUCH NAME})",
            "(?R)",
            "((?1))",
            "(\ud800)",
            "(\\p{Lu}+)",
            "(x+x+)+y",
            "([\\s\\S]*)*z",
        )

    @property
    def schemas(self) -> tuple[Any, ...]:
        deep: Any = {"type": "string"}
        for level in range(300):
            deep = {"allOf": [deep, deep]} if level < 8 else {"not": deep}
        return (
            {"$ref": f"file://{self.secret}"},
            {"$ref": "http://203.0.113.1/schema.json"},
            {"$ref": "#"},
            {"$ref": self.secret},
            {"$id": "http://203.0.113.1/", "$ref": "x.json"},
            {"$schema": "http://203.0.113.1/meta.json", "type": "object"},
            {
                "$ref": "#/definitions/a",
                "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
            },
            {"type": "object", "patternProperties": {"(a+)+$": {}}},
            {"type": "string", "pattern": "(x+x+)+y"},
            {"pattern": "["},
            {"type": 3},
            {"multipleOf": 0},
            {"minLength": 10**400},
            {"enum": []},
            deep,
            self.secret,
            "../outside/secret.json",
            True,
        )

    @property
    def paths(self) -> tuple[str, ...]:
        return (
            self.secret,
            "../outside/secret.txt",
            "../outside/secret.json",
            "/etc/passwd",
            "../../../../../../etc/passwd",
            "/dev/zero",
            "/dev/stdin",
            "/proc/self/environ",
            "/proc/self/mem",
            ".",
            "..",
            "/",
            "",
            "\0",
            "rows.jsonl\0.csv",
            "~/secret.txt",
            "~root/x",
            "$HOME/x",
            "file:///etc/passwd",
            "http://203.0.113.1/rows.jsonl",
            "**/*",
            "../**/*.jsonl",
            "[",
            "link.jsonl",
            "loop.jsonl",
            "pipe.jsonl",
            "x" * 5000 + ".jsonl",
            "a/" * 3000 + "x.jsonl",
            "\ud800.jsonl",
            "CON",
            "rows.jsonl/x",
        )

    @property
    def scalars(self) -> tuple[Any, ...]:
        deep: Any = 1
        for _ in range(150):
            deep = [deep]
        return (
            *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, 1e-320, 2**31, 2**63, 2**64, 10**400, -(10**30)),
            *(float("inf"), float("-inf"), float("nan"), "NaN", "inf", "-Infinity", "1e999", "", " ", "x", "0", "-1"),
            *(
                "\ud800",
                "a\udcffb",
                "\0",
                "\x1b[31mred\x1b[0m\x07",
                "\u202e",
                "\u2028",
                "\ufeff",
                "é",
                "e\u0301",
                "\r\n",
            ),
            *("A" * _LONG, "line\n" * 5000, "%s%n", "<script>", "::", "gate[", "[x]", "*", "__proto__", "constructor"),
            *(
                [],
                {},
                [[]],
                [None],
                ["x"] * 1000,
                [1, "a", None],
                {"x": None},
                {"": 1},
                {"x": {"y": [1]}},
                deep,
                list(range(3)),
            ),
            *({"$ref": f"file://{self.secret}"}, {"__class__": "os.system"}, "9" * 5000, {"\ud800": 1}),
            *self.paths[:6],
        )

    @property
    def yaml(self) -> tuple[str, ...]:
        """Texts to stand where a value stands."""
        bomb = (
            "["
            + ", ".join(f"&a{n} [" + ", ".join([f"*a{n - 1}"] * 9 if n else ["lol"] * 9) + "]" for n in range(10))
            + "]"
        )
        merges = (
            "{"
            + ", ".join(f"k{n}: &m{n} {{<<: [{', '.join(f'*m{k}' for k in range(n))}], v{n}: 1}}" for n in range(25))
            + "}"
        )
        return (
            f'!!python/object/apply:os.system ["touch {self.canary}"]',
            f'!!python/object/new:os.system ["touch {self.canary}"]',
            f"!!python/object/apply:subprocess.check_output [[touch, {self.canary}]]",
            "!!python/name:os.system",
            "!!python/module:os",
            "!!python/tuple [1, 2]",
            f"!include {self.secret}",
            f"!file {self.secret}",
            "!function utils.run",
            "!function os.system",
            "!function ..outside.utils.run",
            "!function ''",
            "!function [utils, run]",
            "!!binary aGVsbG8=",
            "!!timestamp 2001-12-14",
            "!!set {a, b}",
            "!!omap [a: 1]",
            "!!int x",
            "!!float 1e999",
            "!!bool maybe",
            "!!null x",
            "!!str",
            "!<tag:yaml.org,2002:python/object:os.system> {}",
            "&a [*a]",
            "&a {x: *a}",
            "*nope",
            "{<<: *nope}",
            "{<<: [1]}",
            bomb,
            merges,
            "[" * 120 + "]" * 120,
            "[" * 50_000,
            "{a: " * 2000 + "1" + "}" * 2000,
            "{? [a]: b}",
            "0x" + "f" * 5000,
            "9" * 5000,
            "-.inf",
            ".nan",
            "1_000",
            "0o99",
            "1e999",
            "'",
            '"\\ud800"',
            '"\\x00"',
            '"\\U00110000"',
            "|\n",
            "|9\n x",
            "@x",
            "`x`",
            "%x",
            "\t x",
            "a: b: c",
            "# nothing",
            "---",
            "--- x\n--- y",
            "~",
        )


def damaged_bytes(data: bytes, draw: random.Random) -> tuple[bytes, str]:
    """One to four changes of bytes anywhere."""
    done = []
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 1, 3, 10, 100, 1000))
        how = draw.choice(("flip", "flip", "digit", "digit", "remove", "insert", "repeat", "cut", "encode", "fill"))
        done.append(f"{how} at {place}")
        if how == "flip" and place < len(data):
            data = data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
        elif how == "digit":
            digits = [match.start() for match in re.finditer(rb"\d", data)]
            if digits:
                place = draw.choice(digits)
                data = data[:place] + b"%d" % draw.randrange(10) + data[place + 1 :]
        elif how == "remove":
            data = data[:place] + data[place + length :]
        elif how == "insert":
            data = data[:place] + draw.choice(_BYTES) * draw.choice((1, 1, 5)) + data[place:]
        elif how == "repeat":
            data = data[:place] + data[place : place + length] * draw.choice((2, 3, 50)) + data[place + length :]
        elif how == "cut":
            data = data[:place]
        elif how == "fill":
            data = data[:place] + b"\0" * min(length, len(data) - place) + data[place + length :]
        else:
            text = data.decode("utf-8", "replace")
            encoding = draw.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "utf-7"))
            data = text.encode(encoding, "replace")
            done[-1] = f"as {encoding}"
    return data, ", ".join(done)


def damaged_lines(data: bytes, draw: random.Random, payloads: Sequence[str] = ()) -> tuple[bytes, str]:
    """Lines removed, doubled, swapped, indented, joined or put in."""
    lines = data.split(b"\n")
    place, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    how = draw.choice(("remove", "double", "swap", "indent", "join", "put in", "many", "cut in"))
    if how == "remove":
        del lines[place]
    elif how == "double":
        lines.insert(other, lines[place])
    elif how == "swap":
        lines[place], lines[other] = lines[other], lines[place]
    elif how == "indent":
        lines[place] = (
            draw.choice((b" ", b"   ", b"\t")) + lines[place] if draw.random() < 0.6 else lines[place].lstrip()
        )
    elif how == "join":
        lines[place : place + 2] = [b" ".join(lines[place : place + 2])]
    elif how == "put in":
        text = draw.choice(payloads) if payloads else draw.choice(("", "{}", "[]", "null", "0", '"', "{", "NaN", "\0"))
        lines.insert(place, text.encode("utf-8", "surrogatepass"))
    elif how == "many":
        lines[place : place + 1] = [lines[place]] * 2000
    else:
        lines[place] = lines[place][: draw.randrange(len(lines[place]) + 1)]
    return b"\n".join(lines), f"line {place + 1}: {how}"


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*at, key)
            yield from _places(inner, (*at, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield (*at, place)
            yield from _places(inner, (*at, place))


def damaged_value(value: Any, draw: random.Random, hostile: Callable[[tuple[Any, ...]], Any]) -> tuple[Any, str]:
    """A JSON value in which one to three parts are replaced by ``hostile(place)``, removed, renamed, or moved."""
    value = copy.deepcopy(value)
    done = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return hostile(()), "replaced"
        deepest = draw.choice(places)
        at = deepest[: draw.randrange(1, len(deepest) + 1)] if draw.random() < 0.3 else deepest
        above: Any = value
        for key in at[:-1]:
            above = above[key]
        how = draw.choice(("replace", "replace", "replace", "replace", "remove", "rename", "wrap", "other", "add"))
        done.append(f"{'.'.join(map(str, at))[:80]}: {how}")
        if how == "replace":
            above[at[-1]] = new = hostile(at)
            done[-1] += f" by {repr(new)[:60]}"
        elif how == "remove":
            del above[at[-1]]
        elif how == "rename" and isinstance(above, dict):
            above[draw.choice(("x", "", "suite", "id", "\ud800", "a" * 1000, str(at[-1]) + "s"))] = above.pop(at[-1])
        elif how == "wrap":
            above[at[-1]] = draw.choice(([above[at[-1]]], {"x": above[at[-1]]}, str(above[at[-1]])[:100]))
        elif how == "other":
            other: Any = value
            for key in draw.choice(places):
                try:
                    other = other[key]
                except (KeyError, IndexError, TypeError):
                    break
            above[at[-1]] = copy.deepcopy(other)
        elif isinstance(above, dict):
            above[draw.choice(("x", "schema", "path", "include", "values", "id"))] = hostile(at)
        else:
            above.insert(at[-1], hostile(at))
    return value, ", ".join(done)


def _dumped(value: Any, draw: random.Random, **settings: Any) -> str:
    text = json.dumps(value, ensure_ascii=draw.random() < 0.7, **settings)
    if draw.random() < 0.15:  # a key twice
        text = re.sub(r'("(\w+)": )', r'"\2": 1, \1', text, count=1)
    if draw.random() < 0.15:
        text = text.replace("Infinity", "1e999")
    return text


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def damaged_json(data: bytes, draw: random.Random, hostile: Callable[[tuple[Any, ...]], Any]) -> tuple[bytes, str]:
    """A JSON document with other values; the layout of a report (a record on a line) is kept half the time."""
    value, done = damaged_value(json.loads(data), draw, hostile)
    if isinstance(value, dict) and isinstance(value.get("records"), list) and draw.random() < 0.7:
        head = _dumped({key: part for key, part in value.items() if key != "records"}, draw, indent=1)
        lines = ",\n  ".join(json.dumps(record) for record in value["records"])
        return _encoded(head.removesuffix("\n}") + f',\n "records": [\n  {lines}\n ]\n}}\n'), done
    return _encoded(_dumped(value, draw, indent=draw.choice((None, 1)))), done


def damaged_json_lines(
    data: bytes, draw: random.Random, hostile: Callable[[tuple[Any, ...]], Any]
) -> tuple[bytes, str]:
    """One line of JSON Lines with other values."""
    lines = data.split(b"\n")
    place = draw.choice([number for number, line in enumerate(lines) if line.strip()])
    value, done = damaged_value(json.loads(lines[place]), draw, hostile)
    lines[place] = _encoded(_dumped(value, draw))
    return b"\n".join(lines), f"line {place + 1}: {done}"


_VALUE = re.compile(r"(?<=[:\-,] )[^\s,{}\[\]#|>][^,{}\[\]#\n]*")


def damaged_yaml(data: bytes, draw: random.Random, payloads: Payloads, special: Sequence[str]) -> tuple[bytes, str]:
    """A value in the text of a YAML file replaced by a tag, an anchor, a bomb, or a text of ``special``."""
    text = data.decode("utf-8")
    found = list(_VALUE.finditer(text))
    done = []
    for _ in range(draw.choice((1, 1, 2))):
        match = draw.choice(found)
        if draw.random() < 0.5:
            new = draw.choice(payloads.yaml)
        else:
            new = json.dumps(draw.choice(special), ensure_ascii=True) if special else "x"
        done.append(f"{match.group()[:40]!r} becomes {new[:60]!r}")
        text = text[: match.start()] + new + text[match.end() :]
        found = list(_VALUE.finditer(text)) or found
    return _encoded(text), ", ".join(done)
