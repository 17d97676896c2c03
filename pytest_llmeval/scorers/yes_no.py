"""Yes or no, read in a reply or by log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import regex
from pydantic import Field, model_validator

from pytest_llmeval.data.spec import refuse
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers.reading.stated import AROUND, stated_answer
from pytest_llmeval.scorers.reading.wordings import ASKED, CLOSING, JOINED, affirmed, denied_before, denied_by_a_verb
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer, reply_request
from pytest_llmeval.scoring.metrics.calibration import CALIBRATION, calibration_values, softmax
from pytest_llmeval.scoring.metrics.skill import skill
from pytest_llmeval.scoring.option_scores import rank
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import (
    finite_or_none,
    loglikelihood_problem,
    loglikelihoods,
    reply,
    right_or_wrong,
    status_of_credit,
    two_ends,
)
from pytest_llmeval.text.escaping import plain_characters
from pytest_llmeval.types import JSON, LoglikelihoodRequest, Prompt, Request, Response, Sample, Score

__all__ = ["YesNoScorer", "YesNoSettings", "prefix_answer", "stated_yes_or_no"]


class YesNoSettings(ScorerSettings):
    """Yes or no, by generation or by log-likelihood."""

    kind: Literal["yes_no"] = "yes_no"
    by: Literal["generation", "loglikelihood"] = Field(
        "generation", description="Read the reply, or compare how likely 'yes' and 'no' are."
    )
    rule: Literal["word", "prefix"] = Field(
        "word",
        description="How a reply is read. word: yes or no in the last \\boxed{}, else after the last 'answer is' or "
        "'answer:', else at the start, else the only one that ends a clause. prefix: the first three characters, "
        "which are yes or begin with no, so that 'not known' is no.",
    )

    tie_is_no: bool = Field(
        False,
        description="For by: loglikelihood: if yes and no are equally likely, the answer is no. By default, the "
        "sample is worth a half.",
    )

    def by_reply(self, works: Callable[[ScorerSettings], bool]) -> str:
        """Return the same words, read."""
        return "write score: {yes_no: {by: generation}}, which reads the reply"

    @model_validator(mode="after")
    def _replies_do_not_tie(self) -> YesNoSettings:
        if self.tie_is_no and self.by == "generation":
            raise refuse("score.yes_no: found tie_is_no with by 'generation', where nothing can tie; remove it")
        return self

    @model_validator(mode="after")
    def _a_rule_is_for_replies(self) -> YesNoSettings:
        if self.by == "loglikelihood" and "rule" in self.model_fields_set:
            raise refuse(
                "score.yes_no: found a rule, which says how a reply is read, with by 'loglikelihood', which reads "
                "none; remove one of the two"
            )
        return self

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Return the key of the rule, if it is the one that was the only one once."""
        return ("rule",) if self.rule == "prefix" else ()

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the settings of the way of reading that is not used: a rule reads replies, which do not tie."""
        return ("tie_is_no",) if self.by == "generation" else ("rule",)

    def make(self) -> YesNoScorer:
        return YesNoScorer.of(self)


Answer: TypeAlias = Literal["yes", "no"]
_ANSWERS: tuple[Answer, Answer] = ("yes", "no")
_CHANCE = 0.5
_MAX_TOKENS = 10


# Letters of scripts without case are not among them: nothing separates words there, as in Yes错误.
_LETTER = r"[\p{Lu}\p{Ll}\p{Lt}\p{M}\p{N}]"
_WORD = rf"(?<!{_LETTER})(yes|no)(?!['’\-]?{_LETTER})"

_BEGINS_A_SENTENCE = (
    r"(?:(?:i|he|she|it|we|you|they|this|that|these|those|there|the|an?|my|your|his|her|its|our|their|not|never"
    r"|am|is|are|was|were|do|does|did|has|have|had|can|cannot|should|would|could"
    r"|because|since|as|but|although|though|while|if|according|in|at|from|by|with|based|only|actually|thanks|sorry)"
    r"(?:['’](?:s|m|re|ve|d|ll))?|(?:is|are|was|were|do|does|did|has|have|had|can?|wo|should|would|could)n['’]t)"
    r"(?![\p{L}\p{N}\-'’])(?<!\ba(?=\s+priori\b))"
)
"""Words that can follow a "no" that is an answer: no noun, before which it is a part of what it says (no evidence)."""
_GAP = r"[\"'”’*_)]*[^\S\n]+[\"'“‘*_(]*"

_FIRST = regex.compile(
    rf"(?:{AROUND}|\\[A-Za-z]+(?=\s*\{{))*+{_WORD}"
    rf"(?!(?<=no){_GAP}(?!{_BEGINS_A_SENTENCE}|(?:explanation|reason|reasoning|rationale|justification|note)[*_]*:)[\p{{L}}\p{{N}}])",
    regex.IGNORECASE,
)

_ANYWHERE = regex.compile(
    rf"(?<!\bnot\s+an?\s+[\"'“‘*]*){_WORD}(?!(?<=no){_GAP}(?!(?:because|since|is|was|ist|est)\b)[\p{{L}}\p{{N}}])",
    regex.IGNORECASE,
)

_JOINED = regex.compile(rf"{JOINED}|\s*but\salso\s+")
_ASKED = regex.compile(rf"(?:{JOINED}(?:yes|no))?{ASKED.pattern}", regex.IGNORECASE)
_GOES_ON = regex.compile(rf"{CLOSING}*+\s+\p{{L}}")
_TARGETS: Mapping[str, Answer] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}


def prefix_answer(text: str) -> Answer | None:
    """Return the answer that a reply begins with, after leading white space; None where it has none.

    Of two characters or more, the first three are looked at in lower case: ``yes`` is yes, and a start of ``no`` is no.
    """
    text = text.lstrip()
    if len(text) < 2:
        return None
    start = text[:3].lower()
    if start == "yes":
        return "yes"
    return "no" if start.startswith("no") else None


def stated_yes_or_no(text: str) -> Answer | None:
    """Return the word yes or no that a reply states, as a person reads it (see ``stated.py``); None for neither, or for
    both.

    No counts at the start, where no noun follows it ("No it is not", and "No evidence supports this" says nothing), or
    where it ends a clause: "most likely No." is no, and "there is no evidence" nothing. What is said to be wrong does
    not count. Where both stand, one that is said to be right does, or the first if a stop or a comma follows it.
    """
    return stated_answer(plain_characters(text), _at_start, _among)


def _at_start(text: str) -> Answer | None:
    found = _FIRST.match(text)
    if found is None or denied_by_a_verb(text, found.end(1)) or _ASKED.match(text, found.end(1)):
        return None
    answer, end = _ANSWERS[found[1].lower() == "no"], found.end(1)
    joined = _JOINED.match(text, end)
    second = None if joined is None else _FIRST.match(text, joined.end())
    if second is not None and second[1].lower() != answer:
        return None
    if _GOES_ON.match(text, end) is None:
        return answer
    several = _among(text)
    return answer if several <= {answer} else None


def _among(text: str) -> frozenset[Answer]:
    found: dict[Answer, bool] = {}
    asked: dict[Answer, bool] = {}
    for match in _ANYWHERE.finditer(text):
        answer = _ANSWERS[match[1].lower() == "no"]
        if found.get(answer) or denied_before(text, match.start(1)) or denied_by_a_verb(text, match.end(1)):
            continue
        stated = asked if _ASKED.match(text, match.end(1)) else found
        stated[answer] = affirmed(text, match.start(1), match.end(1))
    marked = [answer for answer, is_marked in found.items() if is_marked]
    return frozenset(marked if len(marked) == 1 else found or asked)


class YesNoScorer(SettingsScorer[YesNoSettings]):
    """A scorer of replies that say yes or no, by one of two rules; or the likelier of the two continuations is the
    answer.

    Where both are equally likely (``option_scores.TIE_TOLERANCE``) the sample is half right, or the answer no, as the
    suite says.
    """

    @property
    def version(self) -> int:
        """Return 2 for words in a reply, 3 with full-width ones and without those that are denied.

        By log-likelihood, 2 shares the credit of a tie.
        """
        if self.settings.by == "loglikelihood":
            return 2
        return 3 if self.settings.rule == "word" else 1

    @property
    def metrics(self) -> tuple[str, ...]:
        counts = ("correct", "total", "yes_predicted", "no_predicted", "no_answer")
        if self.settings.by == "generation":
            return ("accuracy", "skill", *counts)
        return ("accuracy", "skill", "brier", *CALIBRATION, *counts, "ties")

    def present(self, sample: Sample) -> PreparedSample:
        """Raise ``ValueError`` for a target that is neither a truth value nor the text yes, no, true or false."""
        target = sample.target
        answer: Answer | None = None
        if isinstance(target, bool):
            answer = "yes" if target else "no"
        elif isinstance(target, str):
            answer = _TARGETS.get(plain_characters(target).strip().lower())
        if answer is None:
            found = "the sample has no target" if target is None else f"target {quote(target)} is neither yes nor no"
            raise ValueError(f"{found}; expected yes, no, true or false")
        return PreparedSample(sample=sample, references=(answer,), target=answer)

    def options(self, presented: PreparedSample) -> tuple[tuple[str, ...], tuple[int, ...]]:
        return _ANSWERS, tuple(map(_ANSWERS.index, presented.references))

    def answer_text(self, presented: PreparedSample) -> str:
        return presented.references[0]

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for one generated reply (of 10 tokens, unless the suite sets ``generate.max_tokens``), or two
        log-likelihoods.
        """
        if self.settings.by == "loglikelihood":
            return tuple(LoglikelihoodRequest(prompt, delimiter + answer) for answer in _ANSWERS)
        return (reply_request(prompt, generate, default=_MAX_TOKENS),)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        if self.settings.by == "generation":
            find = prefix_answer if self.settings.rule == "prefix" else stated_yes_or_no
            text, cut = two_ends(reply(responses))
            return _judge(presented, find(text), {}, cut)
        found = loglikelihoods(responses, len(_ANSWERS))
        sums = [response.loglikelihood for response in found]
        details: dict[str, JSON] = {"loglikelihoods": [finite_or_none(value) for value in sums]}
        problem = loglikelihood_problem(sums, _ANSWERS)
        if problem is not None:
            return Score(status="unscored", reason=problem, details=details)
        probabilities = softmax(sums)
        details["probabilities"] = list(probabilities)
        expected = presented.references[0]
        squares = [(p - (answer == expected)) ** 2 for answer, p in zip(_ANSWERS, probabilities, strict=True)]
        ranking = rank(_ANSWERS, found, "sum")
        values = {
            "brier": math.fsum(squares) / len(squares),
            **calibration_values(sums, {_ANSWERS.index(expected)}, probabilities),
            "ties": float(ranking.is_tie),
        }
        if not ranking.is_tie:
            return _judge(presented, _ANSWERS[ranking.first], values, details)
        details["tied"] = list(ranking.tied)
        return _judge(presented, "no", values, details) if self.settings.tie_is_no else _tie(values, details)


def _tie(values: Mapping[str, float], details: Mapping[str, JSON]) -> Score:
    """Return the score where yes and no are equally likely: it is half right, and in neither count."""
    return Score(
        status=status_of_credit(_CHANCE),
        answer=f"{' | '.join(_ANSWERS)} (tie)",
        values={"accuracy": _CHANCE, "skill": 0.0, **values, "yes_predicted": 0.0, "no_predicted": 0.0},
        chance=_CHANCE,
        details=details,
    )


def _judge(
    presented: PreparedSample, answer: Answer | None, values: Mapping[str, float], details: Mapping[str, JSON]
) -> Score:
    correct = answer == presented.references[0]
    predicted = {"yes_predicted": float(answer == "yes"), "no_predicted": float(answer == "no")}
    own = {"skill": skill(correct, _CHANCE), **values, **predicted}
    return right_or_wrong(correct, answer, values=own, chance=_CHANCE, details=details)
