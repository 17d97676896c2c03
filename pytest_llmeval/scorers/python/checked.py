"""A scorer of a class that a user wrote, held to what a scorer promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar, get_args

from pytest_llmeval.data.code_version import JUDGED_BY, version_of_class
from pytest_llmeval.errors import LeftOutError, RequestError
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import Better, PreparedSample, Scorer, SettingsError, SuiteView
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import (
    JSON,
    GenerateRequest,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    Prompt,
    Request,
    Response,
    Role,
    Sample,
    Score,
)

__all__ = ["CheckedScorer", "check_better", "described", "judges_of", "one_line", "protocol_problem"]

_T = TypeVar("_T")


_VALUES = ("name", "version", "metrics", "default_template")


_METHODS = ("present", "variables", "answer_text", "requests", "score")


_PROTOCOL = (*_VALUES, *_METHODS)


_MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class CheckedScorer(Scorer):
    """A scorer of a user's class. What it raises, or returns of a wrong type, is an error of the sample that names it.

    ``label`` is the name under which it is registered. What ``_PROTOCOL`` does not name the class may leave out, or
    leave to ``Scorer``. Whatever a method raises becomes an error that ``Scorer`` lets it raise: ``ValueError``,
    ``SettingsError``, or ``RequestError`` for ``score``.
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
        """Return what the class says; of one that leaves it out and has no accuracy, its scores show it."""
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
    def is_about_data(self) -> bool:
        return bool(self.inner.is_about_data) if self._overrides("is_about_data") else False

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
            if type(error) in (ValueError, RequestError) and method != "score":  # what ``Scorer`` lets it say
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


def protocol_problem(scorer: object) -> str | None:
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


def check_better(name: str, scorer: object) -> None:
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
