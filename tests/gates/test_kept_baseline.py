"""A baseline that was cut down: comparisons with it find what comparisons with the whole report find."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.gates.kept_baseline import changed_values, kept_report, why_not_kept
from pytest_llmeval.gates.options import BaselineSettings
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import GateResult, Report, Selected
from pytest_llmeval.reporting.report.served_models import changed_judge, served_notes
from pytest_llmeval.reporting.report.verify import verify_report
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from pytest_llmeval.reporting.writers.text_report import summary_lines
from pytest_llmeval.types import ServerUse
from tests.gates.reports_for_tests import Outcome, Ran, answers, compared, margins, ran, report
from tests.properties import examples

SETTINGS = (
    BaselineSettings(),
    BaselineSettings(compare="common"),
    BaselineSettings(compare="questions"),
    margins("brier=0.1", mode="margin"),
)


@st.composite
def _sessions(draw: st.DrawFn) -> tuple[Report, Report]:
    """Two sessions of the same suites, on the same models; some samples are new, gone or changed in the second."""
    models = draw(st.sampled_from([("m",), ("m", "n")]))
    sides: tuple[list[Ran], list[Ran]] = [], []
    for name in draw(st.sampled_from([("s",), ("a", "b")])):
        ids = [f"q{place:02}" for place in range(draw(st.integers(1, 14)))]
        clusters = {one: f"c{place // 3}" for place, one in enumerate(ids)} if draw(st.booleans()) else None
        with_numbers = draw(st.booleans())
        changed = draw(st.lists(st.sampled_from(ids), max_size=2))
        prompts = "", draw(st.sampled_from(["", "Think."]))
        for model in models:
            for side, others, prompt in zip(sides, ((), changed), prompts, strict=True):
                kept = ids if side is sides[0] else ids[draw(st.integers(0, 1)) :]
                outcomes: dict[str, Outcome] = {one: draw(st.booleans()) for one in kept}
                if with_numbers:
                    numbers = st.floats(0, 1).map(lambda number: round(number, 3))
                    outcomes = {
                        one: {"brier": draw(numbers), "other": float(place)} for place, one in enumerate(outcomes)
                    }
                one = ran(
                    outcomes,
                    name,
                    model=model,
                    changed=others,
                    clusters=clusters,
                    num_samples=len(kept),
                    fingerprint=f"{kept} {others} {prompt}",
                    fingerprint_parts={"questions": f"{kept} {others}", "judging": "same"},
                    asked_with={"prompt.system": prompt} if prompt else {},
                )
                side.append(replace(one, records=tuple(map(_with_question, one.records))))
    first, second = (report(*side) for side in sides)
    return first, second


def _with_question(record: Record) -> Record:
    return replace(record, question_fingerprint=record.fingerprint)


@given(_sessions(), st.sampled_from(SETTINGS))
@settings(max_examples=examples(100))
def test_it_is_compared_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, sessions: tuple[Report, Report], rules: BaselineSettings
) -> None:
    before, after = sessions
    path = tmp_path_factory.mktemp("kept") / "base.json"
    kept = _written(before, rules, path)
    for baseline, now in ((kept, after), (before, _written(after, rules, path.with_name("now.json")))):
        assert compared(baseline, now, rules) == compared(before, after, rules)


def _written(whole: Report, rules: BaselineSettings, path: Path) -> Report:
    write_report(kept_report(whole, rules.margins, {}), path)
    return verify_report(read_report(path), "the baseline")


@given(_sessions(), st.randoms(use_true_random=False))
@settings(max_examples=examples(50))
def test_the_order_of_a_run_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, sessions: tuple[Report, Report], chance: random.Random
) -> None:
    before, _ = sessions
    folder = tmp_path_factory.mktemp("kept")
    shuffled = replace(
        before,
        suites=tuple(chance.sample(before.suites, len(before.suites))),
        records=chance.sample([*before.records], len(before.records)),
    )
    texts = []
    for number, one in enumerate((before, shuffled)):
        write_report(kept_report(one, (), {}), folder / f"{number}.json")
        texts.append((folder / f"{number}.json").read_bytes())
    assert texts[0] == texts[1]


def test_a_kept_baseline_of_a_kept_one_is_the_same(tmp_path: Path) -> None:
    before = report(ran(answers(20, right=12)[0]), ran([{"brier": 0.25}, {"brier": 0.5}], "t"))
    once = _written(before, BaselineSettings(), tmp_path / "once.json")
    _written(once, BaselineSettings(), tmp_path / "twice.json")
    assert (tmp_path / "once.json").read_bytes() == (tmp_path / "twice.json").read_bytes()


def test_who_answered_is_kept(tmp_path: Path) -> None:
    """A comparison says that a server or a judge is another model now; how often each was asked is not kept."""

    def asked(served: str) -> Report:
        use = asdict(ServerUse(num_requests=7, retries={"429": 1}, served_models={served: 6}))
        model = {"name": "m", "dtype": "float16", "details": {"urls": ["http://localhost"]}, "use": use}
        one = ran([True, False])
        judged = replace(one, suite=replace(one.suite, num_judge_requests=2))
        return report(judged, models=(model,), judges=({"role": "judge", "name": "j", "use": use},))

    before, now = asked("old"), asked("new")
    kept = _written(before, BaselineSettings(), tmp_path / "base.json")
    (suite,) = now.suites
    assert served_notes(suite, now, kept) == served_notes(suite, now, before)
    assert served_notes(suite, now, kept)[0] == "the model of m, as the server says, was old and is new"
    assert changed_judge(suite, now, kept) == changed_judge(suite, now, before)
    assert changed_judge(suite, now, kept) is not None
    assert json.loads((tmp_path / "base.json").read_text())["models"] == [
        {"name": "m", "use": {"served_models": {"old": 6}}}
    ]
    assert not any("request" in line for line in summary_lines(kept, width=200))


WHOLE = report(ran([True, False, True]), ran([True, True], "t"))
PASSED = GateResult(name="accuracy >= 0.1", kind="threshold", origin="option", outcome="passed", reason="", suite="s")
FAILED = replace(PASSED, outcome="failed")
UNDECIDED = replace(PASSED, outcome="skipped")
WORSE = replace(PASSED, name="accuracy vs baseline", kind="baseline", outcome="failed")
NOTHING = replace(WORSE, name="baseline", suite=None, reason="nothing was compared: why")
HINT = "--llm-update-baseline=accept writes it nevertheless"
SHORT = report(ran([True, False, True]), ran([True, True], "t", num_samples=5))
BY_HAND = report(ran([True, True], "tone", fingerprint=None))

SAME = "the same"
CASES: dict[str, tuple[Report, dict[str, Any], str | None, str | None]] = {
    # a session, its other circumstances, why it is not kept, and why not although the comparison is accepted
    "whole": (WHOLE, {}, None, None),
    "gates": (replace(WHOLE, gates=(PASSED, UNDECIDED)), {}, None, None),
    "a threshold": (
        replace(WHOLE, gates=(FAILED, WORSE), exit_code=1),
        {},
        "a gate failed: s, accuracy >= 0.1",
        SAME,
    ),
    "a comparison": (
        replace(WHOLE, gates=(PASSED, WORSE), exit_code=1),
        {"earlier": WHOLE},
        f"the comparison with the earlier file failed: s, accuracy vs baseline; {HINT}",
        None,
    ),
    "a comparison, and a suite is gone": (
        replace(report(ran([True])), gates=(WORSE,), exit_code=1),
        {"earlier": WHOLE},
        f"the comparison with the earlier file failed: s, accuracy vs baseline; {HINT}, and removes 't' (2 samples)",
        None,
    ),
    "nothing was compared": (
        replace(WHOLE, gates=(NOTHING,), exit_code=1),
        {"earlier": WHOLE},
        f"the comparison with the earlier file failed: nothing was compared: why; {HINT}",
        None,
    ),
    "nothing to compare with": (
        replace(WHOLE, gates=(NOTHING,), exit_code=1),
        {},
        f"there is no earlier file to compare with, and --llm-require-gates requires one; {HINT}",
        None,
    ),
    "the same suites": (WHOLE, {"earlier": WHOLE}, None, None),
    "a suite is gone": (
        report(ran([True])),
        {"earlier": WHOLE},
        f"it would lose what did not run: 't' (2 samples); {HINT}",
        None,
    ),
    "another model": (report(ran([True], model="n")), {"earlier": report(ran([True]))}, None, None),
    "a model is gone": (
        report(ran([True])),
        {"earlier": report(ran([True]), ran([True], model="n"))},
        f"it would lose what did not run: 's' on 'n' (1 sample); {HINT}",
        None,
    ),
    "stopped": (replace(WHOLE, stopped="interrupted"), {}, "the session stopped early: interrupted", SAME),
    "problems": (replace(WHOLE, problems=("odd",)), {}, "the session has problems: 'odd'", SAME),
    "nothing": (report(), {}, "no sample ran", SAME),
    "unscored": (report(ran([True, None])), {}, "1 of 2 samples of 's' unscored", SAME),
    "without a record": (
        report(ran([True], num_expected=2, num_samples=2)),
        {},
        "1 of 2 samples of 's' unscored",
        SAME,
    ),
    "a selection": (
        replace(SHORT, selection=Selected(by=("-k x",))),
        {},
        "a selection: 2 of 5 samples of 't' (-k x)",
        SAME,
    ),
    "tests beside the suites are left out": (replace(WHOLE, selection=Selected(by=("-m 'not slow'",))), {}, None, None),
    "hand-written tests are left out": (
        replace(BY_HAND, selection=Selected(by=("-m 'not slow'",))),
        {},
        "a selection: 'tone' (-m 'not slow')",
        SAME,
    ),
    "skipped": (report(ran([True], num_skipped=1, num_samples=2)), {}, "a selection: 1 of 2 samples of 's'", SAME),
    "a suite without samples": (WHOLE, {"absent": [SHORT.suites[1].info]}, "a selection: no sample of 't'", SAME),
    "by outcome": (
        replace(WHOLE, selection=Selected(by=("--lf",), is_by_outcome=True)),
        {},
        "samples were selected by how they had come out before (--lf)",
        SAME,
    ),
    "a test": (replace(WHOLE, num_failed_tests=1, exit_code=1), {}, "1 test failed", SAME),
    "another plugin": (replace(WHOLE, exit_code=1), {}, "the session ended with exit code 1", SAME),
    "an error": (
        replace(WHOLE, gates=(WORSE,), exit_code=3),
        {"earlier": WHOLE},
        f"the comparison with the earlier file failed: s, accuracy vs baseline; {HINT}",
        "the session ended with exit code 3",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_which_sessions_leave_a_baseline(case: str) -> None:
    session, others, why, why_accepted = CASES[case]
    earlier, absent = others.get("earlier"), others.get("absent", ())
    assert why_not_kept(session, earlier, absent=absent, accepts=False) == why
    assert why_not_kept(session, earlier, absent=absent, accepts=True) == (
        why if why_accepted == SAME else why_accepted
    )


def test_which_values_changed() -> None:
    before = report(ran([True, True]), ran([True, False], "t"), ran([{"brier": 0.25}, {"brier": 0.5}], "u"))
    after = report(ran([True, False]), ran([False, True], "t"), ran([{"brier": 0.25}, {"brier": 0.125}], "u"))
    new = report(ran([True], "new"), ran([False, False]))
    assert [*changed_values(after, before)] == ["s: accuracy 1.000 -> 0.500", "u: brier 0.375 -> 0.188"]
    assert [*changed_values(new, before)] == ["s: accuracy 1.000 -> 0.000"]
    several = report(ran([True]), ran([True], model="n"))
    assert [*changed_values(report(ran([True]), ran([False], model="n")), several)] == [
        "s on n: accuracy 1.000 -> 0.000"
    ]


@pytest.mark.parametrize("rules", SETTINGS[::2])
def test_a_baseline_without_replies_is_not_to_be_scored_again(tmp_path: Path, rules: BaselineSettings) -> None:
    def judged(version: str) -> Report:
        parts = {"questions": "1", "scorer": version, "judging": version}
        return report(ran([True] * 40, fingerprint=version, fingerprint_parts=parts))

    before, after = judged("1"), judged("2")
    kept = _written(before, rules, tmp_path / "base.json")
    for baseline, hint in (
        (before, "; score the baseline's replies again: --llm-model replay:BASELINE.json --llm-report NEW.json"),
        (
            kept,
            "; the baseline has no replies that could be scored again: --llm-update-baseline=accept writes it anew",
        ),
    ):
        (result,) = compared(baseline, after, rules)
        assert result.outcome == "failed"
        assert result.reason.endswith(hint)
