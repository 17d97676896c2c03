"""A sample as a pytest item, and the record that its test makes of question, replies and score."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_llmeval.errors import LeftOutError, LLMEvalError, ModelStoppedError, RequestError
from pytest_llmeval.evaluation.evaluation import Evaluation, asked_sample, deciding_reply
from pytest_llmeval.inference.accounting import JudgeUse
from pytest_llmeval.inference.batcher import Batcher, Models, PlannedSample
from pytest_llmeval.models.base import JudgeSteps, answers_in_background, answers_samples, identify
from pytest_llmeval.plugin.models import judges_of
from pytest_llmeval.plugin.settings import Settings, settings_key
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
from pytest_llmeval.text.escaping import first_line, printable, without_commands
from pytest_llmeval.text.names import escape_id
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.types import (
    JSON,
    AskedSample,
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
    who_served,
)

if TYPE_CHECKING:
    from pytest_llmeval.models.replay.model import DataResponses

__all__ = [
    "SampleItem",
    "SampleSource",
    "Unscored",
    "WrongAnswer",
    "asked_at",
    "cost_of_replies",
    "describe",
    "kept_as",
    "model_of",
    "num_prompt_tokens",
    "num_truncated",
    "phases_of",
    "seconds_of",
    "served_by",
    "shown_details",
    "shown_prompt",
    "shown_target",
]


class WrongAnswer(Exception):
    """A wrong answer under ``--llm-strict``."""


class Unscored(Exception):
    """A sample whose response could not be judged."""


class SampleSource(Protocol):
    """The suite's node, as far as its samples use it.

    ``shown_paths`` are the paths of the samples' rows from the rootdir, by ``Sample.path``, as far as they are known.
    """

    evaluation: Evaluation
    info: SuiteInfo
    fingerprints: dict[str, str]
    responses: DataResponses | None

    def take_judges(self, judges: Models) -> None: ...

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
    """Return what pytest reads of a sample's test function before there is the item whose method it is: its arguments.

    One for all samples that take the same fixtures.
    """

    def sample() -> None: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    sample.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in fixtures])  # type: ignore[attr-defined]
    return sample


class SampleItem(pytest.Function):
    """One sample. ``model`` is that of ``--llm-model`` that it is for, as it was written, where there are several."""

    # Slots: a value that is kept in an item's dictionary from outside (as by cached_property) makes that three times as
    # large.
    __slots__ = ("_asked", "_hooks", "_key", "_location", "_planned", "file", "model", "number", "sample")

    sample: Sample
    file: SampleSource
    model: str | None
    number: int
    _asked: PreparedSample | None
    _hooks: Any
    _key: SampleKey
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

        ``like`` is another item of the same ``parent``: what pytest found out of its fixtures is not found out again,
        as pytest itself does for the items of a parametrised test. That is a third of the time that an item takes to
        make, and of the memory that it holds.
        """
        roles = file.evaluation.scorer.roles
        asked = [role.fixture for name, role in ROLES.items() if name in roles]
        function = _test_function((*(["llm_model"] if file.responses is None else []), *asked))
        found = None if like is None else getattr(like, "_fixtureinfo", None)
        item: SampleItem = cls.from_parent(parent, name=escape_id(sample.id), callobj=function, fixtureinfo=found)
        item.obj = item.evaluate  # a fixture ``request``, to know the item by, takes longer than the model's
        item.fixturenames = [*item.fixturenames]  # a conftest.py may add to the list of each item
        item.sample, item.file, item.model, item.number = sample, file, model, number
        item._key = file.info.name, model, sample.id
        item._planned = item._location = item._asked = item._hooks = None
        item.stash[is_sample_key] = True
        if model is not None:
            item.stash[model_key] = model
        return item

    @property
    def function(self) -> Callable[..., object]:
        """Return a function in whose source ``--fixtures-per-test`` and other plugins look something up."""
        return SampleItem.evaluate

    @property
    def ihook(self) -> Any:
        """The hooks of the conftest.py files above the item; pytest would look them up for each of ten calls."""
        hooks = getattr(self, "_hooks", None)  # pytest asks for them before there is the sample
        return super().ihook if hooks is None else hooks

    def keep_hooks(self, like: SampleItem) -> None:
        """Use the hooks of ``like``, an item of the same file. Call it when all conftest.py files are loaded."""
        self._hooks = like.ihook

    @property
    def settings(self) -> Settings:
        return self.config.stash[settings_key]

    @property
    def question(self) -> PreparedSample:
        """Return the sample ready to be asked; it is made when it is needed, and kept within the ``QuestionMemory``
        only.
        """
        return self.file.evaluation.question(self.sample)

    @property
    def key(self) -> SampleKey:
        """Return the key of the sample in this session; node ids change with ``--rootdir``."""
        return self._key

    @property
    def size(self) -> int:
        """Characters of what the model reads for this sample at the most."""
        return self.file.evaluation.lengths[self.sample.id]

    @property
    def group(self) -> tuple[str | None, str]:
        """Samples of one group can be asked together."""
        return self.model, self.file.info.name

    @property
    def planned(self) -> PlannedSample:
        """The sample as the batcher knows it."""
        if self._planned is None:
            self._planned = PlannedSample(
                key=self._key,
                group=self.group,
                requests=self._requests,
                steps=self._steps if self.file.evaluation.scorer.roles else None,
                sample=self._sample_asked,
                suite=self._suite_asked,
                recorded=self.file.responses,
            )
        return self._planned

    def _sample_asked(self, requests: Sequence[Request]) -> AskedSample:
        return asked_sample(self.file.evaluation, self.sample, self.number, requests)

    def _suite_asked(self) -> Sequence[AskedSample]:
        return self.file.samples_asked

    def _requests(self) -> Sequence[Request]:
        # Kept from asking ahead until the reply is judged: at most a chunk of prompts at a time.
        self._asked = self.question
        return self._asked.requests

    def _steps(self, responses: Sequence[Response]) -> JudgeSteps:
        return self.file.evaluation.asking(self._asked or self.question, responses)

    def evaluate(self, llm_model: object = None, **llm_roles: object) -> None:
        """The test function: ask, judge, and stash the record. Raises what makes the test fail.

        ``llm_roles`` are the models that the scorer asks, by the names of their fixtures.
        """
        __tracebackhide__ = True
        model = self.file.responses if llm_model is None else llm_model
        asked = "the model"
        try:
            judges = {role: judges_of(role, llm_roles[f"llm_{role}"]) for role in ROLES if f"llm_{role}" in llm_roles}
            if judges:
                self.file.take_judges(judges)
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
            # A fixture may skip a test; a model that was asked and does not answer has not answered.
            reason = f"{asked} skipped: {error.msg}"
            self.stash[record_key] = self.unscored(reason, model)
            raise Unscored(reason) from None
        except BaseException as error:
            self.stash[record_key] = self.unscored(describe(error), model)
            if isinstance(error, ModelStoppedError) and self.model is None:
                self.session.shouldfail = f"{MODEL_STOPPED}{first_line(str(error))}"
            raise
        if score.status == "unscored":
            raise Unscored(score.reason or "could not be scored")
        if score.status == "wrong" and self.settings.strict:
            raise WrongAnswer(_explain_wrong(question, score, responses))

    def record_waiting(self, batcher: Batcher) -> Record | None:
        """Return the record of a sample that was answered ahead, and whose test will not run; None where it is left
        out, and where a judge has not judged it.
        """
        model, has_roles = batcher.model, bool(self.file.evaluation.scorer.roles)
        if has_roles and not batcher.is_judged(self.key):
            return None
        try:
            responses = batcher.responses(self.planned, model)
            question = self._asked or self.question
            score = batcher.finish(self.key) if has_roles else self.file.evaluation.score(question, responses)
            return self._record(model, question, score, responses)
        except LeftOutError:
            return None
        except (Exception, pytest.skip.Exception) as error:
            return self.unscored(describe(error), model)

    def _record(self, model: object, question: PreparedSample, score: Score, responses: Sequence[Response]) -> Record:
        sample, use = self.sample, self._judge_use()
        name = model_of(self, model).name
        reply = deciding_reply(score, responses)
        return Record(
            suite=self.file.info.name,
            id=sample.id,
            nodeid=self.nodeid,
            model=name,
            status=score.status,
            category=sample.category,
            reason=None if score.reason is None else redact(score.reason),
            question=sample.question,
            prompt=shown_prompt(question.prompt, self.settings.report_prompts),
            choices=question.choices,
            target=shown_target(question),
            output=None if reply is None else reply.text,
            reasoning=None if reply is None else reply.reasoning,
            answer=score.answer,
            no_answer=score.no_answer,
            values=score.values,
            chance=score.chance,
            details=shown_details(question, score, self.settings.report_prompts),
            num_prompt_tokens=num_prompt_tokens(question, responses),
            num_tokens=sum(response.num_tokens for response in responses),
            seconds=seconds_of(model, responses),
            is_timed=bool(responses) and all(response.is_timed for response in responses),
            **phases_of(responses),
            fingerprint=self.file.fingerprints[sample.id],
            cluster=sample.cluster,
            not_measurable=score.not_measurable,
            asked_at=asked_at(model, responses, use),
            kept_as=None if answers_samples(model) else kept_as(response.kept_as for response in responses),
            num_judge_requests=use.num_requests,
            num_judge_tokens=use.num_tokens,
            judge_seconds=use.seconds,
            cost=cost_of_replies(responses),
            served_by=served_by(name, responses, use),
            num_truncated=num_truncated(responses),
        )

    def _judge_use(self) -> JudgeUse:
        """Return the time, tokens and cost that the judgement of this sample took."""
        if not self.file.evaluation.scorer.roles or batcher_key not in self.config.stash:
            return JudgeUse()
        return self.config.stash[batcher_key].pop_use(self.key)

    def unscored(self, reason: str, model: object = None) -> Record:
        """Return the record of this sample when there is no score."""
        presented = self._presented()
        return Record(
            suite=self.file.info.name,
            id=self.sample.id,
            nodeid=self.nodeid,
            model=self.model if model is None else model_of(self, model).name,
            status="unscored",
            category=self.sample.category,
            reason=reason,
            question=self.sample.question,
            choices=() if presented is None else presented.choices,
            target=None if presented is None else shown_target(presented),
            fingerprint=self.file.fingerprints[self.sample.id],
            cluster=self.sample.cluster,
        )

    def _presented(self) -> PreparedSample | None:
        """Return the prepared sample; None if it cannot be made, which may be why there is no score."""
        try:
            return self._asked or self.question
        except Exception:
            return None

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the sample's own row."""
        return Path(self.sample.path), *self._line_and_text

    @property
    def location(self) -> tuple[str, int | None, str]:
        """``reportinfo`` with the path from the rootdir, which pytest works out for each item anew."""
        if self._location is None:
            shown = self.file.shown_paths
            if self.sample.path not in shown:
                shown[self.sample.path] = super().location[0]
            self._location = shown[self.sample.path], *self._line_and_text
        return self._location

    @property
    def _line_and_text(self) -> tuple[int | None, str]:
        """The line counts from 0."""
        line = self.sample.line
        where = self.file.info.name if self.model is None else f"{self.file.info.name} ({self.model})"
        return None if line is None else line - 1, f"{where}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return one message without a traceback where the model and the suite did their part."""
        error = excinfo.value
        if isinstance(error, LLMEvalError | Unscored | WrongAnswer):
            label = "wrong" if isinstance(error, WrongAnswer) else "not scored"
            text = str(error)
            if isinstance(error, RequestError):
                text = str(self.file.evaluation.suite.error(text, self.sample))
            return without_commands(printable(f"{label}: {text}", keep="\n"))
        return super().repr_failure(excinfo)


