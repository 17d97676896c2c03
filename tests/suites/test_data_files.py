"""Data files in every format: what is read, and what is said of a broken one."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from pytest_llmeval.errors import SuiteError
from tests.suites.conftest import Load

HEAD = "suite: s\nscore: exact\ndataset:\n  path: "

BROKEN = {
    "JSONL line": (
        "a.jsonl",
        '{"a": 1}\n\n{"a": \n',
        "a.jsonl:3: is not JSON: Expecting value (column 7), near '{\"a\": '",
    ),
    "JSONL rest": ("a.jsonl", '{"a": 1} x\n', "a.jsonl:1: is not JSON: Extra data (column 10), near '{\"a\": 1} x'"),
    "JSONL list": ("a.jsonl", "{}\n[1]\n", "a.jsonl:2: found a list of 1, expected a mapping of columns"),
    "JSONL secret before": (
        "a.jsonl",
        '{"api_key": "Qx7/ab/cd/EF+gh12==XYZq7" 1}\n',
        "a.jsonl:1: is not JSON: Expecting ',' delimiter (column 40), near '{\"api_key\": \"***\" 1}'",
    ),
    "JSONL secret behind": (
        "a.jsonl",
        '{"a": 1 "password": "Fq8Fq8zz and more of it"}\n',
        'a.jsonl:1: is not JSON: Expecting \',\' delimiter (column 9), near \'{"a": 1 "password": "***"}\'',
    ),
    "JSONL secret not closed": (
        "a.jsonl",
        '{"n": 1, "password": "Fq8Fq8zz}\n',
        'a.jsonl:1: is not JSON: Unterminated string starting at (column 22), near \'"n": 1, "password": "***\'',
    ),
    "JSONL key": (
        "a.jsonl",
        '{"a": 1 "ghp_' + "A1b2C3d4" * 4 + '"}\n',
        "a.jsonl:1: is not JSON: Expecting ',' delimiter (column 9), near '{\"a\": 1 \"***\"}'",
    ),
    "JSONL NaN": ("a.jsonl", '{"a": NaN}\n', "a.jsonl:1: found NaN, which is not JSON; expected a number or null"),
    "JSONL infinity": (
        "a.jsonl",
        '{"a": [-Infinity]}\n',
        "a.jsonl:1: found -Infinity, which is not JSON; expected a number or null",
    ),
    "JSONL duplicate key": ("a.jsonl", '{"b": {"a": 1, "a": 2}}\n', "a.jsonl:1: found the key 'a' twice; remove one"),
    "JSONL latin-1": (
        "a.jsonl",
        '{"a": 1}\n{"a": "é"}\n'.encode("latin-1"),
        "a.jsonl:2: is not UTF-8: found the byte 0xE9, expected UTF-8; save the file as UTF-8",
    ),
    "JSONL nested": ("a.jsonl", '{"a":' + "[" * 100_000, "a.jsonl:1: is nested too deeply; flatten it"),
    "JSONL number": (
        "a.jsonl",
        '{"a":' + "9" * 5_000 + "}",
        "a.jsonl:1: found a number of more than 4,300 digits, expected fewer; write it as text",
    ),
    "JSONL empty": ("a.jsonl", "", "s.yaml:4: dataset.path: a.jsonl holds no rows, expected at least one"),
    "JSONL blank": ("a.jsonl", "\n \n", "s.yaml:4: dataset.path: a.jsonl holds no rows, expected at least one"),
    "JSON without key": (
        "a.json",
        '{"canary": "x", "examples": [{}], "more": [1]}',
        "a.json: found a mapping with the keys 'canary', 'examples', 'more', expected a list of rows; "
        "'key' names the list: expected one of examples, more",
    ),
    "JSON without list": ("a.json", '{"x": 1}', "a.json: found a mapping with the keys 'x', expected a list of rows"),
    "JSON number": ("a.json", "5", "a.json: found 5 (a whole number), expected a list of rows"),
    "JSON row": ("a.json", "[{}, 1]", "a.json: row 2: found 1 (a whole number), expected a mapping of columns"),
    "JSON sample": (
        "a.json",
        '[{}, {"choices": 1}]',
        "a.json: row 2: sample '2': choices: found 1 (a whole number), expected a list of texts; "
        "map the column with dataset.fields.choices",
    ),
    "JSON empty": ("a.json", "[]", "s.yaml:4: dataset.path: a.json holds no rows, expected at least one"),
    "JSON surrogate": (
        "a.json",
        r'[{"question": "a\ud800"}]',
        "a.json: row 1: sample '1': question: found a lone surrogate (U+D800) at character 2, expected text",
    ),
    "CSV values": (
        "a.csv",
        'a,b\n"1\n1",2\n3\n',
        "a.csv:4: found 1 value, expected 2 as in the header; "
        "quote a value that holds a comma, a quote or a line break",
    ),
    "TSV values": (
        "a.tsv",
        "a\tb\n1\t2\t3\n",
        "a.tsv:2: found 3 values, expected 2 as in the header; quote a value that holds a tab, a quote or a line break",
    ),
    "CSV header": ("a.csv", "a,a\n1,2\n", "a.csv:1: found the column 'a' twice in the header; rename one"),
    "CSV header without a name": ("a.csv", "a,\n1,2\n", "a.csv:1: column 2 of the header has no name"),
    "CSV header only": ("a.csv", "a,b\n", "s.yaml:4: dataset.path: a.csv holds no rows, expected at least one"),
    "CSV quote": ("a.csv", 'a,b\n1,2\n"3,4\n5,6\n', "a.csv:3: is not CSV: unexpected end of data"),
    "YAML row": ("a.yaml", "- a: 1\n- 2\n", "a.yaml:2: found 2 (a whole number), expected a mapping of columns"),
    "YAML duplicate key": (
        "a.yml",
        "- a: 1\n  a: 2\n",
        "a.yml:2: found the key 'a' twice, first in line 1; remove one",
    ),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files(load: Load, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + name + "\n", {name: content})
    assert str(caught.value) == message


PATHS = {
    "missing": (
        "daat/a.jsonl",
        "4: dataset.path: daat/a.jsonl: there is no such file: there is no folder 'daat' either",
    ),
    "near": ("data/aa.jsonl", "4: dataset.path: data/aa.jsonl: there is no such file; did you mean 'a.jsonl'?"),
    "folder": (
        "data\n  format: json",
        "4: dataset.path: data: is a folder, which is read as one JSON object in each file; for files of rows write a "
        "pattern, data/*.jsonl",
    ),
    "suffix": (
        "data/a.orc",
        "4: dataset.path: found the suffix '.orc', expected one of .jsonl, .ndjson, .json, .csv, .tsv, .yaml, .yml, "
        ".parquet (or one of them before .gz or .zst); or say what it is with dataset.format",
    ),
    "missing and unknown suffix": (
        "data/b.orc",
        "4: dataset.path: data/b.orc: there is no such file; did you mean 'a.orc'?",
    ),
    "empty": ("''", "4: dataset.path: found '' (text), expected text that is not empty"),
    "format": (
        "data/a.jsonl\n  format: jsonlines",
        "5: dataset.format: found 'jsonlines' (text), "
        "expected one of jsonl, json, csv, tsv, yaml, parquet, text; did you mean 'jsonl'?",
    ),
}


@pytest.mark.parametrize(("path", "message"), PATHS.values(), ids=PATHS.keys())
def test_paths(load: Load, path: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + path + "\n", {"data/a.jsonl": "{}", "data/a.orc": ""})
    assert str(caught.value) == f"s.yaml:{message}"


def test_a_key_of_a_format_without_keys(load: Load) -> None:
    with pytest.raises(SuiteError, match=r"^a\.csv: is read as csv, which has no keys; remove 'key: x'$"):
        load(HEAD + "a.csv\n  key: x\n", {"a.csv": "a\n1\n"})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("data.rosw", "there is no key 'rosw' in 'data', which 'key' names; did you mean 'rows'?"),
        ("data", "found a mapping with the keys 'rows' at the key 'data', expected a list of rows; "
         "'key' names the list: expected one of data.rows"),
    ],
)  # fmt: skip
def test_a_key_that_leads_nowhere(load: Load, key: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + f"a.json\n  key: {key}\n", {"a.json": '{"data": {"rows": []}}'})
    assert str(caught.value) == f"a.json: {message}"


ROWS = [{"question": "one", "target": "x"}, {"question": "two, three", "target": "y"}]
GOOD = {
    "jsonl": ("a.jsonl", "\n".join(map(json.dumps, ROWS)), "", [1, 2]),
    "jsonl, blank lines, Windows": ("a.jsonl", "\r\n\r\n".join(map(json.dumps, ROWS)) + "\r\n", "", [1, 3]),
    "jsonl, byte order mark": ("a.jsonl", "\ufeff" + "\n".join(map(json.dumps, ROWS)), "", [1, 2]),
    "json": ("a.json", json.dumps(ROWS), "", [None, None]),
    "json, key": ("a.json", json.dumps({"data": {"rows": ROWS}}), "  key: data.rows\n", [None, None]),
    "csv": ("a.csv", 'question,target\none,x\n\n"two, three",y\n', "", [2, 4]),
    "csv, byte order mark": ("a.csv", '\ufeffquestion,target\r\none,x\r\n"two, three",y\r\n', "", [2, 3]),
    "tsv": ("a.tsv", "question\ttarget\none\tx\ntwo, three\ty\n", "", [2, 3]),
    "yaml": ("a.yaml", "- {question: one, target: x}\n- question: two, three\n  target: y\n", "", [1, 2]),
    "yaml, key": (
        "a.yml",
        "rows:\n- {question: one, target: x}\n- {question: 'two, three', target: y}\n",
        "  key: rows\n",
        [2, 3],
    ),
    "format over suffix": ("a.txt", 'question,target\none,x\n"two, three",y\n', "  format: csv\n", [2, 3]),
}


@pytest.mark.parametrize(("name", "content", "more", "lines"), GOOD.values(), ids=GOOD.keys())
def test_formats_give_the_same_samples(load: Load, name: str, content: str, more: str, lines: list[int | None]) -> None:
    suite = load(HEAD + f"data/{name}\n{more}", {f"data/{name}": content})
    assert [(sample.id, sample.question, sample.target) for sample in suite.samples] == [
        ("1", "one", "x"),
        ("2", "two, three", "y"),
    ]
    assert [sample.line for sample in suite.samples] == lines
    assert {Path(sample.path) for sample in suite.samples} == {Path("data") / name}


def test_only_line_feeds_end_jsonl_lines(load: Load) -> None:
    suite = load(HEAD + "a.jsonl\n", {"a.jsonl": '{"question": "a\u2028b\x85c"}\n{"question": "d"}\n'})
    assert [(sample.question, sample.line) for sample in suite.samples] == [("a\u2028b\x85c", 1), ("d", 2)]


def test_values_keep_their_types(load: Load) -> None:
    suite = load(HEAD + "a.jsonl\n", {"a.jsonl": '{"target": 123456789012345678901234567890, "b": [true, null, 1.0]}'})
    (sample,) = suite.samples
    assert sample.target == 123456789012345678901234567890
    assert sample.variables["b"] == [True, None, 1.0]
    assert sample.variables["row"] == {"target": sample.target, "b": [True, None, 1.0]}


BREAKS = ("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r")
"""What ``str.splitlines`` takes for the end of a line beside a line feed, and JSON and CSV do not."""


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.json", "r.csv", "r.tsv"])
def test_a_line_ends_at_a_line_feed_only(load: Load, name: str) -> None:
    rows = [{"id": f"i{place}", "question": f"Q{end}{place}?", "target": "t"} for place, end in enumerate(BREAKS)]
    file = io.StringIO(newline="")
    if ".jsonl" in name:  # JSON has no control characters of ASCII in a text, and may have all others
        lines = [json.dumps(row, ensure_ascii=row["question"].isascii()) for row in rows]
        file.write("\r\n".join([*lines, ""]))
    elif name == "r.json":
        json.dump(rows, file, ensure_ascii=False)
    else:
        writer = csv.DictWriter(file, ["id", "question", "target"], delimiter="\t" if name == "r.tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    data = file.getvalue().encode()
    suite = load(HEAD + f"{name}\n", {name: gzip.compress(data) if name.endswith(".gz") else data})
    assert [sample.question for sample in suite.samples] == [row["question"] for row in rows]
    if ".jsonl" in name:
        assert [sample.line for sample in suite.samples] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("above", ["", "\r\n\r\n"])
@pytest.mark.parametrize("more", ["", "\n  separator: ';'"])
def test_values_that_semicolons_separate(load: Load, more: str, above: str) -> None:
    rows = f'\ufeff{above}id;question;target\r\n1;Which is even?;2\r\n2;"One; or two?";a,b\r\n'
    suite = load(f"{HEAD}a.csv{more}\n", {"a.csv": rows})
    assert [(sample.id, sample.question, sample.target) for sample in suite.samples] == [
        ("1", "Which is even?", "2"),
        ("2", "One; or two?", "a,b"),
    ]


@pytest.mark.parametrize(
    ("head", "row", "columns"),
    [
        ("question\ttarget", "q\tt", None),
        ("question|target", "q|t", None),
        ("question,target;x", "q,t", None),
        ("question,target", "q,t", None),
        ("q;t", "q;t", "[question, target]"),
        ("q, and;t;u", "q, and;t;u", "[question, target, other]"),
    ],
)
def test_what_separates_values_is_seen_in_the_first_line(load: Load, head: str, row: str, columns: str | None) -> None:
    """A comma where the line has one, so that a file that was read before is read as before."""
    more = "" if columns is None else f"\n  columns: {columns}"
    fields = "\n  fields: {target: '{{ row.values() | list | last }}'}"
    suite = load(f"{HEAD}a.csv{more}{fields}\n", {"a.csv": f"{head}\n{row}\n"})
    found = suite.samples[-1].variables["row"]
    assert isinstance(found, dict)
    assert len(found) == (2 if columns is None else columns.count(",") + 1)


@pytest.mark.parametrize("said", ["sep={}", '"sep={}"', "SEP={}"])
@pytest.mark.parametrize(
    ("separator", "suffix"), [(";", "csv"), (",", "csv"), ("\t", "tsv"), (";", "tsv"), ("^", "csv")]
)
def test_a_first_line_that_tells_excel_the_separator(load: Load, said: str, separator: str, suffix: str) -> None:
    rows = "id^question\r\n1^Which, or what?\r\n2^Even;\r\n".replace("^", separator)
    if separator in ",;":
        rows = rows.replace("Which, or what?", '"Which, or what?"').replace("Even;", '"Even;"')
    content = f"\ufeff{said.format(separator)}\r\n{rows}"
    suite = load(f"{HEAD}a.{suffix}\n", {f"a.{suffix}": content})
    assert [(sample.id, sample.question, sample.line) for sample in suite.samples] == [
        ("1", "Which, or what?", 3),
        ("2", "Even;", 4),
    ]
    suite = load(f"{HEAD}a.{suffix}\n  separator: '^'\n", {f"a.{suffix}": content.replace(separator, "^")})
    assert suite.samples[0].line == 3
    with pytest.raises(SuiteError, match=rf"^a\.{suffix}:5: found 3 values, expected 2 as in the header"):
        load(f"{HEAD}a.{suffix}\n", {f"a.{suffix}": f"{content}a{separator}b{separator}c\r\n"})


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (
            "a,b;c;d\n1;2,3;4\n1,2,3\n",
            "",
            "a.csv:3: found 3 values, expected 2 as in the header; quote a value that holds a comma, a quote or a line "
            "break; or say what separates the values, such as dataset.separator: ';'",
        ),
        (
            "a;b\n1;2;3\n",
            "",
            "a.csv:2: found 3 values, expected 2 as in the header; quote a value that holds a semicolon,",
        ),
        (
            "a (or c, d);b\n1;2\n",
            "",
            "a.csv:2: found 1 value, expected 2 as in the header; quote a value that holds a comma, a quote or a line "
            "break; or say what separates the values, such as dataset.separator: ';'",
        ),
        ("a,b\n1,2\n", "\n  separator: ';;'", "s.yaml:5: dataset.separator: found ';;' (text), expected one character"),
        ("a,b\n1,2\n", "\n  delimiter: ';'", "s.yaml:5: unknown key 'delimiter' in dataset; did you mean 'separator'?"),
    ],
)
def test_a_separator_that_does_not_fit(load: Load, content: str, more: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(f"{HEAD}a.csv{more}\n", {"a.csv": content})
    assert str(caught.value).startswith(message)


def test_a_separator_of_a_format_that_has_none(load: Load) -> None:
    with pytest.raises(SuiteError, match="is read as jsonl, which has no separator; remove 'separator'"):
        load(f"{HEAD}a.jsonl\n  separator: ';'\n", {"a.jsonl": "{}"})


def test_the_index_that_pandas_writes(load: Load) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"question": ["a", "b"], "target": ["x", "y"]}, index=["q7", "q9"])
    suite = load(f"{HEAD}a.csv\n  fields: {{id: index}}\n", {"a.csv": frame.to_csv()})
    assert [sample.id for sample in suite.samples] == ["q7", "q9"]
    suite = load(f"{HEAD}a.csv\n", {"a.csv": frame.reset_index().to_csv()})
    assert [sample.variables["row"] for sample in suite.samples] == frame.reset_index().to_dict("records")
    with pytest.raises(SuiteError, match=r"a\.csv:1: column 2 of the header has no name"):
        load(f"{HEAD}a.csv\n", {"a.csv": "a,\n1,2\n"})
