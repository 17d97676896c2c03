"""LLM benchmarks as pytest suites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmeval.evaluation.evaluation import Evaluation
    from pytest_llmeval.models.specs import ModelKind
    from pytest_llmeval.reporting.writers.exports import load_report
    from pytest_llmeval.suites.benchmark import Benchmark
    from pytest_llmeval.types import NotMeasurable

__all__ = ["Benchmark", "Evaluation", "ModelKind", "NotMeasurable", "load_report"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    """Return each on first use: pytest loads this package in every run, and pydantic takes long to import."""
    if name == "Benchmark":
        from pytest_llmeval.suites.benchmark import Benchmark

        return Benchmark
    if name == "Evaluation":
        from pytest_llmeval.evaluation.evaluation import Evaluation

        return Evaluation
    if name == "ModelKind":
        from pytest_llmeval.models.specs import ModelKind

        return ModelKind
    if name == "NotMeasurable":
        from pytest_llmeval.types import NotMeasurable

        return NotMeasurable
    if name == "load_report":
        from pytest_llmeval.reporting.writers.exports import load_report

        return load_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
