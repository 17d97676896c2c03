"""Pairs the samples of a suite with the baseline's, or says why they cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_llmeval.data.code_version import SOURCE
from pytest_llmeval.gates.options import Compare
from pytest_llmeval.gates.prompt_changes import changed_settings, prompt_diff
from pytest_llmeval.reporting.report.records import (
    NEW_REPLIES,
    NOT_ASKED,
    UNKNOWN_REPLIES,
    Record,
    SuiteInfo,
    are_replies_to_another_prompt,
    judging_change,
    records_without_texts,
)
from pytest_llmeval.reporting.report.report import (
    SCHEMA_VERSION,
    Group,
    Report,
    SuiteReport,
    Summary,
    compared_models,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.reporting.storage.disk_records import DiskRecords
from pytest_llmeval.scoring.metrics.judged import HUMAN, JUDGE_PROMPT
from pytest_llmeval.scoring.paired_metrics import counted, listed
from pytest_llmeval.text.redaction import hidden_arguments
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import IS_KNOWN, JSON, REPLAYED, ScoreLike

__all__ = [
    "JUDGED_METRIC",
    "Pairing",
    "Refusal",
    "SamplePairs",
    "Undecided",
    "kept_records",
    "num_unscored",
    "pair_samples",
    "pair_with_ties",
]

JUDGED_METRIC = "win_rate"
"""The metric of a suite whose scorer compares each reply with the baseline's."""

TIE = 0.5
"""The ``win_rate`` of a reply that is as good as the other."""

_PARTS = {
    "questions": "the questions",
    "prompt": "the prompt",
    "fewshot": "the few-shot examples",
    "scorer": "the scorer (its version or its code)",
}
_NOT_TOLD = frozenset((UNKNOWN_REPLIES, NEW_REPLIES))
"""Values of ``Record.kept_as`` by which two reports cannot be found to have the same replies."""


def _score_again(baseline: Report) -> str:
    """Return what to do about replies that were judged in another way."""
    if baseline.is_brief:
        return "the baseline has no replies that could be scored again: --llm-update-baseline=accept writes it anew"
    return "score the baseline's replies again: --llm-model replay:BASELINE.json --llm-report NEW.json"


class Refusal(Exception):
    """Two suites are not compared. The message says what differs, or what is missing."""


class Undecided(Exception):
    """A comparison of two suites would say nothing about the model. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The rules by which samples are paired: ``compare`` all of a suite, only those that are the same in both, or those
    whose question, target and scorer are the same.

    ``is_selection``: the session left tests out, so that a suite of hand-written tests need not be whole.
    ``num_unscored`` is the session's, ``num_unscored_before`` that of the baseline's suites that are compared; up to
    ``allow_unscored`` of each are left out and reported, more are refused. ``require``: a selection of a suite is
    refused. ``reports`` are the baseline and this session's report.
    """

    compare: Compare
    is_selection: bool
    num_unscored: int
    num_unscored_before: int
    allow_unscored: int
    require: bool
    reports: tuple[Report, Report]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePairs:
    """The scores of the samples that both reports have, by id, and their clusters if they have any.

    ``num_left_out`` samples that one report scored have no partner; ``notes`` say so. ``num_unscored`` pairs have no
    score on one side or both; ``min_measurable`` of a gate counts them as pairs.
    """

    first: Mapping[str, ScoreLike]
    second: Mapping[str, ScoreLike]
    clusters: Mapping[str, str | None] | None
    num_left_out: int
    notes: tuple[str, ...]
    num_unscored: int
    prompt_diff: tuple[str, ...] = ()


def kept_records(report: Report, suites: Iterable[SuiteReport]) -> dict[Group, dict[str, Record]]:
    """Return the records of the suites without their texts, by sample id. The report's records are read once."""
    compared = compared_models(report)
    kept: dict[Group, dict[str, Record]] = {group_of_suite(suite, compared): {} for suite in suites}
    records = records_without_texts(report.records) if isinstance(report.records, DiskRecords) else report.records
    for record in records:
        if (own := kept.get(group_of_record(record, compared))) is not None:
            own[record.id] = record
    return kept


