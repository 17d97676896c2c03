"""A suite with its scorer: from the responses to a sample's requests to a score, and what a suite says of itself."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.fingerprints import asked_with, fingerprint_parts, length_of, sample_fingerprint
from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.evaluation.questions import QuestionMaker, located
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging.judged_scorer import PROMPT_VERSION, JudgedSettings
from pytest_llmeval.scorers.judging.raters import human_value, panel, panel_metrics, people_metrics, with_people
from pytest_llmeval.scoring.base import (
    AS_THEY_APPLY,
    PreparedSample,
    ScorerSettings,
    SettingsError,
    score_without_judge,
)
from pytest_llmeval.scoring.epochs import deciding_epoch
from pytest_llmeval.scoring.metrics.definitions import NOT_MEASURABLE, WILDCARD, definition, metric_limits, split_name
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.metrics.sample_values import made_of
from pytest_llmeval.scoring.metrics.summary import with_numbers
from pytest_llmeval.suites.loading.loader import Suite
from pytest_llmeval.suites.loading.suite import ScoreFiles
from pytest_llmeval.suites.turns import shown_conversation
from pytest_llmeval.text.tool_calls import calls_as_json
from pytest_llmeval.text.traces import MOST_CHARACTERS, bounded_steps
from pytest_llmeval.text.wording import expected_one_of, quoted
from pytest_llmeval.types import (
    JSON,
    AskedSample,
    ConversationRequest,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = [
    "Evaluation",
    "QuestionMemory",
    "asked_sample",
    "deciding_reply",
    "first_request",
    "inability",
    "method_of",
    "whole_suite",
]


class QuestionMemory:
    """Room for the questions that suites keep from their fingerprints, for when their samples run, in bytes.

    All suites of a process share it, and nothing is released before the session ends: a sample may run again, or on
    another model. A question for which there is no room is made again when its sample runs.
    """

    def __init__(self, num_bytes: int = 32 * 2**20) -> None:
        self._num_free = num_bytes

    def has_room_for(self, question: PreparedSample) -> bool:
        """Tell whether the question may be kept; if so, its room is taken."""
        prompt = question.prompt
        texts = [prompt] if isinstance(prompt, str) else [turn.content + turn.tool_calls for turn in prompt]
        texts += {turn for one in question.requests if isinstance(one, ConversationRequest) for turn in one.turns}
        texts += {request.tools for request in question.requests if isinstance(request, GenerateRequest)}
        size = sum(map(sys.getsizeof, texts)) + _BYTES_BESIDE_PROMPT * (2 + len(question.requests))
        if size > self._num_free:
            return False
        self._num_free -= size
        return True


_BYTES_BESIDE_PROMPT = 150
"""About what a request takes, and half of what is presented."""


class Evaluation:
    """Asks and judges the samples of one suite. Raises ``SuiteError`` for what the suite's author has to mend.

    ``memory`` bounds the questions that are kept, so that each is made once; without it none is kept. ``num_judges``
    says how many there are, of a suite that asks a judge; several are a panel.
    """

    def __init__(self, suite: Suite, memory: QuestionMemory | None = None) -> None:
        self.suite = suite
        self.num_judges = 1
        self._memory = QuestionMemory(0) if memory is None else memory
        self._questions: dict[str, PreparedSample] = {}
        self._score = suite.spec.score.with_files_read(ScoreFiles(suite))
        turns = [turn.own_score for turn in suite.spec.prompt.turn_specs]
        with located(suite):
            self.scorer = suite_scorer(
                self._score,
                suite.scorers,
                filters=suite.spec.filters,
                epochs=suite.spec.epochs,
                not_measurable=suite.spec.not_measurable,
                turns={place: own for place, own in enumerate(turns) if own is not None},
            )
            self._maker = QuestionMaker(suite, self._score, self.scorer)
            if (problem := self.scorer.suite_problem(suite)) is not None:
                raise SettingsError(*problem)
            self._check_people()
            self._check_not_measurable()
        self.lengths: dict[str, int] = {}
        """Characters of each sample's longest request, by id; known once the fingerprints are."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the scorer's metrics, and of those of trust in the judge: by people, and by a panel."""
        own = self.scorer.metrics
        people = people_metrics(self.rated, own) if self.suite.spec.human is not None else ()
        judges = panel_metrics(self.rated, self.num_judges) if self.num_judges > 1 else ()
        return (*own, *people, *judges) if own else own

    @cached_property
    def rated(self) -> str:
        """Return the metric that people rate, and on which judges agree: what the suite says, else the first.

        A suite may well be compared by how far its judge is to be trusted, or by what people would have found.
        """
        own, primary = self.scorer.metrics, self.suite.spec.primary_metric
        if primary is not None and (primary.name in own or not is_of_trust(primary.name)):
            return primary.name
        return own[0] if own and "accuracy" not in own else "accuracy"

    def _check_people(self) -> None:
        if self.suite.spec.human is None:
            return
        if self.suite.spec.epochs is not None:
            raise SettingsError("people rate one reply, and this suite asks for several; remove it", ("human",))
        if split_name(self.rated)[0]:
            message = f"people rate the suite's own metric, and {self.rated} is of a part; remove it, or primary_metric"
            raise SettingsError(message, ("human",))
        limits = metric_limits(self.rated, self.scorer.name, self.settings)
        for sample in self.suite.samples:
            try:
                human_value(sample, self.rated, limits)
            except ValueError as error:
                raise self.suite.error(str(error), sample) from None

    def _check_not_measurable(self) -> None:
        known = () if any(name.endswith(WILDCARD) for name in self.metrics) else self.metrics
        for name, number in self.suite.spec.not_measurable.items():
            keys = ("not_measurable", name)
            if known and name not in known:
                raise SettingsError(f"the suite has no metric {quoted(name)}{expected_one_of(name, known)}", keys)
            metric = definition(name)
            if made_of(name) or metric.kind == "count" or is_of_trust(name):
                raise SettingsError(f"a sample has no value of its own of {name}: it is taken of all samples", keys)
            low, high = metric_limits(name, self.scorer.name, self.settings) or (metric.lowest, metric.highest)
            if not low <= number <= high:
                raise SettingsError(f"found {number:g}, expected a number from {low:g} to {high:g}", keys)

    def question(self, sample: Sample) -> PreparedSample:
        """Render the sample's prompt and make its requests, unless they were kept."""
        return self._questions.get(sample.id) or self._maker.made(sample)

    def presented(self, sample: Sample) -> PreparedSample:
        """Return what the scorer presents of a sample, without its prompt."""
        return self._maker.presented(sample)

    def score(self, question: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge the responses to the question's requests; where there are several replies, its details hold them, and
        the contexts that came with a reply.

        A sample is unscored, too, if a user's own scorer gives no usable score (see ``score_checks.checked``).
        Raises ``ModelError`` if the scorer has to ask another model: see ``asking``.
        """
        return score_without_judge(self.asking(question, responses))

    def asking(self, question: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Judge as ``score`` does, step by step: yield what the scorer asks of other models."""
        if self.num_judges > 1:
            judging = [self.scorer.asking(question, responses) for _ in range(self.num_judges)]
            score = yield from panel(judging, self.rated)
        else:
            score = yield from self.scorer.asking(question, responses)
        if self.suite.spec.human is not None:
            score = with_people(score, question.sample, self.rated, responses)
        score = with_numbers(score, self.suite.spec.not_measurable)
        kept = _kept_of_replies(question.requests, responses)
        return replace(score, details={**score.details, **kept}) if kept else score

    def fingerprints(self) -> tuple[str, dict[str, str]]:
        """Return the fingerprint of the suite, and of each sample by id. Every prompt is rendered, so bad samples are
        found.

        What it made is kept for ``question`` as far as the memory goes.

        A sample's fingerprint hashes its requests, what is right, and the scorer with its version and settings; the
        suite's hashes those of its samples and their categories, whatever their order.
        """
        scorer = json.dumps(self._described())
        samples = {}
        for sample in self.suite.samples:
            question = self.question(sample)
            samples[sample.id] = sample_fingerprint(scorer, question)
            self.lengths[sample.id] = length_of(question.requests)
            if self._memory.has_room_for(question):
                self._questions[sample.id] = question
        parts = sorted((sample.id, samples[sample.id], sample.category or "") for sample in self.suite.samples)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest(), samples

    def fingerprint_parts(self) -> dict[str, str]:
        """Return hashes of what the suite's fingerprint is made of, which say what differs between two of them."""
        asks = any(isinstance(one, JudgedSettings) and one.asks_judge for one, _ in self._score.each())
        return fingerprint_parts(self.suite, self._described(), PROMPT_VERSION if asks else None, self._maker.tools)

    @property
    def asked_with(self) -> dict[str, JSON]:
        """Return the settings that decide how the suite's questions are asked; see ``fingerprints.asked_with``."""
        return asked_with(self.suite, self._maker.tools)

    @property
    def judged_by(self) -> tuple[str, ...]:
        """Return what the scorers say of the models that they ask (see ``custom.ReplyJudge``).

        Raises ``SuiteError`` where a scorer's name for its judge is not text.
        """
        try:
            return tuple(self.scorer.judges())
        except ValueError as error:
            raise self.suite.error(str(error), keys=("score",)) from None

    @property
    def judge(self) -> str | None:
        """Return the fingerprint of ``judged_by``, or None if it is empty; it is no part of the suite's own."""
        judges = list(self.judged_by)
        return hashlib.sha256(json.dumps(judges).encode()).hexdigest() if judges else None

    @property
    def settings(self) -> dict[str, JSON]:
        """Return every setting that decides how replies are judged, defaults included, without the scorer's name."""
        return self._settings(AS_THEY_APPLY)

    def _settings(self, context: dict[str, str] | None = None) -> dict[str, JSON]:
        spec = self.suite.spec
        settings: dict[str, JSON] = self._score.model_dump(mode="json", exclude={"kind"}, context=context)
        if spec.filters:
            settings["filters"] = [step.model_dump(mode="json") for step in spec.filters]
        if spec.epochs is not None:
            settings["epochs"] = spec.epochs.model_dump(mode="json", exclude_none=True)
        scored: dict[str, JSON] = {
            str(number): True if turn.own_score is None else turn.own_score.model_dump(mode="json", context=context)
            for number, turn in enumerate(spec.prompt.turn_specs, 1)
            if turn.is_scored
        }
        if scored:
            settings["turns"] = scored
        if spec.prompt.score_turns != "last":
            settings["score_turns"] = spec.prompt.score_turns
        if spec.not_measurable:
            settings[NOT_MEASURABLE] = dict(sorted(spec.not_measurable.items()))
        return settings

    def _described(self) -> list[JSON]:
        """Return all that decides how a reply is judged."""
        kind = self.suite.spec.score.kind
        described: list[JSON] = [self.scorer.name, self.scorer.version, {"kind": kind, **self._settings()}]
        with located(self.suite):
            versions = self.scorer.versions()
        return described if versions == described[:2] else [*described, versions]

    def warnings(self) -> list[str]:
        """Return a line for what the suite's data lack, and for each scorer whose numbers on them are worth little."""
        with located(self.suite):
            found = self.scorer.warnings(self.suite.samples)
        shown = [*self.suite.warnings]
        shown += [str(self.suite.error(text, keys=("score", *keys))) for text, keys in found]
        if self.suite.spec.human is not None and not self.suite.has_own_responses:
            message = "what people said is taken to be of the replies that are judged now; name those that they rated, "
            shown.append(str(self.suite.error(f"{message}dataset.fields.response", keys=("human",))))
        if self._asks_the_same_of_all():
            message = f"all {len(self.suite.samples)} prompts are equal: the template uses no column"
            shown.append(str(self.suite.error(message, keys=self._maker.keys_of_prompt)))
        return shown

    def _asks_the_same_of_all(self) -> bool:
        """Tell whether the template is one text for all samples, and their requests do not differ in anything else.

        Options to be scored make other requests, and so do a system text of columns and examples drawn for a sample.
        """
        suite, prompt = self.suite, self.suite.spec.prompt
        templates = [] if prompt.template is None else [prompt.template]
        templates += [text for _, text in prompt.message_templates()]
        has_columns = any(map(suite.templates.names, templates)) or any(one.column for one in prompt.messages or ())
        if not templates or has_columns or len(suite.samples) == 1 or suite.has_own_responses:
            return False
        first = self.question(suite.samples[0]).requests
        return bool(first) and all(self.question(sample).requests == first for sample in suite.samples)


def deciding_reply(score: Score, responses: Sequence[Response]) -> GenerateResponse | None:
    """Return the reply that the score's answer comes from; None where nothing was generated."""
    replies = [response for response in responses if isinstance(response, GenerateResponse)]
    epoch = deciding_epoch(score)
    return replies[epoch if epoch < len(replies) else 0] if replies else None


MOST_DOCUMENTS = 1000
"""The most documents of a ranking that a record keeps: as many as runs of TREC have."""


def _kept_of_replies(requests: Sequence[Request], responses: Sequence[Response]) -> dict[str, JSON]:
    """Return the details of a record that no other field has: several replies, and what came with each reply."""
    replies = [response for response in responses if isinstance(response, GenerateResponse)]
    if not replies:
        return {}
    kept: dict[str, JSON] = {"outputs": [reply.text for reply in replies]} if len(replies) > 1 else {}
    if kept and any(reply.reasoning is not None for reply in replies):
        kept["reasonings"] = [reply.reasoning for reply in replies]
    talks: list[JSON] = [
        shown_conversation(request, reply)
        for request, reply in zip(requests, responses, strict=True)
        if isinstance(request, ConversationRequest) and isinstance(reply, GenerateResponse)
    ]
    if talks:
        kept["conversation"] = talks if len(talks) > 1 else talks[0]
    rankings = [reply.documents for reply in replies]
    beside: dict[str, list[JSON]] = {
        "contexts": [None if reply.contexts is None else [*reply.contexts] for reply in replies],
        "documents": [None if own is None else _as_lists(own[:MOST_DOCUMENTS]) for own in rankings],
        "tool_calls": [None if reply.tool_calls is None else calls_as_json(reply.tool_calls) for reply in replies],
    }
    for name, found in beside.items():
        if any(own is not None for own in found):
            kept[name] = found if len(found) > 1 else found[0]
    counts: list[JSON] = [None if own is None else len(own) for own in rankings]
    if any(own is not None and len(own) > MOST_DOCUMENTS for own in rankings):
        kept["num_documents"] = counts if len(counts) > 1 else counts[0]
    if (traces := _traces(replies)) is not None:
        kept["trace"] = traces
    return kept


def _traces(replies: Sequence[GenerateResponse]) -> JSON:
    """Return the steps of the reply, or of each of several, which share the room that a record has."""
    found = [reply.trace for reply in replies]
    if not any(found):
        return None
    room = max(MOST_CHARACTERS // len(found), 1_000)
    kept: list[JSON] = [None if steps is None else bounded_steps(steps, room) for steps in found]
    return kept if len(kept) > 1 else kept[0]


def _as_lists(value: Any) -> JSON:
    """Return a value with lists for its tuples, as JSON has it."""
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value


def whole_suite(evaluation: Evaluation) -> list[AskedSample]:
    """Return all samples of the suite, without requests."""
    return [asked_sample(evaluation, sample, number) for number, sample in enumerate(evaluation.suite.samples, 1)]


def asked_sample(evaluation: Evaluation, sample: Sample, number: int, requests: Sequence[Request] = ()) -> AskedSample:
    """Return the sample, which is the suite's ``number``-th, with the requests that other models would be asked."""
    suite = evaluation.suite
    presented = evaluation.presented(sample)
    try:
        options, right = evaluation.scorer.options(presented)
    except ValueError as error:
        raise suite.error(str(error), sample) from None
    targets = (presented.target,) if isinstance(presented.target, str) else presented.target
    keys = presented.references if len(presented.references) == len(targets) else targets
    answers = () if options or not targets else _answers(evaluation, presented, targets)
    if evaluation.scorer.reads_documents:  # the right documents are one right answer together, and not one each
        keys = answers = answers[:1]
    row = sample.variables.get("row")
    return AskedSample(
        suite=suite.name,
        id=sample.id,
        number=number,
        place=suite.place(sample),
        requests=tuple(requests),
        options=options,
        right=right,
        answers=answers,
        answer_keys=keys if answers else (),
        response=sample.response,
        row=row if isinstance(row, dict) else {},
        reads_documents=evaluation.scorer.reads_documents,
    )


def _answers(evaluation: Evaluation, presented: PreparedSample, targets: Sequence[str]) -> tuple[str, ...]:
    """Return replies that would be right, as far as the scorer can write any: JSON of a schema has none."""
    try:
        return (evaluation.scorer.answer_text(presented), *targets[1:])
    except ValueError:
        return ()


def first_request(evaluation: Evaluation) -> Request:
    """Return what the suite asks a model first: its other requests have the same method and settings."""
    return evaluation.question(evaluation.suite.samples[0]).requests[0]


def method_of(request: Request) -> str:
    """Return the method of ``Model`` that is called: ``generate``, ``loglikelihood`` or ``loglikelihood_rolling``."""
    if isinstance(request, GenerateRequest):
        return "generate"
    return "loglikelihood" if isinstance(request, LoglikelihoodRequest) else "loglikelihood_rolling"


def inability(evaluation: Evaluation, model: str, method: str, reason: str = "") -> SuiteError:
    """Return the error of a suite that needs ``method`` of a model that has none, with the way out.

    ``reason`` is why it has none, where that was found out.
    """
    name = evaluation.scorer.name
    why = f" ({reason})" if reason else ""
    match method:
        case "generate":
            message = f"{name} reads a reply, and {model} gives log-likelihoods only{why}"
        case "loglikelihood":
            way_out = evaluation.suite.spec.score.by_reply(lambda settings: _works(evaluation, settings))
            message = f"{name} compares log-likelihoods, and {model} gives texts only{why}; {way_out}"
        case _:
            message = f"{name} needs the log-likelihood of whole texts, which {model} does not give{why}"
    return evaluation.suite.error(message, keys=("score",))


def _works(evaluation: Evaluation, settings: ScorerSettings) -> bool:
    suite = evaluation.suite
    try:
        other = Evaluation(replace(suite, spec=suite.spec.model_copy(update={"score": settings})))
        other.question(suite.samples[0])
    except SuiteError:
        return False
    return True
