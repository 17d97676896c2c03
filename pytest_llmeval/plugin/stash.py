"""Keys under which the plugin's parts keep what they share in pytest's stashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from pytest_llmeval.data.garbage import LastingObjects
    from pytest_llmeval.inference.judging import Judging
    from pytest_llmeval.inference.lookahead import Lookahead
    from pytest_llmeval.reporting.report.records import Record

__all__ = [
    "MODEL_STOPPED",
    "NUM_DESELECTED",
    "SampleKey",
    "collected_suites_key",
    "has_broken_suite_key",
    "has_collected_key",
    "has_model_key",
    "is_sample_key",
    "judging_key",
    "lasting_objects_key",
    "llm_session_key",
    "lookahead_key",
    "model_key",
    "num_deselected_key",
    "process_key",
    "record_key",
    "recorder_key",
    "suite_paths_key",
]

MODEL_STOPPED = "the model stopped: "
"""What the session's ``shouldfail`` begins with where the only model can answer nothing more. A text, which is all that
pytest-xdist hands on."""

is_sample_key = pytest.StashKey[bool]()
"""In the stash of every item that is a sample of a suite."""

model_key = pytest.StashKey[str]()
"""Where several models are given, in the stash of every item that one of them answers: which, as it was written."""

llm_session_key = pytest.StashKey[Any]()
"""The ``LLMSession`` of the process that reports, once there is something to gather."""

collected_suites_key = pytest.StashKey[dict[str, Any]]()
"""By its name, the ``SuiteInfo`` of each suite that this process has collected, selected or not."""

has_broken_suite_key = pytest.StashKey[bool]()
"""Whether there is a suite that could not be collected, in the process that reports."""

has_collected_key = pytest.StashKey[bool]()
"""False from the beginning of a session on, and True once all was collected that it named."""

has_model_key = pytest.StashKey[bool]()
"""Whether there is a model for any suite, be it that of a conftest.py; once suites were collected."""

lasting_objects_key: pytest.StashKey[LastingObjects] = pytest.StashKey()
"""From the first suite on that is collected."""

process_key = pytest.StashKey[int]()
"""The process that pytest was configured in."""

NUM_DESELECTED = "llmeval_num_deselected"
"""In what a worker of pytest-xdist puts out: its ``num_deselected_key``."""

num_deselected_key = pytest.StashKey[int]()
"""How many tests were collected and left out, by whatever option."""

recorder_key = pytest.StashKey[Any]()
"""The ``Recorder`` of an item that has asked for ``llm_record``."""

SampleKey: TypeAlias = tuple[str, str | None, str]
"""Suite, model where several are given (as it was written), sample id."""

lookahead_key: pytest.StashKey[Lookahead] = pytest.StashKey()

judging_key: pytest.StashKey[Judging] = pytest.StashKey()

record_key: pytest.StashKey[Record] = pytest.StashKey()

suite_paths_key = pytest.StashKey[dict[str, str]]()
"""In the session's stash: the node id of each suite, by its name."""