def pair_samples(
    before: SuiteReport,
    after: SuiteReport,
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    pairing: Pairing,
    *,
    are_rated: bool,
) -> SamplePairs:
    """Pair the baseline's samples (``before``, ``first``) with this session's. Raise ``Refusal`` and ``Undecided``.

    ``are_rated``: the metrics compare judges with people, whose ratings have to be the same.
    """
    notes = [*_unscored_before(before, pairing), *_unscored(after, pairing), *_hidden(after.info)]
    if before.info.judge != after.info.judge:
        schema = pairing.reports[0].schema
        hint = "" if schema >= SCHEMA_VERSION else f"; a report of schema {schema} knows a judge by less: make it anew"
        raise Refusal(f"another judge: {_judges(before.info)} -> {_judges(after.info)}{hint}")
    if before.info.splits_reasoning != after.info.splits_reasoning and pairing.compare != "questions":
        _check_reasoning(first, pairing.reports[0], splits=before.info.splits_reasoning)
    is_same = before.info.fingerprint == after.info.fingerprint
    if not is_same and pairing.compare == "all":
        raise Refusal(_what_differs(before, after, first, second, pairing.reports[0]))
    both = [sample_id for sample_id in second if sample_id in first]
    if not is_same:
        if pairing.compare == "questions":
            both, told = _same_questions(before, after, first, second, pairing)
        else:
            both, told = _same_samples(both, first, second)
        notes += told
    notes += _selection(after, first, second, pairing, is_same=is_same)
    notes += _selection_before(before, first, second, pairing)
    scored = [sample_id for sample_id in both if _is_scored(first[sample_id]) and _is_scored(second[sample_id])]
    if not scored:
        raise Refusal("no sample that both reports scored")
    rated = scored if are_rated else ()
    if relabelled := sum(_has_other_label(first[sample_id], second[sample_id]) for sample_id in rated):
        raise Refusal(f"people rated {counted(relabelled)} differently in the baseline")
    if is_same and (num_new := sum(sample_id not in first for sample_id in second)):
        notes.append(f"{counted(num_new)} left out, not in the baseline")
    num_unscored = len(both) - len(scored)
    scored, told = _without_own(scored, first, second, before, after, pairing)
    pairs = _pairs(scored, first, second, [*notes, *told], num_unscored)
    if is_same or pairing.compare != "questions":
        return pairs
    return replace(pairs, prompt_diff=prompt_diff(before.info, after.info))


def _same_samples(
    both: Sequence[str], first: Mapping[str, Record], second: Mapping[str, Record]
) -> tuple[list[str], Sequence[str]]:
    """Return the samples that are asked and judged as in the baseline, and the note on them."""
    agree = [sample_id for sample_id in both if first[sample_id].is_same_sample(second[sample_id])]
    if not agree:
        raise Refusal(f"the suites differ: no fingerprints agree for the {len(both):,} samples with the same id")
    num_all = len(first.keys() | second.keys())
    return agree, [f"the suite differs from the baseline's: {len(agree):,} of {num_all:,} samples did not change"]


def _same_questions(
    before: SuiteReport,
    after: SuiteReport,
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    pairing: Pairing,
) -> tuple[list[str], Sequence[str]]:
    """Return the samples with the same question and target, and notes on what changed in how they are asked."""
    if (reason := judging_change(before.info, after.info)) is not None:
        found = _scorer_change(before.info, after.info)
        hint = _score_again(pairing.reports[0])
        raise Refusal(f"the replies are judged in another way: {reason}{f' ({found})' if found else ''}; {hint}")
    parts = [suite.info.fingerprint_parts.get("questions") for suite in (before, after)]
    both = [one for one in second if one in first]
    if parts[0] is None or parts[0] != parts[1]:
        both = [one for one in both if first[one].is_same_question(second[one])]
    if not both:
        raise Refusal(
            "no question is known to be the same in both; make the baseline anew if an earlier version wrote it"
        )
    changed = changed_settings(before.info, after.info)
    what = f"{', '.join(changed)} changed" if changed else "no setting of the prompt changed"
    notes = [f"compared by questions: {what}"]
    if (num_all := len(first.keys() | second.keys())) > len(both):
        lost = _lost_questions(after, first, second, len(both), pairing)
        notes.append(f"{len(both):,} of {num_all:,} samples have the same question and target in both{lost}")
    return both, [*notes, _model_note(before, after, *pairing.reports)]


