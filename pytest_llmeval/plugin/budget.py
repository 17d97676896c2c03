"""The budget of a session (``--llm-budget``, ``--llm-budget-tokens``): checked, and shared by its processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.plugin.settings import Settings, settings_key
from pytest_llmeval.plugin.xdist_messages import shared_folder

if TYPE_CHECKING:
    from pytest_llmeval.models.budget import Budget
    from pytest_llmeval.reporting.report.report import BudgetUse

__all__ = ["budget_of", "budget_use", "check_budget", "share_budget"]

_budget_key = pytest.StashKey["Budget"]()


def budget_of(config: pytest.Config) -> Budget | None:
    """Return the session's budget, made at the first call; None if it may pay any amount."""
    settings = config.stash[settings_key]
    if settings.budget_option is None:
        return None
    if _budget_key not in config.stash:
        from pytest_llmeval.models.budget import Budget

        config.stash[_budget_key] = Budget(settings.budget, settings.budget_tokens, shared_folder(config))
    return config.stash[_budget_key]


def share_budget(config: pytest.Config, node: Any, folder: Path) -> None:
    """Share the budget with a worker that is about to start. Raise ``pytest.UsageError`` if that is elsewhere."""
    if (budget := budget_of(config)) is None:
        return
    if not node.gateway.spec.popen:
        option = config.stash[settings_key].budget_option
        raise pytest.UsageError(f"{option}: {node.gateway.id} runs on another machine, and cannot share the budget")
    budget.share(folder)


def budget_use(config: pytest.Config) -> BudgetUse | None:
    """Return what all processes have paid by now; None without a budget."""
    if (budget := config.stash.get(_budget_key, None)) is None:
        return None
    from pytest_llmeval.reporting.report.report import BudgetUse

    paid = budget.paid
    return BudgetUse(
        cost=paid.cost,
        num_tokens=paid.tokens,
        most_cost=budget.most_cost,
        most_tokens=budget.most_tokens,
        ended=budget.ended,
    )


def check_budget(settings: Settings, own: ModelSettings) -> None:
    """Raise ``OptionError`` for a budget of models that do not say what they cost.

    Models that cost nothing keep to any budget, so that an ini file with one serves sessions with them, too.
    """
    option = settings.budget_option
    specs = [spec for spec in settings.all_specs if not spec.kind.costs_nothing]
    if settings.ray is not None and any(spec.role is None for spec in specs):
        raise OptionError(f"{option}: replicas on Ray share no budget; leave out --llm-ray")
    for spec in specs:
        if spec.kind.budgeting == "impossible":
            raise OptionError(
                f"{option}: a model of the kind {spec.kind.name} does not say what it costs ({spec.name})"
            )
        if settings.budget is not None and not spec.kind.has_price(spec, own):
            raise OptionError(
                f"--llm-budget: {spec.name} has no price; give price_in and price_out, for a million tokens, "
                "behind its name or by --llm-model-arg"
            )
