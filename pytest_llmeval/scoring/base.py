"""What a scorer is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_llmeval.suites.format.schema import GenerateSpec
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import GenerateRequest, Prompt, Request, Response, Sample, Score

__all__ = ["Presented", "Scorer", "SettingsError", "reply_request"]


class SettingsError(ValueError):
    """Settings of a suite that cannot be used, with the keys at which they stand."""

    def __init__(self, message: str, keys: Keys) -> None:
        self.keys = keys
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """A sample as a scorer shows it to the model: checked, excluded options left out, options in the order shown.

    ``right`` are indices into ``choices``; ``order[i]`` is where the i-th option shown stands among the sample's own.
    ``labels`` are the letters in front of the options (letter scorer only). ``references`` are the texts that count
    as right where there are no choices, as the scorer compares them. ``target`` is what the report says was expected:
    one text, or several of which each is right. ``continuation`` is the text that is scored after each option, where
    the suite says so. ``prompt`` is what was rendered for the sample, empty until then.
    ``parts`` are what each of several scorers presents.
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
    parts: tuple[Presented, ...] = ()


class Scorer(Protocol):
    """Turns a sample into requests, and their responses into a score. Pure: values in, values out.

    ``version``: raised whenever the same responses could get another score; part of a suite's fingerprint.
    ``metrics``: names of the metrics that its scores carry, in the order in which they are shown (see ``metrics.py``).
    ``default_template``: the prompt template of a suite that gives none.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def default_template(self) -> str: ...

    def present(self, sample: Sample) -> Presented:
        """Check the sample and choose what is shown. ``ValueError`` says in one line what is wrong with its data."""

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """Names that this scorer adds to those that a prompt template can use."""

    def answer_text(self, presented: Presented) -> str:
        """What a few-shot example shows as its answer."""

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """The requests that this sample needs. ``delimiter`` stands between the context and a scored option.

        ``ValueError`` says in one line why this prompt cannot be asked.
        """

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Judge the responses, one for each request and in their order."""


def reply_request(prompt: Prompt, generate: GenerateSpec, *, max_tokens: int | None = None) -> GenerateRequest:
    """The request for one reply, as the suite's ``generate`` says, or with a ``max_tokens`` of the scorer's own."""
    return GenerateRequest(
        prompt,
        max_tokens=generate.max_tokens if max_tokens is None else max_tokens,
        stop=generate.stop,
        temperature=generate.temperature,
        seed=generate.seed,
        top_p=generate.top_p,
    )
