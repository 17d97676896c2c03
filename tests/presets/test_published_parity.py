"""The presets beside lm-eval's tasks on published files."""

from __future__ import annotations

import pytest

from tests.presets.comparisons import DATA, PUBLISHED, Published, compare

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}"),
]


@pytest.mark.parametrize("case", PUBLISHED, ids=str)
def test_published_rows(case: Published) -> None:
    found = compare(case)
    assert found.differences == []
    assert found.requests.total > 100
    for values in found.values.values():
        assert 0 < sum(values) < len(values)
