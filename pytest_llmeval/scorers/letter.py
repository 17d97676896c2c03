"""Multiple choice by generation: the reply names the label of an option."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import regex
from pydantic import Field, model_validator

from pytest_llmeval.data.spec import FROM_LIST, refuse
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers.reading.stated import LabelStyle, stated_label
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer, reply_request
from pytest_llmeval.scoring.metrics.skill import skill
from pytest_llmeval.scoring.references import quote, right_choices, several_or_one
from pytest_llmeval.scoring.responses import reply, right_or_wrong, two_ends
from pytest_llmeval.types import Prompt, Request, Response, Sample, Score

__all__ = ["LetterScorer", "LetterSettings", "first_upper", "option_labels"]


class LetterSettings(ScorerSettings):
    """Multiple choice by generation: the model writes the label of an option."""

    kind: Literal["letter"] = "letter"
    needs_options = True
    labels: Literal["upper", "lower", "digit"] = Field("upper", description="Labels of the options: A, a or 1.")
    exclude_types: Annotated[tuple[str, ...], FROM_LIST] = Field(
        (), description="Options of these choice_types are left out."
    )
    shuffle: bool = Field(True, description="Show the options in a different order for each sample.")
    shuffle_seed: int = Field(0, description="Decides, with the sample's id, the order of its options.")
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens generated for a reply; by default generate.max_tokens if the suite has it, else 10.",
    )
    rule: Literal["stated", "first_upper"] = Field(
        "stated",
        description="How a reply is read. stated: the label in the last \\boxed{}, else after the last 'answer is' or "
        "'answer:', else at the start, else the only label that is a separate word. first_upper: the first "
        "upper-case letter anywhere, as in ChronoLogic's script.",
    )

    @model_validator(mode="after")
    def _the_first_upper_case_letter_is_a_label(self) -> LetterSettings:
        if self.rule == "first_upper" and self.labels != "upper":
            raise refuse(
                f"score.letter: rule first_upper reads upper-case letters, found labels {self.labels!r}; write labels: "
                "upper, or rule: stated"
            )
        return self

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Return the key of the rule, if it is the one that was the only one once."""
        return ("rule",) if self.rule == "first_upper" else ()

    def make(self) -> LetterScorer:
        return LetterScorer.of(self)


_TEMPLATE = "{{ question }}\n\n{{ lettered_choices }}\n\nRespond only with the letter of the correct answer:"
_ALPHABET_SIZE = len(string.ascii_uppercase)
_MAX_TOKENS = 10


def option_labels(count: int, style: LabelStyle) -> tuple[str, ...]:
    """Return ``count`` labels: A to Z, AA, AB, … (``upper``), the same in lower case (``lower``), or 1, 2, …
    (``digit``).
    """
    if style == "digit":
        return tuple(str(number) for number in range(1, count + 1))
    labels = []
    for number in range(1, count + 1):
        label = ""
        while number:
            number, letter = divmod(number - 1, _ALPHABET_SIZE)
            label = string.ascii_uppercase[letter] + label
        labels.append(label if style == "upper" else label.lower())
    return tuple(labels)


def first_upper(text: str, labels: Sequence[str]) -> str | None:
    """Return the first upper-case ASCII letter of a reply, wherever it stands, or None if that is no label (or there is
    none).

    With it "The answer is B" answers T: the rule of ChronoLogic's script. With more than 26 options, the first whole
    run of such letters.
    """
    found = regex.search("[A-Z]" if max(map(len, labels)) == 1 else "[A-Z]++", text)
    return found[0] if found is not None and found[0] in labels else None


class LetterScorer(SettingsScorer[LetterSettings]):
    """A scorer that shows the options, shuffled by the sample's id and labelled; the label that the reply states is the
    answer.
    """

    @property
    def version(self) -> int:
        """Return 1 for the rule ``first_upper``, which was the only one.

        3 knows full-width letters, and what nine languages beside English deny.
        """
        return 1 if self.settings.rule == "first_upper" else 3

    metrics = ("accuracy", "skill", "no_answer")
    default_template = _TEMPLATE

    def present(self, sample: Sample) -> PreparedSample:
        """Return the options in the order shown, without those of excluded types.

        The order depends on the suite's seed and the sample's id alone. Raise ``ValueError`` where fewer than two
        options, no right one or only right ones are left, where the target does not fit, or where choice_types are
        missing.
        """
        right = right_choices(sample)
        order = self._kept(sample)
        if self.settings.shuffle:
            random.Random(f"{self.settings.shuffle_seed}:{sample.id}").shuffle(order)
        shown_right = tuple(place for place, index in enumerate(order) if index in right)
        if len(order) < 2 or not shown_right or len(shown_right) == len(order):
            excluded = ", ".join(self.settings.exclude_types)
            raise ValueError(
                f"without the choices of type {excluded}, {len(order)} of {len(sample.choices)} are left and "
                f"{len(shown_right)} of them are right: expected two or more, some of them right and some wrong"
            )
        labels = option_labels(len(order), self.settings.labels)
        return PreparedSample(
            sample=sample,
            choices=tuple(sample.choices[index] for index in order),
            right=shown_right,
            order=tuple(order),
            labels=labels,
            target=several_or_one([labels[place] for place in shown_right]),
        )

    def variables(self, presented: PreparedSample) -> Mapping[str, object]:
        """Return ``lettered_choices`` (a line ``A. text`` per option), ``labels``, and ``choices`` as shown."""
        lines = [f"{label}. {choice}" for label, choice in zip(presented.labels, presented.choices, strict=True)]
        return {
            "lettered_choices": "\n".join(lines),
            "labels": list(presented.labels),
            "choices": list(presented.choices),
        }

    def answer_text(self, presented: PreparedSample) -> str:
        return presented.labels[presented.right[0]]

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for one generated reply, of the scorer's own ``max_tokens``, else of the suite's, else of 10."""
        return (reply_request(prompt, generate, max_tokens=self.settings.max_tokens, default=_MAX_TOKENS),)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge accuracy and skill, where chance is the share of right options among those shown."""
        text, cut = two_ends(reply(responses))
        if self.settings.rule == "first_upper":
            label = first_upper(text, presented.labels)
        else:
            label = stated_label(text, presented.labels, presented.choices)
        correct = label is not None and presented.labels.index(label) in presented.right
        chance = len(presented.right) / len(presented.choices)
        return right_or_wrong(
            correct,
            label,
            values={"skill": skill(correct, chance)},
            chance=chance,
            details={"order": list(presented.order), "labels": list(presented.labels), **cut},
        )

    def _kept(self, sample: Sample) -> list[int]:
        indices = list(range(len(sample.choices)))
        excluded = self.settings.exclude_types
        if not excluded:
            return indices
        if len(sample.choice_types) != len(sample.choices):
            raise ValueError(
                f"exclude_types {quote(list(excluded))} needs one type for each of the {len(sample.choices)} choices "
                f"in choice_types, found {len(sample.choice_types)}"
            )
        return [index for index in indices if sample.choice_types[index] not in excluded]
