"""Which YAML files are suites."""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.format.sniff import _KEYS, SuiteKey, find_suite_key

SUITES = {
    "plain": b"suite: s\nsamples: []\n",
    "dataset": b"suite: s\ndataset: {path: x.jsonl}\n",
    "preset": b"suite: s\npreset: arc\n",
    "score": b"suite: s\nscore: exact\n",
    "quoted keys": b"\"suite\": s\n'score': exact\n",
    "space before the colon": b"suite : s\nscore : exact\n",
    "no value": b"suite:\nscore:\n",
    "comments and blank lines": b"# a\n\n  # b\n\t\nsuite: s\nscore: exact\n",
    "directive and document start": b"%YAML 1.2\n--- # c\nsuite: s\nscore: exact\n",
    "byte order mark": b"\xef\xbb\xbfsuite: s\nscore: exact\n",
    "windows line ends": b"# a\r\nsuite: s\r\nscore: exact\r\n",
    "old mac line ends": b"# a\rsuite: s\rscore: exact\r",
    "latin-1 below": b"suite: s\ndescription: caf\xe9\nscore: exact\n",
    "utf-16": "suite: s\nscore: exact\n".encode("utf-16"),
    "broken below": b"suite: s\nprompt:\n\ttemplate: [\nscore: exact\n",
    "NUL below": b"suite: s\n\x00\nscore: exact\n",
    "key far below": b"suite: s\ndescription: |\n" + b"  text\n" * 20_000 + b"score: exact\n",
    "comment longer than one read": b"# x\n" * 5_000 + b"suite: s\nscore: exact\n",
}
OTHERS = {
    "empty": b"",
    "comments only": b"# suite: s\n# score: exact\n",
    "helm-unittest": b"suite: test deployment\ntemplates:\n  - deployment.yaml\ntests:\n  - it: should work\n",
    "docker-compose": b"services:\n  web:\n    image: x\n",
    "suite second": b"name: x\nsuite: s\nscore: exact\n",
    "suite indented": b" suite: s\nscore: exact\n",
    "other key indented": b"suite: s\n  score: exact\n",
    "longer key": b"suites: s\nscore: exact\n",
    "longer other key": b"suite: s\nscores: exact\n",
    "no space after the colon": b"suite:s\nscore:exact\n",
    "unmatched quote": b"\"suite': s\nscore: exact\n",
    "list": b"- suite: s\n",
    "flow mapping": b"{suite: s, score: exact}\n",
    "binary": bytes(range(256)) * 100,
    "NUL": b"\x00" * 10_000,
    "one long line": b"x" * 3_000_000,
    "preamble without end": b"# x\n" * 100_000 + b"suite: s\nscore: exact\n",
}


def is_suite_file(path: Path) -> bool:
    found = find_suite_key(path)
    return found is not None and found.is_first


@pytest.mark.parametrize("content", SUITES.values(), ids=SUITES.keys())
def test_suites_are_suites(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert is_suite_file(path)


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS.keys())
def test_other_files_are_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert not is_suite_file(path)


LATE = {
    "description first": (b"# c\ndescription: d\nsuite: s\nsamples: []\nscore: exact\n", 3),
    "last": (b"preset: arc\ndataset:\n  path: x\nsuite: 's'\n", 4),
    "windows line ends": (b"score: exact\r\nsamples: []\r\nsuite: s\r\n", 3),
    "a preset of ours is a whole suite": (b"preset: boolq-lm-eval  # c\ntags: [x]\nsuite: s\n", 3),
    "samples at column 0": (b"score: exact\nsamples:\n- question: q\n  target: t\nsuite: s\n", 5),
    "byte order mark": (b"\xef\xbb\xbfscore: exact\nsamples: []\nsuite: s\n", 3),
    "below a long comment": (b"# x\n" * 5_000 + b"score: exact\nsamples: []\nsuite: s\n", 5_003),
    "below many samples": (
        b"score: exact\nsamples:\n" + b"- {question: q}\n" * 2_000 + b"suite: s\n",
        2_003,
    ),
}
LIKE_LATE = {
    "a score that is a number": b"score: 3\nsuite: nightly\ndataset: {path: rows.csv}\n",
    "a preset of others": b"description: nightly\npreset: fast\nsuite: smoke\n",
    "a preset of others, in a list": b"preset: [arc]\nsuite: smoke\n",
    "nothing to ask": b"score: exact\ntags: [x]\nsuite: s\n",
    "nothing to score by": b"dataset: x\ndescription: d\nsuite: s\n",
    "a key that no suite has": b"score: exact\ndataset: x\nsuite: s\nowner: me\n",
    "a quoted key that no suite has": b"score: exact\ndataset: x\nsuite: s\n'my owner' : me\n",
    "hidden job": b"score: exact\ndataset: x\nsuite: s\n.job:\n  x: y\n",
    "helm-unittest": b"score: 1\ndataset: x\nsuite: s\ntemplates: [x]\ntests: []\n",
    "docker-compose": b"description: d\nsuite: s\npreset: arc\nservices: {}\n",
    "GitHub": b"description: d\non: push\nsuite: s\nscore: 1\nsamples: []\n",
    "suite is a mapping": b"score: exact\nsamples: []\nsuite: {a: b}\n",
}


@pytest.mark.parametrize(("content", "line"), LATE.values(), ids=LATE.keys())
def test_a_suite_whose_first_key_is_another(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert find_suite_key(path) == SuiteKey(line)
    assert not is_suite_file(path)


NOT_LATE = {**{f"other: {name}": text for name, text in OTHERS.items()}, **SUITES, **LIKE_LATE}


@pytest.mark.parametrize("content", NOT_LATE.values(), ids=NOT_LATE.keys())
def test_no_other_file_is_taken_for_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert find_suite_key(path) in (None, SuiteKey())


def test_what_cannot_be_read_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    assert not is_suite_file(tmp_path / "folder.yaml")
    assert not is_suite_file(tmp_path / "missing.yaml")
    assert not is_suite_file(Path("nul\0.yaml"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.yaml")
        assert not is_suite_file(tmp_path / "pipe.yaml")


def test_the_keys_of_a_suite_are_the_schema_s() -> None:
    assert {key.decode() for key in _KEYS} == set(SuiteSpec.model_fields)


@pytest.mark.parametrize("beginning", [b"interactions:\n", b"# c\n\non:\n", b"- a:\n", b"preset: arc\nname:\n"])
def test_of_a_file_of_others_no_more_than_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    """Recorded replies of servers, for one, are thousands of YAML files of 100 KB in a folder of tests."""
    path, num_bytes = tmp_path / "x.yaml", []
    path.write_bytes(beginning + b"  - a: b\n" * 20_000 + b"score: exact\nsamples: []\nsuite: s\n")

    class Read(FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            num_bytes.append(size)
            return super().read(size)

    monkeypatch.setattr(Path, "open", lambda self, mode: Read(self, mode))
    assert find_suite_key(path) is None
    assert num_bytes == [4_096]


@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=100).map(lambda text: f"suite: {text}".encode("utf-8", "replace")),
        st.text(max_size=100).map(lambda text: f"preset: {text}\nsuite: s\n".encode("utf-8", "replace")),
    )
)
def test_no_content_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    assert is_suite_file(path) in (True, False)
