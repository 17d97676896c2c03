"""Options and their log-likelihoods: how a sample's options are shown, compared, and made a distribution."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, S, SettingsScorer, SuiteView
from pytest_llmeval.scoring.references import quote, right_choices, several_or_one
from pytest_llmeval.scoring.responses import finite_or_none, loglikelihood_problem
from pytest_llmeval.types import JSON, LoglikelihoodRequest, LoglikelihoodResponse, Prompt, Request, Sample

__all__ = [
    "TIE_TOLERANCE",
    "Normalize",
    "OptionsScorer",
    "Ranking",
    "brier_sum",
    "equal_options",
    "option_details",
    "options_problem",
    "rank",
    "rank_by_each",
    "unify_equal_options",
    "usable_normalizations",
]

Normalize: TypeAlias = Literal["token", "sum", "char", "byte"]
TIE_TOLERANCE = 1e-6
"""Options tie whose log-likelihoods differ by no more than one part in a million: eight steps of a float32.

A model that makes no difference between options gives them numbers that differ by less: float32 rounds each sum of
logprobs, and a division rounds again. Options that a model does tell apart seldom lie so close: of log-likelihoods of
about -10 that differ by about 1, in one sample of 100,000.
"""

_SHOWN_OF_TIE = 4


@dataclass(frozen=True, slots=True)
class Ranking:
    """Options by their scores. ``tied`` are the indices of the best, one unless several tie; ``first`` is the highest
    score's, the first of those that are equal to the last digit, which is what numpy's ``argmax`` gives.
    """

    scores: tuple[float, ...]
    tied: tuple[int, ...]
    first: int

    @property
    def is_tie(self) -> bool:
        return len(self.tied) > 1

    def credit(self, right: Collection[int]) -> float:
        """Return what a tie is worth: if r of the m tied options are right, ``r / m``. Without a tie it is 1 or 0."""
        if not self.is_tie:
            return float(self.first in right)
        return sum(index in right for index in self.tied) / len(self.tied)

    def answer(self, options: Sequence[str]) -> str:
        """Return the best option, or the first few of a tie."""
        if not self.is_tie:
            return options[self.first]
        shown = [options[index] for index in self.tied[:_SHOWN_OF_TIE]]
        return f"{' | '.join(shown)}{' | …' if len(self.tied) > _SHOWN_OF_TIE else ''} (tie)"


class OptionsScorer(SettingsScorer[S]):
    """A scorer that asks for the log-likelihood of each option."""

    def present(self, sample: Sample) -> PreparedSample:
        """Return all choices in their order. Raise ``ValueError`` for fewer than two, an empty one, or a target that
        does not fit.

        This is stricter than lm-eval 0.4.13, which counts a target out of range as wrong (with a warning), takes the
        first of equal option texts for a target that is text, and scores samples of which every option is right.
        """
        right = right_choices(sample)
        for index, choice in enumerate(sample.choices):
            if not choice.strip():
                raise ValueError(f"choice {index} is empty: there is nothing to score")
        return PreparedSample(
            sample=sample,
            choices=sample.choices,
            right=right,
            order=tuple(range(len(sample.choices))),
            target=several_or_one([sample.choices[index] for index in right]),
        )

    def answer_text(self, presented: PreparedSample) -> str:
        return presented.choices[presented.right[0]]

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for one log-likelihood for each option. White space at the prompt's end is the backend's business, not
        ours.
        """
        return tuple(LoglikelihoodRequest(prompt, delimiter + choice) for choice in presented.choices)


def option_details(responses: Sequence[LoglikelihoodResponse]) -> dict[str, JSON]:
    """Return what a report says of the options' log-likelihoods."""
    return {
        "loglikelihoods": [finite_or_none(response.loglikelihood) for response in responses],
        "num_tokens": [response.num_tokens for response in responses],
    }


def rank(
    options: Sequence[str],
    responses: Sequence[LoglikelihoodResponse],
    normalize: Normalize,
    alone: Sequence[LoglikelihoodResponse] = (),
) -> Ranking:
    """Rank the options by what they are compared by; with ``alone`` by how much likelier than without a prompt they
    are.

    That is loglikelihood (nats) per token, as it is, per character or per UTF-8 byte. Characters and bytes are those
    of the option's own text, without the delimiter before it, as lm-eval counts them for ``acc_norm`` and
    ``acc_bytes``. What is an option's score already is divided by nothing.

    Which of them tie is decided by the size of the log-likelihoods that a score is made of: see ``TIE_TOLERANCE``. At
    least one is finite.
    """
    return _ranked(responses, _lengths(options, responses, normalize), alone)


