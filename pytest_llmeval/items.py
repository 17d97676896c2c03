"""Suites and their samples as pytest nodes."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pytest_llmeval.errors import LLMEvalError, RequestError
from pytest_llmeval.lookahead import Lookahead, Member
from pytest_llmeval.models.base import ModelIdentity, identify
from pytest_llmeval.models.messages import redact
from pytest_llmeval.node_ids import escape_id
from pytest_llmeval.options import Settings, is_sample_key, model_key, settings_key
from pytest_llmeval.reporting.escape import first_line, printable
from pytest_llmeval.reporting.records import Record, SuiteInfo
from pytest_llmeval.scoring.evaluation import Evaluation, Question
from pytest_llmeval.several_models import compared_models
from pytest_llmeval.suites.loader import load_suite
from pytest_llmeval.suites.overrides import parse_override
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = ["NotASuite", "SampleItem", "SampleKey", "SuiteFile", "SuiteModel", "Unscored", "WrongAnswer", "model_of"]

SampleKey: TypeAlias = tuple[str, str | None, str]
"""Suite, model where several are given (as it was written), sample id."""

lookahead_key = pytest.StashKey[Lookahead]()
record_key = pytest.StashKey[Record]()
suite_paths_key = pytest.StashKey[dict[str, Path]]()

_RESERVED_MARKS = frozenset(
    ("filterwarnings", "parametrize", "skip", "skipif", "tryfirst", "trylast", "usefixtures", "xfail")
)


class WrongAnswer(Exception):
    """A wrong answer under ``--llm-strict``."""


class Unscored(Exception):
    """A sample whose response could not be judged."""


class SuiteFile(pytest.Module):
    """A suite. A Module, because autouse fixtures of module scope need one above every item (doctest does the same)."""

    obj = None

    evaluation: Evaluation
    info: SuiteInfo
    fingerprints: dict[str, str]

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path) -> SuiteFile:
        """The suite at ``path``.

        pytest gives a file that is named on the command line and lies outside of the rootdir no name in node ids: two
        suites would share theirs.
        """
        root = parent.config.rootpath
        if path.is_relative_to(root):
            suite: SuiteFile = cls.from_parent(parent, path=path)
        else:
            suite = cls.from_parent(parent, path=path, nodeid=Path(os.path.relpath(path, root)).as_posix())
        return suite

    def collect(self) -> Iterator[SampleItem | SuiteModel]:
        """Load the whole suite, check all of it, and yield an item for every sample, with several models in levels."""
        settings = self.config.stash[settings_key]
        suite = load_suite(
            self.path,
            overrides=[parse_override(text) for text in settings.set],
            shown_path=relative_path(self.path),
        )
        paths = self.session.stash.setdefault(suite_paths_key, {})
        other = paths.setdefault(suite.name, self.path)
        if other != self.path:
            where = relative_path(other)
            raise suite.error(f"{suite.name!r} is also the name of {where}: rename one of them", keys=("suite",))
        self.evaluation = Evaluation(suite)
        fingerprint, self.fingerprints = self.evaluation.fingerprints()
        self.info = SuiteInfo(
            name=suite.name,
            path=self.nodeid,
            description=suite.spec.description,
            scorer=self.evaluation.scorer.name,
            settings=suite.spec.score.model_dump(mode="json", exclude={"kind"}),
            fingerprint=fingerprint,
            num_samples=len(suite.samples),
            metrics=self.evaluation.scorer.metrics,
            overridden=suite.overridden,
        )
        self._add_tags(suite.spec.tags)
        models = compared_models(self.config, self.path)
        for model, name in models.items():
            yield SuiteModel.of(self, name, model)
        if not models:
            yield from self.items(self, None)

    def items(self, parent: SuiteFile | SuiteModel, model: str | None) -> Iterator[SampleItem]:
        """An item for every sample, under ``parent``; ``model`` as ``SampleItem`` has it."""
        for sample in self.evaluation.suite.samples:
            yield SampleItem.of(parent, self, sample, model)

    def _add_tags(self, tags: Sequence[str]) -> None:
        for place, tag in enumerate(tags):
            where = ("tags", place)
            if tag in _marks_with_meaning(self.config):
                raise self.evaluation.suite.error(
                    f"{tag!r} is the name of a mark with a meaning of its own", keys=where
                )
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", pytest.PytestUnknownMarkWarning)
                    mark = getattr(pytest.mark, tag)
            except pytest.PytestUnknownMarkWarning:
                self.config.addinivalue_line("markers", f"{tag}: tag of an LLM suite")
                mark = getattr(pytest.mark, tag)
            except pytest.fail.Exception:
                message = f"{tag!r} is not among the registered markers, and --strict-markers is on: register it"
                raise self.evaluation.suite.error(message, keys=where) from None
            self.add_marker(mark)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """One message without a traceback for what the user can mend."""
        if isinstance(excinfo.value, LLMEvalError):
            return printable(str(excinfo.value), keep="\n")
        return super().repr_failure(excinfo)


class SuiteModel(pytest.Collector):
    """One model's samples of a suite: the level between file and sample where several models are given."""

    model: str
    file: SuiteFile

    @classmethod
    def of(cls, file: SuiteFile, name: str, model: str) -> SuiteModel:
        """The level of ``model`` under ``file``, called ``name`` in node ids."""
        level: SuiteModel = cls.from_parent(file, name=name)
        level.model, level.file = model, file
        return level

    def collect(self) -> Iterator[SampleItem]:
        """The suite's samples, loaded and checked by then, for this model."""
        return self.file.items(self, self.model)


