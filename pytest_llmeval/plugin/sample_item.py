"""A sample as a pytest item, and the record that its test makes of question, replies and score."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_llmeval.errors import LeftOutError, LLMEvalError, ModelStoppedError, RequestError
from pytest_llmeval.evaluation.evaluation import Evaluation, asked_sample, deciding_reply
from pytest_llmeval.evaluation.fingerprints import question_fingerprint
from pytest_llmeval.inference.accounting import JudgeUse, cost_of
from pytest_llmeval.inference.batcher import Batcher, PlannedSample
from pytest_llmeval.inference.judging import Models
from pytest_llmeval.models.base import JudgeSteps, answers_in_background, answers_samples, identify
from pytest_llmeval.models.hardware import is_device_lost
from pytest_llmeval.plugin.models import judges_of
from pytest_llmeval.plugin.process_roles import session_of
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import (
    MODEL_STOPPED,
    SampleKey,
    batcher_key,
    is_sample_key,
    model_key,
    record_key,
)
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.roles import ROLES
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.scoring.turns import first_wrong_turn
from pytest_llmeval.text.escaping import first_line, printable, without_commands
from pytest_llmeval.text.messages import message_as_json
from pytest_llmeval.text.names import escape_id
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.types import (
    JSON,
    AskedSample,
    ConversationRequest,
    EmbeddingRequest,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Prompt,
    Request,
    Response,
    Role,
    Sample,
    Score,
    each_reply,
    who_served,
)

if TYPE_CHECKING:
    from pytest_llmeval.models.replay.model import DataResponses

__all__ = ["SampleItem", "SampleSource", "Unscored", "WrongAnswer", "describe", "kept_as", "model_of", "shown_prompt"]


class WrongAnswer(Exception):
    """A wrong answer, which fails its test under ``--llm-strict``."""


class Unscored(Exception):
    """A sample whose reply could not be judged."""


class SampleSource(Protocol):
    """The part of a suite's node that its samples use.

    ``shown_paths`` holds the paths of samples' rows from the rootdir, by ``Sample.path``; the samples fill it.
    """

    evaluation: Evaluation
    info: SuiteInfo
    fingerprints: dict[str, str]
    responses: DataResponses | None

    def set_judges(self, judges: Models) -> None: ...

    @property
    def shown_paths(self) -> dict[str, str]: ...

    @property
    def nodeid(self) -> str: ...

    @property
    def path(self) -> Path: ...

    @property
    def samples_asked(self) -> Sequence[AskedSample]: ...


@cache
def _test_function(fixtures: tuple[str, ...]) -> Callable[..., None]:
    """Return a function with these arguments, which pytest reads before there is the item with the true test function.

    All samples that take the same fixtures share one.
    """

    def sample() -> None: ...

    # Below a class pytest takes the first argument for ``self``, unless one is positional only.
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    sample.__signature__ = inspect.Signature([own, *(inspect.Parameter(name, kind) for name in fixtures)])  # type: ignore[attr-defined]
    return sample


class SampleItem(pytest.Function):
    """One sample.

    ``model`` is the model that it is for, as ``--llm-model`` names it; None unless several are given. ``key`` names the
    sample in this session: node ids change with ``--rootdir``.
    """

    # Slots: a value that is set from outside, as by cached_property, makes an item's dictionary three times as large.
    __slots__ = ("_asked", "_hooks", "_location", "_planned", "file", "key", "model", "number", "sample")

    sample: Sample
    file: SampleSource
    model: str | None
    number: int
    key: SampleKey
    _asked: PreparedSample | None
    _hooks: Any
    _location: tuple[str, int | None, str] | None
    _planned: PlannedSample | None

    @classmethod
    def of(
        cls,
        parent: pytest.Collector,
        file: SampleSource,
        sample: Sample,
        model: str | None,
        number: int,
        *,
        like: SampleItem | None = None,
    ) -> SampleItem:
        """Return the item of ``sample``, the ``number``-th of the suite ``file``, from 1.

        ``like`` is another item of the same ``parent``, whose fixtures pytest has looked up: they are not looked up
        again, as in pytest itself for the items of a parametrised test. That saves a third of the time that it takes to
        make an item, and of the memory that it holds.
        """
        roles = file.evaluation.scorer.roles
        asked = [role.fixture for name, role in ROLES.items() if name in roles]
        function = _test_function((*(["llm_model"] if file.responses is None else []), *asked))
        found = None if like is None else getattr(like, "_fixtureinfo", None)
        item: SampleItem = cls.from_parent(parent, name=escape_id(sample.id), callobj=function, fixtureinfo=found)
        item.obj = item.evaluate  # bound, so that it knows the item: the fixture ``request`` would take time
        item.fixturenames = [*item.fixturenames]  # a conftest.py may add to the list of each item
        item.sample, item.file, item.model, item.number = sample, file, model, number
        item.key = file.info.name, model, sample.id
        item._planned = item._location = item._asked = item._hooks = None
        item.stash[is_sample_key] = True
        if model is not None:
            item.stash[model_key] = model
        return item

    @property
    def function(self) -> Callable[..., object]:
        """Return a function with source code, for ``--fixtures-per-test`` and other plugins."""
        return SampleItem.evaluate

    @property
    def ihook(self) -> Any:
        """Return the hooks of conftest.py files above the item; pytest would look them up ten times for each item."""
        hooks = getattr(self, "_hooks", None)  # pytest asks for them before there is the sample
        return super().ihook if hooks is None else hooks

    def keep_hooks(self, like: SampleItem) -> None:
        """Use the hooks of ``like``, an item of the same file. Call it when all conftest.py files are loaded."""
        self._hooks = like.ihook

    @property
    def question(self) -> PreparedSample:
        """Return the sample ready to be asked; it is made when needed, and only ``QuestionMemory`` keeps it."""
        return self.file.evaluation.question(self.sample)

    @property
    def group(self) -> tuple[str | None, str]:
        """Return the model and the suite: samples for which both are the same can be asked together."""
        return self.model, self.file.info.name

    @property
    def planned(self) -> PlannedSample:
        """Return the sample as the batcher knows it."""
        if self._planned is None:
            self._planned = PlannedSample(
                key=self.key,
                group=self.group,
                requests=self._requests,
                steps=self._steps if self.file.evaluation.scorer.roles else None,
                sample=lambda requests: asked_sample(self.file.evaluation, self.sample, self.number, requests),
                suite=lambda: self.file.samples_asked,
                recorded=self.file.responses,
            )
        return self._planned

    def _requests(self) -> Sequence[Request]:
        # It is kept until the reply is judged: at most the prompts of one chunk at a time.
        self._asked = self.question
        return self._asked.requests

    def _steps(self, responses: Sequence[Response]) -> JudgeSteps:
        return self.file.evaluation.asking(self._asked or self.question, responses)

    def evaluate(self, llm_model: object = None, **llm_roles: object) -> None:
        """Ask the model, score its reply and stash the record, as the test function. Raises why the test fails.

        ``llm_roles`` are the models that the scorer asks, by the names of their fixtures.
        """
        __tracebackhide__ = True
        model = self.file.responses if llm_model is None else llm_model
        asked = "the model"
        try:
            judges = {role: judges_of(role, llm_roles[f"llm_{role}"]) for role in ROLES if f"llm_{role}" in llm_roles}
            if judges:
                self.file.set_judges(judges)
            batcher = self.config.stash[batcher_key]
            responses = batcher.responses(self.planned, model)
            asked = "the scorer"
            question = self._asked or self.question
            if judges:
                score = batcher.score(self.planned, responses, judges)
            else:
                score = self.file.evaluation.score(question, responses)
            self._asked = None
            self.stash[record_key] = self._record(model, question, score, responses)
        except (KeyboardInterrupt, GeneratorExit, pytest.exit.Exception):
            raise
        except LeftOutError as error:
            raise pytest.skip.Exception(str(error)) from None
        except pytest.skip.Exception as error:
            # A fixture may skip a test. If a model or scorer does, the sample was asked and has no score.
            reason = f"{asked} skipped: {error.msg}"
            self.stash[record_key] = self.unscored(reason, model)
            raise Unscored(reason) from None
        except BaseException as error:
            reason = describe(error)
            self.stash[record_key] = self.unscored(reason, model)
            if self.model is None and (isinstance(error, ModelStoppedError) or is_device_lost(error)):
                self.session.shouldfail = f"{MODEL_STOPPED}{reason}"
            raise
        if score.status == "unscored":
            raise Unscored(score.reason or "could not be scored")
        if score.status == "wrong" and self.config.stash[settings_key].strict:
            raise WrongAnswer(_explain_wrong(question, score, responses))

    def record_answered(self, batcher: Batcher) -> Record | None:
        """Return the record of a sample that was answered ahead and whose test will not run.

        Return None if the model leaves the sample out, or if its judge has not judged it.
        """
        model, has_roles = batcher.model, bool(self.file.evaluation.scorer.roles)
        if has_roles and not batcher.judging.is_judged(self.key):
            return None
        try:
            responses = batcher.responses(self.planned, model)
            question = self._asked or self.question
            score = batcher.judging.finish(self.key) if has_roles else self.file.evaluation.score(question, responses)
            return self._record(model, question, score, responses)
        except LeftOutError:
            return None
        except (Exception, pytest.skip.Exception) as error:
            return self.unscored(describe(error), model)

    def _record(self, model: object, question: PreparedSample, score: Score, responses: Sequence[Response]) -> Record:
        sample, use = self.sample, self._judge_use()
        name, replies = model_of(self, model).name, each_reply(responses)
        reply = deciding_reply(score, responses)
        prompts = self.config.stash[settings_key].report_prompts
        return Record(
            suite=self.file.info.name,
            id=sample.id,
            nodeid=self.nodeid,
            model=name,
            status=score.status,
            category=sample.category,
            reason=None if score.reason is None else redact(score.reason),
            question=sample.question,
            prompt=shown_prompt(question.prompt, prompts),
            choices=question.choices,
            target=_shown_target(question),
            output=None if reply is None else reply.text,
            reasoning=None if reply is None else reply.reasoning,
            answer=score.answer,
            no_answer=score.no_answer,
            values=score.values,
            chance=score.chance,
            details=_shown_details(question, score, prompts),
            num_prompt_tokens=_num_prompt_tokens(question, responses),
            num_tokens=sum(reply.num_tokens for reply in replies),
            seconds=_seconds_of(model, responses),
            is_timed=bool(replies) and all(reply.is_timed for reply in replies),
            **_phases_of(replies),
            fingerprint=self.file.fingerprints[sample.id],
            question_fingerprint=question_fingerprint(sample),
            cluster=sample.cluster,
            not_measurable=score.not_measurable,
            asked_at=_asked_at(model, replies, use),
            kept_as=None if answers_samples(model) else kept_as(reply.kept_as for reply in replies),
            num_judge_requests=use.num_requests,
            num_judge_tokens=use.num_tokens,
            judge_seconds=use.seconds,
            is_reused=_is_reused(self.config, replies),
            judge_cost=use.cost if use.num_requests else None,
            cost=cost_of(replies) if replies else None,
            served_by=_served_by(name, replies, use),
            num_truncated=sum(
                isinstance(reply, GenerateResponse) and reply.finish_reason == "length" for reply in replies
            ),
        )

    def _judge_use(self) -> JudgeUse:
        """Return what the judges of this sample took: requests, tokens, seconds."""
        if not self.file.evaluation.scorer.roles or batcher_key not in self.config.stash:
            return JudgeUse()
        return self.config.stash[batcher_key].judging.pop_use(self.key)

    def unscored(self, reason: str, model: object = None) -> Record:
        """Return the record of this sample if there is no score."""
        try:
            question = self._asked or self.question
        except Exception:  # the reason why there is no score may be that the question cannot be made
            question = None
        return Record(
            suite=self.file.info.name,
            id=self.sample.id,
            nodeid=self.nodeid,
            model=self.model if model is None else model_of(self, model).name,
            status="unscored",
            category=self.sample.category,
            reason=reason,
            question=self.sample.question,
            choices=() if question is None else question.choices,
            target=None if question is None else _shown_target(question),
            fingerprint=self.file.fingerprints[self.sample.id],
            question_fingerprint=question_fingerprint(self.sample),
            cluster=self.sample.cluster,
        )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the sample's own row."""
        return Path(self.sample.path), *self._line_and_text

    @property
    def location(self) -> tuple[str, int | None, str]:
        """Return ``reportinfo`` with the path from the rootdir, which pytest would compute for each item anew."""
        if self._location is None:
            shown = self.file.shown_paths
            if self.sample.path not in shown:
                shown[self.sample.path] = super().location[0]
            self._location = shown[self.sample.path], *self._line_and_text
        return self._location

    def forget_line(self) -> None:
        """Let ``location`` name no line."""
        file, _, text = self.location
        self._location = file, None, text

    @property
    def _line_and_text(self) -> tuple[int | None, str]:
        """Return the row's line, counted from 0, and the suite's and sample's names."""
        line = self.sample.line
        where = self.file.info.name if self.model is None else f"{self.file.info.name} ({self.model})"
        return None if line is None else line - 1, f"{where}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return one message without a traceback for a failure that is no error in code."""
        error = excinfo.value
        if isinstance(error, LLMEvalError | Unscored | WrongAnswer):
            label = "wrong" if isinstance(error, WrongAnswer) else "not scored"
            text = str(error)
            if isinstance(error, RequestError):
                text = str(self.file.evaluation.suite.error(text, self.sample))
            return without_commands(printable(f"{label}: {text}", keep="\n"))
        return super().repr_failure(excinfo)