def _explain_wrong(question: PreparedSample, score: Score, responses: Sequence[Response]) -> str:
    target = question.target
    expected = _quoted(target) if isinstance(target, str) else " or ".join(map(_quoted, target))
    found = "no answer" if score.no_answer else "another text" if score.answer is None else _quoted(score.answer)
    lines = [f"expected {expected}, found {found}"]
    if asked := question.sample.question:
        lines.append(f"question: {first_line(asked)}")
    lines += [f"reply: {_quoted(reply.text)}" for reply in responses if isinstance(reply, GenerateResponse)]
    return "\n".join(lines)


_MAX_QUOTED = 10_000
"""Characters of a text that a failure shows; it stays in memory and goes into the JUnit file too."""


def _quoted(text: str) -> str:
    """Return the text in quotes; of a long one the beginning."""
    if len(text) <= _MAX_QUOTED:
        return repr(text)
    return f"{text[:_MAX_QUOTED]!r}… ({len(text) - _MAX_QUOTED:,} more characters are in the report)"


def shown_details(presented: PreparedSample, score: Score, prompts: str) -> Mapping[str, JSON]:
    """Return the score's; where options are equal also which are right: the target's text is that of wrong ones too.

    The steps of an agent repeat what it was asked: they are there only where ``--llm-report-prompts`` wants
    ``prompts`` in full.
    """
    details = score.details
    if prompts != "full" and "trace" in details:
        details = {name: value for name, value in details.items() if name != "trace"}
    options = presented.labels or presented.choices
    if len(set(options)) == len(options):
        return details
    return {**details, "right": list(presented.right)}


