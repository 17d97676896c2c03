"""Scorers that a user registers from Python: functions that judge a reply, and classes whose results are checked."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, get_args

from pydantic import Field

from pytest_llmeval.data.code_version import JUDGED_BY, version_of_class, version_of_function
from pytest_llmeval.errors import LeftOutError, RequestError
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.models.python.importing import signature_of
from pytest_llmeval.scoring.base import Better, PreparedSample, Scorer, ScorerSettings, SettingsError, SuiteView
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.references import quote, several_or_one, target_texts
from pytest_llmeval.scoring.responses import reply, status_of_credit
from pytest_llmeval.text.wording import Keys, expected_one_of
from pytest_llmeval.types import (
    JSON,
    GenerateRequest,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    NotMeasurable,
    Prompt,
    Request,
    Response,
    Role,
    Sample,
    Score,
    Status,
    as_builtin,
    finite_number,
)

__all__ = [
    "CheckedScorer",
    "CustomScorer",
    "CustomSettings",
    "ReplyJudge",
    "described",
    "judges_of",
    "make_custom_scorer",
    "one_line",
]

_T = TypeVar("_T")
_VALUES = ("name", "version", "metrics", "default_template")
_METHODS = ("present", "variables", "answer_text", "requests", "score")
_PROTOCOL = (*_VALUES, *_METHODS)
_MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class CheckedScorer(Scorer):
    """A scorer of a user's class, whose methods may raise anything and return values of a wrong type.

    ``label`` is the name under which it is registered. The class must have what ``_PROTOCOL`` names; the rest it may
    leave out, or inherit from ``Scorer``. Either fault of a method becomes an error that names the scorer, and that
    callers of ``Scorer`` expect: ``ValueError``, ``SettingsError``, or ``RequestError`` for ``score``.
    """

    label: str
    inner: Any

    @property
    def name(self) -> str:
        return self.inner.name  # type: ignore[no-any-return]

    @property
    def version(self) -> int:
        """Return the class's own version, or a checksum of its sources where it names none."""
        kind = type(self.inner)
        is_named = getattr(kind, "version", None) is not Scorer.version
        return self.inner.version if is_named else version_of_class(kind)

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self.inner.metrics)

    @property
    def better(self) -> Mapping[str, Better]:
        return getattr(self.inner, "better", {})

    @property
    def tells_right_from_wrong(self) -> bool | None:
        """Return what the class says, else True if it names accuracy, else None: then its scores show it."""
        if self._overrides("tells_right_from_wrong"):
            return self.inner.tells_right_from_wrong  # type: ignore[no-any-return]
        return True if "accuracy" in self.metrics else None

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        return self._called("extra_template", lambda: _with_keys(getattr(self.inner, "extra_template", None)), _refused)

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        if not self._overrides("suite_problem"):
            return None
        return self._called("suite_problem", lambda: _with_keys(self.inner.suite_problem(suite)), _refused)

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        if not self._overrides("warnings"):
            return []
        found = self._called("warnings", lambda: [_with_keys(one) for one in self.inner.warnings(samples)], _refused)
        return [one for one in found if one is not None]

    def options(self, presented: PreparedSample) -> tuple[tuple[str, ...], tuple[int, ...]]:
        if not self._overrides("options"):
            return Scorer.options(self, presented)
        options, right = self._called("options", lambda: map(tuple, self.inner.options(presented)), ValueError)
        return options, right

    def judges(self) -> list[str]:
        """Return what the class says in ``judged_by``, or its own method. Raise ``ValueError`` for what is not text."""
        if not self._overrides("judges"):
            return judges_of(self.label, self.inner)
        found = self._checked("judges", self.inner.judges, list, ValueError)
        return [text for judge in found for text in judges_of(self.label, SimpleNamespace(judged_by=judge))]

    def versions(self) -> list[JSON]:
        """Return the name and the version, or what the class says. Raise ``SettingsError`` for what is not JSON."""
        if not self._overrides("versions"):
            return Scorer.versions(self)
        return self._checked("versions", lambda: json.loads(json.dumps(self.inner.versions())), list, _refused)

    @property
    def default_template(self) -> str:
        return self.inner.default_template  # type: ignore[no-any-return]

    def present(self, sample: Sample) -> PreparedSample:
        return self._checked("present", lambda: self.inner.present(sample), PreparedSample, ValueError)

    def variables(self, presented: PreparedSample) -> Mapping[str, object]:
        return self._called("variables", lambda: {**self.inner.variables(presented)}, _refused)

    def answer_text(self, presented: PreparedSample) -> str:
        return self._checked("answer_text", lambda: self.inner.answer_text(presented), str, ValueError)

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        requests: tuple[Request, ...] = self._checked(
            "requests",
            lambda: self.inner.requests(presented, prompt, delimiter=delimiter, generate=generate),
            tuple,
            ValueError,
        )
        for request in requests:
            if not isinstance(request, GenerateRequest | LoglikelihoodRequest | LoglikelihoodRollingRequest):
                raise ValueError(f"the scorer {self.label}: requests returned a tuple with {quote(request)} in it")
        return requests

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        return self._checked("score", lambda: self.inner.score(presented, responses), Score, RequestError)

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Ask as the class's own ``asking`` does, or by ``score``."""
        if not self._overrides("asking"):
            return self.score(presented, responses)
        score = yield from self.inner.asking(presented, responses)
        return self._checked("asking", lambda: score, Score, RequestError)

    @property
    def scores_recorded_replies(self) -> bool:
        return bool(self.inner.scores_recorded_replies) if self._overrides("scores_recorded_replies") else False

    @property
    def reads_documents(self) -> bool:
        return bool(self.inner.reads_documents) if self._overrides("reads_documents") else False

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset(self.inner.roles) if self._overrides("roles") else frozenset()

    def _overrides(self, name: str) -> bool:
        """Return whether the class itself has what ``Scorer`` has for every scorer."""
        return hasattr(self.inner, name) and getattr(type(self.inner), name, None) is not getattr(Scorer, name)

    def _called(self, method: str, call: Callable[[], _T], refused: Callable[[str], Exception]) -> _T:
        try:
            return call()
        except (LeftOutError, SettingsError):
            raise
        except Exception as error:
            if type(error) in (ValueError, RequestError) and method != "score":  # errors that ``Scorer`` documents
                raise refused(f"the scorer {self.label}: {one_line(error)}") from error
            raise refused(f"the scorer {self.label}: {method} raised {described(error)}") from error

    def _checked(
        self, method: str, call: Callable[[], object], expected: type[_T], refused: Callable[[str], Exception]
    ) -> _T:
        found = self._called(method, call, refused)
        if isinstance(found, expected):
            return found
        raise refused(
            f"the scorer {self.label}: {method} returned a {type(found).__name__}, expected a {expected.__name__}"
        )


