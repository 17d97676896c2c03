"""The samples of a page: the index of all, the texts of as many as fit, and in which order they are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.summaries import compare_models
from pytest_llmeval.reporting.tables.suites import short_model_names
from pytest_llmeval.reporting.writers.html.samples import CHUNK_RECORDS, MAX_TEXT_BYTES, page_samples
from tests.reporting.html.pages import page_of
from tests.reporting.reports import make_record, make_report

records_of_a_run = st.lists(
    st.builds(
        lambda suite, status, category, output, value: make_record(
            suite=suite, status=status, category=category, output=output, values={"accuracy": value}
        ),
        suite=st.sampled_from(["a", "b"]),
        status=st.sampled_from(["correct", "wrong", "scored", "unscored"]),
        category=st.sampled_from([None, "x", "y"]),
        output=st.none() | st.text(max_size=200),
        value=st.floats(0, 1),
    ),
    max_size=30,
)


@given(records_of_a_run, st.integers(0, 4000))
@settings(max_examples=40, deadline=None)
def test_the_index_is_whole_and_the_texts_fit(
    tmp_path_factory: pytest.TempPathFactory, given_records: list[Record], limit: int
) -> None:
    records = [replace(record, id=f"s{number}") for number, record in enumerate(given_records)]
    page = page_of(make_report(records), tmp_path_factory.mktemp("page"), limit=limit)
    names, rows = page.names, page.samples
    by_key = {(record.suite, record.id): record for record in records}
    assert len(rows) == len(by_key) == len(records)
    for row in rows:
        record = by_key.pop((names["suites"][row["suite"]], row["id"]))
        assert names["statuses"][row["status"]] == record.status
        assert names["categories"][row["category"]] == (record.category or "")
        assert row.get("metric0") == (
            None if record.status == "unscored" else float(f"{record.values['accuracy']:.9g}")
        )
        if row["shown"] is not None:
            texts = dict(row["shown"]["texts"])
            assert ("output" in texts) == (record.output is not None)
    places = [(row["suite"], row["category"]) for row in rows]
    assert places == sorted(places)
    chunk_bytes = sum(
        len(one.text) for one in page.all("script") if (one.attributes.get("id") or "").startswith("chunk")
    )
    assert chunk_bytes <= limit


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    records = [make_record(id_=f"s{number}", output=f"{number} " * 300) for number in range(600)]
    whole = page_of(make_report(records), tmp_path)
    assert [len(chunk) for chunk in whole.chunks] == [CHUNK_RECORDS, CHUNK_RECORDS, 600 - 2 * CHUNK_RECORDS]
    assert "are left out" not in whole.text
    part = page_of(make_report(records), tmp_path, limit=4000)
    num_kept = sum(row["kept"] for row in part.samples)
    assert 0 < num_kept < 600
    assert f"The texts of {600 - num_kept} of 600 samples are left out" in part.text
    assert [row["kept"] for row in part.samples] != sorted((row["kept"] for row in part.samples), reverse=True)


def test_a_reply_that_is_too_large_costs_no_other_its_text(tmp_path: Path) -> None:
    huge = make_record(id_="huge", status="unscored", reason="boom", output="".join(map(str, range(100_000))))
    records = [huge, *(make_record(id_=f"s{number}", output=f"{number} " * 100) for number in range(100))]
    rows = page_of(make_report(records), tmp_path, limit=20_000).samples
    assert sum(row["kept"] for row in rows) > 20
    assert not next(row for row in rows if row["id"] == "huge")["kept"]


def test_changed_samples_come_before_wrong_ones(tmp_path: Path) -> None:
    first = [make_record(id_=f"s{n}", model="one", values={"accuracy": 1.0}, output=f"{n}" * 500) for n in range(20)]
    second = [
        make_record(
            id_=f"s{n}", model="two", status="correct", values={"accuracy": float(n != 7)}, output=f"{n * 7}" * 500
        )
        for n in range(20)
    ]
    second[7] = replace(second[7], status="wrong")
    wrong = [make_record(id_=f"t{n}", model="one", status="wrong", output=f"{n * 3}" * 500) for n in range(20)]
    compared = compare_models("sums", {"one": first, "two": second}, ["one", "two"], ["accuracy"])
    report = make_report([*first, *wrong, *second], comparisons=tuple(compared))
    page = page_of(report, tmp_path, limit=300)
    kept = [row for row in page.samples if row["kept"]]
    assert ("s7", 1) in [(row["id"], row["change"]) for row in kept]
    assert len(kept) < 20


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (None, None),
        ("sha256:" + "0" * 64, "sha256:" + "0" * 64),
        ([{"role": "user", "content": "Hi\x07"}], "user: Hi\\x07"),
    ],
)
def test_prompts_are_as_the_report_keeps_them(tmp_path: Path, prompt: object, shown: str | None) -> None:
    (row,) = page_of(make_report([make_record(prompt=prompt, question="Why?")]), tmp_path).samples
    assert dict(row["shown"]["texts"]).get("prompt") == shown
    assert row["snippet"] == "Why?"


def test_a_line_of_the_list_has_no_other_lines_in_it(tmp_path: Path) -> None:
    (row,) = page_of(
        make_report([make_record(question="Why\nnot?", answer="5 - 2\r\n\t= 3 \x1b[m\n")]), tmp_path
    ).samples
    assert (row["snippet"], row["answer"]) == ("Why not?", "5 - 2 = 3 \\x1b[m")


def test_models_are_called_by_their_short_names_where_there_is_little_room(tmp_path: Path) -> None:
    models = ("python:suites/search.py:bm25", "python:suites/search.py:bm25?stem=false")
    report = make_report([make_record(model=model) for model in models], models=tuple({"name": one} for one in models))
    page = page_of(report, tmp_path)
    assert page.names["models"] == [*models]  # as an address names them
    assert page.names["short_models"] == [*short_model_names(report).values()]
    choices = [one.text for one in page.all("option")]
    assert set(page.names["short_models"]) <= {*choices}
    assert not {*models} & {*choices}


def test_options_with_their_probabilities(tmp_path: Path) -> None:
    record = make_record(
        status="wrong",
        choices=("Bergen", "Os\x00lo"),
        target="Oslo",
        answer="Bergen",
        details={"probabilities": [0.7125, 0.2875], "labels": ["A", "B"], "right": [1]},
    )
    (row,) = page_of(make_report([record]), tmp_path).samples
    options = row["shown"]["options"]
    assert [option[:3] for option in options] == [["Bergen", "A", 0.7125], ["Os\\x00lo", "B", 0.2875]]


def test_options_say_which_is_right_and_which_was_answered(tmp_path: Path) -> None:
    tied = make_record(
        id_="tied", choices=("a", "b", "c"), target="b", answer="a | b (tie)", details={"tied": [0, 1]}, category="x"
    )
    several = make_record(id_="several", choices=("a", "b", "c"), target=["a", "c"], answer="c", category="y")
    first, second = page_of(make_report([tied, several]), tmp_path).samples
    assert first["shown"]["options"] == [
        ["a", None, None, "tied"],
        ["b", None, None, "right, tied"],
        ["c", None, None, ""],
    ]
    assert [option[3] for option in second["shown"]["options"]] == ["right", "", "right, answered"]


def test_an_opened_sample_has_its_values_and_what_it_took(tmp_path: Path) -> None:
    record = make_record(
        values={"accuracy": 1.0, "f1\x1b": 2 / 3, "letters": 7},
        num_prompt_tokens=31,
        num_tokens=7,
        seconds=0.375,
        cost=0.0125,
        num_judge_requests=2,
        num_judge_tokens=1900,
    )
    plain = make_record(id_="s2", num_tokens=1)
    first, second = page_of(make_report([record, plain]), tmp_path).samples
    assert first["shown"]["node"] == "sums.yaml::s1"
    assert first["shown"]["values"] == [["accuracy", 1.0], ["f1\\x1b", 0.666666667], ["letters", 7]]
    assert first["shown"]["took"] == [
        ["prompt tokens", 31],
        ["tokens", 7],
        ["seconds", 0.375],
        ["cost", 0.0125],
        ["judge's requests", 2],
        ["judge's tokens", 1900],
    ]
    assert second["shown"]["took"] == [["tokens", 1]]
    assert "options" not in second["shown"]


def test_samples_stand_by_suite_category_and_model_and_else_as_they_came(tmp_path: Path) -> None:
    came = [("b", "s9", "one", "y"), ("a", "s3", "two", None), ("b", "s2", "two", "x"), ("b", "s2", "one", "x")]
    came += [("b", "s1", "two", "x"), ("b", "s1", "one", "x"), ("a", "s3", "one", None), ("b", "s9", "two", "y")]
    records = [make_record(suite, id_, model=model, category=category) for suite, id_, model, category in came]
    page = page_of(make_report(records), tmp_path)
    names = page.names
    assert (names["suites"], names["models"], names["categories"]) == (["b", "a"], ["one", "two"], ["y", "", "x"])
    assert [
        (
            names["suites"][row["suite"]],
            row["id"],
            names["models"][row["model"]],
            names["categories"][row["category"]] or None,
        )
        for row in page.samples
    ] == [
        ("b", "s9", "one", "y"),
        ("b", "s9", "two", "y"),
        ("b", "s2", "one", "x"),
        ("b", "s1", "one", "x"),
        ("b", "s2", "two", "x"),
        ("b", "s1", "two", "x"),
        ("a", "s3", "one", None),
        ("a", "s3", "two", None),
    ]


def test_the_index_says_how_a_sample_changed(tmp_path: Path) -> None:
    def of_model(model: str, *values: float) -> list[Record]:
        return [
            make_record(id_=f"s{place}", model=model, status="scored", values={"f1": value})
            for place, value in enumerate(values)
        ]

    first, second = of_model("one", 0.5, 0.25, 0.75), of_model("two", 0.125, 0.875, 0.75)
    compared = compare_models("sums", {"one": first, "two": second}, ["one", "two"], ["f1"])
    page = page_of(make_report([*first, *second], comparisons=tuple(compared)), tmp_path)
    shown = [(page.names["changes"][row["change"]], row["before"], row["now"]) for row in page.samples]
    assert shown == [
        *[("", None, None)] * 3,
        ("worse", 0.5, 0.125),
        ("better", 0.25, 0.875),
        ("same", 0.75, 0.75),
    ]


@pytest.mark.parametrize(
    ("values", "words", "answer"),
    [
        ({"answer": "5"}, "", "5"),
        ({"answer": None}, "", ""),  # such as a text that a judge scored
        ({"status": "unscored", "reason": "the model\nraised\x07"}, "could not be scored", "the model raised\\x07"),
        ({"status": "unscored", "reason": "late", "answer": "5"}, "", "5"),
        ({"output": " \n", "no_answer": True}, "empty reply", ""),
        ({"output": "Well, well.", "no_answer": True}, "no answer in the reply", ""),
        ({"output": "", "details": {"documents": ["d1"]}}, "", ""),  # a search writes nothing
        ({"output": None}, "", ""),
    ],
)
def test_a_sample_without_an_answer_says_why(tmp_path: Path, values: dict[str, Any], words: str, answer: str) -> None:
    page = page_of(make_report([make_record(**values)]), tmp_path)
    (row,) = page.samples
    assert (page.names["missing"][row["missing"]], row["answer"]) == (words, answer)


def test_a_text_without_end_is_cut(tmp_path: Path) -> None:
    (row,) = page_of(make_report([make_record(output="x" * 300_000)]), tmp_path).samples
    output = dict(row["shown"]["texts"])["output"]
    assert output.startswith("x" * 200_000)
    assert output.endswith("(100,000 more characters are in the JSON report)")
    assert len(output) < 200_100


def test_a_long_prompt_without_a_question_is_known_by_its_end(tmp_path: Path) -> None:
    prompt = "An example.\n" * 100 + "Question: what is\nnew?"
    (row,) = page_of(make_report([make_record(prompt=prompt)]), tmp_path).samples
    assert row["snippet"].startswith("…")
    assert row["snippet"].endswith("Question: what is new?")
    assert len(row["snippet"]) == 80


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_json_has_no_number_for_has_none(tmp_path: Path, value: float) -> None:
    lost = make_record(values={"accuracy": value, "nll": value})
    report = replace(make_report([make_record()]), records=(lost,))
    (row,) = page_of(report, tmp_path).samples
    assert row["shown"]["values"] == [["accuracy", None], ["nll", None]]
    assert row["metric0"] is None


def test_memory_does_not_grow_with_texts() -> None:
    """Texts are in the page's files and nowhere else: reading them twice asks the report for each record."""
    asked: list[int] = []

    class Counting(tuple[Record, ...]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            for place in range(len(self)):
                asked.append(place)
                yield self[place]

    records = [make_record(id_=f"s{number}") for number in range(10)]
    report = replace(make_report(records), records=Counting(records))
    with page_samples(report, limit=MAX_TEXT_BYTES) as samples:
        assert len([*samples.chunks]) == 1
    assert asked == list(range(10))
