"""``llmeval merge``: shards of one run become one report, and nothing else does."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.cli import main
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.merge import ChainedRecords, merge_reports
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import GateResult, Report
from pytest_llmeval.reporting.storage.json_form import head_to_json, record_to_json
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from tests.commands.saved_reports import MODEL, info, report_of, sample, samples, saved
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

WHOLE = {"a": 30, "b": 30}


def named(parts: Sequence[Report]) -> list[tuple[str, Report]]:
    return [(f"part{place}.json", part) for place, part in enumerate(parts)]


def whole_text(report: Report) -> str:
    return json.dumps(head_to_json(report)) + "".join(map(record_to_json, report.records))


@st.composite
def split_runs(draw: st.DrawFn) -> tuple[list[Record], list[list[Record]]]:
    """The samples of two suites on one model or two, and the same samples dealt out to up to four parts."""
    models = draw(st.sampled_from([["demo"], ["demo", "other"]]))
    records: list[Record] = []
    for suite in ("a", "b"):
        for number in range(draw(st.integers(1, 6))):
            records += [
                sample(
                    suite,
                    f"q{number}",
                    draw(st.sampled_from(["correct", "wrong", "unscored"])),
                    model=model,
                    category=f"c{number % 2}",
                    seconds=number / 4,
                )
                for model in models
            ]
    num_parts = draw(st.integers(1, 4))
    owners = {key: draw(st.integers(0, num_parts - 1)) for key in {(record.suite, record.id) for record in records}}
    parts = [[r for r in records if owners[r.suite, r.id] == part] for part in range(num_parts)]
    return records, parts


@given(split_runs(), st.randoms(use_true_random=False))
def test_the_numbers_are_those_of_the_whole_run_in_any_order(
    run: tuple[list[Record], list[list[Record]]], random: Any
) -> None:
    records, parts = run
    models = [{**MODEL, "name": name} for name in dict.fromkeys(record.model for record in records)]
    whole = report_of(records, num_whole=WHOLE, models=models)
    reports = named([report_of(part, num_whole=WHOLE, models=models) for part in parts])
    merged = merge_reports(reports)
    assert sorted(map(record_to_json, merged.records)) == sorted(map(record_to_json, whole.records))
    by_group = {(suite.info.name, suite.models): suite for suite in merged.suites}
    assert by_group == {(suite.info.name, suite.models): suite for suite in whole.suites}
    assert {one.suite: one.differences for one in merged.comparisons} == {
        one.suite: one.differences for one in whole.comparisons
    }
    assert {one.model: one for one in merged.averages} == {one.model: one for one in whole.averages}
    assert merged.exit_code == whole.exit_code
    random.shuffle(reports)
    assert whole_text(merge_reports(reports)) == whole_text(merged)


def test_what_is_said_of_the_run() -> None:
    gpu = {**MODEL, "device": "cuda:0", "details": {"torch": "2.14"}}
    first = report_of(
        samples("a", "cw"),
        num_whole=WHOLE,
        options={"model": ["demo"], "shard": "1/2", "limit": "4", "report": "1.json"},
        stopped="interrupted",
        exit_code=2,
        problems=("x", "y"),
    )
    second = report_of(
        samples("a", "cc", start=3),
        num_whole=WHOLE,
        models=[gpu],
        created="2026-11-22T00:10:00+00:00",
        environment={"python": "3.11.7", "versions": {"torch": "2.14"}},
        options={"model": ["demo"], "shard": "2/2", "limit": "4", "report": "2.json"},
        problems=("y",),
    )
    merged = merge_reports(named([first, second]), partial=True)
    assert merged.options == {"model": ["demo"], "limit": "4", "report": ["1.json", "2.json"]}
    assert merged.environment == {"python": "3.11.7", "versions": {"torch": ["2.13.0", "2.14"]}}
    assert (merged.created, merged.seconds) == ("2026-11-22T00:10:00+00:00", 25.0)
    assert (merged.stopped, merged.exit_code) == ("interrupted", 2)
    assert merged.problems == ("x", "y", "part0.json stopped early: interrupted")
    assert merged.models == ({**MODEL, "device": "cpu, cuda:0", "details": {"torch": [None, "2.14"]}},)
    assert merged.suites[0].summary.num_expected == 4
    assert merged.suites[0].info.num_samples == 30


FAILED_GATE = GateResult(name="g", kind="threshold", origin="suite", outcome="failed", reason="below")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((0, 0), 0), ((0, 1), 0), ((0, 5), 0), ((1, 5), 0), ((5, 5), 5), ((1, 2), 2), ((3, 5), 3)],
)
def test_the_exit_code(codes: tuple[int, int], expected: int) -> None:
    """A part's 1 is that of a gate, which saw only its part."""
    parts = [report_of(samples("a", "c", start=start), gates=(FAILED_GATE,)) for start in (0, 10)]
    parts = [replace(part, exit_code=code) for part, code in zip(parts, codes, strict=True)]
    is_partial = expected in (2, 3)
    assert merge_reports(named(parts), partial=is_partial).exit_code == expected
    unscored = report_of(samples("a", "u", start=20))
    assert merge_reports(named([*parts, unscored]), partial=is_partial).exit_code == max(1, expected % 5)
    for values in ({"problems": ("boom",)}, {"stopped": "stopping after 1 failures", "exit_code": 1}):
        other = report_of(samples("a", "c", start=20), **values)
        assert merge_reports(named([*parts, other]), partial=True).exit_code == max(1, expected % 5)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"exit_code": 1}, "ended with exit code 1, and none of its gates and samples says why: a test failed"),
        (
            {"exit_code": 1, "num_failed_tests": 0},
            "ended with exit code 1, and none of its gates, samples and tests says why",
        ),
        ({"exit_code": 1, "num_failed_tests": 1, "gates": (FAILED_GATE,)}, "ended with 1 failed test"),
        ({"exit_code": 1, "num_failed_tests": 2, "problems": ("boom",)}, "ended with 2 failed tests"),
        ({"exit_code": 3}, "ended with exit code 3"),
        ({"exit_code": 2, "stopped": "interrupted"}, "stopped early: interrupted"),
        ({"collected": ("a",)}, "did not collect the suite 'b', which first.json did"),
        ({"collected": ()}, "did not collect the suite 'a', which first.json did; second.json did not collect "),
    ],
)
def test_a_part_that_did_not_do_all_of_its_run(values: dict[str, Any], told: str) -> None:
    parts = [report_of(samples("a", "cw", start=start), collected=("a", "b")) for start in (1, 3)]
    parts = [parts[0], replace(parts[1], **values)]
    assert refusal(*parts).startswith(f"second.json {told}")
    assert refusal(*parts).endswith(": run it again, or --partial to merge what there is")
    merged = merge_reports(named(parts), partial=True)
    assert merged.collected == ("a", "b")
    assert merged.problems[-1].startswith("part1.json ")
    assert merged.num_failed_tests == values.get("num_failed_tests")
    assert merged.exit_code >= 1
    of_an_older_version = replace(parts[1], collected=None, exit_code=0, stopped=None, problems=())
    merged = merge_reports(named([parts[0], of_an_older_version]))
    assert (merged.collected, merged.problems) == (("a", "b"), ())