def _refused(message: str) -> SettingsError:
    return SettingsError(message, ("score",))


def _with_keys(found: Any) -> tuple[str, Keys] | None:
    """Return a text and its keys, as a class gave them, or None. Raise ``TypeError`` for anything else."""
    if found is None:
        return None
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[0], str):
        raise TypeError(f"expected a text and a tuple of keys, found {quote(found)}")
    text, keys = found
    if not isinstance(keys, tuple | list):
        raise TypeError(f"expected a tuple of keys, found {quote(keys)}")
    return text, tuple(keys)


def _protocol_problem(scorer: object) -> str | None:
    """Say in a few words what a scorer lacks of the methods of ``Scorer``."""
    missing = [part for part in _PROTOCOL if not hasattr(scorer, part)]
    if missing:
        return f"has no {', '.join(missing)}, which a scorer has"
    values: dict[str, object] = {part: getattr(scorer, part) for part in _PROTOCOL}
    for part, kind, expected in (
        ("name", str, "text"),
        ("version", int, "a whole number"),
        ("default_template", str, "text"),
    ):
        if not isinstance(values[part], kind):
            return f"has the {part} {quote(values[part])}, expected {expected}"
    metrics = values["metrics"]
    if not isinstance(metrics, tuple | list) or not all(isinstance(name, str) for name in metrics):
        return f"has the metrics {quote(metrics)}, expected a tuple of names"
    uncallable = [part for part in _METHODS if not callable(values[part])]
    return f"has {uncallable[0]}, which is not a method" if uncallable else None


def judges_of(name: str, owner: object) -> list[str]:
    """Return what the scorer ``name`` says in ``judged_by`` (``ReplyJudge``). Raise ``ValueError`` for what is not
    text.
    """
    found = getattr(owner, JUDGED_BY, None)
    if found is None:
        return []
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"the scorer {name}: {JUDGED_BY} is {quote(found)}, expected text that names the judge")
    return [found]


def _check_better(name: str, scorer: object) -> None:
    """Raise ``ValueError`` for an attribute ``better`` that does not say higher or lower of each metric."""
    found = getattr(scorer, "better", {})
    if not isinstance(found, Mapping) or not all(way in get_args(Better) for way in found.values()):
        raise ValueError(f"score.{name}: better is {quote(found)}, expected higher or lower for each metric")


