"""What holds for every suite: stable ids, literal text, no sample among its own examples."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_llmeval.data.yaml_reader import MAX_DEPTH
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.suites.prompts import render_prompt
from pytest_llmeval.templates.templates import Templates

numbers = st.lists(st.integers(0, 5), min_size=1, max_size=12)
seeds = st.none() | st.integers(0, 3)


def load(rows: list[dict[str, object]], dataset: dict[str, object], **keys: object) -> Suite:
    """A suite in JSON, which is YAML, over the rows in JSONL."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.yaml")
        kept = {key: value for key, value in dataset.items() if value is not None}
        path.write_text(json.dumps({"suite": "s", "score": "exact", "dataset": {"path": "d.jsonl", **kept}, **keys}))
        Path(folder, "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return load_suite(path)


@given(numbers, st.integers(0, 5), seeds, st.none() | st.integers(1, 12))
def test_ids_name_the_same_rows_under_where_shuffle_and_limit(
    values: list[int], least: int, seed: int | None, limit: int | None
) -> None:
    assume(any(value >= least for value in values))
    rows: list[dict[str, object]] = [{"n": value} for value in values]
    everything = {sample.id: sample.variables["row"] for sample in load(rows, {}).samples}
    selected = load(rows, {"where": f"n >= {least}", "shuffle_seed": seed, "limit": limit}).samples
    assert len({sample.id for sample in selected}) == len(selected)
    for sample in selected:
        assert everything[sample.id] == sample.variables["row"]
        assert sample.line == int(sample.id)
    num_left = sum(value >= least for value in values)
    assert len(selected) == min(num_left, limit or num_left)


@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=12),
    st.integers(1, 3),
    st.sampled_from(["seeded", "first_n", "lm_eval"]),
    st.integers(0, 3),
    st.integers(1, 8),
    seeds,
)
def test_examples_leave_out_the_sample_and_ignore_the_selection(
    values: list[int], count: int, sampler: str, seed: int, limit: int, shuffle_seed: int | None
) -> None:
    rows: list[dict[str, object]] = [{"question": f"q{value}"} for value in values]
    assume(all(len(rows) - rows.count(row) >= count for row in rows))
    prompt = {"fewshot": {"count": count, "sampler": sampler, "seed": seed}}
    whole = load(rows, {}, prompt=prompt)
    shots = {sample.id: whole.shots_for(sample) for sample in whole.samples}
    for sample in whole.samples:
        assert len(shots[sample.id]) == count
        assert sample.question not in [shot.question for shot in shots[sample.id]]
    selected = load(rows, {"limit": limit, "shuffle_seed": shuffle_seed}, prompt=prompt)
    for sample in selected.samples:
        assert [shot.id for shot in selected.shots_for(sample)] == [shot.id for shot in shots[sample.id]]


literal = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{\0"), max_size=40)


@given(literal)
def test_text_without_braces_is_rendered_unchanged(text: str) -> None:
    # Jinja2 writes the line ends that it reads as \n
    expected = text.replace("\r\n", "\n").replace("\r", "\n")
    assert Templates().text(text, {}) == expected
    assert Templates().value(text, {}) == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_data_passes_through_templates_unchanged(text: str) -> None:
    suite = load([{"question": text}], {}, prompt={"template": "{{ question }}"})
    (sample,) = suite.samples
    assert sample.question == text
    assert render_prompt(suite, sample, sample.variables, [], "") == text
    assert Templates().value("{{ question }}", sample.variables) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_json_values_pass_through_expressions_with_their_types(value: object) -> None:
    assert MAX_DEPTH > 10
    made = Templates().value("{{ value }}", {"value": value})
    assert made == value
    assert type(made) is type(value)