def test_a_part_of_wrong_answers_may_have_failed() -> None:
    parts = [report_of(samples("a", "cw", start=start), exit_code=1, options={"strict": True}) for start in (1, 3)]
    assert merge_reports(named(parts)).problems == ()


def test_a_part_without_samples_fits_all_others() -> None:
    empty = report_of([], [], models=[], exit_code=5, options={"model": ["demo"], "shard": "2/2"})
    full = report_of(samples("a", "cw"), options={"model": ["demo"], "shard": "1/2"})
    merged = merge_reports(named([empty, full]))
    assert merged.suites == full.suites
    assert merged.exit_code == 0


def refusal(first: Report, second: Report, **options: Any) -> str:
    with pytest.raises(ReportError) as caught:
        merge_reports([("first.json", first), ("second.json", second)], **options)
    with pytest.raises(ReportError):
        merge_reports([("second.json", second), ("first.json", first)], **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fingerprint": "other"}, "fingerprint is a-fingerprint and other"),
        ({"fingerprint": "f" * 64}, "fingerprint is a-fingerprint and ffffffffffff…;"),
        (
            {"fingerprint": "other", "fingerprint_parts": {"prompt": "q", "questions": "p"}},
            "in first.json and second.json: other prompt;",
        ),
        ({"settings": {"ignore_case": True}}, "settings is {} and {'ignore_case': True}"),
        ({"scorer": "choice"}, "scorer is exact and choice"),
        ({"judge": "j2"}, "judge is j1 and j2"),
        ({"judge": "j2", "judged_by": ("gpt", "bge")}, "judged_by is none and gpt and bge"),
        ({"num_samples": 31}, "num_samples is 30 and 31"),
        ({"gates": {"accuracy >= 0.5": 3}}, "its gates are none and accuracy >= 0.5"),
    ],
)
def test_another_suite_of_the_name_is_refused(change: dict[str, Any], told: str) -> None:
    same = info("a", judge="j1", fingerprint_parts={"prompt": "p", "questions": "p"}, num_samples=30)
    parts = []
    for one, start in ((same, 1), (replace(same, **change), 3)):
        part = report_of(samples("a", "cw", start=start), [one])
        parts.append(replace(part, suites=tuple(replace(suite, info=one) for suite in part.suites)))
    message = refusal(*parts)
    assert message.startswith("suite 'a' is not the same in first.json and second.json: ")
    assert told in message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fingerprint": "bb"}, "model 'demo' is not the same in first.json and second.json: fingerprint is aa and bb"),
        ({"dtype": "bfloat16"}, "dtype is float32 and bfloat16"),
        ({"revision": "r"}, "revision is none and r"),
        ({"name": "other"}, "different models: first.json ran demo, second.json ran other"),
    ],
)
def test_another_model_is_refused(change: dict[str, Any], told: str) -> None:
    second = report_of(samples("a", "c", start=3), num_whole=WHOLE, models=[{**MODEL, **change}])
    assert told in refusal(report_of(samples("a", "cw"), num_whole=WHOLE), second)


