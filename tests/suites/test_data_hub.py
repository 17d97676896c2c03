"""Data sets of the hub: read by ``datasets`` from local caches, with the network switched off."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow.parquet
import pytest

from pytest_llmeval.data import hub
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.loading.sources import HubDataset, read_hub
from tests.suites.conftest import Load
from tests.suites.hub_cache import as_jsonl, as_parquet, cache_files, cache_tables, configs_card
from tests.support import clean_environment

SUITE = "suite: s\nscore: exact\ndataset: {%s}\n"
ROWS = [{"question": f"{place}?", "target": str(place), "choices": ["a", "b"]} for place in range(5)]
SHOTS = [{"question": "shot?", "target": "7", "choices": ["a", "b"]}]
CARD = configs_card(
    {
        "anatomy": {"test": "anatomy/test-*", "dev": "anatomy/dev-*"},
        "virology": {"test": "virology/test-*"},
    }
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HF_HOME of four data sets, and no network."""
    home = tmp_path / "home"
    files = {
        "anatomy/test-00000-of-00001.parquet": as_parquet(ROWS),
        "anatomy/dev-00000-of-00001.parquet": as_parquet(SHOTS),
        "virology/test-00000-of-00001.parquet": as_parquet(ROWS[:2]),
    }
    cache_files(home, "org/several", "a" * 40, {"README.md": CARD, **files})
    cache_files(home, "org/lines", "b" * 40, {"README.md": b"# lines\n", "test.jsonl": as_jsonl(ROWS)})
    cache_files(home, "org/script", "c" * 40, {"README.md": b"# script\n", "script.py": b"raise SystemExit\n"})
    virology = {name: data for name, data in files.items() if "virology" in name}
    cache_files(home, "org/partial", "d" * 40, {"README.md": CARD, **virology})
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return home


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("source", "place", "num_rows"),
    [
        ("hub: org/several, config: anatomy, split: test", "org/several (anatomy, test)", 5),
        ("hub: org/several, config: virology", "org/several (virology, test)", 2),
        ("hub: org/several, config: anatomy, split: 'test[1:3]'", "org/several (anatomy, test[1:3])", 2),
        (f"hub: org/several, config: virology, revision: {'a' * 40}", "org/several (virology, test)", 2),
        ("hub: org/lines", "org/lines (test)", 5),
        ("hub: org/lines, revision: main, limit: 3", "org/lines (test)", 3),
        ("hub: org/lines, streaming: true", "org/lines (test)", 5),
    ],
)
def test_rows_of_a_cached_commit(load: Load, source: str, place: str, num_rows: int) -> None:
    suite = load(SUITE % source)
    assert [sample.id for sample in suite.samples] == [str(place) for place in range(1, num_rows + 1)]
    first = int("[1:3]" in source)
    assert [sample.variables["row"] for sample in suite.samples] == ROWS[first : first + num_rows]
    assert {(sample.path, sample.line) for sample in suite.samples} == {(place, None)}
    assert suite.place(suite.samples[0]) == place


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hub: org/several", "config: org/several has several configs, expected one of anatomy, virology"),
        (
            "hub: org/several, config: anatmy",
            "config: org/several has no config 'anatmy'; did you mean 'anatomy'?",
        ),
        (
            "hub: org/several, config: anatomy",
            "split: org/several (anatomy) has several splits, expected one of test, dev",
        ),
        (
            "hub: org/several, config: anatomy, split: tset",
            "split: org/several (anatomy) has no split 'tset'; did you mean 'test'?",
        ),
        (
            "hub: org/script",
            "hub: org/script is made by a script, script.py, and no code of a data set is run; use a copy in data "
            "files (many have one at revision: refs/convert/parquet)",
        ),
        (
            "hub: org/none",
            "hub: HF_HUB_OFFLINE is set, and the local cache does not hold org/none; load it once with a network, or "
            "name files with path",
        ),
        (
            "hub: org/lines, revision: v2",
            "hub: HF_HUB_OFFLINE is set, and the local cache does not hold org/lines at the revision 'v2'; load it "
            "once with a network, or name files with path",
        ),
        (
            "hub: org/lines, revision: v2, streaming: true",
            "hub: HF_HUB_OFFLINE is set, and the local cache does not hold org/lines at the revision 'v2'; load it "
            "once with a network, or name files with path",
        ),
        ("hub: ../lines", "hub: found '../lines', expected the name of a data set as org/name"),
        (
            "hub: org/lines, where: 'questoin'",
            "where: org/lines (test), row 1: 'questoin' is undefined; did you mean 'question'?",
        ),
        ("hub: org/lines, streaming: true, shuffle_seed: 1", "shuffle_seed: needs all rows, which dataset.streaming "
         "does not read; remove one"),
        ("hub: org/lines, format: json", "format: requires dataset.path"),
        ("path: a.jsonl, split: test", "split: requires dataset.hub"),
    ],
)  # fmt: skip
def test_what_is_said(load: Load, source: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(SUITE % source)
    assert str(caught.value) == f"s.yaml:3: dataset.{message}"


@pytest.mark.usefixtures("home")
def test_a_broken_value_is_named_by_its_row(load: Load) -> None:
    with pytest.raises(SuiteError) as caught:
        load(SUITE % "hub: org/lines" + "target: '{{ row }}'\n")
    assert str(caught.value) == (
        "org/lines (test): row 1: sample '1': target: found a mapping with the keys 'question', 'target', 'choices', "
        "expected text, a number, a bool or a list of those"
    )


@pytest.mark.usefixtures("home")
def test_examples_of_another_split(load: Load) -> None:
    suite = load(
        "suite: s\nscore: exact\ndataset: {hub: org/several, config: anatomy, split: test}\n"
        "prompt: {fewshot: {count: 1, hub: org/several, config: anatomy, split: dev}}\n"
    )
    assert [shot.question for shot in suite.shots_for(suite.samples[0])] == ["shot?"]


def test_the_own_cache_of_datasets_where_the_hub_s_has_a_part(load: Load, home: Path) -> None:
    datasets.load_dataset(str(home / "hub/datasets--org--several/snapshots" / ("a" * 40)), "virology")
    (prepared,) = (path for path in home.glob("datasets/a*/virology/0.0.0/*") if path.is_dir())
    cache_tables(home, "org/partial", "d" * 40, "virology", prepared)
    for source in ("config: virology", f"config: virology, revision: {'d' * 40}", "config: virology, revision: main"):
        suite = load(SUITE % f"hub: org/partial, {source}")
        assert [sample.variables["row"] for sample in suite.samples] == ROWS[:2]
    with pytest.raises(SuiteError) as caught:
        load(SUITE % f"hub: org/partial, config: virology, revision: {'e' * 40}")
    assert str(caught.value) == (
        "s.yaml:3: dataset.revision: the hub cannot be reached, and the local cache holds org/partial at the commit "
        f"{'d' * 40}, expected {'e' * 40}"
    )
    with pytest.raises(SuiteError, match=r"the local cache holds org/partial \(virology\) in part; name the config$"):
        load(SUITE % "hub: org/partial")


def test_images_are_not_decoded_and_no_use(load: Load, home: Path) -> None:
    features = datasets.Features({"question": datasets.Value("string"), "picture": datasets.Image()})
    rows = [{"question": "What?", "picture": {"bytes": b"no image at all", "path": None}}]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=features.arrow_schema), file)
    cache_files(home, "org/images", "f" * 40, {"test.parquet": file.getvalue()})
    for more in ("", ", streaming: true"):
        assert load(SUITE % f"hub: org/images{more}").samples[0].question == "What?"
        where = "s.yaml:3: dataset.fields.question: org/images (test), row 1:"
        for rule, place in {
            "picture.bytes": "org/images (test): row 1: sample '1': question: found",
            "'{{ picture.bytes }}'": f"{where} it gives",
            "'It is {{ picture.bytes }}'": f"{where} an expression gives",
        }.items():
            with pytest.raises(SuiteError) as caught:
                load(SUITE % (f"hub: org/images, fields: {{question: {rule}}}" + more))
            found = "binary data in the column 'picture' (15 bytes, such as an image), expected text"
            assert str(caught.value).startswith(f"{place} {found}")


