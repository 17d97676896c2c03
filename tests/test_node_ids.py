"""Node ids of samples are written and read by one module."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.text.names import SampleNode, escape_id, model_nodes, split_file, unescape_id

IDS = st.text(st.sampled_from("ab:[]%/@ é") | st.characters(codec=None), min_size=1, max_size=8)
MODELS = st.lists(st.text(st.sampled_from("ab:/[%@é"), min_size=1, max_size=6), min_size=2, max_size=3, unique=True)


@given(IDS)
def test_a_sample_without_a_model(sample_id: str) -> None:
    node = SampleNode.parse(f"suites/a.yaml::{escape_id(sample_id)}")
    assert node == SampleNode("suites/a.yaml", (), unicodedata.normalize("NFC", sample_id))


@given(MODELS, IDS)
def test_a_sample_of_a_model(models: list[str], sample_id: str) -> None:
    nodes = model_nodes(models)
    assert len(set(nodes.values())) == len(models)
    for name in nodes.values():
        node = SampleNode.parse(f"suites/a.yaml::{name}::{escape_id(sample_id)}")
        assert node == SampleNode("suites/a.yaml", (name,), unicodedata.normalize("NFC", sample_id))


@given(IDS)
def test_a_group_of_pytest_xdist_is_no_part_of_the_id(sample_id: str) -> None:
    """``--dist loadgroup`` writes the mark xdist_group behind the node id."""
    for group in ("gpu", "a::b"):
        node = SampleNode.parse(f"runs@2/a.yaml::m::{escape_id(sample_id)}@{group}")
        assert node == SampleNode("runs@2/a.yaml", ("m",), unicodedata.normalize("NFC", sample_id))
    assert SampleNode.parse("test_a.py::Sums::q1@gpu") == SampleNode("test_a.py::Sums", (), "q1")


@given(MODELS)
def test_pytest_can_read_a_models_name(models: list[str]) -> None:
    for name in model_nodes(models).values():
        assert not {"[", "]", "@"} & set(name)
        assert f"a.yaml::{name}::b".split("::") == ["a.yaml", name, "b"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("org/big", "big"),
        ("./a[1]", "a%5B1%5D"),
        ("x:", "x%3A"),
        ("python:m:f", "python:m:f"),
        ("org/big@main", "big%40main"),
    ],
)
def test_a_models_name(model: str, name: str) -> None:
    assert model_nodes([model, "other"])[model] == name
    assert unescape_id(name) in model


@pytest.mark.parametrize(
    ("nodeid", "file", "rest"),
    [
        ("a.yaml", "a.yaml", ""),
        ("a.yaml::b.yaml", "a.yaml", "b.yaml"),
        ("b::c/a.yml::gpt2::q1", "b::c/a.yml", "gpt2::q1"),
        ("b::c/test_a.py::Sums", "b::c/test_a.py", "Sums"),
        ("README.md::README.md", "README.md", "README.md"),
        ("", "", ""),
    ],
)
def test_the_file_of_a_node_id(nodeid: str, file: str, rest: str) -> None:
    assert split_file(nodeid) == (file, rest)
