"""Scorers written in Python: a function that judges one reply, or a class of the Scorer Protocol.

They are registered by name, through an entry point of the group ``pytest_llmeval.scorers`` or the hook
``pytest_llmeval_scorers`` of a conftest.py, and a suite uses the name: ``score: {within: {tolerance: 0.1}}``.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_llmeval.errors import RequestError
from pytest_llmeval.scoring.base import Presented, Scorer, reply_request
from pytest_llmeval.scoring.responses import reply
from pytest_llmeval.scoring.targets import quote, several_or_one
from pytest_llmeval.suites.prompt_spec import GenerateSpec
from pytest_llmeval.suites.score_settings import CustomSettings
from pytest_llmeval.suites.wording import expected_one_of
from pytest_llmeval.types import Prompt, Request, Response, Sample, Score

__all__ = ["CustomScorer", "ReplyJudge", "make_custom_scorer"]

ReplyJudge = Callable[..., object]
"""A function of ``reply``, ``target`` and ``sample``, as many of them as it names, and settings with defaults.

It returns True or False; None where the reply holds no answer; a number, which is a score with no right or wrong; a
mapping of metric names to numbers, of which ``accuracy`` (1 or 0) says whether the reply is right; or a ``Score``.
"""

_OFFERED = ("reply", "target", "sample")


@dataclass(frozen=True, slots=True)
class CustomScorer:
    """Asks for a reply and has a function judge it."""

    name: str
    judge: ReplyJudge
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The function's attribute ``version``, else a checksum of its source, else 1; part of a fingerprint."""
        declared = getattr(self.judge, "version", None)
        if isinstance(declared, int):
            return declared
        try:
            return zlib.crc32(inspect.getsource(self.judge).encode())
        except (OSError, TypeError):
            return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        """What the function's attribute ``metrics`` names; without one, what its scores turn out to carry."""
        return tuple(getattr(self.judge, "metrics", ()))

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """The sample as it is. A target can be anything that YAML can write."""
        targets = sample.target if isinstance(sample.target, list) else [sample.target]
        texts = [target if isinstance(target, str) else str(target) for target in targets if target is not None]
        return Presented(sample=sample, target=several_or_one(texts) if texts else "")

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The target, or the first of several."""
        return presented.target if isinstance(presented.target, str) else presented.target[0]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One reply, generated as the suite's ``generate`` says."""
        return (reply_request(prompt, generate),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """What the function says. ``RequestError``, which names the function, for what it raises or cannot mean."""
        text = reply(responses)
        sample = presented.sample
        offered = {"reply": text, "target": sample.target, "sample": sample}
        names = _parameters(self.judge)
        wanted = {name: offered[name] for name in _OFFERED if name in names}
        if not wanted:  # of other names: the reply and the target, in this order
            positional = [text, sample.target][: _num_positional(self.judge)]
            return self._meaning(text, lambda: self.judge(*positional, **self.settings))
        return self._meaning(text, lambda: self.judge(**wanted, **self.settings))

    def _meaning(self, text: str, call: Callable[[], object]) -> Score:
        try:
            found = call()
        except Exception as error:
            raise RequestError(f"the scorer {self.name} raised {type(error).__name__}: {error}") from error
        if isinstance(found, Score):
            return found
        if found is None:
            return Score(status="wrong", no_answer=True, values={"accuracy": 0.0})
        if hasattr(found, "item") and getattr(found, "size", 1) in (1, ()):  # numpy's and torch's own bools and floats
            found = found.item()
        if isinstance(found, bool):
            return Score(status="correct" if found else "wrong", answer=text.strip(), values={"accuracy": float(found)})
        if isinstance(found, int | float):
            return self._scored(text, {"score": float(found)})
        if isinstance(found, Mapping) and all(isinstance(name, str) for name in found):
            return self._scored(text, found)
        raise RequestError(
            f"the scorer {self.name} returned a {type(found).__name__}, expected True or False, a number, None, a "
            "mapping of metrics, or a Score"
        )

    def _scored(self, text: str, found: Mapping[str, object]) -> Score:
        values: dict[str, float] = {}
        for name, value in found.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise RequestError(f"the scorer {self.name}: {name} is {value!r}, expected a finite number")
            values[name] = float(value)
        right = values.get("accuracy")
        if right is None:
            return Score(status="scored", answer=text.strip(), values=values)
        return Score(status="correct" if right == 1.0 else "wrong", answer=text.strip(), values=values)


def make_custom_scorer(settings: CustomSettings, scorers: Mapping[str, Callable[..., Any]]) -> Scorer:
    """The scorer that is registered under the settings' name.

    A class of the Scorer Protocol is made with the settings as keyword arguments; anything else that can be called is
    a ``ReplyJudge``. ``ValueError`` says which setting does not fit.
    """
    name, given = settings.name, settings.settings
    registered = scorers[name]
    is_scorer = isinstance(registered, type) and all(hasattr(registered, part) for part in ("requests", "score"))
    known = _parameters(registered)
    if not is_scorer:
        known = {key: part for key, part in known.items() if key not in _OFFERED and part.default is not part.empty}
    takes_any = any(part.kind is part.VAR_KEYWORD for part in _all_parameters(registered))
    for key in given:
        if key not in known and not takes_any:
            raise ValueError(f"unknown key {quote(key)} in score.{name}{expected_one_of(key, known)}")
    if not is_scorer:
        return CustomScorer(name, registered, dict(given))
    try:
        scorer: Scorer = registered(**given)
    except Exception as error:
        raise ValueError(f"score.{name}: {type(error).__name__}: {error}") from None
    return scorer


def _all_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return []


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {part.name: part for part in _all_parameters(function) if part.kind in named}


def _num_positional(function: Callable[..., object]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [part for part in _all_parameters(function) if part.kind in kinds and part.default is part.empty]
    return len(required) or 2
