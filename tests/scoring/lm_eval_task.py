"""lm-eval's own task, built on rows of a test, for comparing with ours what it asks and how it judges."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.loading.loader import load_suite

__all__ = ["Row", "evaluation", "lm_eval_task", "needs_lm_eval"]

Row = Mapping[str, Any]

needs_lm_eval = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'"
)


def lm_eval_task(
    monkeypatch: pytest.MonkeyPatch,
    rows: Sequence[Row],
    shots: Sequence[Row] = (),
    *,
    output_type: str = "multiple_choice",
    metrics: Sequence[str] = ("acc",),
    **config: str | Callable[..., object] | int | Mapping[str, object],
) -> Any:
    """A ``ConfigurableTask`` whose requests are built; ``shots`` are all shown, in their order."""
    import datasets
    from lm_eval.api.task import ConfigurableTask

    data = {"test": datasets.Dataset.from_list([dict(row) for row in rows])}
    if shots:
        data["train"] = datasets.Dataset.from_list([dict(row) for row in shots])
        config = {
            **config,
            "fewshot_split": "train",
            "num_fewshot": len(shots),
            "fewshot_config": {"sampler": "first_n", "split": "train"},
        }
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: datasets.DatasetDict(data))
    task = ConfigurableTask(
        config={
            "task": "of_a_test",
            "dataset_path": "rows",
            "test_split": "test",
            "output_type": output_type,
            "metric_list": [{"metric": metric} for metric in metrics],
            **config,
        }
    )
    task.build_all_requests(rank=0, world_size=1)
    return task


def evaluation(folder: Path, text: str) -> Evaluation:
    """The suite ``text``, written into the folder and loaded."""
    path = folder / "suite.yaml"
    path.write_text(text, encoding="utf-8")
    return Evaluation(load_suite(path, shown_path="suite.yaml"))
