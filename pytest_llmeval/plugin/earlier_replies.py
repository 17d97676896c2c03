"""The replies of the session's baseline, for suites whose scorer compares with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_llmeval.plugin.gates import baseline_key, baseline_path
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.reporting.report.replies import REPLIES, earlier_replies, replies_identity
from pytest_llmeval.reporting.report.report import ABSENT, Report, suite_of_baseline
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import quoted

__all__ = ["lacks_baseline", "with_earlier_replies"]

_read_key = pytest.StashKey[Report]()

_KEYS = ("score", "pairwise", "against")


def with_earlier_replies(node: pytest.Collector, suite: Suite) -> tuple[Suite, dict[str, str]]:
    """Return the suite with the baseline's reply to each sample, and what that adds to the parts of its fingerprint.

    As it is where its scorer needs none. Its tests are skipped where there is no baseline: a session that was to run
    them ends before (see ``take_collected``). Raises ``LLMEvalError`` for a baseline that does not fit.
    """
    if not suite.spec.score.needs_baseline:
        return suite, {}
    config = node.config
    settings = config.stash[settings_key]
    path = baseline_path(config, settings)
    if path is None:
        node.add_marker(pytest.mark.skip(reason="no baseline: give --llm-baseline"))
        return suite, {}
    baseline = config.stash.get(baseline_key, None) or config.stash.get(_read_key, None)
    if baseline is None:  # in a worker, whose controller has checked it
        baseline = config.stash[_read_key] = read_report(path)
    names = [spec.name for spec in settings.model_specs]
    found = suite_of_baseline(baseline, suite.name, names[0] if len(names) == 1 else None)
    if isinstance(found, str):
        why = f"it has no suite {quoted(suite.name)}" if found == ABSENT else found
        raise suite.error(f"cannot compare with {path}: {why}", keys=_KEYS)
    replies = earlier_replies(baseline, found, suite)
    if all(reply.text is None and reply.problem is None for reply in replies.values()):
        why = "it holds no reply to this suite's samples (--llm-report-records none writes none)"
        raise suite.error(f"cannot compare with {path}: {why}", keys=_KEYS)
    samples = tuple(replace(sample, earlier=replies[sample.id]) for sample in suite.samples)
    return replace(suite, samples=samples), {REPLIES: replies_identity(baseline, found)}


def lacks_baseline(suite: Suite) -> bool:
    """Tell whether its replies are to be compared with those of a baseline, and there is none."""
    return suite.spec.score.needs_baseline and suite.samples[0].earlier is None
