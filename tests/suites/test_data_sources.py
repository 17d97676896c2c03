"""Compressed files, Parquet, patterns, folders, texts: each gives the samples that the plain file would."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.data import rows as rows_module
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.loading import sources
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.sources import natural_order
from tests.suites.conftest import Load
from tests.suites.hub_cache import as_jsonl, as_parquet

HEAD = "suite: s\nscore: exact\ndataset:\n  path: "


def zstd(data: bytes) -> bytes:
    """``data`` compressed by the library that reads it, which is Facebook's own."""
    packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
    return packed


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",", header: bool = True) -> bytes:
    """The rows as CSV, every value in quotes."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_json(rows: list[dict[str, Any]]) -> bytes:
    """The rows as a JSON list."""
    return json.dumps(rows).encode()


WRITERS: Mapping[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "a.json": as_json,
    "a.csv": as_csv,
    "a.tsv": lambda rows: as_csv(rows, "\t"),
    "a.parquet": as_parquet,
    "a.jsonl.gz": lambda rows: gzip.compress(as_jsonl(rows)),
    "a.json.zst": lambda rows: zstd(as_json(rows)),
    "a.csv.zst": lambda rows: zstd(as_csv(rows)),
    "a.tsv.GZ": lambda rows: gzip.compress(as_csv(rows, "\t")),
    "a.yaml.gz": lambda rows: gzip.compress(json.dumps(rows, ensure_ascii=False).encode()),
    # two members, as appending to a compressed file makes them
    "twice.jsonl.gz": lambda rows: gzip.compress(as_jsonl(rows[:1])) + gzip.compress(as_jsonl(rows[1:])),
    "twice.jsonl.zst": lambda rows: zstd(as_jsonl(rows[:1])) + zstd(as_jsonl(rows[1:])),
}

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\r\t"), max_size=20)
TABLES = st.lists(st.fixed_dictionaries({"question": TEXTS, "target": TEXTS, "a b": TEXTS}), min_size=1, max_size=5)


@given(table=TABLES)
def test_a_table_gives_the_same_samples_in_every_format(
    tmp_path_factory: pytest.TempPathFactory, table: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    (folder / "a.jsonl").write_bytes(as_jsonl(table))
    suite_file = folder / "s.yaml"

    def samples(name: str) -> list[dict[str, object]]:
        suite_file.write_text(f"{HEAD}{name}\n", encoding="utf-8")
        return [{"id": sample.id, **sample.variables} for sample in load_suite(suite_file).samples]

    plain = samples("a.jsonl")
    assert [sample["row"] for sample in plain] == table
    for name, write in WRITERS.items():
        if name.startswith("a.yaml") and any(ord(letter) > 127 or letter == "\x7f" for letter in str(table)):
            continue  # YAML has fewer characters than Unicode, which tests of YAML say
        (folder / name).write_bytes(write(table))
        assert samples(name) == plain, name


NESTED = [
    {"question": {"stem": "a", "choices": [{"label": "A", "text": "x"}]}, "n": 1, "f": 0.5, "b": True, "none": None},
    {"question": {"stem": "b", "choices": []}, "n": -(2**62), "f": 1e300, "b": False, "none": None},
]


def test_nested_columns_of_parquet_are_those_of_json(load: Load) -> None:
    fields = "  fields: {question: question.stem}\n"
    files = {"a.parquet": as_parquet(NESTED), "a.jsonl": as_jsonl(NESTED)}
    of_parquet, of_json = (load(f"{HEAD}{name}\n{fields}", files).samples for name in files)
    assert [sample.variables for sample in of_parquet] == [sample.variables for sample in of_json]
    assert [sample.question for sample in of_parquet] == ["a", "b"]


def test_what_json_does_not_have_becomes_text(load: Load) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 250, tzinfo=zone)
    table = pyarrow.table(
        {
            "date": [datetime.date(2024, 2, 29)],
            "nanoseconds": pyarrow.array([datetime.datetime(2024, 2, 29, 1)], pyarrow.timestamp("ns")),
            "moment": pyarrow.array([moment], pyarrow.timestamp("us", "+02:00")),
            "time": [datetime.time(1, 2)],
            "decimal": [decimal.Decimal("1.50")],
            "mapping": pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
            "coded": pyarrow.array(["x"]).dictionary_encode(),
            "half": pyarrow.array([0.5], pyarrow.float16()),
            "dates": [[datetime.date(2024, 2, 29), None]],
        }
    )
    pyarrow.parquet.write_table(table, file := io.BytesIO())
    (sample,) = load(f"{HEAD}a.parquet\n", {"a.parquet": file.getvalue()}).samples
    assert sample.variables["row"] == {
        "date": "2024-02-29",
        "nanoseconds": "2024-02-29T01:00:00",
        "moment": "2024-02-29T12:30:01.000250+02:00",
        "time": "01:02:00",
        "decimal": "1.50",
        "mapping": {"a": 1},
        "coded": "x",
        "half": 0.5,
        "dates": ["2024-02-29", None],
    }


def test_columns_of_bytes_are_an_error_only_where_they_are_used(load: Load) -> None:
    files = {"a.parquet": as_parquet([{"question": "a", "data": b"xyz"}])}
    assert load(f"{HEAD}a.parquet\n", files).samples[0].question == "a"
    with pytest.raises(SuiteError) as caught:
        load(f"{HEAD}a.parquet\n  fields: {{target: data}}\n", files)
    found = "binary data in the column 'data' (3 bytes, such as an image)"
    assert str(caught.value) == (
        f"a.parquet: row 1: sample '1': target: found {found}, expected text, a number, a bool or a list of those"
    )


BROKEN = {
    "gzip": ("a.jsonl.gz", b"no gzip", "a.jsonl.gz: cannot be decompressed (.gz): Not a gzipped file (b'no')"),
    "gzip that ends": (
        "a.jsonl.gz",
        gzip.compress(b'{"a": 1}\n' * 100)[:-9],
        "a.jsonl.gz: cannot be decompressed (.gz): Compressed file ended before the end-of-stream marker was reached",
    ),
    "zstd": (
        "a.jsonl.zst",
        b"no zstd",
        "a.jsonl.zst: cannot be decompressed (.zst): ZSTD decompress failed: Unknown frame descriptor",
    ),
    "zstd that ends": (
        "a.jsonl.zst",
        zstd(b'{"a": 1}\n' * 100)[:-3],
        "a.jsonl.zst: cannot be decompressed (.zst): Truncated compressed stream",
    ),
    "a line in gzip": (
        "a.jsonl.gz",
        gzip.compress(b'{"a": 1}\n{"a"'),
        "a.jsonl.gz:2: is not JSON: Expecting ':' delimiter (column 5), near '{\"a\"'",
    ),
    "bytes in CSV": (
        "a.csv.zst",
        zstd(b"a,b\n1,2\n3,\xe9\n"),
        "a.csv.zst:3: is not UTF-8: found the byte 0xE9, expected UTF-8; save the file as UTF-8",
    ),
    "Parquet": (
        "a.parquet",
        b"no Parquet",
        "a.parquet: cannot be read as Parquet: Parquet magic bytes not found in footer. Either the file is corrupted "
        "or this is not a parquet file",
    ),
    "Parquet in gzip": (
        "a.parquet.gz",
        b"",
        "a.parquet.gz: is Parquet in .gz, but Parquet is compressed inside; decompress it",
    ),
    "Parquet without rows": (
        "a.parquet",
        as_parquet([{"a": 1}][:0]),
        "s.yaml:4: dataset.path: a.parquet holds no rows, expected at least one",
    ),
    "empty gzip": ("a.jsonl.gz", b"", "s.yaml:4: dataset.path: a.jsonl.gz holds no rows, expected at least one"),
    "unknown suffix in gzip": (
        "a.txt.gz",
        b"",
        "s.yaml:4: dataset.path: found the suffix '.txt', expected one of .jsonl, .ndjson, .json, .csv, .tsv, .yaml, "
        ".yml, .parquet (or one of them before .gz or .zst); or say what it is with dataset.format",
    ),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files(load: Load, name: str, content: bytes, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + name + "\n", {name: content})
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.zst", "a.csv.zst", "a.parquet", "a.jsonl"])
def test_what_comes_out_of_a_file_is_bounded(load: Load, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_DATA_BYTES", 100_000)
    table = [{"question": "a" * 200_000}]
    written = WRITERS.get(name, as_jsonl)(table)
    with pytest.raises(SuiteError) as caught:
        load(HEAD + name + "\n", {name: written})
    found = "0.2 MB" if name == "a.jsonl" else "more"
    message = f"is too large: found {found}, expected at most 0.1 MB; split it"
    if name == "a.parquet":
        message = "is too large: its values take more than 0.1 MB; split it"
    assert str(caught.value) == f"{name}: {message}"


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.zst", "a.csv.zst"])
def test_a_file_that_is_made_to_fill_the_memory(load: Load, name: str) -> None:
    """What comes out is long after a few bytes; what is far longer than any text is not read to its end."""
    table = [{"question": "a" * 30_000_000}]
    with pytest.raises(SuiteError) as caught:
        load(HEAD + name + "\n", {name: WRITERS[name](table)})
    assert str(caught.value) == (
        f"{name}: is too large: more than 200 times as large as compressed, as of a file that is made to fill the "
        "memory; where it is none, decompress it"
    )


def test_one_value_in_many_rows_of_parquet(load: Load, tmp_path: Path) -> None:
    """It is in the file once. Where the file says that it is, rows share it; else little is read."""
    column = pyarrow.DictionaryArray.from_arrays([0] * 200, ["a" * 1_000_000])
    table = pyarrow.table({"question": column, "id": range(200)})
    for shares in (True, False):
        pyarrow.parquet.write_table(table, tmp_path / "made.parquet", compression="snappy", store_schema=shares)
        files = {"a.parquet": (tmp_path / "made.parquet").read_bytes()}
        if shares:
            rows: list[Any] = [sample.variables["row"] for sample in load(HEAD + "a.parquet\n", files).samples]
            assert len({id(row["question"]) for row in rows}) <= 4  # of each batch
        else:
            with pytest.raises(SuiteError, match="more than 200 times as large as compressed"):
                load(HEAD + "a.parquet\n", files)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl.zst"])
def test_how_to_install_pyarrow(load: Load, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SuiteError) as caught:
        load(HEAD + name + "\n", {name: b""})
    what = "a Parquet file" if name == "a.parquet" else "a file compressed with zstd"
    assert (
        str(caught.value) == f"{name}: {what} needs the package pyarrow: pip install 'pytest-llmeval-suites[datasets]'"
    )


def test_a_file_with_names_for_its_columns(load: Load) -> None:
    table = [
        {"question": "1 + 1?", "A": "2", "B": "3", "answer": "A"},
        {"question": "b", "A": "", "B": "", "answer": "B"},
    ]
    columns = "  columns: [question, A, B, answer]\n"
    for name, delimiter in {"a.csv": ",", "a.tsv": "\t"}.items():
        suite = load(f"{HEAD}{name}\n{columns}", {name: as_csv(table, delimiter, header=False)})
        assert [sample.variables["row"] for sample in suite.samples] == table
        assert [sample.line for sample in suite.samples] == [1, 2]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("columns: [a]", "a.csv:1: found 2 values, expected 1 as dataset.columns names; quote a value that holds a "
         "comma, a quote or a line break"),
        ("columns: [a, a]", "s.yaml:5: dataset.columns: found 'a' twice, expected names that differ"),
        ("columns: [a, ' ']", "s.yaml:5: dataset.columns: found an empty name, expected text"),
        ("columns: []", "s.yaml:5: dataset.columns: found an empty list, expected the columns' names"),
        ("columns: [a]\n  format: jsonl", "a.csv: is read as jsonl, whose columns have names; remove 'columns'"),
        ("hub: a/b", "s.yaml:5: dataset: found both path and hub, expected one of them"),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit(load: Load, more: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(f"{HEAD}a.csv\n  {more}\n", {"a.csv": "1,2\n"})
    assert str(caught.value) == message


def test_a_value_of_csv_may_be_long(load: Load) -> None:
    text = "a" * 200_000
    bound = csv.field_size_limit()
    (sample,) = load(f"{HEAD}a.csv\n", {"a.csv": f"question\n{text}\n"}).samples
    assert sample.question == text
    assert csv.field_size_limit() == bound


def test_files_of_a_pattern_in_natural_order(load: Load) -> None:
    files = {
        "data/part-10.jsonl": as_jsonl([{"question": "c"}]),
        "data/part-2.jsonl": as_jsonl([{"question": "a"}, {"question": "b"}]),
        "data/deep/part-1.json.gz": gzip.compress(as_json([{"question": "d"}, {"question": "e"}])),
        "data/other.csv": "question\nz\n",
    }
    suite = load(HEAD + '"data/part-*.jsonl"\n', files)
    assert [(sample.id, sample.question, Path(sample.path), sample.line) for sample in suite.samples] == [
        ("1", "a", Path("data/part-2.jsonl"), 1),
        ("2", "b", Path("data/part-2.jsonl"), 2),
        ("3", "c", Path("data/part-10.jsonl"), 1),
    ]
    suite = load(HEAD + '"data/**/part*"\n', files)
    assert [(sample.id, sample.question) for sample in suite.samples] == [*zip("12345", "deabc", strict=True)]
    assert suite.place(suite.samples[2]) == "data/part-2.jsonl:1"
    with pytest.raises(SuiteError) as caught:
        load(HEAD + '"data/**/part*"\n  where: x\n', files)
    assert str(caught.value).startswith("s.yaml:5: dataset.where: data/deep/part-1.json.gz, row 1: 'x' is undefined")
    late = {**files, "data/part-3.json": "[{}, 1]"}
    with pytest.raises(SuiteError, match=r"^data/part-3\.json: row 2: found 1 \(a whole number\)"):
        load(HEAD + '"data/part*"\n', late)


def test_a_file_that_is_called_like_a_pattern(load: Load) -> None:
    suite = load(HEAD + '"a[1].jsonl"\n', {"a[1].jsonl": "{}", "a1.jsonl": "{}\n{}"})
    assert [sample.path for sample in suite.samples] == ["a[1].jsonl"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data/prat-*.jsonl", "data/prat-*.jsonl: matches no file; did you mean 'part-1.jsonl'?"),
        ("data/*.xyz", "data/*.xyz: matches no file; the folder holds a.csv, part-1.jsonl"),
        ("daat/*.xyz", "daat/*.xyz: matches no file: there is no folder 'daat' either"),
        ("d*", "d*: matches only folders; add a pattern for their files, such as /*.jsonl"),
        ("./*a*/*.xyz", "*a*/*.xyz: matches no file; the folder holds data, s.yaml"),
    ],
)
def test_a_pattern_without_files(load: Load, path: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(f'{HEAD}"{path}"\n', {"data/part-1.jsonl": "{}", "data/a.csv": ""})
    assert str(caught.value) == f"s.yaml:4: dataset.path: {message}"


MATH = {
    f"math/test/{subject}/{number}.json": json.dumps({"problem": f"{subject} {number}", "type": subject})
    for subject in ("algebra", "geometry")
    for number in (1, 2, 10)
}


@pytest.mark.parametrize("path", ["math/test", "math/test/", '"math/**/*.json"'])
def test_a_folder_with_a_sample_in_each_file(load: Load, path: str) -> None:
    suite = load(HEAD + path + "\n  fields: {question: problem, category: type}\n", {**MATH, "math/README.md": "#"})
    assert [(sample.id, sample.question) for sample in suite.samples] == [
        (str(place + 1), f"{subject} {number}")
        for place, (subject, number) in enumerate((s, n) for s in ("algebra", "geometry") for n in (1, 2, 10))
    ]
    assert [suite.place(sample) for sample in suite.samples][:2] == [
        "math/test/algebra/1.json:1",
        "math/test/algebra/2.json:1",
    ]


FOLDERS = {
    "a list": (
        {"math/test/algebra/3.json": "[{}]"},
        "",
        "math/test/algebra/3.json: found a list, expected one JSON object as in each file of the folder; for files "
        "that hold lists write a pattern, dataset.path: math/*.json",
    ),
    "broken JSON": ({"math/test/algebra/3.json": "{"}, "", "math/test/algebra/3.json:1: is not JSON: "),
    "other files": (
        {"math/test/rows.jsonl": "{}"},
        "",
        "s.yaml:4: dataset.path: math: is a folder, which is read as one JSON object in each file; for files of rows "
        "write a pattern, math/*.jsonl",
    ),
    "a key": (
        {},
        "  key: x\n",
        "s.yaml:4: dataset.path: math: is a folder, which is read as one JSON object in each file; for files of rows "
        "write a pattern, math/*.json",
    ),
    "a missing column": (
        {"math/test/algebra/3.json": "{}"},
        "",
        "s.yaml:5: dataset.fields.question: math/test/algebra/3.json:1 has no column 'problem'; expected none",
    ),
}


@pytest.mark.parametrize(("files", "more", "message"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_that_does_not_fit(load: Load, files: dict[str, str], more: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(f"{HEAD}math\n  fields: {{question: problem}}\n{more}", {**MATH, **files})
    assert str(caught.value).startswith(message)


def test_a_folder_without_files(load: Load, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SuiteError, match=r"empty: is a folder without a \.json file, expected one for each row$"):
        load(HEAD + "empty\n")


@pytest.mark.parametrize("path", ["here", "here\n  format: text", "here/**/*.jsonl", "/", "/**/*.jsonl"])
def test_a_folder_without_an_end(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """That of all files, and one that a link leads back to."""
    monkeypatch.setattr(sources, "_MAX_ENTRIES", 300)
    (tmp_path / "here").mkdir()
    (tmp_path / "here/again").symlink_to(tmp_path / "here")
    (tmp_path / "here/1.json").write_text("{}")
    (tmp_path / "here/2.json").write_text("{}")
    for number in range(10):
        (tmp_path / f"here/{number}.txt").write_text("x")
    with pytest.raises(SuiteError, match="holds more than 300 files and folders; name the folder of the data set it"):
        load(f"{HEAD}{path}\n")


def test_texts_are_rows_of_their_own(load: Load) -> None:
    files = {"texts/b10.txt": "two\nlines\n", "texts/b9.md": "\ufeffone", "a.txt": "alone"}
    for path, texts in {
        "texts": ["one", "two\nlines\n"],
        "a.txt": ["alone"],
        '"**/*.txt"': ["alone", "two\nlines\n"],
    }.items():
        suite = load(f"{HEAD}{path}\n  format: text\n", files)
        assert [sample.variables["row"] for sample in suite.samples] == [{"text": text} for text in texts]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10**6)), min_size=1))
def test_natural_order_is_that_of_the_numbers(files: list[tuple[str, int]]) -> None:
    paths = [f"{folder}/{number}.json" for folder, number in files]
    assert sorted(paths, key=natural_order) == [f"{folder}/{number}.json" for folder, number in sorted(files)]


def test_examples_of_compressed_files_and_patterns(load: Load) -> None:
    suite = load(
        f'{HEAD}a.jsonl\nprompt: {{fewshot: {{count: 2, path: "shots/*.gz", sampler: first_n}}}}\n',
        {
            "a.jsonl": as_jsonl([{"question": "q"}]),
            "shots/1.jsonl.gz": gzip.compress(as_jsonl([{"question": "a", "target": "x"}])),
            "shots/2.csv.gz": gzip.compress(b"question,target\nb,y\n"),
        },
    )
    assert [shot.question for shot in suite.shots_for(suite.samples[0])] == ["a", "b"]
    with pytest.raises(SuiteError) as caught:
        load(f"{HEAD}a.jsonl\nprompt: {{fewshot: {{count: 2, path: shots/1.jsonl.gz}}}}\n")
    assert str(caught.value) == (
        "s.yaml:5: prompt.fewshot.count: shots/1.jsonl.gz holds 1 examples, expected at least 2"
    )