def model_of(item: pytest.Item, model: object) -> ModelIdentity:
    """Return the fields of a record that name the model which answered ``item``.

    Where several models are given, its name is as it was written, also if a conftest.py wrapped the model: two records
    of one sample must not have one key.
    """
    given = item.stash.get(model_key, None)
    identity = identify(model)
    return identity if given is None else replace(identity, name=given)


def describe(error: BaseException) -> str:
    """Return one line for a record's ``reason``."""
    text = str(error) if isinstance(error, LLMEvalError) else f"{type(error).__name__}: {error}"
    return first_line(redact(text))


def shown_prompt(prompt: Any, how: str) -> Any:
    """Return the prompt as ``--llm-report-prompts`` wants it in the report."""
    if how == "none":
        return None
    shown = prompt if isinstance(prompt, str) else [{"role": turn.role, "content": turn.content} for turn in prompt]
    if how == "full":
        return shown
    text = shown if isinstance(shown, str) else json.dumps(shown)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def seconds_of(model: object, responses: Sequence[Response]) -> float:
    """Return the model's time for a sample. One that answers in the background is asked all of a sample's requests at
    once.
    """
    seconds = [response.seconds for response in responses]
    return max(seconds, default=0.0) if answers_in_background(model) else sum(seconds, 0.0)