def _lost_questions(
    after: SuiteReport, first: Mapping[str, Record], second: Mapping[str, Record], num_same: int, pairing: Pairing
) -> str:
    """Return how many of the baseline's samples are gone, with some of their ids, and how many changed."""
    gone = [sample_id for sample_id in first if sample_id not in second]
    told = []
    if num_changed := len(first) - len(gone) - num_same:
        told.append(f"{num_changed:,} changed")
    # In a selection it is not known which samples are gone, and which were left out.
    is_selection = pairing.is_selection if after.info.num_samples is None else not _is_whole(after)
    if gone and not is_selection:
        told.insert(0, f"{len(gone):,} {'is' if len(gone) == 1 else 'are'} gone {listed(gone)}")
    return f"; of the baseline's {counted(len(first))}, {' and '.join(told)}" if told else ""


def _model_note(before: SuiteReport, after: SuiteReport, earlier: Report, now: Report) -> str:
    """Return whether the model changed together with the prompt, as far as that is known."""
    names = " -> ".join(", ".join(map(quoted, suite.models)) or "none" for suite in (before, after))
    if _is_same_model(before, after, earlier, now):
        return "the model is the same" + (f", by another name: {names}" if before.models != after.models else "")
    if before.models != after.models:
        return f"the model changed too: {names}"
    one, other = (_model_of(suite, report) for suite, report in ((before, earlier), (after, now)))
    if None not in (prints := [one.get("fingerprint"), other.get("fingerprint")]) and prints[0] != prints[1]:
        return "the model changed too: its name is the same, and its contents or settings differ"
    sources = [found.get(SOURCE) for found in (one.get("details"), other.get("details")) if isinstance(found, Mapping)]
    if len(sources) == 2 and None not in sources:
        return "the model's code is the same" if sources[0] == sources[1] else "the model changed too: its code differs"
    return "the model has the same name; whether it is the same is not known"


def _hidden(info: SuiteInfo) -> list[str]:
    """Return a note on a judge's arguments that reports hide, even as a hash: that would give a short secret away."""
    names = sorted({name for text in info.judged_by for name in hidden_arguments(text)})
    if not names:
        return []
    return [f"whether the judge's {' and '.join(names)} changed is not known: add shown={','.join(names)} to its name"]


def _check_reasoning(first: Mapping[str, Record], baseline: Report, *, splits: bool) -> None:
    """Raise ``Refusal`` if the baseline's replies hold reasoning, and only one of the two runs judges without it."""
    if num_reasoned := sum(kept.has_reasoning for kept in first.values()):
        ways = ("was split off", "is not") if splits else ("was judged as a part of them", "is split off")
        raise Refusal(
            f"the baseline's replies to {counted(num_reasoned)} hold reasoning, which {ways[0]} there and {ways[1]} "
            f"now (generate.reasoning); {_score_again(baseline)}"
        )


def _has_other_label(before: Record, after: Record) -> bool:
    """Tell whether both reports have people's rating of the sample, and the two differ."""
    labels = [kept.values.get(HUMAN) for kept in (before, after)]
    return None not in labels and labels[0] != labels[1]


def pair_with_ties(
    before: SuiteReport,
    after: SuiteReport,
    earlier: Mapping[str, Record],
    second: Mapping[str, Record],
    pairing: Pairing,
) -> SamplePairs:
    """Pair samples whose scorer compared each reply with the baseline's: the score now, and on the other side a tie.

    The baseline's own replies (``earlier``) would tie with themselves. Raise ``Refusal`` and ``Undecided``.
    """
    first = {
        sample_id: replace(kept, values={**dict.fromkeys(kept.values, TIE), JUDGED_METRIC: TIE}, not_measurable={})
        for sample_id, kept in second.items()
    }
    compares_all = pairing.compare != "common"
    notes = [*_unscored(after, pairing), *_selection(after, earlier, second, pairing, is_same=compares_all)]
    if not compares_all and (num_gone := len(earlier.keys() - second.keys())):
        notes.append(f"{counted(num_gone)} of the baseline left out, not in this run")
    notes += _selection_before(before, earlier, second, pairing)
    scored = [sample_id for sample_id, kept in second.items() if _is_scored(kept)]
    if not scored:
        raise Refusal("no sample was scored")
    num_unscored = len(second) - len(scored)
    scored, told = _without_own(scored, earlier, second, before, after, pairing)
    notes += told
    notes.append(f"each reply was judged against the baseline's: {TIE} is as good")
    return _pairs(scored, first, second, notes, num_unscored)


