"""The summary in a terminal, from reports made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.report.report import Averages, Comparison, GateOutcome, SuiteReport
from pytest_llmeval.reporting.tables.cells import Toned, duration_text
from pytest_llmeval.reporting.tables.session import latency_table
from pytest_llmeval.reporting.terminal import write_summary
from pytest_llmeval.reporting.writers.text_report import (
    comparison_lines,
    gate_lines,
    latency_lines,
    session_lines,
    summary_lines,
)
from pytest_llmeval.scoring.metrics.summary import Percentiles
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.text.escaping import without_commands
from tests.reporting.made_reports import HOSTILE, gate, hostile_report, metric, record, report, suite_report, summary

OUTCOMES: Sequence[GateOutcome] = ("passed", "failed", "skipped")


def shown(*results: object, width: int = 100) -> list[str]:
    return list(gate_lines(results, {"org/gpt2": "gpt2"}, width=width))  # type: ignore[arg-type]


def test_gates_that_failed_come_first_and_few_are_all_shown() -> None:
    assert shown(
        gate("passed", reason="accuracy is 0.700"),
        gate("skipped", reason="3 of 200 samples were selected"),
        gate(notes=("1 unscored sample was allowed",)),
        gate("passed", "accuracy vs baseline", kind="baseline", reason="no drop"),
    ) == [
        "gates: 1 failed, 1 skipped, 2 passed",
        "failed: boolq, accuracy >= 0.6: accuracy is 0.550, n 200",
        "  1 unscored sample was allowed",
        "skipped: boolq, accuracy >= 0.6: 3 of 200 samples were selected",
        "passed: boolq, accuracy vs baseline: no drop",
        "passed: boolq, accuracy >= 0.6: accuracy is 0.700",
    ]
    assert shown() == []


def test_many_thresholds_that_passed_are_only_counted() -> None:
    passed = [gate("passed", f"accuracy >= 0.{place}") for place in range(11)]
    against = gate("passed", "accuracy vs baseline", kind="baseline", reason="no drop")
    assert shown(*passed, against) == ["gates: 12 passed", "passed: boolq, accuracy vs baseline: no drop"]
    assert len(shown(*passed[:10])) == 11


def test_many_skipped_share_their_reason() -> None:
    skipped = [gate("skipped", suite=f"s{place}", reason="a selection" if place else "x") for place in range(12)]
    first, *rest = shown(*skipped)
    assert first == "gates: 12 skipped"
    names = "; ".join(f"s{place}, accuracy >= 0.6" for place in range(1, 11))
    assert " ".join(line.strip() for line in rest) == (
        f"skipped: s0, accuracy >= 0.6: x skipped: {names}; and 1 more: a selection"
    )


def test_many_failed_are_counted() -> None:
    lines = shown(*(gate(suite=f"s{place}") for place in range(60)))
    assert len(lines) == 52
    assert lines[-1] == "… and 10 more that failed, all in the report"


def test_gates_name_their_model_where_there_are_several() -> None:
    names = {"org/gpt2": "gpt2", "org/llama": "llama"}
    lines = list(gate_lines([gate(model="org/llama"), gate(suite=None)], names, width=100))
    assert lines[1:] == [
        "failed: boolq (llama), accuracy >= 0.6: accuracy is 0.550, n 200",
        "failed: accuracy >= 0.6: accuracy is 0.550, n 200",
    ]
    assert shown(gate(model="org/gpt2"))[1].startswith("failed: boolq, accuracy")


def test_long_reasons_are_wrapped() -> None:
    assert shown(
        gate(reason="accuracy fell by 0.030 [0.010, 0.050], p 0.001", notes=["a note of many words"]), width=40
    ) == [
        "gates: 1 failed",
        "failed: boolq, accuracy >= 0.6: accuracy",
        "  fell by 0.030 [0.010, 0.050], p 0.001",
        "  a note of many words",
    ]


@given(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.text(max_size=9), st.text(max_size=60))), st.integers(20, 90))
def test_no_gate_acts_on_the_terminal(found: list[tuple[GateOutcome, str, str]], width: int) -> None:
    lines = shown(*(gate(outcome, name, reason=reason) for outcome, name, reason in found), width=width)
    assert all(line.isprintable() or not line.isascii() for line in lines)


def timed(name: str, mean: float, p95: float, n: int = 4, speed: Percentiles | None = None) -> SuiteReport:
    latency = Percentiles(n=n, mean=mean, p50=mean, p95=p95, p99=2 * p95)
    return replace(suite_report(name), latency=latency, tokens_per_second=speed, num_tokens=n)


def test_the_latency_of_one_suite() -> None:
    speed = Percentiles(n=4, mean=12345.6, p50=99.99, p95=5.4321, p99=250.0)
    suites = [suite_report("untimed"), timed("boolq", 0.0013, 0.002, speed=speed)]
    assert list(latency_lines(suites, {}, width=80)) == [
        "latency of a sample: mean 1.30 ms, p50 1.30 ms, p95 2.00 ms, p99 4.00 ms",
        "tokens/s of a sample: mean 12,346, p50 100.0, p95 5.43, p99 250",
    ]
    assert list(latency_lines(suites[:1], {}, width=80)) == []
    assert list(latency_lines([replace(timed("a", 1e-4, 9e-4), num_tokens=0)], {}, width=80)) == []
    assert len(list(latency_lines([replace(suites[1], num_tokens=0)], {}, width=80))) == 2
    assert list(latency_lines([timed("a", 1e-7, 2e-6)], {}, width=80)) == []


def test_the_latency_of_several_suites_has_no_percentiles_of_all() -> None:
    """The mean over all samples by hand: (3 × 10 ms + 1 × 30 ms) / 4."""
    suites = [timed("a", 0.010, 0.5, n=3), timed("b", 0.030, 1.5, n=1), timed("c", 0.015, 0.9, n=0)]
    assert list(latency_lines(suites[:2], {}, width=80)) == [
        "latency of a sample: mean 15.0 ms, p95 from 500 ms (a) to 1.50 s (b)"
    ]


def test_latencies_that_read_alike_are_one_number() -> None:
    suites = [timed("a", 0.010, 0.1531), timed("b", 0.010, 0.1534)]
    assert list(latency_lines(suites, {}, width=80)) == ["latency of a sample: mean 10.0 ms, p95 153 ms"]


def test_the_table_of_latencies() -> None:
    found = latency_table([timed("a", 0.010, 0.5), suite_report("untimed")], {})
    headers, (row,) = found.headers, found.rows
    assert row == ["a", "4", "10.0 ms", "10.0 ms", "500 ms", "1.00 s", "", "", "", ""]
    assert len(headers) == len(row)
    assert latency_table([suite_report()], {}).rows == []


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0000123, "0.01 ms"), (0.00999, "9.99 ms"), (0.25, "250 ms"), (75.0, "75.0 s")]
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration_text(seconds) == expected


def test_means_over_suites() -> None:
    averages = Averages(
        model="org/gpt2",
        macro={"accuracy": metric(0.79, 2), "brier": metric(0.2, 1), "chrf": metric(50.0, 2)},
        micro={"accuracy": metric(0.783, 400), "skill": metric(None)},
    )
    suites = [suite_report("a", models=["org/gpt2"]), suite_report("b", models=["org/gpt2"])]
    lines = list(summary_lines(report(suites, averages=(averages,)), width=100))
    assert lines[4:6] == [
        "macro average over suites: accuracy 0.790 [0.690, 0.890], Brier 0.200 [0.100, 0.300] (n 1)",
        "micro average over suites: accuracy 0.783 [0.683, 0.883]",
    ]
    suites[1] = suite_report("b", models=["org/llama"])
    (line,) = [line for line in summary_lines(report(suites, averages=(averages,)), width=100) if "micro" in line]
    assert line.startswith("micro average over suites of gpt2: ")


def test_metrics_of_several_definitions_are_reported_together() -> None:
    forms = {
        "a": "tokenize 13a",
        "b": "tokenize zh",
        "c": "tokenize 13a",
        "d": "",
        "e": "tokenize 13a",
        "f": "tokenize 13a",
    }
    rouge = {"g": "stemmer true", "h": "stemmer false"}
    unlike = {"bleu_4": forms, "rouge_l": rouge, "bleu_1": forms, "sentence_bleu_4": forms}
    averages = Averages(model=None, macro={}, micro={}, unlike=unlike)
    lines = list(summary_lines(report([suite_report("a"), suite_report("b")], averages=(averages,)), width=72))
    assert all(len(line) <= 72 for line in lines)
    told = " ".join(line.strip() for line in lines[4:])
    assert told == (
        "no average over suites for bleu_4, bleu_1, sentence_bleu_4: tokenize 13a in a, c, e and 1 more; tokenize zh "
        "in b; no settings in d no average over suites for rouge_l: stemmer true in g; stemmer false in h"
    )


def test_a_mean_over_suites_without_an_interval_says_why() -> None:
    bare = replace(metric(0.4, 2), ci_low=None, ci_high=None)
    averages = Averages(model=None, macro={"rouge_l": bare}, micro={"rouge_l": replace(bare, n=1)})
    lines = list(summary_lines(report([suite_report("a"), suite_report("b")], averages=(averages,)), width=100))
    assert lines[4:6] == [
        "macro average over suites: rouge_l 0.400 (no interval: not every suite has one)",
        "micro average over suites: rouge_l 0.400 (no interval: n is 1)",
    ]


def test_means_over_categories_have_their_interval() -> None:
    parts = {"x": summary({"accuracy": metric(0.5)}), "y": summary({"accuracy": metric(1.0)})}
    suite = replace(suite_report(), categories=parts, macro={"accuracy": metric(0.75, 2), "brier": metric(None)})
    assert [line.split() for line in list(summary_lines(report([suite]), width=120))[4:]] == [
        ["by", "category", "n", "accuracy"],
        ["-" * 11, "-", "-" * 20],
        ["boolq"],
        ["x", "4", "0.500", "[0.400,", "0.600]"],
        ["y", "4", "1.000", "[0.900,", "1.100]"],
        ["mean", "of", "2", "0.750", "[0.650,", "0.850]"],
    ]


def test_many_suites_are_told_in_short_unless_the_whole_is_wanted() -> None:
    """The details of each suite are left out, and what a reader has to act on stays."""
    halves = {"x": summary({"accuracy": metric(0.5)}), "y": summary({"accuracy": metric(1.0)})}
    suites = [
        replace(suite_report(f"s{place}"), categories=halves, summary=summary({"accuracy": metric(0.75)}, 4, 1))
        for place in range(5)
    ]
    suites[1] = replace(suites[1], summary=replace(suites[1].summary, num_no_answer=2))
    suites[2] = replace(suites[2], summary=replace(suites[2].summary, num_no_answer=1))
    suites[4] = replace(suites[4], num_skipped=3)
    averages = Averages(model=None, macro={"accuracy": metric(0.75, 5)}, micro={"accuracy": metric(0.74, 20)})
    records = [record("q0", suite="s0")]
    records.append(record("q", suite="s0", status="unscored", nodeid="n", reason="it broke"))
    gates = [gate("passed", reason="accuracy is 0.700"), gate(suite="s0")]
    made = report(suites, records, averages=(averages,), gates=gates, problems=("a worker died",))
    short, whole = (list(session_lines(made, width=100, is_short=is_short)) for is_short in (True, False))
    assert short[0] == whole[0] == "each number with its 95% interval"
    assert short[1:8] == whole[1:8]  # the table of suites
    assert short[8:] == [
        "macro average over suites: accuracy 0.750 [0.650, 0.850]",
        "no answer: s1 2, s2 1; skipped: s4 3",
        "",
        "could not be scored: 1",
        "  n: it broke",
        "problem: a worker died",
        "gates: 1 failed, 1 passed",
        "failed: s0, accuracy >= 0.6: accuracy is 0.550, n 200",
        "more: -v (categories, further metrics, speed, all gates), or --llm-report report.html (a page with",
        "  every sample)",
    ]
    for start in ("micro average", "by category", "s1: no answer 2", "passed: boolq"):
        assert any(line.startswith(start) for line in whole)


def test_samples_in_clusters() -> None:
    clustered = metric(0.75, 200, num_clusters=40)
    suite = replace(suite_report(), summary=summary({"accuracy": clustered, "brier": clustered}, 200))
    assert list(summary_lines(report([suite]), width=80))[3] == "boolq: n 200 in 40 clusters"


@dataclass
class Lines:
    """A terminal that remembers lines, and whether something of them is red."""

    lines: list[tuple[str, bool]] = field(default_factory=list)
    begun: list[tuple[str, bool]] = field(default_factory=list)

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        self.lines.append((title or "", False))

    def write(self, content: str, **markup: bool) -> None:
        self.begun.append((content, bool(markup.get("red"))))

    def write_line(self, line: str, **markup: bool) -> None:
        self.write(line, **markup)
        texts, reds = zip(*self.begun, strict=True)
        self.lines.append(("".join(texts), any(reds)))
        self.begun = []


def test_what_needs_a_look_is_red_with_its_further_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Lines()
    records = [record(status="unscored", reason="no")]
    made = report(
        records=records,
        gates=(gate(notes=("a note",)), gate("passed", reason="fine", notes=("another",))),
        problems=("cannot write the report b.csv: no",),
    )
    write_summary(terminal, made, [Path("a.json"), Path("c.md")])
    assert terminal.lines[0] == ("LLM evaluation: gpt2 (cpu, float32)", False)
    assert [line for line, is_red in terminal.lines if is_red] == [
        "could not be scored: 1",
        "  suites/boolq.yaml::q1: no",
        "problem: cannot write the report b.csv: no",
        "gates: 1 failed, 1 passed",
        "failed: boolq, accuracy >= 0.6: accuracy is 0.550, n 200",
        "  a note",
    ]
    assert [line for line, _ in terminal.lines[-2:]] == ["report: a.json", "report: c.md"]


class Screen(Lines):
    """A terminal that breaks long lines."""

    isatty = True


def test_a_terminal_gets_lines_that_are_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log gets them whole, for those who search it."""
    monkeypatch.setenv("COLUMNS", "40")
    problem = "sample 'q1' of suite 'boolq' was recorded by a.py::one and by b.py::two"
    made = report(problems=(problem,))
    log, screen = Lines(), Screen()
    write_summary(log, made, [])
    write_summary(screen, made, [])
    assert (f"problem: {problem}", True) in log.lines
    assert all(len(line) <= 40 for line, _ in screen.lines)
    assert screen.lines[-3:] == [
        ("problem: sample 'q1' of suite 'boolq'", True),
        ("  was recorded by a.py::one and by", True),
        ("  b.py::two", True),
    ]


