"""Which YAML files are suites."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.suites.sniff import is_suite_file

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


def test_what_cannot_be_read_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    assert not is_suite_file(tmp_path / "folder.yaml")
    assert not is_suite_file(tmp_path / "missing.yaml")
    assert not is_suite_file(Path("nul\0.yaml"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.yaml")
        assert not is_suite_file(tmp_path / "pipe.yaml")


@given(
    st.one_of(
        st.binary(max_size=200), st.text(max_size=100).map(lambda text: f"suite: {text}".encode("utf-8", "replace"))
    )
)
def test_no_content_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    assert is_suite_file(path) in (True, False)