def _pairs(
    scored: Sequence[str],
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    notes: Sequence[str],
    num_unscored: int,
) -> SamplePairs:
    own_first, own_second = ({sample_id: side[sample_id] for sample_id in scored} for side in (first, second))
    clusters: dict[str, str | None] = {}
    if any(kept.cluster is not None for side in (own_first, own_second) for kept in side.values()):
        clusters = {sample_id: kept.cluster or own_first[sample_id].cluster for sample_id, kept in own_second.items()}
    num_scored = sum(map(_is_scored, first.values())) + sum(map(_is_scored, second.values()))
    return SamplePairs(
        first=own_first,
        second=own_second,
        clusters=clusters if any(cluster is not None for cluster in clusters.values()) else None,
        num_left_out=num_scored - 2 * len(scored),
        notes=tuple(notes),
        num_unscored=num_unscored,
    )


def _without_own(
    scored: list[str],
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    before: SuiteReport,
    after: SuiteReport,
    pairing: Pairing,
) -> tuple[list[str], Sequence[str]]:
    """Return the samples whose replies are new, and notes on those whose replies are the baseline's own, from a store.

    Replies from a store say nothing about a model that may have changed since: raise ``Undecided`` if all are such.
    They stay if the model is known to be the same, and if this run replays the baseline to compare ways of scoring.
    Replies from the file that the baseline's came from, or from the baseline, say nothing about a prompt that changed
    since: raise ``Undecided`` too.
    """
    earlier, now = pairing.reports
    model = _model_of(after, now)
    details = model.get("details")
    replays = isinstance(details, Mapping) and details.get(REPLAYED) == [earlier.created, earlier.seconds]
    has_same_file = replays or _model_of(before, earlier).get("fingerprint") == model.get("fingerprint")
    if pairing.compare != "common" and has_same_file and are_replies_to_another_prompt(before.info, after.info, model):
        raise Undecided(NOT_ASKED)
    if replays:
        return scored, ["the baseline's own replies, scored again: nothing of a model is compared"]
    if pairing.compare == "questions" and _is_asked_alike(before.info, after.info):
        return scored, ["the prompts are the same: these may be the baseline's own replies, read by other filters"]
    own = {one for one in scored if one in first and _may_be_same_replies(first[one], second[one])}
    if not own:
        return scored, ()
    is_unsure = any({first[one].kept_as, second[one].kept_as} & _NOT_TOLD for one in own)
    be = "may be" if is_unsure else "is" if len(own) == 1 else "are"
    are = f"{len(own):,} of {counted(len(scored))} {be} judged on the baseline's own"
    if _is_same_model(before, after, earlier, now):
        return scored, [f"the same model: {are} replies, from a store"]
    if len(own) == len(scored):
        raise Undecided(
            f"{are} replies, from a store, and nothing says that the model is the same: --llm-store-refresh asks again"
        )
    return [one for one in scored if one not in own], [f"{are} replies, from a store: left out"]


def _is_asked_alike(before: SuiteInfo, after: SuiteInfo) -> bool:
    """Tell whether two suites ask in the same way and read the replies by other filters."""
    then, now = before.fingerprint_parts, after.fingerprint_parts
    are_alike = all(then.get(part) == now.get(part) for part in ("prompt", "fewshot"))
    return are_alike and then.get("scorer") != now.get("scorer")


def _may_be_same_replies(before: Record, now: Record) -> bool:
    """Return whether a sample of this run may be judged on the baseline's replies.

    Reports of schema 2 have only the time of the last reply, which is a judge's if one was asked.
    """
    if {before.kept_as, now.kept_as} & _NOT_TOLD:
        return now.kept_as not in (None, NEW_REPLIES)
    if before.kept_as is not None and now.kept_as is not None:
        return before.kept_as == now.kept_as
    return before.asked_at is not None and before.asked_at == now.asked_at


def _is_same_model(before: SuiteReport, after: SuiteReport, earlier: Report, now: Report) -> bool:
    """Tell whether both suites were answered by a model of one content, such as the hash of its weights."""
    one, other = (_model_of(suite, report) for suite, report in ((before, earlier), (after, now)))
    details = other.get("details")
    is_known = isinstance(details, Mapping) and details.get(IS_KNOWN) is True
    return is_known and other.get("fingerprint") is not None and one.get("fingerprint") == other.get("fingerprint")


