"""Facts of a session: its models, speed and cost, servers and store, why it is not complete, and hints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    BudgetUse,
    Group,
    PerSample,
    Report,
    StoreUse,
    SuiteReport,
    Summary,
    compared_models,
    group_of_record,
    group_of_suite,
    use_of_model,
)
from pytest_llmeval.reporting.report.served_models import fingerprint_texts
from pytest_llmeval.reporting.tables.cells import Table, cost_text, duration_text, rate_text
from pytest_llmeval.reporting.tables.suites import suite_name
from pytest_llmeval.scoring.metrics.summary import Percentiles
from pytest_llmeval.text.escaping import printable, shortened
from pytest_llmeval.text.wording import counted, time_text
from pytest_llmeval.types import JSON, EngineUse, ServerUse

if TYPE_CHECKING:
    from pytest_llmeval.scorers.reading.stated import LabelStyle

__all__ = [
    "LEAST_SECONDS_UNCOUNTED",
    "budget_texts",
    "engine_texts",
    "has_many_without_answer",
    "incomplete_texts",
    "latency_table",
    "latency_texts",
    "model_texts",
    "no_answer_texts",
    "paid_text",
    "per_sample_table",
    "phase_texts",
    "server_texts",
    "speed_texts",
    "store_texts",
    "unjudged_texts",
]


_PERCENTILES = ("p50", "p95", "p99")
_SHOWN = ("mean", *_PERCENTILES)
_LEAST_SECONDS = 5e-6
"""The least time that is shown, as 0.01 ms; less is noise."""
LEAST_SECONDS_UNCOUNTED = 1e-3
"""The least time that says something of a model without tokens: a function that calls no service takes less."""


def model_texts(models: Sequence[Mapping[str, JSON]]) -> Iterator[str]:
    """Yield each model in a few words, not yet ``printable``: name, device, dtype, revision, server with version."""
    for model in models:
        facts = [model[key] for key in ("device", "dtype", "revision") if model.get(key)]
        details = model.get("details")
        if isinstance(details, Mapping) and details.get("server") and details.get("version"):
            facts.append(f"{details['server']} {details['version']}")
        yield str(model["name"]) + (f" ({', '.join(map(str, facts))})" if facts else "")


def incomplete_texts(report: Report) -> Iterator[str]:
    """Say what the report lacks of the whole session: a selection, an early end, a kept baseline. Not ``printable``."""
    if report.is_brief:
        yield (
            "a baseline of --llm-update-baseline: it has the metrics that are compared, and no texts, categories, "
            "tokens, times, gates or options"
        )
    if by := ", ".join(report.selected.by):
        yield f"a selection ({by}): these numbers cover only what was selected"
    if report.stopped:
        yield f"stopped early ({report.stopped}): these numbers cover only what had run"


def speed_texts(report: Report) -> Iterator[str]:
    """Yield the samples and tokens of the session by the time that they took."""
    num_samples = sum(suite.summary.num_scored for suite in report.suites)
    num_prompt_tokens = sum(suite.num_prompt_tokens for suite in report.suites)
    num_tokens = sum(suite.num_tokens for suite in report.suites)
    seconds = sum(suite.seconds for suite in report.suites)
    whose = "of the model's time"
    is_reused = report.store is not None and report.store.num_reused > 0
    if seconds > report.seconds and not is_reused and any(map(use_of_model, report.models)):
        seconds, whose = report.seconds, "from start to end"  # a server answers many at once
    if not num_samples or not num_tokens or seconds <= 0:
        return
    yield (
        f"{counted(num_samples, 'sample')}, "
        f"{num_prompt_tokens:,} prompt tokens and {num_tokens:,} scored or generated, "
        f"in {seconds:.1f} s {whose}: {num_samples / seconds:,.1f} samples/s, "
        f"{(num_prompt_tokens + num_tokens) / seconds:,.0f} tokens/s"
    )
    yield from phase_texts(report.suites)


def phase_texts(suites: Sequence[SuiteReport]) -> Iterator[str]:
    """Say how fast prompts were read and texts written, over all suites whose model tells the two apart."""
    known = [suite.phases for suite in suites if suite.phases is not None]
    rates = []
    for what, pairs in (
        ("prefill", [(one.prefill_tokens, one.prefill_seconds) for one in known]),
        ("decode", [(one.decode_tokens, one.decode_seconds) for one in known]),
    ):
        tokens, seconds = sum(count for count, _ in pairs), math.fsum(spent for _, spent in pairs)
        if tokens and seconds > 0:
            rates.append(f"{what} {rate_text(tokens / seconds)} tokens/s")
    if rates:
        yield f"generated texts: {', '.join(rates)}"


def latency_texts(suites: Sequence[SuiteReport], names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is said of the latency of the session's samples: a beginning, and the items after it.

    Of one suite there are its percentiles, and those of its tokens/s. Percentiles of several suites cannot be averaged:
    there is the mean over all samples, and the smallest and largest p95 of a suite. ``latency_table`` has them all.
    """
    timed = [(suite, latency) for suite in suites if (latency := _meaningful_latency(suite)) is not None]
    if not timed:
        return
    if len(timed) == 1:
        ((suite, latency),) = timed
        for what, found, shown in (
            ("latency of a sample:", latency, duration_text),
            ("tokens/s of a sample:", suite.tokens_per_second, rate_text),
        ):
            if found is not None:
                yield (
                    what,
                    [f"{name} {text}" for name, text in zip(_SHOWN, _spread(found, shown), strict=True)],
                )
        return
    num_samples = sum(latency.n for _, latency in timed)
    mean = math.fsum(latency.mean * latency.n for _, latency in timed) / num_samples
    ordered = sorted(timed, key=lambda pair: pair[1].p95)
    (first, fastest), (last, slowest) = ordered[0], ordered[-1]
    low, high = duration_text(fastest.p95), duration_text(slowest.p95)
    fast, slow = (printable(suite_name(suite, names)) for suite in (first, last))
    spread = low if low == high else f"from {low} ({fast}) to {high} ({slow})"
    yield "latency of a sample:", [f"mean {duration_text(mean)}", f"p95 {spread}"]


