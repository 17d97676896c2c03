"""Hints for a suite in which many replies had no answer or were cut, or whose rankings hold no relevant document.

A hint gives the number of such replies, shows the first one, and says what may help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    Group,
    Report,
    SuiteReport,
    Summary,
    compared_models,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.reporting.tables.suites import suite_name
from pytest_llmeval.text.escaping import printable, shortened
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    from pytest_llmeval.scorers.reading.stated import LabelStyle

__all__ = ["has_many_without_answer", "no_answer_texts", "unjudged_texts"]

_FEW = 3
"""Fewer replies without an answer are no reason for a hint, unless there are no others."""
_SHARE = 10
"""Replies without an answer are many from one in this number on."""
_MAX_REPLY = 80

_MISSED: Mapping[str, str] = {
    "yes_no": "yes or no",
    "number": "number",
    "pattern": "match of the pattern",
    "json": "JSON",
    "retrieval": "list of documents",
}
"""The name of a missing answer for each scorer."""

_ALPHABET, _MAX_READ = 26, 2_000
_LABELS = {"upper": "[A-Z]", "lower": "[a-z]", "digit": "[0-9]+"}


def has_many_without_answer(summary: Summary) -> bool:
    """Tell whether so many replies had no answer that it is worth a line: a tenth and at least 3, or all of them."""
    return _are_many(summary.num_no_answer, summary)


def _are_many(number: int, summary: Summary) -> bool:
    return 0 < number == summary.num_scored or (number >= _FEW and number * _SHARE >= summary.num_scored)


def no_answer_texts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a hint, ``printable``, for each suite with many replies that had no answer or were cut."""
    compared = compared_models(report)
    suites = {group_of_suite(suite, compared): suite for suite in report.suites}
    without = {group: suite for group, suite in suites.items() if has_many_without_answer(suite.summary)}
    first = _first_replies(report.records, without, compared) if without else {}
    for group, suite in suites.items():
        text = _text(suite, first.get(group)) if group in without else ""
        if "max_tokens" not in text and (cut := _cut_text(suite)):
            text = "; ".join(filter(None, (text, cut)))
        if text:
            yield f"{printable(suite_name(suite, names))}: {text}"


