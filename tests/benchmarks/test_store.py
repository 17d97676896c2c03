"""The script that measures the store runs, and a hit of its asks no model."""

from __future__ import annotations

from benchmarks.store import measure


def test_a_small_store_is_measured() -> None:
    found = measure(100, num_hits=10)
    assert found["replies"] == 100
    assert found["disk_mib"] > 0.1
