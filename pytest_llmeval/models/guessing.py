"""Models that guess: ``random`` picks an answer for each sample, ``majority`` always gives the commonest one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from pytest_llmeval.errors import OptionError, RequestError
from pytest_llmeval.models.base import Failed, Model, SampleBackend
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec, split_arguments
from pytest_llmeval.types import (
    IS_KNOWN,
    JSON,
    AskedSample,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    ModelIdentity,
    Response,
)

__all__ = ["Guessing", "GuessingModel"]

_BEHIND = -1e-300
"""The log-likelihood of an option that was not picked. The one that was has 0: divided by whatever length, it stays
ahead, and the probabilities of all options come out equal.
"""


class Guessing(ModelKind):
    """``--llm-model random``, with ``?seed=1``, and ``majority``."""

    budgeting = "free"
    has_secrets = False
    needs_location = False
    roles = ()  # it answers samples, not prompts

    def __init__(self, name: Literal["random", "majority"]) -> None:
        self.name: Literal["random", "majority"] = name
        self.usage = name
        self.arguments = ("seed",) if name == "random" else ()

    def recognizes(self, text: str) -> bool:
        return split_arguments(text)[0] == self.name

    def parse(self, text: str) -> ModelSpec:
        spec = super().parse(text)
        seed = spec.arguments.get("seed", 0)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise OptionError(f"--llm-model {spec.name}: seed is {seed!r}, expected a whole number")
        return replace(spec, arguments={"seed": seed})

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        return GuessingModel(spec.name, self.name, cast("int", spec.arguments["seed"]))

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        return "guessing"


@dataclass(slots=True)
class _Answers:
    """Counts of right answers in a suite: by place among the options, by option, and by text.

    ``texts`` gives each text that counts as right, as the scorer compares it, the form in which it is to be written.
    """

    places: Counter[int] = field(default_factory=Counter)
    options: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)


class GuessingModel(SampleBackend):
    """Guesses among a sample's options, else among the texts that are right somewhere in its suite.

    ``random`` picks each option with the same probability, by ``seed``, suite, sample and epoch. ``majority`` gives
    what is right most often in the whole suite, selected or not (of equals, the one that comes first): for options that
    are scored the place, for labels and texts the text. Options that are scored get equal probabilities, with the pick
    minimally ahead: its Brier score is that of equal probabilities.
    """

    def __init__(self, name: str, kind: Literal["random", "majority"], seed: int = 0) -> None:
        details: dict[str, JSON] = {IS_KNOWN: True, **({"seed": seed} if kind == "random" else {})}
        super().__init__(ModelIdentity(name=name, backend="guessing", fingerprint=f"{kind}:{seed}", details=details))
        self._kind = kind
        self._seed = seed
        self._suites: dict[str, _Answers] = {}

    def prepare(self, suite: str, samples: Sequence[AskedSample], /) -> None:
        """Count what is right."""
        answers = self._suites[suite] = _Answers()
        for sample in samples:
            answers.places.update(sample.right)
            answers.options.update(sample.options[place] for place in sample.right)
            answers.keys.update(list(dict.fromkeys(sample.answer_keys)))
            for key, text in zip(sample.answer_keys, sample.answers, strict=True):
                answers.texts.setdefault(key, text)

    def answer(self, sample: AskedSample) -> Iterator[Response | Failed]:
        """See ``SampleBackend``. A ``RequestError`` where there is nothing to guess."""
        requests, options = sample.requests, sample.options
        scored = [request for request in requests if isinstance(request, LoglikelihoodRequest)]
        if len(scored) == len(requests) and len(options) > 1 and len(requests) % len(options) == 0:
            picked = self._place(sample)
            for index in range(len(requests)):
                # what follows the options' own requests is compared with: the same for all
                is_behind = index < len(options) and index != picked
                yield LoglikelihoodResponse(
                    loglikelihood=_BEHIND if is_behind else 0.0, num_tokens=1, is_greedy=index == picked
                )
            return
        for request in requests:
            if not isinstance(request, GenerateRequest):
                yield RequestError(f"{self._kind}: this suite measures how likely a text is, which cannot be guessed")
            elif (text := self._text(sample, request.epoch)) is None:
                yield RequestError(f"{self._kind}: this suite has no right answers to guess among")
            else:
                yield GenerateResponse(text=text)

    def _place(self, sample: AskedSample) -> int:
        if self._kind == "random":
            return self._draw(sample, 0).randrange(len(sample.options))
        counts = self._suites[sample.suite].places
        return max(range(len(sample.options)), key=lambda place: counts[place])

    def _text(self, sample: AskedSample, epoch: int) -> str | None:
        known = self._suites[sample.suite]
        if sample.options:
            if self._kind == "random":
                return self._draw(sample, epoch).choice(sample.options)
            return max(sample.options, key=lambda option: known.options[option])
        if not known.keys:
            return None
        if self._kind == "random":
            return known.texts[self._draw(sample, epoch).choice(list(known.keys))]
        return known.texts[known.keys.most_common(1)[0][0]]  # of equals the first that was counted

    def _draw(self, sample: AskedSample, epoch: int) -> random.Random:
        return random.Random(f"{self._seed}:{epoch}:{sample.suite}:{sample.id}")