@pytest.mark.usefixtures("calls")
def test_streaming_reads_no_more_than_it_needs(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(10_000):
            read.append(number)
            yield {"question": f"{number}?", "target": "x"}

    table = datasets.IterableDataset.from_generator(rows)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, **arguments: datasets.IterableDatasetDict({"a": table}))
    suite = load(SUITE % "hub: org/large, streaming: true, limit: 40, where: 'question != \"3?\"'")
    assert [sample.id for sample in suite.samples][:5] == ["1", "2", "3", "5", "6"]
    assert len(suite.samples) == 40
    assert len(read) < 100
    fewshot = "prompt: {fewshot: {count: 3, sampler: first_n%s}}\n"
    suite = load(SUITE % "hub: org/large, streaming: true, limit: 5" + fewshot % ", hub: org/large, streaming: true")
    assert [shot.question for shot in suite.shots_for(suite.samples[0])] == ["1?", "2?", "3?"]
    suite = load(SUITE % "hub: org/large, streaming: true, limit: 5" + fewshot % "")
    assert [shot.question for shot in suite.shots_for(suite.samples[4])] == ["0?", "1?", "2?"]
    assert len(read) < 300
    with pytest.raises(SuiteError) as caught:
        load(SUITE % "hub: org/large, streaming: true, limit: 5" + "prompt: {fewshot: {count: 3}}\n")
    assert str(caught.value) == (
        "s.yaml:4: prompt.fewshot.sampler: draws from all rows, which dataset.streaming with a limit does not read; "
        "write sampler: first_n, or name other examples with prompt.fewshot.hub and split"
    )