def _explain_wrong(question: PreparedSample, score: Score, responses: Sequence[Response]) -> str:
    target, answer, has_none, where, replies = question.target, score.answer, score.no_answer, "", [*responses]
    if (turn := first_wrong_turn(score.details)) is not None:
        target, answer, has_none = turn.target, turn.answer, turn.no_answer
        where, replies = f"turn {turn.number} of {turn.count}: ", each_reply(responses)[turn.number - 1 : turn.number]
    expected = _quoted(target) if isinstance(target, str) else " or ".join(map(_quoted, target))
    found = "no answer" if has_none else "another text" if answer is None else _quoted(answer)
    lines = [f"{where}expected {expected}, found {found}" if target != () else f"{where}found {found}"]
    problem, detail = score.details.get("problem"), score.details.get("detail")
    if isinstance(problem, str):
        lines.append(f"{problem}: {detail}" if isinstance(detail, str) else problem)
    if asked := question.sample.question:
        lines.append(f"question: {first_line(asked)}")
    lines += [f"reply: {_quoted(reply.text)}" for reply in replies if isinstance(reply, GenerateResponse)]
    return "\n".join(lines)


_MAX_QUOTED = 10_000
"""The number of characters of a text that a failure shows; it stays in memory and goes into the JUnit file, too."""