def compared(difference: float, *, metric: str = "accuracy", second: str = "new") -> Comparison:
    found = Difference(
        n=161,
        kind="proportion",
        first=0.5,
        second=0.5 + difference,
        difference=difference,
        ci_low=difference - 0.06,
        ci_high=difference + 0.06,
        num_gained=6,
        num_lost=16,
    )
    return Comparison(suite="boolq_loglikelihood", first="gpt2", second=second, differences={metric: found})


def tones(line: str) -> list[str]:
    return [tone for _, _, tone in line.spans] if isinstance(line, Toned) else []


@pytest.mark.parametrize(
    ("difference", "metric", "expected"),
    [
        (-0.1, "accuracy", ["bad"]),
        (0.1, "accuracy", ["good"]),
        (0.1, "brier", ["bad"]),
        (-0.1, "brier", ["good"]),
        (0.05, "accuracy", []),
    ],
)
def test_significant_differences_are_good_or_bad_news(difference: float, metric: str, expected: list[str]) -> None:
    *_, row = comparison_lines([compared(difference, metric=metric)], {"gpt2": "gpt2"}, width=120)
    assert tones(row) == expected
    assert f"{0.5 + difference:.3f} ({difference:+.3f} [{difference - 0.06:.3f}, " in row


@pytest.mark.parametrize(
    ("num_gained", "meaning"),
    [
        (6, "value (difference [95% interval], samples gained and lost)"),
        (None, "value (difference [95% interval])"),
    ],
)
def test_what_the_cells_of_a_comparison_hold(num_gained: int | None, meaning: str) -> None:
    one = compared(-0.062)
    (found,) = one.differences.values()
    one = replace(one, differences={"accuracy": replace(found, num_gained=num_gained, num_lost=num_gained)})
    heading, *_ = comparison_lines([one], {}, width=200)
    assert heading == f"against gpt2, over the samples that both scored: {meaning}"


