"""Multiple choice by log-likelihood: the likeliest option is the answer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from pytest_llmeval.data.spec import FROM_LIST, refuse
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SuiteView
from pytest_llmeval.scoring.metrics.calibration import CALIBRATION, calibration_values, softmax
from pytest_llmeval.scoring.metrics.corpus_formulas import CLASSIFICATION
from pytest_llmeval.scoring.metrics.skill import skill
from pytest_llmeval.scoring.option_scores import (
    Normalize,
    OptionsScorer,
    Ranking,
    brier_sum,
    option_details,
    options_problem,
    rank,
    rank_by_each,
    unify_equal_options,
    usable_normalizations,
)
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import finite_or_none, loglikelihoods, status_of_credit
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse, Prompt, Request, Response, Score

__all__ = ["ChoiceMetric", "ChoiceNormalize", "ChoiceScorer", "ChoiceSettings"]

ChoiceNormalize: TypeAlias = Literal["token", "sum", "char", "byte", "pmi"]
ChoiceMetric: TypeAlias = Literal[
    "f1_binary", "f1_macro", "f1_micro", "f1_weighted", "mcc", "greedy_match", "accuracy_pmi"
]


class ChoiceSettings(ScorerSettings):
    """Multiple choice by log-likelihood."""

    kind: Literal["choice"] = "choice"
    needs_options = True
    normalize: ChoiceNormalize = Field(
        "token",
        description="What an option's loglikelihood is divided by; or pmi, from which the option's loglikelihood "
        "without a prompt is subtracted.",
    )
    continuation: str | None = Field(
        None,
        min_length=1,
        description="Template of a text that is scored instead of the options: each option ends the prompt, and this "
        "text follows it.",
    )
    metrics: Annotated[tuple[ChoiceMetric, ...], FROM_LIST] = Field(
        (),
        description="Further metrics: those of classification take the options' indices as classes; greedy_match is "
        "the share of samples for which greedy decoding writes a right option (lm-eval's exact_match); accuracy_pmi "
        "is the accuracy by pmi if normalize is something else.",
    )
    ties: Literal["share", "first"] = Field(
        "share",
        description="share: options that are equally likely share the credit, so that one right option of m is worth "
        "1/m. first: the first of them is the answer, as in lm-eval.",
    )

    @property
    def asks_options_alone(self) -> bool:
        """Tell whether options are scored without a prompt as well."""
        return self.normalize == "pmi" or "accuracy_pmi" in self.metrics

    def by_reply(self, works: Callable[[ScorerSettings], bool]) -> str:
        """Return a letter."""
        from pytest_llmeval.scorers.letter import LetterSettings  # its patterns take long to compile

        for shown, settings in (
            ("letter", LetterSettings()),
            ("{letter: {shuffle: false}}", LetterSettings(shuffle=False)),
        ):
            if works(settings):
                return f"write score: {shown}, which reads a letter in the reply"
        return "write score: letter and show {{ lettered_choices }} in prompt.template: it reads a letter"

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """Say why it stands alone if there is a continuation: then the options end the prompt."""
        if self.continuation is None:
            return None
        return "only score: choice takes a continuation", ("choice", "continuation")

    @model_validator(mode="after")
    def _options_are_scored_without_a_prompt(self) -> ChoiceSettings:
        if self.continuation is not None and self.asks_options_alone:
            found = "normalize 'pmi'" if self.normalize == "pmi" else "the metric accuracy_pmi"
            raise refuse(
                f"score.choice: found a continuation with {found}, which asks how likely an option is without a "
                "prompt; with a continuation the options are prompts themselves: remove one of the two (write "
                "continuation: null where a preset has it)"
            )
        return self

    def make(self) -> ChoiceScorer:
        return ChoiceScorer.of(self)


_NORMALIZATIONS: tuple[Normalize, ...] = ("token", "sum", "char", "byte")


class ChoiceScorer(OptionsScorer[ChoiceSettings]):
    """A scorer whose answer is the likeliest option; a softmax over the options' scores is a distribution with a Brier
    score.

    Where several options tie for the likeliest, they share the credit: of m of which r are right, the accuracy is r/m,
    and between 0 and 1 the sample is neither right nor wrong but ``scored``, as the mean of several epochs is. With
    ``ties: first`` the first of the highest scores is the answer, as in lm-eval; ``accuracy_first`` and its like count
    so in any case.

    With a ``continuation`` the options are ends of the prompt, and it is the text after them that is scored: what
    lm-eval 0.4.13 does where ``doc_to_text`` is an index (winogrande). Characters and bytes stay those of the options.
    """

    version = 2  # 2: ties share

    @property
    def metrics(self) -> tuple[str, ...]:
        accuracies = [f"accuracy_{name}" for name in self._normalizations]
        firsts = [f"{name}_first" for name in ("accuracy", *accuracies)]
        further = (name for name in self.settings.metrics if name not in accuracies)
        return ("accuracy", "skill", "brier", "brier_sum", *accuracies, *firsts, *CALIBRATION, *further, "ties")

    @property
    def _normalizations(self) -> tuple[ChoiceNormalize, ...]:
        return (*_NORMALIZATIONS, "pmi") if self.settings.asks_options_alone else _NORMALIZATIONS

    @property
    def default_template(self) -> str:
        if self.settings.continuation is not None:
            return "{{ question if question is defined else '' }}"
        return "{{ question }}"

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        """Refuse beside a continuation a prefix, as options end the prompt, and examples without a template."""
        prompt = suite.spec.prompt
        if self.settings.continuation is None:
            return None
        if prompt.prefix and not prompt.is_chat:
            found = "found text, but with score.choice.continuation the prompt ends with an option; remove it"
            return found, ("prompt", "prefix")
        fewshot = prompt.fewshot
        if fewshot is not None and fewshot.count > 0 and fewshot.template is None:
            found = "found no template; with score.choice.continuation an example's template shows its right option"
            return f"{found}, such as '{{{{ choices[target] }}}}'", ("prompt", "fewshot")
        return None

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        source = self.settings.continuation
        return None if source is None else (source, ("score", "choice", "continuation"))

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the first right option; the continuation where there is one."""
        if self.settings.continuation is not None:
            return presented.continuation
        return super().answer_text(presented)

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for one log-likelihood for each option; where accuracy by pmi is asked for, then one for each without a
        prompt.

        Raise ``ValueError`` for an empty continuation.
        """
        choices = presented.choices
        if self.settings.continuation is not None:
            scored = presented.continuation
            if not scored.strip():
                raise ValueError("score.choice.continuation is empty: there is nothing to score")
            return tuple(LoglikelihoodRequest(_ended(prompt, choice), delimiter + scored) for choice in choices)
        asked = super().requests(presented, prompt, delimiter=delimiter, generate=generate)
        if self.settings.asks_options_alone:
            return (*asked, *super().requests(presented, "", delimiter=delimiter, generate=generate))
        return asked

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        options, right = presented.choices, presented.right
        asks_alone = self.settings.asks_options_alone
        answered = loglikelihoods(responses, len(options) * (2 if asks_alone else 1))
        found = unify_equal_options(options, answered[: len(options)])
        alone = unify_equal_options(options, answered[len(options) :]) if asks_alone else []
        details = option_details(found)
        if asks_alone:
            details["loglikelihoods_alone"] = [finite_or_none(response.loglikelihood) for response in alone]
        problem = options_problem(options, found, self.settings.normalize) or _alone_problem(options, alone)
        if problem is not None:
            return Score(status="unscored", reason=problem, details=details)
        usable = usable_normalizations(found)
        rankings = self._rankings(options, found, alone, usable)
        ranking = rankings[self.settings.normalize]
        by_name = {name: rankings[name] for name in self._normalizations if name == "pmi" or name in usable}
        probabilities = softmax(ranking.scores)
        details["probabilities"] = list(probabilities)
        if ranking.is_tie:
            details["tied"] = list(ranking.tied)
        shares = self.settings.ties == "share"
        chance = len(right) / len(options)
        first = float(ranking.first in right)
        correct = ranking.credit(right) if shares else first
        squares = brier_sum(probabilities, right)
        values = {
            "accuracy": correct,
            "skill": skill(correct, chance),
            "brier": squares / len(options),
            "brier_sum": squares,
            **{f"accuracy_{name}": own.credit(right) for name, own in by_name.items()},
            "accuracy_first": first,
            **{f"accuracy_{name}_first": float(own.first in right) for name, own in by_name.items()},
            **calibration_values(ranking.scores, right, probabilities),
            **self._further_values(presented, found, ranking),
            "ties": float(ranking.is_tie),
        }
        return Score(
            status=status_of_credit(correct),
            answer=ranking.answer(options) if shares else options[ranking.first],
            values=values,
            chance=chance,
            details=details,
        )

    def _rankings(
        self,
        options: Sequence[str],
        found: Sequence[LoglikelihoodResponse],
        alone: Sequence[LoglikelihoodResponse],
        usable: Sequence[Normalize],
    ) -> dict[str, Ranking]:
        """Rank the options by each normalisation that is usable, and by the suite's own.

        By ``pmi`` options are ranked by log P(option | prompt) - log P(option), lm-eval's ``acc_mutual_info``.
        """
        own = self.settings.normalize
        rankings = rank_by_each(options, found, usable if own == "pmi" or own in usable else (*usable, own))
        if self.settings.asks_options_alone:
            rankings["pmi"] = rank(options, found, "sum", alone)
        return rankings

    def _further_values(
        self, presented: PreparedSample, responses: Sequence[LoglikelihoodResponse], ranking: Ranking
    ) -> dict[str, float]:
        """Return what ``metrics`` needs. ``gold`` and ``predicted`` are the classes that a classification metric
        compares.

        A class is answered or not, so that of options that share a tie one is drawn, by the sample's id. Of several
        right options ``gold`` is the one predicted, else the first. ``greedy_match`` is 1 where greedy decoding writes
        a right option, which is lm-eval's ``exact_match`` of multiple choice.
        """
        values: dict[str, float] = {}
        right = presented.right
        greedy = [responses[index].is_greedy for index in right]
        if "greedy_match" in self.settings.metrics and (any(greedy) or None not in greedy):
            values["greedy_match"] = float(any(greedy))
        if any(name in CLASSIFICATION for name in self.settings.metrics):
            top = _drawn(ranking.tied, presented.sample.id) if self.settings.ties == "share" else ranking.first
            values["gold"] = float(top if top in right else right[0])
            values["predicted"] = float(top)
        return values


def _drawn(tied: Sequence[int], sample_id: str) -> int:
    if len(tied) == 1:
        return tied[0]
    digest = hashlib.sha256(f"tie:{sample_id}".encode("utf-8", "surrogatepass")).digest()
    return tied[int.from_bytes(digest) % len(tied)]


def _ended(prompt: Prompt, choice: str) -> Prompt:
    """Return the prompt with the choice at its end; of a chat, at the end of the last turn that is the user's."""
    if isinstance(prompt, str):
        return prompt + choice
    last = max((place for place, turn in enumerate(prompt) if turn.role == "user"), default=-1)
    if last < 0:
        raise ValueError("score.choice.continuation needs a user turn that can end with an option")
    turn = replace(prompt[last], content=prompt[last].content + choice)
    return (*prompt[:last], turn, *prompt[last + 1 :])


def _alone_problem(options: Sequence[str], alone: Sequence[LoglikelihoodResponse]) -> str | None:
    for option, response in zip(options, alone, strict=False):  # none without pmi
        if not math.isfinite(response.loglikelihood):
            return f"the loglikelihood of option {quote(option)} without a prompt is {response.loglikelihood}"
    return None
