"""The error for a sample that cannot be judged because the suite does not map a column of its data set."""

from __future__ import annotations

from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import MAX_LISTED
from pytest_llmeval.types import Sample

__all__ = ["unmapped"]


def unmapped(suite: Suite, sample: Sample) -> str | None:
    """What a suite does not say of its data set: where the options are, or what is right; None where it does.

    To be asked where a scorer has found that it cannot judge the sample.
    """
    spec, row = suite.spec, sample.variables.get("row")
    if spec.dataset is None or spec.samples is not None or not isinstance(row, dict):
        return None
    is_missing = {"target": sample.target is None, "choices": not sample.choices and spec.score.needs_options}
    for name in ("choices", "target"):
        said = name in spec.dataset.fields or getattr(spec, name) is not None
        if is_missing[name] and not said and name not in row:
            columns = ", ".join(map(str, list(row)[:MAX_LISTED])) + (", …" if len(row) > MAX_LISTED else "")
            return (
                f"no column {name!r} in {suite.origin.shown(sample.path)}, and no dataset.fields.{name} to replace it "
                f"(a column or a template); found the columns {columns}"
            )
    return None