def _quoted(text: str) -> str:
    """Return the text in quotes; a long text is cut."""
    if len(text) <= _MAX_QUOTED:
        return repr(text)
    return f"{text[:_MAX_QUOTED]!r}… ({len(text) - _MAX_QUOTED:,} more characters are in the report)"


def _shown_details(presented: PreparedSample, score: Score, prompts: str) -> Mapping[str, JSON]:
    """Return the score's details; if options have equal texts, also which are right: the target does not tell.

    The steps of an agent repeat its prompt, and tools are a part of it: they are there only if ``--llm-report-prompts``
    wants ``prompts`` in full.
    """
    details = score.details
    if prompts != "full" and "trace" in details:
        details = {name: value for name, value in details.items() if name != "trace"}
    if prompts != "full" and "conversation" in details:
        details = {**details, "conversation": _without_user(details["conversation"])}
    if prompts == "full" and presented.tools:
        details = {"tools": [tool["function"] for tool in json.loads(presented.tools)], **details}
    options = presented.labels or presented.choices
    if len(set(options)) == len(options):
        return details
    return {**details, "right": list(presented.right)}


def _without_user(said: JSON) -> JSON:
    """Return a conversation, or several, without the user's texts."""
    if isinstance(said, list):
        return [_without_user(one) for one in said]
    return {name: text for name, text in said.items() if name != "user"} if isinstance(said, dict) else said