def described(error: BaseException) -> str:
    text = one_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(error: BaseException) -> str:
    """Return what an exception of a user's code says, on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


class CustomSettings(ScorerSettings):
    """A scorer that is registered from Python under ``name``; ``settings`` are its keyword arguments."""

    kind: Literal["custom"] = "custom"
    name: str
    settings: dict[str, Any] = Field({}, description="Keyword arguments of what is registered.")


ReplyJudge = Callable[..., object]
"""A function of ``reply``, ``target`` and ``sample``, as many of them as it names, and of settings.

It returns True or False; None where the reply holds no answer; a number, which is a score with no right or wrong; a
mapping of metric names to numbers, of which ``accuracy`` (1 or 0) says whether the reply is right; or a ``Score``.
``NotMeasurable(reason)`` in the place of a number says that this metric has no meaning for this sample; returned alone
it says that no metric has. A number that is merely left out fails the gates on its metric. Attributes ``metrics`` and
``better`` may name its metrics and their better directions: ``("distance",)`` and ``{"distance": "lower"}``. With an
attribute ``needs_text`` it is only asked of samples whose target is text or a number, or a list of these.

A function, or a class with the methods of ``Scorer``, that asks a model says which in ``judged_by``: text that
names the model and all of its settings, such as ``"gpt-x-2026-05, temperature 0, prompt 3"``. Numbers of two judges are
not compared with each other: a baseline of another judge is refused. The text is no part of the suite's fingerprint,
but the source file of the scorer is. So that another judge changes the judge alone, read the text from the environment
or from another file.
"""

_OFFERED = ("reply", "target", "sample")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class CustomScorer(Scorer):
    """A scorer that asks for a reply and has a function judge it. ``label`` is the name that it is registered by."""

    label: str
    judge: ReplyJudge
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.label

    @property
    def version(self) -> int:
        """Return a checksum of the function's sources and of its attribute ``version``; part of a fingerprint."""
        return version_of_function(self.judge)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return what the function's attribute ``metrics`` names; without one, what its scores turn out to carry."""
        return tuple(getattr(self.judge, "metrics", ()))

    @property
    def better(self) -> Mapping[str, Better]:
        return getattr(self.judge, "better", {})

    @property
    def tells_right_from_wrong(self) -> bool | None:
        """Return True if the function names accuracy, False if it names other metrics only or returns a number
        (``-> float``), else None: then its scores show it.
        """
        if "accuracy" in self.metrics:
            return True
        return False if self.metrics or _returns_number(self.judge) else None

    def judges(self) -> list[str]:
        return judges_of(self.label, self.judge)

    def present(self, sample: Sample) -> PreparedSample:
        """Return the sample as it is, with its target as text. The target may be of any kind, or missing.

        Raise ``ValueError`` for a target that is no text, where the function needs one.
        """
        if getattr(self.judge, "needs_text", False):
            return PreparedSample(sample=sample, target=several_or_one(target_texts(sample)))
        targets = sample.target if isinstance(sample.target, list) else [sample.target]
        texts = [target if isinstance(target, str) else str(target) for target in targets if target is not None]
        return PreparedSample(sample=sample, target=several_or_one(texts) if texts else "")

    def answer_text(self, presented: PreparedSample) -> str:
        return presented.target if isinstance(presented.target, str) else presented.target[0]

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Return the function's judgement as a score. Raise ``RequestError``, which names the scorer, if the function
        raises, or returns something that is no judgement.
        """
        text = reply(responses)
        sample = presented.sample
        offered = {"reply": text, "target": sample.target, "sample": sample}
        names = _parameters(self.judge)
        wanted = {name: offered[name] for name in _OFFERED if name in names}
        if not wanted:  # its parameters have other names: they get the reply and the target, in this order
            positional = [text, sample.target][: _num_positional(self.judge)]
            return self._meaning(text, lambda: self.judge(*positional, **self.settings))
        return self._meaning(text, lambda: self.judge(**wanted, **self.settings))

    def _meaning(self, text: str, call: Callable[[], object]) -> Score:
        try:
            found = as_builtin(call())
        except RequestError as error:
            if isinstance(error, LeftOutError) or getattr(self.judge, "needs_text", False):
                raise
            raise RequestError(f"the scorer {self.name}: {one_line(error)}") from error
        except Exception as error:
            raise RequestError(f"the scorer {self.name} raised {described(error)}") from error
        if isinstance(found, Score):
            return found
        if isinstance(found, NotMeasurable):
            return Score(status="scored", answer=text.strip(), not_measurable={WILDCARD: found.reason})
        if found is None:
            return Score(status="wrong", no_answer=True, values={"accuracy": 0.0})
        if isinstance(found, bool):
            return Score(status="correct" if found else "wrong", answer=text.strip(), values={"accuracy": float(found)})
        if isinstance(found, int | float):
            return self._scored(text, {"score": found})
        if isinstance(found, Mapping) and found:
            return self._scored(text, found)
        returned = "an empty mapping" if isinstance(found, Mapping) else f"a {type(found).__name__}"
        raise RequestError(
            f"the scorer {self.name} returned {returned}, expected True or False, a number, None, a "
            "mapping of metrics, NotMeasurable, or a Score"
        )

    def _scored(self, text: str, found: Mapping[Any, object]) -> Score:
        reasons = {
            self._metric_name(name): value.reason for name, value in found.items() if isinstance(value, NotMeasurable)
        }
        values = {
            self._metric_name(name): self._number(name, value) for name, value in found.items() if name not in reasons
        }
        right = values.get("accuracy")
        if right not in (None, 0.0, 1.0):
            raise RequestError(
                f"the scorer {self.name}: accuracy is {right!r}, expected 1 or 0, for right or wrong; give a "
                "share another name"
            )
        status: Status = "scored" if right is None else status_of_credit(right)
        return Score(status=status, answer=text.strip(), values=values, not_measurable=reasons)

    def _metric_name(self, name: object) -> str:
        if isinstance(name, str) and name and name == name.strip() and name.isprintable():
            return name
        raise RequestError(
            f"the scorer {self.name}: {quote(name)} is not a valid name of a metric, expected text on one line without "
            "white space at its ends"
        )

    def _number(self, name: object, value: object) -> float:
        number = finite_number(value)
        if number is None:
            raise RequestError(f"the scorer {self.name}: {name} is {quote(value)}, expected a finite number")
        return number


def make_custom_scorer(settings: CustomSettings, scorers: Mapping[str, Callable[..., Any]]) -> Scorer:
    """Make the scorer that is registered under the settings' name.

    A class with the methods of ``Scorer`` is made with the settings as keyword arguments; anything else that can be
    called is a ``ReplyJudge``. Raise ``ValueError``, which says which setting does not fit, or is missing.
    """
    name, given = settings.name, settings.settings
    registered = scorers[name]
    is_scorer = isinstance(registered, type) and all(hasattr(registered, part) for part in ("requests", "score"))
    known = _parameters(registered) if is_scorer else _settings_of(registered)
    takes_any = any(part.kind is part.VAR_KEYWORD for part in _all_parameters(registered))
    for key in given:
        if key not in known and (not takes_any or (not is_scorer and key in _OFFERED)):
            raise ValueError(f"unknown key {quote(key)} in score.{name}{expected_one_of(key, known)}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in given:
            raise SettingsError(f"the setting {quote(key)} is missing", (name,))
    if not is_scorer:
        _check_better(name, registered)
        return CustomScorer(name, registered, dict(given))
    try:
        scorer = registered(**given)
        problem = _protocol_problem(scorer)
    except Exception as error:
        raise ValueError(f"score.{name}: {described(error)}") from None
    if problem is not None:
        raise ValueError(f"score.{name}: the class {registered.__name__} {problem}")
    _check_better(name, scorer)
    return CheckedScorer(name, scorer)


def _returns_number(judge: ReplyJudge) -> bool:
    """Return whether a function says that it returns a number, and so never that a reply is right: ``-> float``."""
    signature = signature_of(judge)
    return signature is not None and signature.return_annotation in (float, int, "float", "int")


def _all_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    signature = signature_of(function)
    return [] if signature is None else list(signature.parameters.values())


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {part.name: part for part in _all_parameters(function) if part.kind in named}


def _num_positional(function: Callable[..., object]) -> int:
    """Return how many of reply and target, in this order, a function takes that names neither."""
    parameters = _all_parameters(function)
    required = [part for part in parameters if part.kind in _POSITIONAL and part.default is part.empty]
    if required or not parameters:
        return min(len(required), 2) or 2  # a function whose signature is not known is given both
    if any(part.kind is part.VAR_POSITIONAL for part in parameters):
        return 2
    return min(sum(part.kind in _POSITIONAL for part in parameters), 2)


def _settings_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function that a suite gives values to."""
    named = _parameters(function)
    if any(name in named for name in _OFFERED):
        return {name: part for name, part in named.items() if name not in _OFFERED}
    positional = [part for part in _all_parameters(function) if part.kind in _POSITIONAL]
    taken = {part.name for part in positional[: _num_positional(function)]}
    return {name: part for name, part in named.items() if name not in taken}