def _model_of(suite: SuiteReport, report: Report) -> Mapping[str, JSON]:
    """Return the entry of the only model that answered a suite, or an empty mapping if there are several."""
    found = [model for model in report.models if suite.models == (model.get("name"),)]
    return found[0] if len(found) == 1 else {}


def num_unscored(summary: Summary) -> int:
    """Count the samples without a score: those that are recorded as such, and those without a record."""
    return max(summary.num_unscored, summary.num_expected - summary.num_scored)


def _unscored(after: SuiteReport, pairing: Pairing) -> Sequence[str]:
    number = num_unscored(after.summary)
    if number and pairing.num_unscored > pairing.allow_unscored:
        allowed = f"; {pairing.num_unscored:,} in the session, {pairing.allow_unscored:,} allowed"
        num_all = max(after.summary.num_expected, after.summary.num_scored + number)
        raise Refusal(f"{number:,} of {counted(num_all)} unscored{allowed if pairing.allow_unscored else ''}")
    return [f"{counted(number)} unscored, which is allowed: left out"] if number else []


def _unscored_before(before: SuiteReport, pairing: Pairing) -> Sequence[str]:
    number = num_unscored(before.summary)
    if not number:
        return []
    num_all = max(before.summary.num_expected, before.summary.num_scored + number)
    are = "is" if number == 1 else "are"
    found = f"{number:,} of {counted(num_all)} of the baseline {are} unscored"
    if pairing.num_unscored_before > pairing.allow_unscored:
        allowed = f"; {pairing.num_unscored_before:,} in all that is compared, {pairing.allow_unscored:,} allowed"
        if pairing.compare != "common":
            raise Refusal(f"{found}{allowed if pairing.allow_unscored else ''}; --llm-compare common leaves them out")
    return [f"{found}: left out"]


def _selection(
    after: SuiteReport,
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    pairing: Pairing,
    *,
    is_same: bool,
) -> Sequence[str]:
    """Return a note if only a part of the suite was selected. Raise ``Refusal`` if a selected sample is missing."""
    missing = [sample_id for sample_id, kept in first.items() if sample_id not in second and _is_scored(kept)]
    info, num_expected = after.info, after.summary.num_expected
    if info.num_samples is not None:
        num_unselected = max(0, info.num_samples - num_expected - after.num_skipped)
        num_samples = info.num_samples
    else:
        num_unselected = len(missing) if pairing.is_selection else 0
        num_samples = len(second) + num_unselected
    num_unrecorded = max(0, num_expected - len(second))  # these are unscored, and were allowed
    if is_same and len(missing) > num_unselected + num_unrecorded:
        raise Refusal(
            f"{counted(len(missing))} that the baseline scored {'has' if len(missing) == 1 else 'have'} no score now "
            f"{listed(missing)}"
        )
    if not num_unselected:
        return ()
    selection = f"{num_expected:,} of {num_samples:,} samples: a selection"
    if pairing.require:
        raise Refusal(f"{selection}, and --llm-require-gates requires all")
    return [selection]


def _selection_before(
    before: SuiteReport, first: Mapping[str, Record], second: Mapping[str, Record], pairing: Pairing
) -> Sequence[str]:
    """Return a note if the baseline has only a part of the suite. Raise ``Undecided`` if this run has another part."""
    report, num_samples = pairing.reports[0], before.info.num_samples
    selected = report.selected
    ways = [*selected.by, *(() if report.stopped is None else (f"stopped early: {report.stopped}",))]
    is_whole = not ways if num_samples is None else len(first) >= num_samples
    if is_whole:
        if num_samples is None and report.schema < SCHEMA_VERSION:
            _check_is_whole(first, second, pairing)
        return ()
    if before.num_skipped:
        ways.append(f"{before.num_skipped:,} skipped")
    if not ways and report.schema < SCHEMA_VERSION:
        ways.append(f"its report is of schema {report.schema}, which does not say by what")
    of = counted(len(first)) if num_samples is None else f"{len(first):,} of {counted(num_samples)}"
    by = f" ({', '.join(ways)})" if ways else ""
    found = f"the baseline is a selection, {of}{by}"
    if selected.is_by_outcome:
        raise Undecided(
            f"{found}: samples that were selected because they were wrong cannot become worse; make it of the whole "
            "suite"
        )
    if first.keys() != second.keys():
        raise Undecided(
            f"{found}, and this run is not the same one: make it of the whole suite, or run the same selection"
        )
    return [f"{found}; this run is the same one"]