def model_of(item: pytest.Item, model: object) -> ModelIdentity:
    """Return the identity of the model that answered ``item``.

    If several models are given, its name is as it was written, also if a conftest.py has wrapped the model: two records
    of one sample must not have one key.
    """
    given = item.stash.get(model_key, None)
    identity = identify(model)
    return identity if given is None else replace(identity, name=given)


def describe(error: BaseException) -> str:
    """Return the error as one line, for a record's ``reason``."""
    text = str(error) if isinstance(error, LLMEvalError) else f"{type(error).__name__}: {error}"
    return first_line(redact(text))


def shown_prompt(prompt: Any, how: str) -> Any:
    """Return the prompt as ``--llm-report-prompts`` wants it in the report."""
    if how == "none":
        return None
    shown = prompt if isinstance(prompt, str) else [message_as_json(turn) for turn in prompt]
    if how == "full":
        return shown
    text = shown if isinstance(shown, str) else json.dumps(shown)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _seconds_of(model: object, responses: Sequence[Response]) -> float:
    """Return the model's time for a sample. In the background, the requests of a sample are answered at once."""
    seconds = [sum(reply.seconds for reply in each_reply([response])) for response in responses]
    return max(seconds, default=0.0) if answers_in_background(model) else sum(seconds, 0.0)