def test_a_sample_in_two_parts_is_refused() -> None:
    first = report_of(samples("a", "cw"), num_whole=WHOLE)
    second = report_of(samples("a", "cw", start=2), num_whole=WHOLE)
    message = refusal(first, second)
    assert message.startswith("sample 'q2' of suite 'a' is in first.json and in second.json")
    unknown = replace(second, records=tuple(replace(record, model=None) for record in second.records))
    assert "sample 'q2' of suite 'a'" in refusal(first, unknown)


def test_an_overlap_is_reported_before_a_missing_shard() -> None:
    """The whole run and a part of it: the other parts would not help."""
    whole = report_of(samples("a", "cwcw"), num_whole=WHOLE)
    message = refusal(whole, shard("1/2", 3))
    assert message.startswith("sample 'q3' of suite 'a' is in first.json and in second.json")


def test_another_definition_of_a_metric_is_refused() -> None:
    first = report_of(samples("a", "c"), num_whole=WHOLE)
    second = report_of(samples("a", "c", start=3), num_whole=WHOLE)
    old = {**second.definitions, "accuracy": {**second.definitions["accuracy"], "version": 0}}
    message = refusal(first, replace(second, definitions=old))
    assert "metric 'accuracy' has another definition in second.json than in this version: version is 1 and 0" in message


def shard(text: str, start: int, **values: Any) -> Report:
    return report_of(
        samples("a", "cw", start=start), num_whole=WHOLE, options={"model": ["demo"], "shard": text}, **values
    )


def test_missing_shards() -> None:
    parts = [shard("1/4", 1), shard("3/4", 3)]
    assert refusal(*parts) == ("the report lacks shards 2/4, 4/4: give these too, or --partial to merge what there is")
    part = merge_reports(named(parts), partial=True)
    assert part.problems == ("the report lacks shards 2/4, 4/4",)
    assert part.exit_code == 1
    assert part.options["shard"] == ["1/4", "3/4"]
    whole = merge_reports(named([shard("4/4", 7), part, shard("2/4", 5)]))
    assert whole.problems == ()
    assert "shard" not in whole.options
    assert whole.suites[0].summary.num_expected == 8


