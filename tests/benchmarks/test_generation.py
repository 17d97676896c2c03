"""The benchmark of refilled rows runs from end to end, and texts end where it says: no test reads a clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.works_for_bench import MAX_NEW_TOKENS_WITH_ENDS, Sizes, data_problem, make_work

pytestmark = pytest.mark.skipif(data_problem() is not None, reason=data_problem() or "")


@pytest.mark.campaign
def test_both_ways_write_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.generation import main
    from pytest_llmeval.models.huggingface import generation
    from pytest_llmeval.models.huggingface.generation_writer import Writer

    monkeypatch.setattr(generation, "Writer", Writer)  # what the bench puts in its place goes with the test

    options = ["--work", str(tmp_path), "--model", "tiny", "--questions", "70", "--repeat", "1", "--threads", "1"]
    assert main(options) == 0
    (line,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert line["equal_texts"] == line["questions"] == 70
    assert line["refilled_passes"] < line["batches_passes"]
    assert line["ratio"] > 0


def test_a_reply_is_as_long_as_its_solution() -> None:
    work = make_work("gsm8k_ended", Sizes(max_length=1024, num_questions=20), lambda text: len(text.split()))
    assert work.has_ends
    assert work.max_new_tokens == MAX_NEW_TOKENS_WITH_ENDS
    assert len({prompt.ends_after for prompt in work.prompts}) > 10
    again = make_work("gsm8k_generation", Sizes(max_length=1024, num_questions=20), lambda text: len(text.split()))
    assert not again.has_ends