def _is_reused(config: pytest.Config, responses: Sequence[Response]) -> bool:
    """Tell whether a reply is from a store, where another session has left it."""
    return any(response.kept_as not in (None, session_of(config)[0]) for response in responses)


def _phases_of(responses: Sequence[Response]) -> dict[str, Any]:
    """Return the seconds of reading prompts and of writing after the first token, if the model tells them apart."""
    written = [response for response in responses if isinstance(response, GenerateResponse)]
    prefill = [reply.prefill_seconds for reply in written if reply.prefill_seconds is not None]
    if not written or len(prefill) < len(responses):
        return {}
    return {"prefill_seconds": sum(prefill), "num_decoded": sum(max(0, reply.num_tokens - 1) for reply in written)}


def _served_by(name: str, responses: Sequence[Response], use: JudgeUse) -> tuple[Mapping[str, JSON], ...]:
    """Return the served models that gave the replies of ``name``, and the verdicts, if servers name them; each once."""
    own = dict.fromkeys(map(who_served, responses))
    found: list[tuple[Role | None, str, str | None, str | None]] = [(None, name, *one) for one in own]
    return tuple(
        {key: value for key, value in zip(("role", "name", "model", "system_fingerprint"), one, strict=True) if value}
        for one in (*found, *use.served)
        if one[2] is not None or one[3] is not None
    )


def _asked_at(model: object, responses: Sequence[Response], use: JudgeUse) -> str | None:
    """Return when the last reply of model and judge was asked for; None if one of them is not in the store.

    A model that has its answers at hand was not asked.
    """
    found = [*(() if answers_samples(model) else (response.asked_at for response in responses)), *use.asked_at]
    times = [time for time in found if time is not None]
    if not times or len(times) < len(found):
        return None
    return datetime.fromtimestamp(max(times), UTC).isoformat(timespec="microseconds")


def kept_as(replies: Iterable[str | None]) -> str | None:
    """Return one id for all stored replies of a sample; None if one is not stored, or if there is none."""
    found = set(replies)
    known = sorted(one for one in found if one is not None)
    return hashlib.sha256("|".join(known).encode()).hexdigest()[:16] if known and None not in found else None


def _num_prompt_tokens(question: PreparedSample, responses: Sequence[Response]) -> int:
    """Return the number of tokens of the sample's distinct prompts: options that follow the same prompt share it."""
    prompts: dict[Prompt | ConversationRequest, int] = {}
    for request, response in zip(question.requests, responses, strict=True):
        prompt: Prompt | ConversationRequest
        match request:
            case ConversationRequest():
                prompt = request
            case GenerateRequest():
                prompt = request.prompt
            case LoglikelihoodRequest():
                prompt = request.context
            case LoglikelihoodRollingRequest() | EmbeddingRequest():
                prompt = request.text
        if isinstance(response, LoglikelihoodResponse):
            prompts[prompt] = response.num_context_tokens
        else:
            earlier = response.turns if isinstance(response, GenerateResponse) else ()
            prompts[prompt] = response.num_prompt_tokens + sum(reply.num_prompt_tokens for reply in earlier)
    return sum(prompts.values())


def _shown_target(presented: PreparedSample) -> JSON:
    """Return the expected text, or a list of several of which each is right."""
    return list(presented.target) if isinstance(presented.target, tuple) else presented.target
