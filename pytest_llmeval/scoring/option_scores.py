"""Options and their log-likelihoods: how a sample's options are shown, compared, and made a distribution."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.responses import loglikelihood_problem
from pytest_llmeval.scoring.targets import quote, right_choices, several_or_one
from pytest_llmeval.suites.score_settings.choices import Normalize
from pytest_llmeval.types import LoglikelihoodResponse, Sample

__all__ = [
    "brier_sum",
    "first_best",
    "option_scores",
    "options_problem",
    "present_options",
    "usable_normalizations",
]


def present_options(sample: Sample) -> Presented:
    """All choices in their order. ``ValueError``: fewer than two, an empty one, or a target that does not fit.

    Stricter than lm-eval 0.4.13, which counts a target out of range as wrong (with a warning), takes the first of equal
    option texts for a target that is text, and scores samples of which every option is right.
    """
    right = right_choices(sample)
    for index, choice in enumerate(sample.choices):
        if not choice.strip():
            raise ValueError(f"choice {index} is empty: there is nothing whose likelihood could be taken")
    return Presented(
        sample=sample,
        choices=sample.choices,
        right=right,
        order=tuple(range(len(sample.choices))),
        target=several_or_one([sample.choices[index] for index in right]),
    )


def option_scores(
    options: Sequence[str], responses: Sequence[LoglikelihoodResponse], normalize: Normalize
) -> list[float]:
    """What options are compared by: loglikelihood (nats) per token, as it is, per character or per UTF-8 byte.

    Characters and bytes are those of the option's own text, without the delimiter before it, as lm-eval counts them for
    ``acc_norm`` and ``acc_bytes``. What is an option's score already is divided by nothing.
    """
    if any(response.measure == "score" for response in responses):
        normalize = "sum"
    lengths: list[int]
    match normalize:
        case "token":
            lengths = [response.num_tokens for response in responses]
        case "sum":
            lengths = [1 for _ in responses]
        case "char":
            lengths = [len(option) for option in options]
        case "byte":
            # surrogatepass: a lone surrogate, which has no UTF-8 form, counts as the three bytes that it would take.
            lengths = [len(option.encode("utf-8", "surrogatepass")) for option in options]
    return [response.loglikelihood / length for response, length in zip(responses, lengths, strict=True)]


def usable_normalizations(responses: Sequence[LoglikelihoodResponse]) -> tuple[Normalize, ...]:
    """The normalisations by which these responses can be compared.

    None for an option's score, which is what it is; not per token where nobody counted the tokens.
    """
    if any(response.measure == "score" for response in responses):
        return ()
    uncounted = any(response.measure == "uncounted" for response in responses)
    return ("sum", "char", "byte") if uncounted else ("token", "sum", "char", "byte")


def options_problem(
    options: Sequence[str], responses: Sequence[LoglikelihoodResponse], normalize: str = "sum"
) -> str | None:
    """Why these options cannot be compared by these responses, one for each; None if they can."""
    for option, response in zip(options, responses, strict=True):
        if response.measure == "uncounted" and normalize == "token":
            return (
                "its log-likelihoods come without numbers of tokens, and the suite compares them per token: give "
                "num_tokens beside them, or normalize by sum, char or byte"
            )
        if response.num_tokens < 1 and response.measure == "loglikelihood":
            return f"the model counts {response.num_tokens} tokens in option {quote(option)}"
    return loglikelihood_problem([response.loglikelihood for response in responses], options)


def first_best(scores: Sequence[float]) -> int:
    """Index of the highest score, the first of equal ones."""
    return max(range(len(scores)), key=scores.__getitem__)


def brier_sum(probabilities: Sequence[float], right: Collection[int]) -> float:
    """Sum over options of (p - y)², y = 1 for every right one. Divided by their number it is the Brier score.

    Over the softmax of summed log-likelihoods (``normalize: sum``) its mean over samples is lm-eval's ``brier_score``.
    """
    return math.fsum((p - (index in right)) ** 2 for index, p in enumerate(probabilities))
