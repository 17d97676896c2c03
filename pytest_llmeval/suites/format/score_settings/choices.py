"""Settings of the scorers that compare log-likelihoods or options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from pytest_llmeval.data.spec import FROM_LIST, refuse
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings
from pytest_llmeval.text.wording import Keys

__all__ = [
    "ChoiceMetric",
    "ChoiceNormalize",
    "ChoiceSettings",
    "ContinuationSettings",
    "LetterSettings",
    "MassSettings",
    "Normalize",
    "PerplexitySettings",
    "YesNoSettings",
]

Normalize: TypeAlias = Literal["token", "sum", "char", "byte"]
ChoiceNormalize: TypeAlias = Literal["token", "sum", "char", "byte", "pmi"]
ChoiceMetric: TypeAlias = Literal[
    "f1_binary", "f1_macro", "f1_micro", "f1_weighted", "mcc", "greedy_match", "accuracy_pmi"
]


class ChoiceSettings(ScorerSettings):
    """Multiple choice by log-likelihood."""

    kind: Literal["choice"] = "choice"
    scorer = "scorers.choices.choice:ChoiceScorer"
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
        description="Further metrics: of classification, with the options' indices as classes; greedy_match is the "
        "share of samples for which greedy decoding writes a right option (lm-eval's exact_match); accuracy_pmi is "
        "accuracy by pmi when normalize is another.",
    )
    ties: Literal["share", "first"] = Field(
        "share",
        description="share: options that are equally likely share the credit, so that one right option of m is worth "
        "1/m. first: the first of them is the answer, as in lm-eval.",
    )

    @property
    def asks_options_alone(self) -> bool:
        """Whether options are scored without a prompt as well."""
        return self.normalize == "pmi" or "accuracy_pmi" in self.metrics

    def by_reply(self, works: Callable[[ScorerSettings], bool]) -> str:
        """A letter."""
        for shown, settings in (
            ("letter", LetterSettings()),
            ("{letter: {shuffle: false}}", LetterSettings(shuffle=False)),
        ):
            if works(settings):
                return f"write score: {shown}, which reads a letter in the reply"
        return "write score: letter and show {{ lettered_choices }} in prompt.template: it reads a letter"

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """With a continuation the options end the prompt."""
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


class MassSettings(ScorerSettings):
    """The probability that the model gives to the right options together: a score with no right or wrong."""

    kind: Literal["mass"] = "mass"
    scorer = "scorers.choices.choice:MassScorer"
    needs_options = True
    normalize: Normalize = Field("sum", description="What an option's loglikelihood is divided by.")


class ContinuationSettings(ScorerSettings):
    """How likely the target is after the prompt, and whether greedy decoding would write it."""

    kind: Literal["continuation"] = "continuation"
    scorer = "scorers.likelihood:ContinuationScorer"


class LetterSettings(ScorerSettings):
    """Multiple choice by generation: the model writes the label of an option."""

    kind: Literal["letter"] = "letter"
    scorer = "scorers.choices.letter:LetterScorer"
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
        description="Tokens generated for a reply; by default generate.max_tokens where given, else 10.",
    )
    rule: Literal["stated", "first_upper"] = Field(
        "stated",
        description="How a reply is read. stated: the label in the last \\boxed{}, else after the last 'answer is' or "
        "'answer:', else at the start, else the only one that is a separate word. first_upper: the first "
        "upper-case letter, wherever it stands, as in ChronoLogic's script.",
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
        """The rule that was the only one once."""
        return ("rule",) if self.rule == "first_upper" else ()


class YesNoSettings(ScorerSettings):
    """Yes or no, by generation or by log-likelihood."""

    kind: Literal["yes_no"] = "yes_no"
    scorer = "scorers.choices.yes_no:YesNoScorer"
    by: Literal["generation", "loglikelihood"] = Field(
        "generation", description="Read the reply, or compare how likely 'yes' and 'no' are."
    )
    rule: Literal["word", "prefix"] = Field(
        "word",
        description="How a reply is read. word: the word yes or no in the last \\boxed{}, else after the last 'answer "
        "is' or 'answer:', else at the start, else the only one that ends a clause. prefix: the first three "
        "characters, yes or a start of no, so that 'not known' is no.",
    )

    tie_is_no: bool = Field(
        False,
        description="By loglikelihood: if yes and no are equally likely, the answer is no. By default, the sample is "
        "worth a half.",
    )

    def by_reply(self, works: Callable[[ScorerSettings], bool]) -> str:
        """The same words, read."""
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
        """What was so before there were rules."""
        return ("rule",) if self.rule == "prefix" else ()

    @property
    def unused(self) -> tuple[str, ...]:
        """A rule reads replies, which do not tie."""
        return ("tie_is_no",) if self.by == "generation" else ("rule",)


class PerplexitySettings(ScorerSettings):
    """How well the model predicts the text: perplexity per word, byte and token, pooled over the samples."""

    kind: Literal["perplexity"] = "perplexity"
    scorer = "scorers.likelihood:PerplexityScorer"
    windows: Literal["disjoint", "sliding"] = Field(
        "disjoint",
        description="How a text longer than the model's context is read: in disjoint windows, or in a "
        "sliding window that moves on by stride tokens at a time.",
    )
    stride: int | None = Field(
        None, ge=1, description="Tokens by which a sliding window moves on: fewer give each token more context."
    )

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """Other scorers read a reply, or options."""
        return "perplexity scores whole texts and cannot share requests; give it its own suite", ()

    @model_validator(mode="before")
    @classmethod
    def _a_stride_slides(cls, settings: object) -> object:
        if not isinstance(settings, dict):
            return settings
        windows, has_stride = settings.get("windows"), settings.get("stride") is not None
        if windows == "disjoint" and has_stride:
            raise refuse(
                "score.perplexity: found a stride, with which windows are sliding, not disjoint; remove one of the two"
            )
        if windows == "sliding" and not has_stride:
            raise refuse("score.perplexity: found windows 'sliding' without a stride; add one, such as stride: 512")
        return {**settings, "windows": "sliding"} if has_stride and "windows" not in settings else settings