class NotASuite(pytest.File):
    """A YAML file that was named on the command line and that nobody collects."""

    def collect(self) -> Iterator[pytest.Item]:
        """Say what a suite begins with."""
        raise self.CollectError(
            f"{self.nodeid}: not a suite: its first key must be `suite`, "
            "and `score` with `samples` or `dataset` must stand at the start of a line"
        )


class _Evaluate:
    """The test function of every sample: ask the model, judge the reply.

    pytest reads the signature of a function anew for each of its items, which takes longer than all the rest of making
    one. This one has its signature at hand.
    """

    __name__ = "evaluate"
    __signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("llm_model", "request")]
    )

    def __call__(self, llm_model: object, request: pytest.FixtureRequest) -> None:
        item = request.node
        if not isinstance(item, SampleItem):
            raise TypeError(f"{item!r} is not a sample")
        item.evaluate(llm_model)


_EVALUATE = _Evaluate()


class SampleItem(pytest.Function):
    """One sample. ``model`` is that of ``--llm-model`` that it is for, as it was written, where there are several."""

    sample: Sample
    file: SuiteFile
    model: str | None
    _asked: Question | None = None

    @classmethod
    def of(cls, parent: SuiteFile | SuiteModel, file: SuiteFile, sample: Sample, model: str | None) -> SampleItem:
        """The item of ``sample`` of the suite ``file``."""
        item: SampleItem = cls.from_parent(parent, name=escape_id(sample.id), callobj=_EVALUATE)
        item.sample, item.file, item.model = sample, file, model
        item.stash[is_sample_key] = True
        if model is not None:
            item.stash[model_key] = model
        return item

    @property
    def function(self) -> Callable[..., object]:
        """What ``--fixtures-per-test`` and other plugins look up in its source."""
        return _Evaluate.__call__

    @property
    def settings(self) -> Settings:
        """The session's settings."""
        return self.config.stash[settings_key]

    @property
    def question(self) -> Question:
        """What the model is asked; rendered when it is needed, so that prompts are not kept in memory."""
        return self.file.evaluation.question(self.sample)

    @property
    def key(self) -> SampleKey:
        """What the sample is known by; node ids change with ``--rootdir``."""
        return self.file.info.name, self.model, self.sample.id

    @property
    def size(self) -> int:
        """Characters of what the model reads for this sample at the most."""
        return self.file.evaluation.lengths[self.sample.id]

    @property
    def member(self) -> Member:
        """The sample's place in the lookahead plan."""
        return Member(key=self.key, group=(self.model, self.file.info.name), requests=self._requests)

    def _requests(self) -> Sequence[Request]:
        # Kept from asking ahead until the reply is judged: at most a chunk of prompts at a time.
        self._asked = self.question
        return self._asked.requests

    def evaluate(self, model: object) -> None:
        """Ask, judge, and stash the record. Raises what makes the test fail."""
        __tracebackhide__ = True
        try:
            responses = self.config.stash[lookahead_key].responses(self.member, model)
            question, self._asked = self._asked or self.question, None
            score = self.file.evaluation.score(question, responses)
            self.stash[record_key] = self._record(model, question, score, responses)
        except (KeyboardInterrupt, GeneratorExit, pytest.exit.Exception):
            raise
        except pytest.skip.Exception as error:
            # A fixture may skip a test; a model that was asked and does not answer has not answered.
            reason = f"the model skipped: {error.msg}"
            self.stash[record_key] = self.unscored(reason, model)
            raise Unscored(reason) from None
        except BaseException as error:
            self.stash[record_key] = self.unscored(describe(error), model)
            raise
        if score.status == "unscored":
            raise Unscored(score.reason or "could not be scored")
        if score.status == "wrong" and self.settings.strict:
            raise WrongAnswer(_explain_wrong(question, score, responses))

    def _record(self, model: object, question: Question, score: Score, responses: Sequence[Response]) -> Record:
        sample, presented = self.sample, question.presented
        return Record(
            suite=self.file.info.name,
            id=sample.id,
            nodeid=self.nodeid,
            model=model_of(self, model).name,
            status=score.status,
            category=sample.category,
            reason=score.reason,
            question=sample.question,
            prompt=shown_prompt(question.prompt, self.settings.report_prompts),
            choices=presented.choices,
            target=list(presented.target) if isinstance(presented.target, tuple) else presented.target,
            output=next((response.text for response in responses if isinstance(response, GenerateResponse)), None),
            answer=score.answer,
            no_answer=score.no_answer,
            values=score.values,
            chance=score.chance,
            details=score.details,
            num_prompt_tokens=_num_prompt_tokens(question, responses),
            num_tokens=sum(response.num_tokens for response in responses),
            seconds=sum(response.seconds for response in responses),
            fingerprint=self.file.fingerprints[sample.id],
        )

    def unscored(self, reason: str, model: object = None) -> Record:
        """The record of this sample when there is no score."""
        return Record(
            suite=self.file.info.name,
            id=self.sample.id,
            nodeid=self.nodeid,
            model=self.model if model is None else model_of(self, model).name,
            status="unscored",
            category=self.sample.category,
            reason=reason,
            question=self.sample.question,
            fingerprint=self.file.fingerprints[self.sample.id],
        )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the sample's own row stands."""
        line = self.sample.line
        where = self.file.info.name if self.model is None else f"{self.file.info.name} ({self.model})"
        return Path(self.sample.path), None if line is None else line - 1, f"{where}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """One message without a traceback where the model and the suite did their part."""
        error = excinfo.value
        if isinstance(error, LLMEvalError | Unscored | WrongAnswer):
            label = "wrong" if isinstance(error, WrongAnswer) else "not scored"
            text = str(error)
            if isinstance(error, RequestError):
                text = str(self.file.evaluation.suite.error(text, self.sample))
            return printable(f"{label}: {text}", keep="\n")
        return super().repr_failure(excinfo)


def _marks_with_meaning(config: pytest.Config) -> set[str]:
    """Marks registered with arguments (pytest's own and those of plugins): a bare tag would not do for them."""
    registered = (line.partition(":")[0].strip() for line in config.getini("markers"))
    return {*_RESERVED_MARKS, *(name.partition("(")[0] for name in registered if "(" in name)}


def model_of(item: pytest.Item, model: object) -> ModelIdentity:
    """What records of ``item`` say of the model that answered it.

    Where several models are given, its name is as it was written, also if a conftest.py wrapped the model: two records
    of one sample must not have one key.
    """
    given = item.stash.get(model_key, None)
    identity = identify(model)
    return identity if given is None else replace(identity, name=given)


def relative_path(path: Path) -> str:
    """The path as a user at the current directory would write it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def describe(error: BaseException) -> str:
    """One line for a record's ``reason``."""
    text = str(error) if isinstance(error, LLMEvalError) else f"{type(error).__name__}: {error}"
    return first_line(redact(text))


def shown_prompt(prompt: Any, how: str) -> Any:
    """The prompt as ``--llm-report-prompts`` wants it in the report."""
    if how == "none":
        return None
    shown = prompt if isinstance(prompt, str) else [{"role": turn.role, "content": turn.content} for turn in prompt]
    if how == "full":
        return shown
    text = shown if isinstance(shown, str) else json.dumps(shown)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _num_prompt_tokens(question: Question, responses: Sequence[Response]) -> int:
    """Tokens of the sample's distinct prompts: options that follow the same prompt share it."""
    prompts: dict[Prompt, int] = {}
    for request, response in zip(question.requests, responses, strict=True):
        prompt: Prompt
        match request:
            case GenerateRequest():
                prompt = request.prompt
            case LoglikelihoodRequest():
                prompt = request.context
            case LoglikelihoodRollingRequest():
                prompt = request.text
        if isinstance(response, GenerateResponse):
            prompts[prompt] = response.num_prompt_tokens
        else:
            prompts[prompt] = response.num_context_tokens
    return sum(prompts.values())


def _explain_wrong(question: Question, score: Score, responses: Sequence[Response]) -> str:
    target = question.presented.target
    expected = repr(target) if isinstance(target, str) else " or ".join(map(repr, target))
    found = "no answer" if score.no_answer else repr(score.answer)
    lines = [f"expected {expected}, found {found}"]
    if asked := question.presented.sample.question:
        lines.append(f"question: {first_line(asked)}")
    lines += [f"reply: {reply.text!r}" for reply in responses if isinstance(reply, GenerateResponse)]
    return "\n".join(lines)
