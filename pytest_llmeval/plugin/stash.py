"""Keys under which the plugin's parts keep what they share in pytest's stashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from pytest_llmeval.data.garbage import FrozenObjects
    from pytest_llmeval.inference.batcher import Batcher
    from pytest_llmeval.inference.stored_model import StoredModel
    from pytest_llmeval.reporting.report.records import Record

__all__ = [
    "MODEL_STOPPED",
    "NUM_DESELECTED",
    "SampleKey",
    "batcher_key",
    "collected_suites_key",
    "frozen_objects_key",
    "has_broken_suite_key",
    "has_collected_key",
    "has_model_key",
    "is_sample_key",
    "llm_session_key",
    "model_key",
    "num_deselected_key",
    "process_key",
    "record_key",
    "recorder_key",
    "stored_model_key",
    "suite_paths_key",
]

MODEL_STOPPED = "the model stopped: "
"""The beginning of the session's ``shouldfail`` once its only model can answer nothing more. It is a text, since
pytest-xdist passes nothing else from a worker to the controller."""

is_sample_key = pytest.StashKey[bool]()
"""The mark of an item that is a sample of a suite, in its stash."""

model_key = pytest.StashKey[str]()
"""The model that answers an item, as it was written; in the item's stash, if several models are given."""

llm_session_key = pytest.StashKey[Any]()
"""The ``LLMSession`` of the process that reports, once there is something to gather."""

collected_suites_key = pytest.StashKey[dict[str, Any]]()
"""The ``SuiteInfo`` of each suite that this process has collected, selected or not, by the suite's name."""

has_broken_suite_key = pytest.StashKey[bool]()
"""The sign that a suite could not be collected, in the process that reports."""

has_collected_key = pytest.StashKey[bool]()
"""The sign that collection has ended: False from the session's beginning on, then True."""

has_model_key = pytest.StashKey[bool]()
"""The sign that some suite has a model, be it a conftest.py's: there once suites were collected."""

frozen_objects_key: pytest.StashKey[FrozenObjects] = pytest.StashKey()
"""The ``FrozenObjects`` of this process, once it has collected a suite."""

process_key = pytest.StashKey[int]()
"""The id of the process in which pytest was configured."""

NUM_DESELECTED = "llmeval_num_deselected"
"""The name of ``num_deselected_key`` in the output of a worker of pytest-xdist."""

num_deselected_key = pytest.StashKey[int]()
"""The number of tests that were collected and then left out, by whatever option."""

recorder_key = pytest.StashKey[Any]()
"""The ``Recorder`` of an item that has asked for ``llm_record``."""

stored_model_key: pytest.StashKey[StoredModel] = pytest.StashKey()
"""The model under evaluation, with the store before it, if this process has loaded one; tests may get it wrapped."""

SampleKey: TypeAlias = tuple[str, str | None, str]
"""The suite, the model as it was written (None unless several are given), and the sample's id."""

batcher_key: pytest.StashKey[Batcher] = pytest.StashKey()
"""The ``Batcher`` of this process, once its samples are planned."""

record_key: pytest.StashKey[Record] = pytest.StashKey()
"""The record of a sample that has run, in the stash of its item until the test report is made."""

suite_paths_key = pytest.StashKey[dict[str, str]]()
"""The node ids of suites by their names, in the session's stash."""