def test_shards_of_different_runs_and_one_twice() -> None:
    assert refusal(shard("1/2", 1), shard("2/3", 3)) == (
        "first.json is shard 1/2 and second.json is 2/3: they are shards of different runs"
    )
    assert refusal(shard("1/2", 1), shard("1/2", 3)) == "first.json and second.json are both shard 1/2: give one"
    assert "option 'shard' is '3/2'" in refusal(shard("3/2", 1), shard("1/2", 3))


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=4), st.integers(-20, 20), st.integers(-20, 20))
def test_chained_records_are_a_sequence(numbers: list[list[int]], start: int, stop: int) -> None:
    parts = [[sample("a", str(number)) for number in part] for part in numbers]
    flat = [record for part in parts for record in part]
    chained = ChainedRecords(parts)
    assert len(chained) == len(flat)
    assert list(chained) == flat
    assert [chained[place] for place in range(-len(flat), len(flat))] == flat * 2
    assert list(chained[start:stop]) == flat[start:stop]
    with pytest.raises(IndexError):
        chained[len(flat)]


@pytest.mark.slow
def test_texts_stay_on_disk(tmp_path: Path) -> None:
    """40 MB of prompts are merged in a fraction of that."""
    for part in (0, 1):
        records = [sample("a", f"{part}-{number}", prompt="x" * 10_000) for number in range(2_000)]
        write_report(report_of(records, num_whole={"a": 4_000}), tmp_path / f"{part}.json")
        del records
    tracemalloc.start()
    try:
        assert main(["merge", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "-o", str(tmp_path / "m.json")]) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "m.json").stat().st_size > 40_000_000
    assert peak < 20_000_000


# The command


OTHER = {**MODEL, "name": "other"}