def rank_by_each(
    options: Sequence[str], responses: Sequence[LoglikelihoodResponse], normalizations: Sequence[Normalize]
) -> dict[str, Ranking]:
    """Call ``rank`` with each of the normalisations. Those that divide by the same numbers, as bytes and characters of
    ASCII, share one result.
    """
    known: dict[tuple[int, ...], Ranking] = {}
    found: dict[str, Ranking] = {}
    for normalize in normalizations:
        lengths = tuple(_lengths(options, responses, normalize))
        if lengths not in known:
            known[lengths] = _ranked(responses, lengths)
        found[normalize] = known[lengths]
    return found


def _ranked(
    responses: Sequence[LoglikelihoodResponse],
    lengths: Sequence[int],
    alone: Sequence[LoglikelihoodResponse] = (),
) -> Ranking:
    scores = [response.loglikelihood / length for response, length in zip(responses, lengths, strict=True)]
    sizes = [abs(response.loglikelihood) for response in responses]
    if alone:
        scores = [score - bare.loglikelihood for score, bare in zip(scores, alone, strict=True)]
        sizes = [max(size, abs(bare.loglikelihood)) for size, bare in zip(sizes, alone, strict=True)]
    reach = [TIE_TOLERANCE * size / length for size, length in zip(sizes, lengths, strict=True)]
    best = max(scores)
    first = scores.index(best)
    tied = [
        index
        for index, score in enumerate(scores)
        if math.isfinite(score) and best - score <= max(reach[index], reach[first])
    ]
    return Ranking(tuple(scores), tuple(tied), first)


def unify_equal_options(
    options: Sequence[str], responses: Sequence[LoglikelihoodResponse]
) -> list[LoglikelihoodResponse]:
    """Give equal options the response of the first of them: whatever computed them, what is one text is a tie."""
    first: dict[str, LoglikelihoodResponse] = {}
    return [first.setdefault(option, response) for option, response in zip(options, responses, strict=True)]


def _lengths(options: Sequence[str], responses: Sequence[LoglikelihoodResponse], normalize: Normalize) -> list[int]:
    if "score" in [response.measure for response in responses]:
        normalize = "sum"
    match normalize:
        case "token":
            return [response.num_tokens for response in responses]
        case "sum":
            return [1 for _ in responses]
        case "char":
            return [len(option) for option in options]
        case "byte":
            # surrogatepass: a lone surrogate, which has no UTF-8 form, counts as the three bytes that it would take.
            return [len(option.encode("utf-8", "surrogatepass")) for option in options]


def usable_normalizations(responses: Sequence[LoglikelihoodResponse]) -> tuple[Normalize, ...]:
    """Return the normalisations by which these responses can be compared.

    There are none for an option's score, which is what it is; per token is left out where the tokens were not counted.
    """
    measures = {response.measure for response in responses}
    if "score" in measures:
        return ()
    return ("sum", "char", "byte") if "uncounted" in measures else ("token", "sum", "char", "byte")


def options_problem(
    options: Sequence[str], responses: Sequence[LoglikelihoodResponse], normalize: str = "sum"
) -> str | None:
    """Return why these options cannot be compared by these responses, one for each; None if they can."""
    for option, response in zip(options, responses, strict=True):
        if response.measure == "uncounted" and normalize == "token":
            return (
                "its log-likelihoods come without numbers of tokens, and the suite compares them per token: give "
                "num_tokens beside them, or normalize by sum, char or byte"
            )
        if response.num_tokens < 1 and response.measure == "loglikelihood":
            return f"the model reports {response.num_tokens} tokens in option {quote(option)}"
    return loglikelihood_problem([response.loglikelihood for response in responses], options)


def brier_sum(probabilities: Sequence[float], right: Collection[int]) -> float:
    """Return the sum over options of (p - y)², y = 1 for every right one. Divided by their number it is the Brier
    score.

    Over the softmax of summed log-likelihoods (``normalize: sum``) its mean over samples is lm-eval's ``brier_score``.
    """
    return math.fsum((p - (index in right)) ** 2 for index, p in enumerate(probabilities))


def equal_options(suite: SuiteView) -> str | None:
    """Return one line that names the first sample with an option twice and counts the others; None if there is none."""
    if not any(settings.needs_options for settings, _ in suite.spec.score.each()):
        return None
    found = [sample for sample in suite.samples if len({*map(str.strip, sample.choices)}) < len(sample.choices)]
    if not found:
        return None
    first, texts = found[0], [choice.strip() for choice in found[0].choices]
    twice = next(text for text in texts if texts.count(text) > 1)
    others = {1: "", 2: ", and another sample has equal options too"}.get(
        len(found), f", and {len(found) - 1} other samples have equal options too"
    )
    return (
        f"{suite.name}: sample {quote(first.id)} ({suite.place(first)}) has the option {quote(twice)} "
        f"{texts.count(twice)} times{others}: no answer can tell them apart"
    )
