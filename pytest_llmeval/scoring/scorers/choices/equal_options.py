"""Options of one sample that are the same text, which occur in a few published data sets."""

from __future__ import annotations

from pytest_llmeval.scoring.targets import quote
from pytest_llmeval.suites.loading.suite import Suite

__all__ = ["equal_options"]


def equal_options(suite: Suite) -> str | None:
    """One line that names the first sample with an option twice and counts the others; None where there is none."""
    if not any(settings.needs_options for settings, _ in suite.spec.score.each()):
        return None
    found = [sample for sample in suite.samples if len({*map(str.strip, sample.choices)}) < len(sample.choices)]
    if not found:
        return None
    first, texts = found[0], [choice.strip() for choice in found[0].choices]
    twice = next(text for text in texts if texts.count(text) > 1)
    others = {1: "", 2: ", and another sample has equal options too"}.get(
        len(found), f", and {len(found) - 1} other samples have equal options too"
    )
    return (
        f"{suite.name}: sample {quote(first.id)} ({suite.place(first)}) has the option {quote(twice)} "
        f"{texts.count(twice)} times{others}: no answer can tell them apart"
    )
