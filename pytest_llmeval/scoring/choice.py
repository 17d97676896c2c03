"""Multiple choice by log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.calibration import CALIBRATION, calibration_values
from pytest_llmeval.scoring.metrics import skill
from pytest_llmeval.scoring.option_scores import (
    brier_sum,
    first_best,
    option_scores,
    options_problem,
    present_options,
    usable_normalizations,
)
from pytest_llmeval.scoring.responses import finite_or_none, loglikelihoods, softmax
from pytest_llmeval.scoring.targets import quote
from pytest_llmeval.suites.prompt_spec import GenerateSpec, PromptSpec
from pytest_llmeval.suites.score_settings.choices import ChoiceNormalize, ChoiceSettings, Normalize
from pytest_llmeval.suites.wording import Keys
from pytest_llmeval.types import (
    JSON,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = ["ChoiceScorer", "continuation_problem"]

_NORMALIZATIONS: tuple[Normalize, ...] = ("token", "sum", "char", "byte")


def continuation_problem(prompt: PromptSpec) -> tuple[str, Keys] | None:
    """What of a suite's ``prompt`` does not go with ``score.choice.continuation``, and its keys; None if all does."""
    if prompt.prefix and not prompt.chat:
        return "found text, but with score.choice.continuation the prompt ends with an option; remove it", ("prefix",)
    fewshot = prompt.fewshot
    if fewshot is not None and fewshot.count > 0 and fewshot.template is None:
        found = "found no template; with score.choice.continuation an example's template shows its right option"
        return f"{found}, such as '{{{{ choices[target] }}}}'", ("fewshot",)
    return None


@dataclass(frozen=True, slots=True)
class ChoiceScorer:
    """The likeliest option is the answer; a softmax over the options' scores is a distribution with a Brier score.

    With a ``continuation`` the options are ends of the prompt, and it is the text after them that is scored: what
    lm-eval 0.4.13 does where ``doc_to_text`` is an index (winogrande). Characters and bytes stay those of the options.
    """

    settings: ChoiceSettings

    @property
    def name(self) -> str:
        return "choice"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        accuracies = (f"accuracy_{name}" for name in self._normalizations)
        return ("accuracy", "skill", "brier", "brier_sum", *accuracies, *CALIBRATION, *self.settings.metrics)

    @property
    def _normalizations(self) -> tuple[ChoiceNormalize, ...]:
        return (*_NORMALIZATIONS, "pmi") if self.settings.normalize == "pmi" else _NORMALIZATIONS

    @property
    def default_template(self) -> str:
        if self.settings.continuation is not None:
            return "{{ question if question is defined else '' }}"
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """All choices in their order. ``ValueError``: fewer than two, an empty one, or a target that does not fit."""
        return present_options(sample)

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The first right option; the continuation where there is one."""
        if self.settings.continuation is not None:
            return presented.continuation
        return presented.choices[presented.right[0]]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One log-likelihood for each option; with ``normalize: pmi`` then one for each without a prompt.

        White space at the prompt's end is the backend's business, not ours. ``ValueError`` for an empty continuation.
        """
        choices = presented.choices
        if self.settings.continuation is not None:
            scored = presented.continuation
            if not scored.strip():
                raise ValueError("score.choice.continuation is empty: there is nothing whose likelihood could be taken")
            return tuple(LoglikelihoodRequest(_ended(prompt, choice), delimiter + scored) for choice in choices)
        asked = tuple(LoglikelihoodRequest(prompt, delimiter + choice) for choice in choices)
        if self.settings.normalize == "pmi":
            return (*asked, *(LoglikelihoodRequest("", delimiter + choice) for choice in choices))
        return asked

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy, skill, Brier score and calibration of the distribution; accuracy by each of the normalisations."""
        options, right = presented.choices, presented.right
        is_pmi = self.settings.normalize == "pmi"
        answered = loglikelihoods(responses, len(options) * (2 if is_pmi else 1))
        found, alone = answered[: len(options)], answered[len(options) :]
        details: dict[str, JSON] = {
            "loglikelihoods": [finite_or_none(response.loglikelihood) for response in found],
            "num_tokens": [response.num_tokens for response in found],
        }
        if is_pmi:
            details["loglikelihoods_alone"] = [finite_or_none(response.loglikelihood) for response in alone]
        problem = options_problem(options, found, self.settings.normalize) or _alone_problem(options, alone)
        if problem is not None:
            return Score(status="unscored", reason=problem, details=details)
        usable = usable_normalizations(found)
        by_name = {
            name: _scores(options, found, alone, name) for name in self._normalizations if name in (*usable, "pmi")
        }
        scores = _scores(options, found, alone, self.settings.normalize)
        probabilities = softmax(scores)
        details["probabilities"] = list(probabilities)
        top = first_best(scores)
        chance = len(right) / len(options)
        correct = float(top in right)
        squares = brier_sum(probabilities, right)
        values = {
            "accuracy": correct,
            "skill": skill(correct, chance),
            "brier": squares / len(options),
            "brier_sum": squares,
            **{f"accuracy_{name}": float(first_best(by_name[name]) in right) for name in by_name},
            **calibration_values(scores, right),
            **self._further_values(found, right, top),
        }
        return Score(
            status="correct" if correct else "wrong", answer=options[top], values=values, chance=chance, details=details
        )

    def _further_values(
        self, responses: Sequence[LoglikelihoodResponse], right: Sequence[int], top: int
    ) -> dict[str, float]:
        """What ``metrics`` needs. ``gold`` and ``predicted`` are the classes that a classification metric compares.

        Of several right options ``gold`` is the one predicted, else the first. ``greedy_match`` is 1 where
        greedy decoding writes a right option, which is lm-eval's ``exact_match`` of multiple choice.
        """
        values: dict[str, float] = {}
        greedy = [responses[index].is_greedy for index in right]
        if "greedy_match" in self.settings.metrics and (any(greedy) or None not in greedy):
            values["greedy_match"] = float(any(greedy))
        if any(name != "greedy_match" for name in self.settings.metrics):
            values["gold"] = float(top if top in right else right[0])
            values["predicted"] = float(top)
        return values


def _ended(prompt: Prompt, choice: str) -> Prompt:
    """The prompt with the choice at its end; of a chat, at the end of the last turn that is the user's."""
    if isinstance(prompt, str):
        return prompt + choice
    last = max((place for place, turn in enumerate(prompt) if turn.role == "user"), default=-1)
    if last < 0:
        raise ValueError("score.choice.continuation needs a turn of the user at whose end an option can stand")
    turn = replace(prompt[last], content=prompt[last].content + choice)
    return (*prompt[:last], turn, *prompt[last + 1 :])


def _scores(
    options: Sequence[str],
    found: Sequence[LoglikelihoodResponse],
    alone: Sequence[LoglikelihoodResponse],
    normalize: ChoiceNormalize,
) -> list[float]:
    """``option_scores``; for ``pmi`` log P(option | prompt) - log P(option), lm-eval's ``acc_mutual_info``."""
    if normalize != "pmi":
        return option_scores(options, found, normalize)
    return [given.loglikelihood - bare.loglikelihood for given, bare in zip(found, alone, strict=True)]


def _alone_problem(options: Sequence[str], alone: Sequence[LoglikelihoodResponse]) -> str | None:
    for option, response in zip(options, alone, strict=False):  # none without pmi
        if not math.isfinite(response.loglikelihood):
            return f"the loglikelihood of option {quote(option)} without a prompt is {response.loglikelihood}"
    return None