def latency_table(suites: Sequence[SuiteReport], names: Mapping[str, str]) -> Table:
    """Return a row for each suite with a latency, and its tokens/s if it has them."""
    headers = ["suite", "n", "latency mean", *_PERCENTILES, "tokens/s mean", *_PERCENTILES]
    rows = []
    for suite in suites:
        if (latency := _meaningful_latency(suite)) is not None:
            cells = [printable(suite_name(suite, names)), str(latency.n)]
            speed = suite.tokens_per_second
            speeds = [""] * len(_SHOWN) if speed is None else _spread(speed, rate_text)
            rows.append([*cells, *_spread(latency, duration_text), *speeds])
    return Table(headers=headers, rows=rows, align=_number_columns(headers))


def _number_columns(headers: Sequence[str]) -> list[str]:
    """Return the alignment of a table of numbers behind names."""
    return ["left", *("right" for _ in headers[1:])]


def _spread(found: Percentiles, shown: Callable[[float], str]) -> list[str]:
    return [shown(getattr(found, name)) for name in _SHOWN]


def _meaningful_latency(suite: SuiteReport) -> Percentiles | None:
    """Return the suite's latency if it says something: a user's function that calls no service takes no time."""
    is_counted = suite.num_prompt_tokens + suite.num_tokens > 0
    least = _LEAST_SECONDS if is_counted else LEAST_SECONDS_UNCOUNTED
    return None if suite.latency is None or suite.latency.p95 < least else suite.latency


_HEADERS = ("suite", "n", "prompt tokens", "tokens", "time", "cost", "cost in all", "judges' cost")


def per_sample_table(report: Report, names: Mapping[str, str], *, always: bool = False) -> Table:
    """Return the means over each suite's scored samples, without the columns that no suite has a number for.

    It has no rows if no models are compared and no cost is known, unless the table is ``always`` wanted.
    """
    is_timed = any(_takes_time(suite.per_sample) for suite in report.suites if suite.per_sample is not None)
    rows = [
        [
            printable(suite_name(suite, names)),
            *_sample_cells(suite.per_sample, is_timed),
            _cost(suite.cost) + _part(suite.num_priced or 0, suite.summary.num_scored + suite.summary.num_unscored),
            _cost(suite.judge_cost),
        ]
        for suite in report.suites
        if suite.per_sample is not None
    ]
    used = [place for place in range(len(_HEADERS)) if place < 2 or any(row[place] for row in rows)]
    is_wanted = (
        always
        or bool(report.comparisons)
        or any(suite.cost is not None or suite.judge_cost is not None for suite in report.suites)
    )
    if not is_wanted or len(used) < 3:
        return Table(headers=[], rows=[], align=[])
    headers = [_HEADERS[place] for place in used]
    return Table(headers=headers, rows=[[row[place] for place in used] for row in rows], align=_number_columns(headers))