def unjudged_texts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a hint for each suite whose rankings contain no relevant document: the ids may differ in form."""
    for suite in report.suites:
        metrics = {name: metric for name, metric in suite.summary.metrics.items() if metric.kind != "count"}
        num_measured = max((metric.n for metric in metrics.values()), default=0)
        if suite.info.scorer != "retrieval" or not num_measured or any(metric.value for metric in metrics.values()):
            continue
        judged = [name.partition("@")[2] for name in metrics if name.startswith("judged@")]
        also = f", nor a judged one among the first {judged[-1]}" if judged else ""
        text = f"none of {num_measured:,} rankings contains a relevant document{also}"
        advice = "are the documents' ids written alike in the rankings and in the judgements?"
        yield f"{printable(suite_name(suite, names))}: {text}: {advice}"


def _cut_text(suite: SuiteReport) -> str:
    """Return a hint if many replies were cut and that did harm, or an empty text.

    There is none for ``letter`` and ``yes_no``: they ask for few tokens and find an answer wherever it stands, and a
    reply that was cut before its answer is counted as one without an answer.
    """
    summary, accuracy = suite.summary, suite.summary.metrics.get("accuracy")
    is_right = accuracy is not None and accuracy.value == 1
    if is_right or suite.info.scorer in ("letter", "yes_no") or not _are_many(summary.num_truncated, summary):
        return ""
    number = "1 reply was" if summary.num_truncated == 1 else f"{summary.num_truncated:,} replies were"
    return f"{number} cut at max_tokens: raise {_limit(suite)}, or end replies with generate.stop"


def _limit(suite: SuiteReport) -> str:
    """Return the key of the suite that limits the tokens of a reply."""
    scorer = suite.info.scorer
    has_own = scorer == "letter" and suite.info.settings.get("max_tokens") is not None
    return f"score.{scorer}.max_tokens" if has_own else "generate.max_tokens"


def _first_replies(
    records: Iterable[Record], groups: Iterable[Group], compared: tuple[str, ...]
) -> dict[Group, Record]:
    missing, found = set(groups), {}
    for record in records:
        if record.no_answer and record.output is not None and (group := group_of_record(record, compared)) in missing:
            found[group] = record
            missing.remove(group)
            if not missing:
                break
    return found


def _text(suite: SuiteReport, first: Record | None) -> str:
    reply = None if first is None else first.output
    summary, scorer = suite.summary, suite.info.scorer or ""
    missed = "named no option" if scorer == "letter" else f"had no {_MISSED.get(scorer, 'answer')}"
    counted = f"{summary.num_no_answer:,} of {summary.num_scored:,} replies {missed}"
    if reply is None or (scorer == "retrieval" and not reply.strip()):
        return counted
    if scorer == "retrieval":
        shown = printable(repr(shortened(reply, limit=_MAX_REPLY)))
        advice = "a text has to be a JSON list of ids, best first; a program returns documents beside its text"
        return f"{counted}; the first was {shown}; {advice}"
    if not reply.strip() and first is not None and first.reasoning is not None:
        return f"{counted}; the first ended in its reasoning: a larger {_limit(suite)} lets the model end it"
    if not reply.strip():
        advice = "look at the end of the prompt, at generate.stop, and whether the model wants prompt.chat: true"
        return f"{counted}; the first was empty: {advice}"
    advice = (first and _other_label(suite, first, reply)) or _advice(suite, reply)
    return f"{counted}; the first was {printable(repr(shortened(reply, limit=_MAX_REPLY)))}; {advice}"


def _other_label(suite: SuiteReport, first: Record, reply: str) -> str | None:
    """Return a hint for a reply that names a label which no option has, or None."""
    styles: tuple[LabelStyle, ...] = ("upper", "lower", "digit")
    style = next((one for one in styles if one == suite.info.settings.get("labels", "upper")), None)
    if suite.info.scorer != "letter" or not first.choices or style is None:
        return None
    # Their patterns of ten languages take as long to compile as all else that a report needs.
    from pytest_llmeval.scorers.letter import option_labels
    from pytest_llmeval.scorers.reading.stated import stated_label

    labels = option_labels(len(first.choices), style)
    named = stated_label(shortened(reply, limit=_MAX_READ), option_labels(_ALPHABET, style))
    if named is None or named in labels:
        return None
    return f"it names {named}, and the options are {labels[0]} to {labels[-1]}: does the prompt show them so?"


def _advice(suite: SuiteReport, reply: str) -> str:
    """Return advice on how to find the answer in this reply, or how to make the model write one."""
    settings, scorer = suite.info.settings, suite.info.scorer
    filters = settings.get("filters")
    word = "try other filters than the suite's" if filters else "try filters"
    if re.search("</?think>", reply) and not suite.info.splits_reasoning and not _drops_reasoning(filters):
        more = "" if "</think>" in reply else ", and a larger generate.max_tokens: the model was still thinking"
        return f"try generate.reasoning: true, or filters: [drop_reasoning]{more}"
    for pattern in _patterns(scorer, settings):
        if re.search(pattern, reply):
            return f"{word}: [{{regex: '{pattern}'}}]"
    if scorer == "json" and "```" in reply and not settings.get("fenced"):
        return "try score: {json: {fenced: true}}"
    return (
        f"{word} (docs/scoring.md), a larger generate.max_tokens, or a prompt that says how to answer or shows it "
        "(prompt.fewshot)"
    )


def _drops_reasoning(filters: JSON) -> bool:
    steps = filters if isinstance(filters, list) else []
    return any(isinstance(step, dict) and step.get("kind") == "drop_reasoning" for step in steps)


def _patterns(scorer: str | None, settings: Mapping[str, JSON]) -> Iterator[str]:
    """Yield regular expressions that find what this scorer reads, from the surest to the boldest."""
    if scorer == "letter":
        label = _LABELS.get(str(settings.get("labels", "upper")), "[A-Z]")
        yield rf"(?i:answer|option|choice)(?i: is)?[^A-Za-z0-9]*({label})\b"
        yield rf"\(({label})\)"
        yield rf"\b({label})[.:)]"
    elif scorer == "yes_no":
        yield r"(?i)\b(yes|no)\b"