def test_models_beside_each_other_fit_a_usual_terminal() -> None:
    both = [compared(-0.062), compared(0.1, second="other")]
    one = list(comparison_lines(both[:1], {}, width=80))
    assert one[-1] == "boolq_loglikelihood  accuracy  161  0.500  0.438 (-.062 [-.122,-.002], +6 -16)"
    two = list(comparison_lines(both, {}, width=80))
    assert two == [
        *one,
        "",
        "suite                other",
        "-------------------  ---------------------------------",
        "boolq_loglikelihood  0.600 (+.100 [.040,.160], +6 -16)",
    ]
    assert all(len(line) <= 80 for line in (*one, *two))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_hostile_report_acts_on_no_terminal(width: int) -> None:
    for line in summary_lines(hostile_report(), width=width):
        assert len(line.splitlines()) <= 1
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in line)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_hostile_report_gives_github_no_command(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Lines()
    write_summary(terminal, hostile_report([*HOSTILE, "::stop-commands::x", "a ##[add-mask]x"]), [])
    assert not [line for line, _ in terminal.lines[1:] if line.lstrip().startswith("::") or "##[" in line]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("::error::x", ": :error::x"),
        ("  ::error::x", "  : :error::x"),
        ("a\n\n ::error::x\n", "a\n\n : :error::x\n"),
        ("a ##[add-mask]x ##[", "a # #[add-mask]x # #["),
        ("###[a]", "## #[a]"),
        ("suites/a.yaml::q1: a::b", "suites/a.yaml::q1: a::b"),
        ("## heading", "## heading"),
    ],
)
def test_commands_are_taken_apart(line: str, expected: str) -> None:
    assert without_commands(line) == expected