def phases_of(responses: Sequence[Response]) -> dict[str, Any]:
    """Return the seconds of reading prompts and of writing after the first token, if the model tells them apart."""
    written = [response for response in responses if isinstance(response, GenerateResponse)]
    prefill = [reply.prefill_seconds for reply in written if reply.prefill_seconds is not None]
    if not written or len(prefill) < len(responses):
        return {}
    return {"prefill_seconds": sum(prefill), "num_decoded": sum(max(0, reply.num_tokens - 1) for reply in written)}


def cost_of_replies(responses: Sequence[Response]) -> float | None:
    """Return the cost of all replies; None unless the model says it of each."""
    costs = [response.cost if isinstance(response, GenerateResponse) else None for response in responses]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known and len(known) == len(costs) else None


def served_by(name: str, responses: Sequence[Response], use: JudgeUse) -> tuple[Mapping[str, JSON], ...]:
    """Who gave the replies of the model ``name``, and the verdicts, as far as servers say so; each once."""
    own = dict.fromkeys(map(who_served, responses))
    found: list[tuple[Role | None, str, str | None, str | None]] = [(None, name, *one) for one in own]
    return tuple(
        {key: value for key, value in zip(("role", "name", "model", "system_fingerprint"), one, strict=True) if value}
        for one in (*found, *use.served)
        if one[2] is not None or one[3] is not None
    )


def asked_at(model: object, responses: Sequence[Response], use: JudgeUse) -> str | None:
    """Return when the last reply of model and judge was asked; None where one of them is not in the store.

    A model that has its answers at hand was not asked.
    """
    found = [*(() if answers_samples(model) else (response.asked_at for response in responses)), *use.asked_at]
    times = [time for time in found if time is not None]
    if not times or len(times) < len(found):
        return None
    return datetime.fromtimestamp(max(times), UTC).isoformat(timespec="microseconds")


def kept_as(replies: Iterable[str | None]) -> str | None:
    """Return what a record says of its replies' ``kept_as``; None where one of them is not kept, and where none is."""
    found = set(replies)
    known = sorted(one for one in found if one is not None)
    return hashlib.sha256("|".join(known).encode()).hexdigest()[:16] if known and None not in found else None


def num_prompt_tokens(question: PreparedSample, responses: Sequence[Response]) -> int:
    """Return tokens of the sample's distinct prompts: options that follow the same prompt share it."""
    prompts: dict[Prompt, int] = {}
    for request, response in zip(question.requests, responses, strict=True):
        prompt: Prompt
        match request:
            case GenerateRequest():
                prompt = request.prompt
            case LoglikelihoodRequest():
                prompt = request.context
            case LoglikelihoodRollingRequest() | EmbeddingRequest():
                prompt = request.text
        if isinstance(response, LoglikelihoodResponse):
            prompts[prompt] = response.num_context_tokens
        else:
            prompts[prompt] = response.num_prompt_tokens
    return sum(prompts.values())


def num_truncated(responses: Sequence[Response]) -> int:
    """Return how many of the replies ended at their limit of tokens."""
    return sum(isinstance(response, GenerateResponse) and response.finish_reason == "length" for response in responses)


def shown_target(presented: PreparedSample) -> JSON:
    """Return the expected text, or a list of several of which each is right."""
    return list(presented.target) if isinstance(presented.target, tuple) else presented.target