@pytest.fixture
def calls(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What ``load_dataset`` was called with. With a network, in which one data set of two splits is found."""
    calls: list[tuple[str, dict[str, Any]]] = []
    table = datasets.Dataset.from_list(ROWS)

    def load_dataset(path: str, **arguments: Any) -> Any:
        calls.append((path, arguments))
        if path == "org/gone":
            raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{path}' doesn't exist on the Hub.\nmore")
        if path == "org/made":
            raise RuntimeError("Dataset scripts are no longer supported, but found made.py")
        if path == "org/far":
            raise ConnectionError("Couldn't reach 'org/far' on the Hub (ConnectTimeout)")
        if arguments.get("revision") == "v9":
            raise datasets.exceptions.DatasetNotFoundError(
                "Revision 'v9' doesn't exist for dataset 'org/x' on the Hub."
            )
        return table if "split" in arguments else datasets.DatasetDict(test=table, dev=table)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "answers", lambda endpoint, timeout_s: True)
    hub.hub_answers.cache_clear()
    yield calls
    hub.hub_answers.cache_clear()


def test_what_load_dataset_is_called_with(load: Load, calls: list[tuple[str, dict[str, Any]]]) -> None:
    for source in ("split: test", "split: 'test[:5]'", "split: dev, config: c, revision: v1"):
        assert len(load(SUITE % f"hub: org/x, {source}").samples) == 5
    Path("org/x").mkdir(parents=True)
    load(SUITE % "hub: org/x, split: test")
    assert calls == [
        ("org/x", {}),
        ("org/x", {}),
        ("org/x", {"split": "test[:5]"}),
        ("org/x", {"name": "c", "revision": "v1"}),
        ("hf://datasets/org/x", {}),
    ]


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hub: org/gone", "hub: org/gone cannot be loaded: Dataset 'org/gone' doesn't exist on the Hub"),
        ("hub: org/x, revision: v9", "revision: org/x cannot be loaded: Revision 'v9' doesn't exist for dataset "
         "'org/x' on the Hub"),
        ("hub: org/made", "hub: org/made is made by a script, made.py, and no code of a data set is run; use a copy in "
         "data files (many have one at revision: refs/convert/parquet)"),
        ("hub: org/far", "hub: the hub cannot be reached, and the local cache does not hold org/far; load it once with "
         "a network, or name files with path"),
    ],
)  # fmt: skip
def test_what_is_said_with_a_network(load: Load, source: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(SUITE % source)
    assert str(caught.value) == f"s.yaml:3: dataset.{message}"


def test_a_hub_that_does_not_answer_is_asked_once_and_not_waited_for(
    load: Load, calls: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    seen: list[bool] = []

    def load_dataset(path: str, **arguments: Any) -> Any:
        seen.append(datasets.config.HF_HUB_OFFLINE and huggingface_hub.constants.HF_HUB_OFFLINE)
        raise ConnectionError("offline")

    def answers(endpoint: str, timeout_s: float) -> bool:
        asked.append(endpoint)
        return False

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(hub, "answers", answers)
    for _ in range(2):
        with pytest.raises(SuiteError, match=r"^s\.yaml:3: dataset\.hub: the hub cannot be reached, and the "):
            load(SUITE % "hub: org/far, split: test")
    assert (len(asked), seen, datasets.config.HF_HUB_OFFLINE) == (1, [True, True], False)


def test_a_server_that_takes_calls_and_says_nothing_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not hub.answers(f"http://127.0.0.1:{port}", 0.2)
    assert not hub.answers(f"http://127.0.0.1:{port}", 5.0)  # no program accepts the connection


def test_how_to_install_datasets(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SuiteError) as caught:
        load(SUITE % "hub: org/x")
    assert str(caught.value) == (
        "s.yaml:3: dataset.hub: needs the package datasets: pip install 'pytest-llmeval-suites[datasets]'"
    )


@pytest.mark.usefixtures("home")
def test_further_arguments_reach_the_loader(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(as_jsonl([{"a": {"b": 1}}, {"a": {"c": [1]}}]))

    def error(message: str, key: str) -> SuiteError:
        return SuiteError(f"{key}: {message}", path="x")

    dataset = HubDataset(
        "json", split="dev", arguments={"data_files": {"dev": str(tmp_path / "rows.jsonl")}}, is_local=True
    )
    loaded = datasets.load_dataset("json", data_files={"dev": str(tmp_path / "rows.jsonl")})["dev"]
    assert [row.columns for row in read_hub(dataset, error)] == list(loaded)
    assert [row.place for row in read_hub(dataset, error)] == ["json (dev), row 1", "json (dev), row 2"]
    with pytest.raises(SuiteError, match=r"hub: json reads files; name them with path$"):
        list(read_hub(HubDataset("json"), error))
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": 1}\n{"a"')
    with pytest.raises(SuiteError, match=r"hub: json \(dev\) cannot be loaded: An error occurred while .*: JSON parse"):
        list(read_hub(dataset, error))


def test_values_are_those_that_datasets_gives(home: Path) -> None:
    rows = [
        {"json": {"a": [1, None]}, "list": [{"x": "1"}], "label": 1, "mixed": [{"b": 0}, {"c": 0}]},
        {"json": {"b": "t"}, "list": [], "label": 0, "mixed": []},
    ]
    features = datasets.Features(
        {
            "json": datasets.Json(),
            "list": datasets.List({"x": datasets.Value("string")}),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "mixed": datasets.List(datasets.Json()),
        }
    )
    table = datasets.Dataset.from_list(rows, features=features)
    path = home.parent / "made.parquet"
    table.to_parquet(path)
    cache_files(home, "org/kinds", "9" * 40, {"test.parquet": path.read_bytes()})
    read = [
        row.columns for row in read_hub(HubDataset("org/kinds"), lambda message, key: SuiteError(message, path=key))
    ]
    assert read == list(table) == rows


READ = """\
import json, sys
from pathlib import Path
from pytest_llmeval.suites.loading.loader import load_suite
suite = load_suite(Path("s.yaml"))
print(json.dumps([sample.question for sample in suite.samples]))
"""


@pytest.mark.slow
def test_processes_do_not_fight_for_the_cache(load: Load, home: Path) -> None:
    """Three at once, with a cache in which no table was made yet, as the workers of pytest-xdist begin."""
    Path("s.yaml").write_text(SUITE % "hub: org/several, config: anatomy, split: test", encoding="utf-8")
    environment = {**clean_environment(), "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        environment.pop(name, None)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", READ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    replies = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], replies
    assert [json.loads(out) for out, _ in replies] == [[row["question"] for row in ROWS]] * 3