def _takes_time(found: PerSample) -> bool:
    """Tell whether the time says something: a function that calls no service takes none."""
    is_counted = found.num_prompt_tokens + found.num_tokens > 0
    return found.seconds > 0 and (is_counted or found.seconds >= LEAST_SECONDS_UNCOUNTED)


def _sample_cells(found: PerSample, is_timed: bool) -> list[str]:
    return [
        str(found.n),
        *(_count(number, found) for number in (found.num_prompt_tokens, found.num_tokens)),
        duration_text(found.seconds) if is_timed and found.seconds > 0 else "",
        _cost(found.cost) + _part(found.num_priced, found.n),
    ]


def _count(number: float, found: PerSample) -> str:
    """Return a mean number of tokens; blank for 0, which is what a program gives that does not count them."""
    if number == 0:
        return ""
    shown = f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"
    return shown + _part(found.num_counted, found.n)


def _part(number: int, n: int) -> str:
    """Return `` (n 5)`` for a mean or sum over some of the samples, and an empty text for one over all."""
    return f" (n {number})" if 0 < number < n else ""


def _cost(cost: float | None) -> str:
    return "" if cost is None else cost_text(cost)


def server_texts(models: Sequence[Mapping[str, JSON]]) -> Iterator[str]:
    """Say what was sent to each model behind a server; of judges also whose it was. Made ``printable``."""
    for model in models:
        use = use_of_model(model)
        if use is None:
            continue
        role = f"{printable(str(model['role']))} " if "role" in model else ""
        name = f"{role}{printable(str(model['name']))}: " if role or len(models) > 1 else ""
        requests = f"{name}{counted(use.num_requests, 'request')}"
        parts = [
            f"{requests} to the server",
            f"{use.num_prompt_tokens:,} prompt tokens and {use.num_tokens:,} generated as it counts them",
        ]
        num_replicas = _num_replicas(model, use)
        if num_replicas:
            parts = [f"{requests} to {_shares(use, num_replicas)}"]
        if use.retries:
            reasons = ", ".join(f"{printable(reason)}: {count:,}" for reason, count in use.retries.items())
            parts.append(f"tried again {sum(use.retries.values()):,} times ({reasons})")
        names = [served for served in use.served_models if served not in str(model["name"])]
        if names:
            parts.append(f"answered by {printable(' and by '.join(names))}")
        if use.left_out:
            parts.append(f"without {printable(', '.join(use.left_out))}, which the server refused")
        if use.cost is not None:
            parts.append(f"cost {cost_text(use.cost)}")
        yield ", ".join(parts)
        for ended in use.ended:
            what = "a replica ended" if num_replicas else "a replica is missing"
            yield f"{name}{what}: {printable(ended)}"
        yield from map(printable, fingerprint_texts([model]))


def _num_replicas(model: Mapping[str, JSON], use: ServerUse) -> int:
    """Return how many replicas on Ray ``model`` was to have; 0 for a server."""
    details = model.get("details")
    asked_for = details.get("replicas") if isinstance(details, Mapping) else None
    return max(len(use.replicas), asked_for if isinstance(asked_for, int) else 0)


