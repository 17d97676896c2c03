"""A suite with its scorer: from a sample to requests, and from their responses to a score."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_args

from pytest_llmeval.scoring.base import Presented, Scorer
from pytest_llmeval.scoring.perplexity import prompt_problem
from pytest_llmeval.scoring.scorers import make_scorer
from pytest_llmeval.suites.loader import Suite
from pytest_llmeval.suites.prompts import render_prompt
from pytest_llmeval.suites.schema import PerplexitySettings
from pytest_llmeval.types import Prompt, Request, Response, Sample, Score

__all__ = ["Evaluation", "Question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A sample made ready for a model: what is shown, the prompt, and the requests."""

    presented: Presented
    prompt: Prompt
    requests: tuple[Request, ...]


class Evaluation:
    """Asks and judges the samples of one suite. Raises ``SuiteError`` for what the suite's author has to mend."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        try:
            self.scorer: Scorer = make_scorer(suite.spec.score)
        except ValueError as error:
            raise suite.error(str(error), keys=("score",)) from None
        problem = prompt_problem(suite.spec.prompt) if isinstance(suite.spec.score, PerplexitySettings) else None
        if problem is not None:
            raise suite.error(problem[0], keys=("prompt", *problem[1]))
        self.lengths: dict[str, int] = {}
        """Characters of each sample's longest request, by id; known once the fingerprints are."""
        self._shots: dict[str, tuple[Mapping[str, object], str]] = {}

    def question(self, sample: Sample) -> Question:
        """Render the sample's prompt and make its requests."""
        presented = self._present(sample)
        prompt = render_prompt(
            self.suite,
            sample,
            self._variables(presented),
            [self._shot(shot) for shot in self.suite.shots_for(sample)],
            self.scorer.default_template,
        )
        if presented.labels:
            self._check_options_are_shown(presented, prompt)
        try:
            requests = self.scorer.requests(
                presented, prompt, delimiter=self._delimiter, generate=self.suite.spec.generate
            )
        except ValueError as error:
            raise self.suite.error(str(error), sample) from None
        return Question(presented=replace(presented, prompt=prompt), prompt=prompt, requests=requests)

    @property
    def _delimiter(self) -> str:
        """What stands between prompt and option. By default nothing under a chat template, as in lm-eval."""
        prompt = self.suite.spec.prompt
        return "" if prompt.chat and "delimiter" not in prompt.model_fields_set else prompt.delimiter

    def _check_options_are_shown(self, presented: Presented, prompt: Prompt) -> None:
        """A letter of options that the prompt does not show means nothing."""
        text = prompt if isinstance(prompt, str) else "\n".join(turn.content for turn in prompt)
        for choice in presented.choices:
            if choice not in text:
                message = (
                    f"does not show the option {choice!r}: write {{{{ lettered_choices }}}} where the options belong"
                )
                raise self.suite.error(message, presented.sample, ("prompt", "template"))

    def score(self, question: Question, responses: Sequence[Response]) -> Score:
        """Judge the responses to the question's requests."""
        return self.scorer.score(question.presented, responses)

    def fingerprints(self) -> tuple[str, dict[str, str]]:
        """Fingerprint of the suite, and of each sample by id. Renders every prompt, so it also finds every bad sample.

        A sample's fingerprint hashes its requests, what is right, and the scorer with its version and settings; the
        suite's hashes those of its samples and their categories, whatever their order.
        """
        scorer = json.dumps([self.scorer.name, self.scorer.version, self.suite.spec.score.model_dump(mode="json")])
        samples = {}
        for sample in self.suite.samples:
            question = self.question(sample)
            samples[sample.id] = _sample_fingerprint(scorer, question)
            self.lengths[sample.id] = _length(question.requests)
        parts = sorted((sample.id, samples[sample.id], sample.category or "") for sample in self.suite.samples)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest(), samples

    def _present(self, sample: Sample) -> Presented:
        try:
            return self.scorer.present(sample)
        except ValueError as error:
            raise self.suite.error(str(error), sample) from None

    def _variables(self, presented: Presented) -> Mapping[str, object]:
        return {**presented.sample.variables, **self.scorer.variables(presented)}

    def _shot(self, shot: Sample) -> tuple[Mapping[str, object], str]:
        if shot.id not in self._shots:
            self._shots[shot.id] = self._presented_shot(shot)
        return self._shots[shot.id]

    def _presented_shot(self, shot: Sample) -> tuple[Mapping[str, object], str]:
        fewshot = self.suite.spec.prompt.fewshot
        try:
            presented = self.scorer.present(shot)
        except ValueError as error:
            if fewshot is None or fewshot.answer is None:
                raise self.suite.error(f"few-shot example: {error}", shot) from None
            # The suite says itself what the example answers, so it need not be a question that could be scored.
            return shot.variables, ""
        return self._variables(presented), self.scorer.answer_text(presented)


def _length(requests: Sequence[Request]) -> int:
    """Characters of the longest request."""
    longest = 0
    for request in requests:
        prompt, *others = _VALUES_OF[type(request)](request)
        read = len(prompt) if isinstance(prompt, str) else sum(len(turn.content) for turn in prompt)
        scored = len(others[0]) if others and isinstance(others[0], str) else 0
        longest = max(longest, read + scored)
    return longest


def _sample_fingerprint(scorer: str, question: Question) -> str:
    presented = question.presented
    prompts: dict[Prompt, int] = {}  # once each: all options of a sample follow the same
    asked = []
    for request in question.requests:
        prompt, *others = _VALUES_OF[type(request)](request)
        asked.append([type(request).__name__, prompts.setdefault(prompt, len(prompts)), *others])
    judged = [presented.choices, presented.right, presented.labels, presented.references]
    return hashlib.sha256(_ENCODER.encode([scorer, list(prompts), asked, judged]).encode()).hexdigest()


_ENCODER = json.JSONEncoder(default=astuple)
_VALUES_OF: Mapping[type, Callable[[Request], tuple[Any, ...]]] = MappingProxyType(
    {kind: attrgetter(*(field.name for field in fields(kind))) for kind in get_args(Request)}
)
"""The values of a request by its kind; the first is what the model reads."""