def test_models_in_another_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What reads the merged report sees each suite on each model, as in the parts."""
    paths = []
    for number, models in ((1, [MODEL, OTHER]), (2, [OTHER, MODEL])):
        names = [model["name"] for model in models]
        records = [
            record
            for name, statuses in (("demo", "cc"), ("other", "cw"))
            for record in samples("a", statuses, start=2 * number, model=name)
        ]
        options = {"model": names, "shard": f"{number}/2"}
        part = report_of(records, num_whole={"a": 4}, models=models, options=options)
        paths.append(saved(tmp_path, f"{number}.json", part))
    merged = str(tmp_path / "merged.json")
    assert main(["merge", *reversed(paths), "-o", merged]) == 0
    assert read_report(Path(merged)).options["model"] == ["demo", "other"]
    assert [one.second for one in read_report(Path(merged)).comparisons] == ["other"]
    capsys.readouterr()
    assert main(["export", merged, "--to", "questions"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["model"], one["metrics"]["correct"], one["metrics"]["total"]) for one in found] == [
        ("demo", 4, 4),
        ("other", 2, 4),
    ]
    assert main(["export", merged, "--to", "md"]) == 0
    markdown = capsys.readouterr().out
    assert re.findall(r"^\| a \((\w+)\) \| 4 \| ([0-9.]+) \[", markdown, re.M) == [
        ("demo", "1.000"),
        ("other", "0.500"),
    ]
    assert main(["compare", merged, merged, "--format", "json", "--gate-mode", "margin"]) == 0
    gates = json.loads(capsys.readouterr().out)["gates"]
    assert [(one["model"], one["outcome"], one["regression"]["current"]) for one in gates] == [
        ("demo", "passed", 1.0),
        ("other", "passed", 0.5),
    ]


def test_a_model_that_failed_to_load_in_one_part() -> None:
    both = [*samples("a", "c", model="demo"), *samples("a", "w", model="other")]
    first = report_of(both, num_whole=WHOLE, models=[MODEL, OTHER])
    second = report_of(
        samples("a", "c", start=2), num_whole=WHOLE, options={"model": ["other", "demo"]}, problems=("other: boom",)
    )
    merged = merge_reports(named([first, second]))
    assert merged.options["model"] == ["demo", "other"]
    assert {suite.models[0]: suite.summary.num_scored for suite in merged.suites} == {"demo": 2, "other": 1}
    assert merged.exit_code == 1


def test_gates_of_the_parts_are_reported_to_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = GateResult(name="accuracy > 0.9", kind="threshold", origin="option", outcome="failed", reason="below")
    one = saved(tmp_path, "1.json", shard("1/2", 1, exit_code=1, gates=(failed,)))
    two = saved(tmp_path, "2.json", shard("2/2", 3))
    output = tmp_path / "merged.json"
    assert main(["merge", one, two, "-o", str(output)]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "llmeval merge: its exit code 0 means no problem and no unscored sample; the parts' gates are not in it: "
        f"decide them on the whole with llmeval gate {output}"
    ]
    merged = read_report(output)
    assert (merged.exit_code, merged.gates) == (0, ())


def test_the_command_writes_a_report_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path, "1.json", shard("1/2", 1))
    two = saved(tmp_path, "2.json", shard("2/2", 3))
    output = tmp_path / "merged.json"
    assert main(["merge", two, one, "-o", str(output)]) == 0
    assert capsys.readouterr().err == f"llmeval merge: 2 reports, 1 suite and 4 samples: {output}\n"
    merged = read_report(output)
    assert [record.id for record in merged.records] == ["q1", "q2", "q3", "q4"]
    assert merged.suites[0].summary.metrics["accuracy"].value == 0.5


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path, "1.json", shard("1/2", 1))
    two = saved(tmp_path, "2.json", shard("2/2", 2))
    merged = str(tmp_path / "merged.json")
    for arguments, told in (
        ([one, two, "-o", merged], "sample 'q2' of suite 'a' is in"),
        ([one, one, "-o", merged], "was given twice"),
        ([one, "-o", merged], "the report lacks shard 2/2"),
        ([one, two, "-o", one], "is one of the reports that are read"),
        ([one, two, "-o", f"{merged}.md"], "expected a file name that ends in .json"),
        ([one, str(tmp_path / "none.json"), "-o", merged], "there is no such file"),
        ([one, two, "-o", f"{one}/no/m.json"], "Not a directory"),
    ):
        before = Path(one).read_bytes()
        assert main(["merge", *arguments]) == 1
        shown = capsys.readouterr().err
        assert shown.startswith("llmeval merge: ")
        assert told in shown
        assert shown.count("\n") == 1
        assert not Path(merged).exists()
        assert Path(one).read_bytes() == before


def test_partial_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path, "1.json", shard("1/2", 1))
    assert main(["merge", one, "-o", str(tmp_path / "merged.json"), "--partial"]) == 0
    assert "llmeval merge: problem: the report lacks shard 2/2\n" in capsys.readouterr().err


def test_shards_of_a_session_give_the_sessions_numbers(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    arguments = (*workers, "capitals.yaml", "sums.yaml")
    llm_pytester.runpytest("-pno:xdist", *arguments[-2:], "--llm-report=whole.json")
    for number in (1, 2):
        llm_pytester.runpytest(*arguments, f"--llm-shard={number}/2", f"--llm-report={number}.json")
    done = llm_pytester.run("llmeval", "merge", "2.json", "1.json", "-o", "merged.json")
    assert done.ret == 0, done.stderr.str()
    whole, merged = (read_report(llm_pytester.path / f"{name}.json") for name in ("whole", "merged"))
    without: dict[str, Any] = {"seconds": 0.0, "latency": None, "tokens_per_second": None}
    assert {suite.info.name: replace(suite, **without) for suite in merged.suites} == {
        suite.info.name: replace(suite, **without) for suite in whole.suites
    }
    assert merged.averages == whole.averages
    assert merged.problems == whole.problems == ()
    assert merged.exit_code == whole.exit_code == 0
    assert {(record.suite, record.id, record.status) for record in merged.records} == {
        (record.suite, record.id, record.status) for record in whole.records
    }


def test_a_shard_that_could_not_collect_a_suite(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    arguments = (*workers, "capitals.yaml", "sums.yaml", "--continue-on-collection-errors")
    for number, suite in ((1, SUMS), (2, SUMS.replace("score:", "scorre:"))):
        llm_pytester.makefile(".yaml", sums=suite)
        llm_pytester.runpytest(*arguments, f"--llm-shard={number}/2", f"--llm-report={number}.json")
    (problem,) = read_report(llm_pytester.path / "2.json").problems
    assert problem.startswith("sums.yaml could not be collected: sums.yaml:")
    done = llm_pytester.run("llmeval", "merge", "1.json", "2.json", "-o", "merged.json")
    assert done.ret == 1
    done.stderr.fnmatch_lines(
        ["llmeval merge: 2.json did not collect the suite 'sums', which 1.json did: run it again*"]
    )
    assert not (llm_pytester.path / "merged.json").exists()
    assert llm_pytester.run("llmeval", "merge", "1.json", "2.json", "-o", "merged.json", "--partial").ret == 0
    assert llm_pytester.run("llmeval", "gate", "merged.json", "--gate", "capitals: accuracy >= 0").ret == 1