def _by_number(share: tuple[str, int]) -> list[str | int]:
    """Return a key that sorts ``replica 10`` after ``replica 2``."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", share[0]))]


def _shares(use: ServerUse, num_replicas: int) -> str:
    """Return the replicas that answered, of all that were to: the others loaded too late, or were not needed."""
    told = f"{num_replicas} replica{'' if num_replicas == 1 else 's'}"
    if not use.replicas:
        return told
    shares = ", ".join(f"{printable(where)} {count:,}" for where, count in sorted(use.replicas.items(), key=_by_number))
    return f"{'' if len(use.replicas) == num_replicas else f'{len(use.replicas)} of '}{told} ({shares})"


def engine_texts(suites: Sequence[SuiteReport], names: Mapping[str, str]) -> Iterator[str]:
    """Say how log-likelihoods were computed, once for each way in which suites were. Made ``printable``."""
    ways: dict[tuple[str, str], list[tuple[str, EngineUse]]] = {}
    for suite in suites:
        if (use := suite.engine) is not None:
            ways.setdefault((use.engine, use.reason), []).append((suite_name(suite, names), use))
    for (engine, reason), members in ways.items():
        line = f"log-likelihoods: {engine} ({printable(reason)})"
        if len(ways) > 1:
            line += f" for {', '.join(printable(suite) for suite, _ in members)}"
        differences = [use.largest_difference for _, use in members if use.largest_difference is not None]
        if differences:
            num_audited = sum(use.num_audited for _, use in members)
            requests = "request was" if num_audited == 1 else "requests were"
            line += f"; {num_audited} {requests} also scored plain, and differed by at most {max(differences):.0e}"
        elif engine == "tree":
            line += "; no request could be audited against plain scoring"
        yield line


_WITHOUT_NEED = ("replay", "guessing")
"""Backends that have their answers at hand."""


def store_texts(report: Report) -> Iterator[str]:
    """Say how many samples the store answered, how old their replies are, and what is odd. Not yet ``printable``."""
    store = report.store
    if store is None or not store.num_samples:
        return
    text = f"store {store.folder}: {store.num_reused:,} of {store.num_samples:,} samples reused"
    if store.oldest is not None and store.newest is not None:
        ages = list(dict.fromkeys(_age(report.created, asked_at) for asked_at in (store.newest, store.oldest)))
        text += f", asked {' to '.join(ages)} before this session; times and speed were measured then"
    yield text
    if flaws := "; ".join(_flaws(store)):
        yield f"store {store.folder}: {flaws}"
    for model in (*report.models, *report.judges):
        details = model.get("details")
        stored = details.get("store") if isinstance(details, Mapping) else None
        name = f"{model['role']} {model['name']}" if "role" in model else str(model["name"])
        if stored is None and model.get("backend") not in (*_WITHOUT_NEED, None):  # None: an older report's judge
            yield f"store: {name}: is not asked through the store"
        elif isinstance(stored, str) and "not reused" in stored:
            yield f"store: {name}: {stored}; --llm-store-max-age 7d reuses those of the last 7 days"
    if store.problem is not None:
        yield f"store: replies could no longer be kept: {store.problem}"


def budget_texts(report: Report) -> Iterator[str]:
    """Say what was paid of a budget. If it stopped the session, one of the report's problems says so, and this too."""
    if report.budget is not None and report.budget.ended is None:
        passed = "; a reply took more than could be foreseen" if report.budget.is_passed else ""
        yield f"budget: {paid_text(report.budget)}{passed}"


def paid_text(budget: BudgetUse) -> str:
    """Return the money and the tokens that were paid, each with its limit if it has one: ``3.10 of 5 paid``."""
    parts = []
    if budget.most_cost is not None:
        parts.append(f"{cost_text(budget.cost)} of {budget.most_cost:g} paid")
    elif budget.cost:
        parts.append(f"{cost_text(budget.cost)} paid")
    if budget.most_tokens is not None:
        parts.append(f"{budget.num_tokens:,} of {budget.most_tokens:,} tokens")
    elif budget.num_tokens:
        parts.append(f"{budget.num_tokens:,} tokens")
    return ", ".join(parts)


def _flaws(store: StoreUse) -> Iterator[str]:
    if number := store.num_unreadable:
        yield f"{number:,} {'file' if number == 1 else 'files'} cannot be read ({store.why_unreadable})"
    if number := store.num_damaged:
        lines, them = ("line is", "it") if number == 1 else ("lines are", "them")
        yield f"{number:,} damaged {lines} not used, llmeval store compact removes {them}"


def _age(created: str, asked_at: str) -> str:
    """Return the age of a reply at the start of the session, or the text itself if one of the two is no time."""
    try:
        return time_text(max(0.0, (datetime.fromisoformat(created) - datetime.fromisoformat(asked_at)).total_seconds()))
    except (TypeError, ValueError):
        return asked_at


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
    "tool_calls": "call",
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
        text = _no_answer_text(suite, first.get(group)) if group in without else ""
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
    return f"{number} cut at max_tokens: raise {_limit_key(suite)}, or end replies with generate.stop"


def _limit_key(suite: SuiteReport) -> str:
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


def _no_answer_text(suite: SuiteReport, first: Record | None) -> str:
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
        return f"{counted}; the first ended in its reasoning: a larger {_limit_key(suite)} lets the model end it"
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
