"""The base classes of scorers and of their settings, and what most scorers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

from pydantic import SerializationInfo, SerializerFunctionWrapHandler, model_serializer

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.spec import Spec
from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.references import several_or_one, target_texts
from pytest_llmeval.templates.templates import Templates
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import JSON, Ask, GenerateRequest, Prompt, Request, Response, Role, Sample, Score

__all__ = [
    "AS_THEY_APPLY",
    "AskingScorer",
    "Better",
    "FileReader",
    "PreparedSample",
    "Presented",
    "S",
    "Scorer",
    "ScorerSettings",
    "SettingsError",
    "SettingsScorer",
    "SuiteView",
    "reply_request",
    "score_without_judge",
]

_T = TypeVar("_T")
AS_THEY_APPLY = {"settings": "as they apply"}
"""The context of ``model_dump`` that gives every setting that decides something, its default where none was given."""


class FileReader(Protocol):
    """Reads the files that settings name by their paths, which stand at some keys. ``SuiteError`` where it cannot."""

    def text(self, path: str, keys: Keys) -> str:
        """Return the whole file."""
        ...

    def value(self, path: str, keys: Keys) -> Any:
        """Return the value that a file of JSON or YAML holds."""
        ...

    def read(self, read: Callable[[Source], _T], path: str, keys: Keys) -> _T:
        """Return what ``read`` makes of a file."""
        ...


class ScorerSettings(Spec):
    """Base of the settings of a scorer. ``kind`` is its name in a suite."""

    kind: str

    needs_options: ClassVar[bool] = False
    """True if a sample needs options that an answer is chosen from."""

    needs_target: ClassVar[bool] = True
    """True if a sample needs a target."""

    expects_calls: ClassVar[bool] = False
    """True if a target is a list of calls, which are mappings."""

    needs_reply: ClassVar[bool] = True
    """True if a sample without a recorded reply cannot be scored in a suite whose other samples have one."""

    runs_code: ClassVar[bool] = False
    """True if replies are run as programs, which ``--llm-allow-code`` has to allow."""

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Return the columns that the scorer reads and that a row need not have: a missing one is read as null."""
        return ()

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Return the keys that came later and have the value here that was meant before: fingerprints leave them
        out.
        """
        return ()

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the keys that decide nothing beside the values of the others."""
        return ()

    @model_serializer(mode="wrap")
    def _dumped(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Return what fingerprints hash; with ``AS_THEY_APPLY`` as the context, what readers of a report see."""
        values: dict[str, Any] = handler(self)
        left_out = self.unused if info.context is AS_THEY_APPLY else (*self.unused, *self.unsaid)
        return {key.rstrip("_"): value for key, value in values.items() if key not in left_out}

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """Return why it cannot stand among several scorers, and the keys that say so; None where it can."""
        return None

    @property
    def needs_baseline(self) -> bool:
        """Tell whether replies are compared with those of the session's baseline."""
        return False

    @property
    def column_of_reply(self) -> str | None:
        """Return the column of another reply, with which the model's is compared; None if there is none."""
        return None

    def by_reply(self, works: Callable[[ScorerSettings], bool]) -> str:
        """Say what to write in the suite for a model that gives texts only. ``works`` tries other settings instead."""
        return "use a scorer that reads a reply"

    def make(self) -> Scorer:
        """Return the scorer with these settings. Raise ``ValueError``, or ``SettingsError``, if it cannot use them."""
        raise NotImplementedError(f"{self.kind} is made with what its suite has besides")

    def each(self, keys: Keys = ("score",)) -> Iterator[tuple[ScorerSettings, Keys]]:
        """Yield these settings, or those of each of several scorers, with the keys at which they stand."""
        yield self, keys

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """Return the settings with what each file holds that they name by its path."""
        return self


S = TypeVar("S", bound=ScorerSettings)
Better: TypeAlias = Literal["higher", "lower"]


class SettingsError(ValueError):
    """Settings of a suite that cannot be used, with the keys at which they stand."""

    def __init__(self, message: str, keys: Keys) -> None:
        self.keys = keys
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSample:
    """A sample that is ready to be asked: checked by its scorer, its options in the order shown, prompt and requests.

    A scorer's ``present`` gives all but ``prompt`` and ``requests``, which the evaluation of the suite adds.

    ``right`` are indices into ``choices``; ``order[i]`` is where the i-th option shown stands among the sample's own.
    ``labels`` are the letters in front of the options (letter scorer only). ``references`` are the texts that count
    as right where there are no choices, as the scorer compares them. ``target`` is what the report says was expected:
    one text, or several of which each is right. ``continuation`` is the text that is scored after each option, where
    the suite says so.
    ``judged_with`` are further texts of the sample, by name, that its judgement depends on: the other reply of a pair,
    verdicts that were recorded, what a judge is told in the suite's own words. ``parts`` are what each of several
    scorers presents. ``turns`` are what is presented of each turn of a conversation, None of one that is not scored by
    itself; empty if only the last reply is scored. ``conversation`` is what was said before the reply that is judged,
    if there was more than one turn.
    """

    sample: Sample
    choices: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    target: str | tuple[str, ...] = ""
    continuation: str = ""
    prompt: Prompt = ""
    judged_with: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[PreparedSample, ...] = ()
    requests: tuple[Request, ...] = ()
    turns: tuple[PreparedSample | None, ...] = ()
    conversation: str = ""

    @property
    def tools(self) -> str:
        """Return the functions that the model may call, as the sample's request has them; empty if there are none."""
        return next((one.tools for one in self.requests if isinstance(one, GenerateRequest)), "")


# Scorers outside of this package import it by its earlier name.
Presented = PreparedSample


class SuiteView(Protocol):
    """The part of a ``Suite`` that a scorer may look at when it says whether the suite goes with it."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> Any: ...
    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def templates(self) -> Templates: ...
    @property
    def has_own_responses(self) -> bool: ...
    def place(self, sample: Sample) -> str: ...


class Scorer(ABC):
    """Turns a sample into requests, and their responses into a score. Pure: values in, values out.

    What is here serves scorers that judge one reply by the sample's targets; others override it. A class from outside
    need not derive from this one: it has ``name``, ``version``, ``metrics``, ``default_template``, ``present``,
    ``variables``, ``answer_text``, ``requests`` and ``score`` then (see ``CheckedScorer``).

    ``version``: raised whenever the same responses could get another score; part of a suite's fingerprint.
    ``metrics``: names of the metrics that its scores carry, in the order in which they are shown (see
    ``metrics/definitions.py``). ``better``: the better direction of those that are not defined there.
    ``default_template``: the prompt template of a suite that gives none.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer")

    @property
    def better(self) -> Mapping[str, Better]:
        return _NONE

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> PreparedSample:
        """Check the sample and choose what is shown. ``ValueError`` says in one line what is wrong with its data, a
        ``SettingsError`` with settings that it shows to be unusable.

        Here: a target is a text or a list of texts, the references.
        """
        texts = target_texts(sample)
        return PreparedSample(sample=sample, references=texts, target=several_or_one(texts))

    def variables(self, presented: PreparedSample) -> Mapping[str, object]:
        """Return names that this scorer adds to those that a prompt template can use; by default none."""
        return {}

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the answer that a few-shot example shows: the first target, as given."""
        return target_texts(presented.sample)[0]

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Return the requests that this sample needs: one reply. ``delimiter`` stands between the context and a scored
        option.

        ``ValueError`` says in one line why this prompt cannot be asked.
        """
        return (reply_request(prompt, generate),)

    @abstractmethod
    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge the responses, one for each request and in their order."""

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Judge as ``score`` does, step by step: a scorer with ``roles`` yields what it asks the models of these."""
        yield from ()
        return self.score(presented, responses)

    @property
    def roles(self) -> frozenset[Role]:
        """Return the roles of the models that it asks, besides the one that is evaluated."""
        return frozenset()

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        """Return why the suite does not go with this scorer, and the keys that say so; None if it does."""
        return None

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        """Return why its numbers on these samples mean little: sentences, each with the keys below ``score``."""
        return []

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        """Return a template that is rendered as each sample's ``PreparedSample.continuation``, and its keys; None for
        none.
        """
        return None

    def options(self, presented: PreparedSample) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the options of an answer and the indices of the right ones; both empty if the answer is free text."""
        return presented.labels or presented.choices, presented.right

    @property
    def tells_right_from_wrong(self) -> bool | None:
        """Tell whether its scores say what is right; None where only they will show it."""
        return "accuracy" in self.metrics

    @property
    def scores_recorded_replies(self) -> bool:
        """Tell whether it says something of replies that the data hold, and of no model's."""
        return False

    @property
    def reads_documents(self) -> bool:
        """Tell whether it judges the documents that a search found, and no text."""
        return False

    def judges(self) -> list[str]:
        """Return its lines of ``judged_by`` on the models that it asks. Raise ``ValueError`` if one is no text."""
        return []

    def versions(self) -> list[JSON]:
        """Return its name and version, with those of what is inside it: part of a suite's fingerprint."""
        return [self.name, self.version]


_NONE: Mapping[str, Better] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SettingsScorer(Scorer, Generic[S]):
    """A scorer with the settings that a suite gives it, and their name."""

    settings: S

    @classmethod
    def of(cls, settings: S) -> Self:
        """Return the scorer with these settings. ``ValueError``, or ``SettingsError``, where they cannot be used."""
        return cls(settings)

    @property
    def name(self) -> str:
        return self.settings.kind


class AskingScorer(SettingsScorer[S]):
    """Base of the scorers that ask another model in the midst of their judgement, in ``asking``."""

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge without asking another model. Raise ``ModelError`` if it has to ask one."""
        return score_without_judge(self.asking(presented, responses))

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset(("judge",))

    @abstractmethod
    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps: ...


def score_without_judge(asking: Generator[Ask, Any, _T]) -> _T:
    """Run a scorer that must not ask another model, and return its score. Raises ``ModelError`` if it asks."""
    try:
        asked = next(asking)
    except StopIteration as stop:
        found: _T = stop.value
        return found
    asking.close()
    raise ModelError(f"the scorer asks the {asked.role}, and there is none")


def side_by_side(
    askings: Sequence[Generator[Ask, Sequence[Response | Failed], _T]],
) -> Generator[Ask, Sequence[Response | Failed], list[_T]]:
    """Run several judgements at the same time and return their results; requests for one role are asked together."""
    found: dict[int, _T] = {}
    waiting: dict[int, Ask] = {}

    def advance(place: int, answers: Sequence[Response | Failed] | None) -> None:
        asking = askings[place]
        try:
            waiting[place] = next(asking) if answers is None else asking.send(answers)
        except StopIteration as stop:
            found[place] = stop.value

    try:
        for place in range(len(askings)):
            advance(place, None)
        while waiting:
            first = next(iter(waiting.values()))
            asked = {place: waiting.pop(place) for place, ask in list(waiting.items()) if _is_for_same(ask, first)}
            requests = tuple(request for ask in asked.values() for request in ask.requests)
            unusable = tuple(request for ask in asked.values() for request in ask.unusable)
            answers = yield Ask(first.role, requests, first.judge, unusable)
            start = 0
            for place, ask in asked.items():
                advance(place, answers[start : start + len(ask.requests)])
                start += len(ask.requests)
    finally:
        for asking in askings:
            asking.close()
    return [found[place] for place in range(len(askings))]


def _is_for_same(ask: Ask, other: Ask) -> bool:
    return ask.role == other.role and ask.judge == other.judge


def reply_request(
    prompt: Prompt, generate: GenerateSpec, *, max_tokens: int | None = None, default: int | None = None
) -> GenerateRequest:
    """Return the request for one reply, as the suite's ``generate`` says, or with a ``max_tokens`` of the scorer's own.

    ``default`` are the tokens where neither says how many.
    """
    if max_tokens is None and "max_tokens" not in generate.model_fields_set:
        max_tokens = default
    return GenerateRequest(
        prompt,
        max_tokens=generate.max_tokens if max_tokens is None else max_tokens,
        stop=generate.stop,
        temperature=generate.temperature,
        seed=generate.seed,
        top_p=generate.top_p,
        top_k=generate.used_top_k,
        repetition_penalty=generate.repetition_penalty,
    )
