"""Reads replies from a file: a user's rows, lm-eval's ``--log_samples``, a report or journal of this plugin, or a run
of TREC, in which each line is a document that was found.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar, cast

from pytest_llmeval.data.files import Source, decode, open_bytes
from pytest_llmeval.data.rows import FORMATS, NoColumnError, Row, column_value, data_suffix, format_of, read_rows
from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.base import ended_at_limit
from pytest_llmeval.models.specs import check_names
from pytest_llmeval.text.documents import Documents, context_texts, found_documents
from pytest_llmeval.text.tool_calls import read_tool_calls
from pytest_llmeval.text.traces import trace_steps
from pytest_llmeval.text.wording import describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, ToolCall

__all__ = [
    "RecordedReply",
    "ReplayArguments",
    "Replies",
    "ReplyProblem",
    "parsed_list",
    "read_replies",
    "replay_format",
    "truncated",
]


_T = TypeVar("_T")
Kind: TypeAlias = Literal["rows", "lm-eval samples", "report", "TREC run"]
_REPORT = re.compile(
    rb'\s*\{\s*"schema"\s*:\s*\d+\s*,\s*"created"(?:\s*:\s*"([^"]*)"\s*,\s*"seconds"\s*:\s*(\d+(?:\.\d+)?(?:e-?\d+)?))?'
)
_JOURNAL = "journal"
_TREC = "trec"
_RUNS = (".trec", ".run")
"""The suffixes of a TREC run."""
_FORMATS = tuple(dict.fromkeys((*FORMATS.values(), _JOURNAL, _TREC)))
_CONTENTS = ("response", "loglikelihoods", "scores", "logits", "documents", "tool_calls")
"""The usual names of columns with what was replied."""
_LM_EVAL = frozenset(("doc_id", "doc", "resps", "filtered_resps"))
_MAX_BYTES = 2_000_000_000


class ReplyProblem(ValueError):
    """An error in a file of replies, in one line without the model's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArguments:
    """The arguments after ``?``: which columns hold what. Dots reach inner values; ``a,b`` makes a list of two columns.

    ``contexts`` are the texts that a reply was written from, ``documents`` the ids of what a search found,
    ``reasoning`` what the model wrote before its answer, ``tool_calls`` what it called, ``finish_reason`` is ``length``
    where it was cut. ``key`` leads to the rows in a JSON file, ``model`` chooses among those of a report, ``format``
    says what a file holds whose suffix does not, and ``partial`` lets samples without a reply be left out.
    """

    id: str = "id"
    response: str = "response"
    suite: str = "suite"
    epoch: str = "epoch"
    loglikelihoods: str = "loglikelihoods"
    num_tokens: str = "num_tokens"
    scores: str = "scores"
    is_greedy: str = "is_greedy"
    contexts: str = "contexts"
    documents: str = "documents"
    reasoning: str = "reasoning"
    tool_calls: str = "tool_calls"
    finish_reason: str = "finish_reason"
    key: str | None = None
    format: str | None = None
    model: str | None = None
    partial: bool = False
    given: frozenset[str] = frozenset()

    @classmethod
    def of(cls, values: Mapping[str, JSON], model: str) -> ReplayArguments:
        """Make them from parsed arguments. Raises ``OptionError``."""
        names = {field.name for field in fields(cls)} - {"given"}
        check_names({("scores" if name == "logits" else name): value for name, value in values.items()}, names, model)
        found: dict[str, Any] = {}
        for name, value in values.items():
            if name == "partial":
                if not isinstance(value, bool):
                    raise OptionError(f"--llm-model {model}: partial: found {describe(value)}, expected true or false")
                found[name] = value
            elif value is None or isinstance(value, bool):
                raise OptionError(f"--llm-model {model}: {name}: found {describe(value)}, expected a name")
            else:
                found["scores" if name == "logits" else name] = str(value)
        format_ = str(found.get("format", _TREC))
        if format_ not in _FORMATS:
            known = expected_one_of(format_, _FORMATS)
            raise OptionError(f"--llm-model {model}: format: found {quoted(format_)}{known}")
        return cls(**found, given=frozenset(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """The reply that one row holds. ``place`` is where it stands, for messages.

    ``id`` names the sample, or ``number`` says which of its suite it is (from 1); neither where the order decides.
    ``suite`` None serves every suite. What was replied is a text (or several, or anything that ``model.py`` can make
    sense of), log-likelihoods in nats with their numbers of tokens, or scores of the options. ``contexts`` are those of
    each text, or one for all of them; empty if the file says nothing of them; ``documents``, ``traces``,
    ``reasonings`` and ``tool_calls`` (which the file has apart from the texts) and ``truncated`` (at the limit of
    tokens) likewise.
    ``turns`` are, for each text, the replies to earlier turns of its conversation, each with its reasoning.
    ``is_text``: a list is of texts that a model wrote, and not of documents. ``is_cut``: the documents are not all that
    were found. ``doc`` is the row of the data set that the reply is to, where the file has it.
    """

    place: str
    suite: str | None = None
    id: str | None = None
    number: int | None = None
    epoch: int | None = None
    response: JSON = None
    loglikelihoods: JSON = None
    num_tokens: JSON = None
    scores: JSON = None
    is_greedy: JSON = None
    contexts: tuple[tuple[str, ...] | None, ...] = ()
    documents: tuple[Documents | None, ...] = ()
    is_text: bool = False
    is_cut: bool = False
    traces: tuple[tuple[JSON, ...] | None, ...] = ()
    reasonings: tuple[str | None, ...] = ()
    tool_calls: tuple[tuple[ToolCall, ...] | None, ...] = ()
    truncated: tuple[bool, ...] = ()
    turns: tuple[tuple[tuple[str, str | None], ...], ...] = ()
    doc: Mapping[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether the row says that there is no reply; an empty text is a reply, and so are calls alone."""
        found = (self.response, self.loglikelihoods, self.scores)
        return all(one is None for one in found) and not self.documents and not self.tool_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """The replies of a file. ``shown`` is how the user knows the file.

    ``report`` is the time at which the session of a report began, and how long it took (s).
    """

    shown: str
    kind: Kind
    replies: tuple[RecordedReply, ...]
    report: tuple[str, float] | None = None

    def of(self, suite: str) -> list[RecordedReply]:
        """Return the replies that name this suite or no suite."""
        return [reply for reply in self.replies if reply.suite in (None, suite)]


def replay_format(source: Source, given: str | None = None) -> str:
    """Return the format that was given, else the one that the file's name stands for. Raises ``ReplyProblem``."""
    suffix = data_suffix(source.path).lower()
    found = given or (_JOURNAL if suffix == f".{_JOURNAL}" else _TREC if suffix in _RUNS else format_of(source.path))
    if found is None:
        suffixes = ", ".join(dict.fromkeys((".jsonl", ".json", ".csv", *FORMATS, f".{_JOURNAL}", *_RUNS)))
        raise ReplyProblem(
            f"{source.shown}: found the suffix {quoted(data_suffix(source.path))}, expected one of {suffixes}"
        )
    return found


def read_replies(source: Source, arguments: ReplayArguments) -> Replies:
    """Read the file; its content shows its kind. Raises ``ReplyProblem``, and ``SuiteError`` as data files do."""
    format_ = replay_format(source, arguments.format)
    if format_ == _TREC:
        return Replies(shown=source.shown, kind="TREC run", replies=tuple(_read_run(source)))
    records: list[tuple[str, Mapping[str, Any]]] | None = None
    report = None
    if format_ == _JOURNAL:
        records = _journal_records(source)
    elif format_ == "json" and arguments.key is None and (head := _head_of_report(source)) is not None:
        created, seconds = head.groups()
        report = None if created is None else (created.decode("utf-8", "replace"), float(seconds))
        records = [(row.place, row.columns) for row in read_rows(source, "json", "records")]
    if records is not None:
        replies = tuple(_of_records(source, records, arguments))
        return Replies(shown=source.shown, kind="report", replies=replies, report=report)
    named = _named_columns(arguments)
    rows = list(
        read_rows(
            source,
            format_,
            arguments.key,
            is_row=lambda columns: (all if named else any)(_is_there(columns, name) for name in named or _CONTENTS),
        )
    )
    if not rows:
        raise ReplyProblem(f"{source.shown} holds no rows, expected replies")
    is_lm_eval = rows[0].columns.keys() >= _LM_EVAL and "response" not in arguments.given
    made = _of_lm_eval(rows) if is_lm_eval else _of_rows(rows, arguments)
    return Replies(shown=source.shown, kind="lm-eval samples" if is_lm_eval else "rows", replies=tuple(made))


def _head_of_report(source: Source) -> re.Match[bytes] | None:
    with open_bytes(source, max_bytes=_MAX_BYTES, too_large="split it") as file:
        return _REPORT.match(file.read(4096))


# Rows of one's own


def _of_rows(rows: Sequence[Row], arguments: ReplayArguments) -> Iterator[RecordedReply]:
    names = dict.fromkeys(name for row in rows for name in row.columns)
    for column, given in _named_columns(arguments).items():
        if not any(_is_there(row.columns, column) for row in rows):
            raise ReplyProblem(
                f"{rows[0].source.shown} has no column {quoted(column)}, which {given}= names"
                f"{expected_one_of(column, names)}"
            )
    scores: str | None = arguments.scores
    if "scores" not in arguments.given:  # a column that merely has the usual name may hold something else
        usual = ("scores", "logits")
        scores = next((name for name in usual if any(_holds_numbers(row.columns.get(name)) for row in rows)), None)
    others = ("response", "loglikelihoods", "documents", "tool_calls")
    is_named = scores is not None or not arguments.given.isdisjoint(_CONTENTS)
    if not is_named and not any(_is_there(row.columns, name) for row in rows for name in others):
        raise ReplyProblem(
            f"{rows[0].source.shown} has no column 'response', 'loglikelihoods' or 'scores'"
            f"{' with numbers' if 'scores' in names else ''}: name yours with "
            f"?response=COLUMN{expected_one_of('response', names)}"
        )
    for row in rows:
        suite = _value(row.columns, arguments.suite)
        epoch = _value(row.columns, arguments.epoch)
        yield RecordedReply(
            place=row.place,
            suite=None if suite is None else str(suite),
            id=_id_of(row, _value(row.columns, arguments.id)),
            epoch=_epoch_of(row, epoch),
            response=_value(row.columns, arguments.response),
            loglikelihoods=_values(row.columns, arguments.loglikelihoods),
            num_tokens=_values(row.columns, arguments.num_tokens),
            scores=None if scores is None else _values(row.columns, scores),
            is_greedy=_values(row.columns, arguments.is_greedy),
            contexts=_read_column(row, arguments, "contexts", context_texts),
            documents=_read_column(row, arguments, "documents", found_documents),
            reasonings=_read_column(row, arguments, "reasoning", _reasoning),
            tool_calls=_read_calls(row, arguments),
            truncated=truncated(_value(row.columns, arguments.finish_reason)),
        )


def _named_columns(arguments: ReplayArguments) -> dict[str, str]:
    """Return the columns that the arguments name, with the argument of each."""
    given = sorted(arguments.given - {"key", "partial", "model", "format"})
    return {column: name for name in given for column in getattr(arguments, name).split(",")}


def _holds_numbers(value: JSON) -> bool:
    """Tell whether a value is a number or a list with one, or a text that is such a thing, as in a CSV."""
    value = parsed_list(value)
    for one in value if isinstance(value, list) else [value]:
        one = one[0] if isinstance(one, list) and one else one  # [log-likelihood, is_greedy]
        if isinstance(one, str | int | float) and not isinstance(one, bool):
            with suppress(ValueError, OverflowError):
                float(one)
                return True
    return False


def truncated(finish_reason: object) -> tuple[bool, ...]:
    """Return ``Reply.truncated`` of a row that may say why its reply ended."""
    return (ended_at_limit(finish_reason),) if isinstance(finish_reason, str) else ()


def _read_column(row: Row, arguments: ReplayArguments, name: str, read: Callable[[object], _T]) -> tuple[_T, ...]:
    """Return what a row has in the column of an argument. A column that merely has the usual name may hold something
    else.
    """
    value = _value(row.columns, getattr(arguments, name))
    if value is None:
        return ()
    try:
        return (read(value),)
    except ValueError as error:
        if name not in arguments.given:
            return ()
        raise ReplyProblem(f"{row.place}: {name}: {error}") from None


def _read_calls(row: Row, arguments: ReplayArguments) -> tuple[tuple[ToolCall, ...], ...]:
    """Return the calls that a row has apart from its text; an empty cell of a CSV says nothing of them."""
    is_said = _value(row.columns, arguments.tool_calls) != ""
    return _read_column(row, arguments, "tool_calls", read_tool_calls) if is_said else ()


def _reasoning(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"found {describe(value)}, expected text")
    return value


def _id_of(row: Row, value: JSON) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ReplyProblem(f"{row.place}: id: found {describe(value)}, expected text or a whole number")
    return unicodedata.normalize("NFC", str(value))


def _epoch_of(row: Row, value: JSON) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):  # a CSV has no numbers
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ReplyProblem(f"{row.place}: epoch: found {describe(value)}, expected a whole number")
    return value


def _is_there(columns: Mapping[str, Any], name: str) -> bool:
    try:
        column_value(columns, name)
    except NoColumnError:
        return False
    return True


def _value(columns: Mapping[str, Any], name: str) -> JSON:
    try:
        return cast("JSON", column_value(columns, name))
    except NoColumnError:
        return None


def _values(columns: Mapping[str, Any], names: str) -> JSON:
    """Return the value of one column, or those of several as a list; None if one of these is missing."""
    if "," not in names or names in columns:
        return _value(columns, names)
    found = [_value(columns, name) for name in names.split(",")]
    return None if any(value is None for value in found) else found


# lm-eval's samples, as ``EvaluationTracker.save_results_samples`` of lm-eval 0.4.13 writes them: numbers are text there


def _of_lm_eval(rows: Sequence[Row]) -> Iterator[RecordedReply]:
    known: dict[int, tuple[JSON, str]] = {}
    for row in rows:
        try:
            number, resps = int(row.columns["doc_id"]) + 1, row.columns["resps"]
            if number in known and known[number][0] == resps:
                continue  # the same replies after another of the task's filters
            known.setdefault(number, (resps, row.place))
            yield _lm_eval_reply(row, number)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise ReplyProblem(
                f"{row.place}: found no doc_id, arguments and resps as lm-eval's --log_samples writes them"
            ) from None


def _lm_eval_reply(row: Row, number: int) -> RecordedReply:
    resps, arguments, doc = row.columns["resps"], row.columns["arguments"], row.columns["doc"]
    first = arguments["gen_args_0"]
    scored: list[JSON] | None = None
    is_greedy: list[JSON] | None = None
    response: JSON = None
    if "arg_1" not in first:  # a whole text
        scored = [float(resps[0][0])]
    elif isinstance(first["arg_1"], str):
        scored = [float(one[0][0]) for one in resps]
        is_greedy = [one[0][1] == "True" for one in resps]
    else:
        response = list(resps[0]) if len(resps[0]) > 1 else resps[0][0]
    return RecordedReply(
        place=row.place,
        number=number,
        response=response,
        loglikelihoods=scored,
        is_greedy=is_greedy,
        is_text=True,
        doc=doc if isinstance(doc, dict) else None,
    )


# This plugin's reports


def _of_records(
    source: Source, records: Sequence[tuple[str, Mapping[str, Any]]], arguments: ReplayArguments
) -> Iterator[RecordedReply]:
    # A sample whose worker died names no model.
    models = dict.fromkeys(str(record["model"]) for _, record in records if record.get("model") is not None)
    if arguments.model is None and len(models) > 1:
        names = ", ".join(quoted(model) for model in models)
        raise ReplyProblem(f"{source.shown} is a report on {names}: choose one with ?model=NAME")
    if arguments.model is not None and arguments.model not in models:
        raise ReplyProblem(
            f"{source.shown} is a report, and there is no model {quoted(arguments.model)} in it"
            f"{expected_one_of(arguments.model, models)}"
        )
    for place, record in records:
        if arguments.model is None or str(record.get("model")) == arguments.model:
            try:
                reply = _record_reply(place, record)
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                raise ReplyProblem(f"{place}: found no record as a report of this plugin has it") from None
            yield reply


def _journal_records(source: Source) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the records of a journal, with where they stand: of one sample the last, and none of a line that was cut
    off.
    """
    found: dict[tuple[Any, ...], tuple[str, Mapping[str, Any]]] = {}
    with open_bytes(source, max_bytes=_MAX_BYTES, too_large="split it") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line).get("record")
                if record is not None:
                    key = (record["suite"], record["model"], record["id"])
                    found[key] = (f"{source.shown}:{number}", record)
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                raise ReplyProblem(f"{source.shown}:{number}: found no line of a journal") from None
    if not found:
        raise ReplyProblem(f"{source.shown} holds no records: the run was killed before a sample was finished")
    return list(found.values())


def _record_reply(place: str, record: Mapping[str, Any]) -> RecordedReply:
    if not isinstance(record.get("suite"), str | None) or not isinstance(record.get("id"), str | None):
        raise TypeError("suite, id")
    details = record.get("details") or {}
    values = record.get("values") or {}
    scored, counts = details.get("loglikelihoods"), details.get("num_tokens")
    has_one = scored is None and "loglikelihood" in values and record.get("output") is None
    if has_one:  # of a whole text, or of a continuation, which is right where it is greedy
        scored, counts = [values["loglikelihood"]], [int(values["tokens"])] if "tokens" in values else None
    elif scored is not None:
        alone = details.get("loglikelihoods_alone") or []
        # null is what JSON has for minus infinity
        scored = [float("-inf") if value is None else value for value in (*scored, *alone)]
        counts = [*counts, *(1 for _ in alone)] if counts else None
    if record.get("status") == "unscored":
        scored = None
    outputs, reasonings = details.get("outputs"), details.get("reasonings") or ()
    if outputs is None and record.get("reasoning") is not None:
        reasonings = (record["reasoning"],)
    count, num_truncated = 1 if outputs is None else len(outputs), record.get("num_truncated") or 0
    return RecordedReply(
        place=place,
        suite=record.get("suite"),
        id=record.get("id"),
        response=outputs if outputs is not None else record.get("output"),
        reasonings=tuple(reasonings),
        truncated=tuple(place < num_truncated for place in range(count)),  # of several it is not known which
        loglikelihoods=scored,
        num_tokens=counts if counts and all(counts) else None,
        is_greedy=[values["accuracy"] == 1.0] if has_one and "accuracy" in values else None,
        contexts=_recorded(details, "contexts", context_texts),
        documents=_recorded(details, "documents", found_documents),
        traces=_recorded(details, "trace", trace_steps),
        tool_calls=_recorded(details, "tool_calls", read_tool_calls),
        turns=tuple(own or () for own in _recorded(details, "conversation", _earlier_replies)),
        is_text=True,
        is_cut="num_documents" in details,
    )


def _recorded(details: Mapping[str, Any], name: str, read: Callable[[object], _T]) -> tuple[_T | None, ...]:
    """Return what a record says of each reply; empty if a user's scorer has written something else under this
    name.
    """
    found = details.get(name)
    if found is None:
        return ()
    try:
        return tuple(None if own is None else read(own) for own in (found if "outputs" in details else [found]))
    except (TypeError, ValueError):
        return ()


def _earlier_replies(conversation: object) -> tuple[tuple[str, str | None], ...]:
    """Return the replies to all turns but the last; none if the record lacks one of them."""
    if not isinstance(conversation, list) or not all(isinstance(turn, dict) for turn in conversation):
        raise ValueError("no conversation")
    found = tuple((turn.get("reply"), turn.get("reasoning")) for turn in conversation[:-1])
    return found if all(isinstance(text, str) for text, _ in found) else ()


def parsed_list(value: JSON) -> JSON:
    """Return a text that holds a JSON list, as the list: a CSV has no lists."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            parsed: JSON = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return parsed
    return value


def _read_run(source: Source) -> Iterator[RecordedReply]:
    """Yield the reply to each query of a TREC run: its documents by their scores, equal ones as they stand.

    The score decides, as in trec_eval, and not the rank. Raises ``ReplyProblem`` for a file that is no run, and
    ``SuiteError`` for one that cannot be read.
    """
    found: dict[str, dict[str, float]] = {}
    first: dict[str, int] = {}
    with open_bytes(source, max_bytes=_MAX_BYTES, too_large="split it") as lines:
        for number, data in enumerate(lines, 1):  # one by one: a run can have millions
            if not (cells := decode(source, data, number).split()):
                continue
            try:
                query, document, score = _run_line(cells)
                own = found.setdefault(query, {})
                if document in own:
                    raise ValueError(f"the document {quoted(document)} stands twice for the query {quoted(query)}")
            except ValueError as error:
                raise ReplyProblem(f"{source.shown}:{number}: {error}") from None
            first.setdefault(query, number)
            own[document] = score
    if not found:
        raise ReplyProblem(f"{source.shown} holds no rows, expected a TREC run")
    for query, own in found.items():
        yield RecordedReply(place=f"{source.shown}:{first[query]}", id=query, documents=(found_documents(own),))


def _run_line(cells: Sequence[str]) -> tuple[str, str, float]:
    """Return query, document and score. ``ValueError`` where these are not what stands there."""
    if len(cells) != 6:
        raise ValueError(
            f"found {len(cells)} columns, expected the six of a TREC run: query, Q0, document, rank, score, name"
        )
    try:
        score = float(cells[4])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"the score: found {describe(cells[4])}, expected a finite number")
    return unicodedata.normalize("NFC", cells[0]), cells[2], score