def _check_is_whole(first: Mapping[str, Record], second: Mapping[str, Record], pairing: Pairing) -> None:
    """Raise ``Undecided`` if the hand-written tests of an older report may be a selection, for example by ``--lf``.

    They are known to be whole if they have every sample of a run that is whole itself.
    """
    if not pairing.is_selection and second.keys() <= first.keys():
        return
    num_known = len(second.keys() & first.keys())
    raise Undecided(
        f"the baseline may be a selection: its report is of schema {pairing.reports[0].schema}, which does not say so "
        f"of tests, and it has {num_known:,} of the {counted(len(second))} of this run"
        f"{', which is one' if pairing.is_selection else ''}: make it anew"
    )


def _what_differs(
    before: SuiteReport,
    after: SuiteReport,
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    baseline: Report,
) -> str:
    """Return the message on a suite that differs from the baseline's: which parts of it, and which samples."""
    common = [sample_id for sample_id in second if sample_id in first]
    changed = [sample_id for sample_id in common if not first[sample_id].is_same_sample(second[sample_id])]
    new = [sample_id for sample_id in second if sample_id not in first]
    # In a selection it is not known which samples are gone, and which were left out; the same holds for the baseline's.
    gone = [sample_id for sample_id in first if sample_id not in second] if _is_whole(after) else []
    parts = _parts_that_differ(before.info, after.info)
    samples = [
        f"{counted(len(ids))} {'is' if len(ids) == 1 else 'are'} {how} {listed(ids)}"
        for how, ids in (("changed", changed), ("new", new if _is_whole(before) else []), ("gone", gone))
        if ids
    ]
    found = "; ".join(filter(None, [", ".join(parts), ", ".join(samples)]))
    others = "the samples that ran are the same, but others, or the categories, differ"
    hint = "--llm-compare common compares the samples that did not change"
    if changed_settings(before.info, after.info) and judging_change(before.info, after.info) is None:
        hint += ", --llm-compare questions those with the same question and target, whatever the prompt"
    elif _PARTS["scorer"] in parts:  # then every sample has changed
        hint = _score_again(baseline)
    return f"the suite differs from the baseline's: {found or others}; {hint}"


def _parts_that_differ(before: SuiteInfo, after: SuiteInfo) -> list[str]:
    then, now = before.fingerprint_parts, after.fingerprint_parts
    names = [
        name
        for name in (*_PARTS, *now)
        if name in then and name in now and then[name] != now[name] and name not in (JUDGE_PROMPT, "judging")
    ]
    scorer = _scorer_change(before, after)
    differing = [
        f"the scorer ({scorer})" if name == "scorer" and scorer else _PARTS.get(name, name)
        for name in dict.fromkeys(names)
    ]
    if scorer and "scorer" not in names:
        differing.append(f"the scorer ({scorer})")
    return differing


def _scorer_change(before: SuiteInfo, after: SuiteInfo) -> str:
    if before.scorer != after.scorer:
        return f"{_named(before.scorer)} -> {_named(after.scorer)}"
    then, now = before.settings, after.settings
    changed = [key for key in dict.fromkeys((*then, *now)) if then.get(key) != now.get(key)]
    # A report without this part is from before the prompt changed for the first time.
    prompts = [info.fingerprint_parts.get(JUDGE_PROMPT) for info in (before, after)]
    notes = ["the prompt of its judge changed"] if prompts[0] != prompts[1] else []
    # Reports of schema 2 leave out some settings that are defaults.
    in_both = [key for key in changed if key in then and key in now]
    shown = in_both if in_both or notes else changed
    return ", ".join([*(f"{key}: {_setting(then, key)} -> {_setting(now, key)}" for key in shown), *notes])


def _setting(settings: Mapping[str, JSON], key: str) -> str:
    return quoted(str(settings[key])) if settings.get(key) is not None else "none"


def _named(name: str | None) -> str:
    return "none" if name is None else quoted(name)


def _judges(info: SuiteInfo) -> str:
    """Return the judges' whole names, which their ends tell apart; their fingerprint if the report has no names."""
    return ", ".join(map(repr, info.judged_by)) or _named(info.judge)


def _is_whole(suite: SuiteReport) -> bool:
    return suite.info.num_samples is None or suite.summary.num_expected >= suite.info.num_samples


def _is_scored(record: Record) -> bool:
    return record.status != "unscored"
