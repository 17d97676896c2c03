"""Settings of the scorers that ask a judge, a second model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here
from pytest_llmeval.suites.format.score_settings.scorer_settings import FileReader, ScorerSettings
from pytest_llmeval.text.wording import Keys, describe, expected_one_of, quoted

__all__ = [
    "ASPECTS",
    "AspectsSettings",
    "Criterion",
    "EquivalenceSettings",
    "JudgedSettings",
    "OwnPrompt",
    "PairwiseSettings",
    "PromptedSettings",
    "RagSettings",
    "RubricSettings",
]

ASPECTS: Mapping[str, str] = {
    "accuracy": "What the reply says is true, and agrees with the reference answer where there is one.",
    "completeness": "The reply answers all of the question, and leaves out nothing that matters.",
    "clarity": "The reply is easy to understand, well ordered, and says nothing twice.",
}
"""The aspects that need no description in a suite."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAMES_IN_SCHEMA: dict[str, Any] = {"minProperties": 1, "propertyNames": {"pattern": f"^{_NAME.pattern}$"}}


def _check_names(what: str, names: Mapping[str, object]) -> None:
    for name in names:
        if _NAME.fullmatch(name) is None:
            message = f"found the name {quoted(name)}, expected a letter and then letters, digits and '_'"
            raise refuse_here(message, name)
    if not names:
        raise refuse_here(f"found none, expected one {what} or more")


def _two_entries(value: object, what: str) -> object:
    """A list as it is, if it has two entries."""
    if isinstance(value, list) and len(value) != 2:
        raise refuse_here(f"found {len(value)} {'entry' if len(value) == 1 else 'entries'}, expected two {what}")
    return value


class JudgedSettings(ScorerSettings):
    """What the scorers share that ask a judge."""

    kind: str
    needs_target = False
    max_tokens: int = Field(1024, ge=1, description="Tokens that a verdict may have, its reasons included.")
    temperature: float = Field(
        0.0, ge=0, le=10, description="Of the judge: 0 takes the likeliest verdict, more draws one."
    )
    seed: int = Field(0, ge=0, description="Of what is drawn.")

    @property
    def asks_judge(self) -> bool:
        """Tell whether verdicts are asked for. They are not if the data hold them."""
        return True


class OwnPrompt(Spec):
    """The words in which a suite asks its judge: here, or in a file."""

    template: str | None = Field(None, description="The template itself.")
    path: str | None = Field(None, description="A file that holds the template, relative to the suite file.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.template is None) == (self.path is None):
            raise refuse_here(f"found {'neither' if self.path is None else 'both'}, expected a template or a path")
        return self


def _own_prompt(value: object) -> object:
    """A text alone is the template."""
    if isinstance(value, str):
        return {"template": value}
    if value is None or isinstance(value, dict | OwnPrompt):
        return value
    raise refuse_here(f"found {describe(value)}, expected a template, or {{path: a file that holds one}}")


class PromptedSettings(JudgedSettings):
    """What the scorers share whose judge can be asked in words of the suite's own."""

    prompt: Annotated[OwnPrompt | None, BeforeValidator(_own_prompt, json_schema_input_type=str | OwnPrompt | None)] = (
        Field(
            None,
            description="A template of the judge's task, or {path: file}, in place of our words, which it can show as "
            "{{ default_prompt }}. What the settings say, the form of the verdict and the material, fenced, follow it "
            "in any case.",
        )
    )

    @property
    def recorded_columns(self) -> tuple[str, ...]:
        """Return the columns with verdicts that a judge gave before."""
        return ()

    @property
    def asks_judge(self) -> bool:
        return not self.recorded_columns

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The prompt, where it is ours."""
        return ("prompt",) if self.prompt is None else ()

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """With the template that the file of its name holds."""
        if self.prompt is None or self.prompt.path is None:
            return self
        text = files.text(self.prompt.path, (*keys, self.kind, "prompt", "path"))
        return self.model_copy(update={"prompt": OwnPrompt(template=text)})


_Known: TypeAlias = Literal["accuracy", "completeness", "clarity"]
_Described: TypeAlias = Annotated[dict[str, str], Field(json_schema_extra=_NAMES_IN_SCHEMA)]


def _aspects(value: object) -> object:
    """Return ``[accuracy, {tone: …}]`` as a mapping of names to descriptions; built-in aspects have ours."""
    if not isinstance(value, list):
        return value
    found: list[tuple[str, object]] = []
    for place, entry in enumerate(value):
        if isinstance(entry, dict) and len(entry) == 1:
            found += entry.items()
        elif isinstance(entry, str) and entry in ASPECTS:
            found.append((entry, ASPECTS[entry]))
        elif isinstance(entry, str):
            advice = f"{expected_one_of(entry, ASPECTS)}; describe one of your own: {{{entry}: …}}"
            raise refuse_here(f"there is no aspect {quoted(entry)}{advice}", place)
        else:
            raise refuse_here(f"found {describe(entry)}, expected an aspect's name, or {{name: description}}", place)
    each_once("aspect")(tuple(name for name, _ in found))
    return dict(found)


def _columns(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and not value:
        raise refuse_here("found an empty list, expected a column, or a list of columns")
    return each_once("column")(tuple(value)) if isinstance(value, list) else value


_Columns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_columns, json_schema_input_type=str | list[str])]


class AspectsSettings(PromptedSettings):
    """A judge rates the reply on aspects, each with a whole number."""

    kind: Literal["aspects"] = "aspects"
    scorer = "judge.aspects:AspectsScorer"
    aspects: Annotated[
        dict[str, str], BeforeValidator(_aspects, json_schema_input_type=list[_Known | _Described] | _Described)
    ] = Field(
        default_factory=lambda: dict(ASPECTS),
        description="What is rated: names with descriptions, or a list of accuracy, completeness, clarity and of names "
        "with descriptions.",
    )
    scale: Annotated[tuple[int, int], FROM_LIST] = Field((1, 5), description="The lowest and the highest rating.")
    n_iter: int = Field(
        3, ge=1, le=100, description="How often the judge is asked, each time with a seed of its own; the mean counts."
    )
    temperature: float = Field(
        0.7, ge=0, le=10, description="Of the judge: 0 takes the likeliest verdict, which is the same each time."
    )
    domain: str | None = Field(None, description="The field that the question is from, told to the judge.")
    recorded: dict[str, _Columns] | None = Field(
        None,
        description="The column with the ratings that a judge gave before, for each aspect, or a list of columns, one "
        "for each time that it was asked: they are read, and no judge is asked. Ratings of one time have no spread.",
    )

    @model_validator(mode="before")
    @classmethod
    def _what_was_rated(cls, data: object) -> object:
        """Take recorded aspects for what is rated where no others are named: nobody is told what they mean."""
        recorded = data.get("recorded") if isinstance(data, dict) else None
        if isinstance(data, dict) and isinstance(recorded, dict) and data.get("aspects") is None:
            return {**data, "aspects": {name: ASPECTS.get(name, str(name)) for name in recorded}}
        return data

    @model_validator(mode="after")
    def _each_is_recorded(self) -> Self:
        for name in () if self.recorded is None else self.aspects:
            if name not in (self.recorded or ()):
                raise refuse_here(f"found no column for the aspect {quoted(name)}, expected one for each", "recorded")
        for name in self.recorded or ():
            if name not in self.aspects:
                raise refuse_here(f"{quoted(name)} is not among the aspects", "recorded", name)
        return self

    @property
    def recorded_columns(self) -> tuple[str, ...]:
        return tuple(column for columns in (self.recorded or {}).values() for column in columns)

    @property
    def unsaid(self) -> tuple[str, ...]:
        return (*super().unsaid, "recorded") if self.recorded is None else super().unsaid

    @field_validator("aspects")
    @classmethod
    def _named(cls, aspects: dict[str, str]) -> dict[str, str]:
        _check_names("aspect", aspects)
        for name, description in aspects.items():
            if not description.strip():
                raise refuse_here("found an empty text, expected what is rated, in words", name)
        return aspects

    @field_validator("scale", mode="before")
    @classmethod
    def _bounds(cls, value: object) -> object:
        return _two_entries(value, "whole numbers, the lower one first")

    @field_validator("scale")
    @classmethod
    def _rising(cls, scale: tuple[int, int]) -> tuple[int, int]:
        if not scale[0] < scale[1]:
            raise refuse_here(f"found {list(scale)}, expected two whole numbers, the lower one first")
        return scale


class Criterion(Spec):
    """One line of a rubric."""

    text: str = Field(min_length=1, description="What is asked of the reply, in words.")
    labels: Annotated[tuple[str, ...], FROM_LIST] = Field(
        ("fail", "pass"),
        json_schema_extra={"minItems": 2, "uniqueItems": True},
        description="What the judge can say, from the worst, which is worth 0, to the best, which is worth 1.",
    )
    points: int | None = Field(
        None,
        ge=1,
        le=100,
        description="In place of labels: the judge gives a whole number of points, from 0 to this one; it is the "
        "weight, too, unless there is another.",
    )
    weight: float = Field(1.0, gt=0, le=1e6, description="How much it counts.")

    @model_validator(mode="after")
    def _labels_or_points(self) -> Self:
        if self.points is not None and "labels" in self.model_fields_set:
            raise refuse_here("found labels and points, expected one of them")
        return self

    @property
    def counts(self) -> float:
        """Its weight, which of points is their number where the suite gives no other."""
        return self.weight if self.points is None or "weight" in self.model_fields_set else float(self.points)

    @property
    def grades(self) -> tuple[str, ...] | tuple[int, ...]:
        """What the judge can say, from the worst to the best: labels, or points."""
        return self.labels if self.points is None else tuple(range(self.points + 1))

    @field_validator("labels")
    @classmethod
    def _two(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        each_once("label")(labels)
        if len(labels) < 2:
            raise refuse_here(f"found {list(labels)}, expected two labels or more")
        return labels


def _criterion(value: object) -> object:
    """A text alone is a criterion that is met or not."""
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, dict | Criterion):
        return value
    raise refuse_here(f"found {describe(value)}, expected a text, or a mapping with text, labels or points, and weight")


OneCriterion: TypeAlias = Annotated[Criterion, BeforeValidator(_criterion, json_schema_input_type=str | Criterion)]


class RubricSettings(PromptedSettings):
    """A judge says of each criterion how far the reply meets it."""

    kind: Literal["rubric"] = "rubric"
    scorer = "judge.rubric:RubricScorer"
    criteria: dict[str, OneCriterion] = Field(
        json_schema_extra=_NAMES_IN_SCHEMA,
        description="The criteria by name: a text, which is met (pass) or not (fail), or text with labels or points, "
        "and weight.",
    )
    pass_: float = Field(
        1.0,
        alias="pass",
        gt=0,
        le=1,
        description="The share of the weighted points from which on the reply is right.",
    )

    @field_validator("criteria")
    @classmethod
    def _named(cls, criteria: dict[str, Criterion]) -> dict[str, Criterion]:
        _check_names("criterion", criteria)
        return criteria


class AgainstBaseline(Spec):
    """The other reply is that of the baseline (``--llm-baseline``) to the same sample."""

    baseline: Literal[True] = Field(description="Compare with the reply in the report that --llm-baseline names.")


def _against(value: object) -> object:
    if isinstance(value, str | AgainstBaseline):
        return value
    if value == {"baseline": True}:
        return AgainstBaseline(baseline=True)
    raise refuse_here(f"found {describe(value)}, expected a column, or {{baseline: true}}")


class PairwiseSettings(PromptedSettings):
    """A judge says whether the reply or another one is better, in both orders."""

    kind: Literal["pairwise"] = "pairwise"
    scorer = "judge.pairwise:PairwiseScorer"
    against: Annotated[
        str | AgainstBaseline, BeforeValidator(_against, json_schema_input_type=str | AgainstBaseline)
    ] = Field(
        description="The column with the other reply; or {baseline: true}, for the reply in the report of "
        "--llm-baseline to the same sample of the suite of the same name."
    )
    criterion: str | None = Field(None, description="By what they are compared, in words told to the judge.")
    ties: bool = Field(True, description="Whether the judge may say that neither is better.")
    recorded: Annotated[tuple[str, ...] | None, FROM_LIST] = Field(
        None,
        json_schema_extra={"minItems": 1, "maxItems": 2, "uniqueItems": True},
        description="The columns with verdicts (reply, other or tie) that a judge gave before, in the order reply, "
        "other and in the opposite one, or the one column of pairs that were judged in one order: they are read, and "
        "no judge is asked. Verdicts in one order have no order_consistency.",
    )

    @field_validator("recorded", mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        if not value or len(value) > 2:
            raise refuse_here(
                f"found {len(value)} entries, expected two columns, that of the order reply, other first, or one"
            )
        return each_once("column")(tuple(value))

    @model_validator(mode="after")
    def _recorded_verdicts_are_about_columns(self) -> Self:
        if self.needs_baseline and self.recorded is not None:
            raise refuse_here("found verdicts on the replies of a baseline, expected a column in against", "recorded")
        return self

    @property
    def recorded_columns(self) -> tuple[str, ...]:
        return self.recorded or ()

    @property
    def needs_baseline(self) -> bool:
        """Where the other reply is its."""
        return isinstance(self.against, AgainstBaseline)

    @property
    def column_of_reply(self) -> str | None:
        return self.against if isinstance(self.against, str) else None

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """With a baseline's replies the suite's fingerprint changes with each baseline, for all of its scorers."""
        if not self.needs_baseline:
            return None
        return "a comparison with the replies of a baseline stands alone; give it a suite of its own", (
            "pairwise",
            "against",
        )


class EquivalenceSettings(PromptedSettings):
    """The reply means the same as a target: as text, as mathematics, else by the verdict of a judge."""

    kind: Literal["equivalence"] = "equivalence"
    needs_target = True
    scorer = "judge.equivalence:EquivalenceScorer"
    math: bool = Field(
        True, description="Compare the final answers with Math-Verify first, where it is installed and reads them."
    )
    form: Literal["json", "yes_no"] = Field(
        "json", description="What the judge writes: JSON with its reason, or YES or NO alone, as some judges only can."
    )

    @property
    def unsaid(self) -> tuple[str, ...]:
        return (*super().unsaid, "form") if self.form == "json" else super().unsaid


RagMetric: TypeAlias = Literal[
    "faithfulness",
    "answer_relevance",
    "context_precision",
    "context_recall",
    "faithfulness_ragas",
    "answer_relevance_ragas",
    "context_recall_ragas",
]


class RagSettings(JudgedSettings):
    """A judge on answers that were written from retrieved contexts, and on what was retrieved."""

    kind: Literal["rag"] = "rag"
    scorer = "judge.rag.scorer:RagScorer"
    needs_reply = False
    metrics: Annotated[tuple[RagMetric, ...], FROM_LIST] = Field(
        ("faithfulness", "answer_relevance", "context_precision", "context_recall"),
        json_schema_extra={"minItems": 1, "uniqueItems": True},
        description="What is measured. Each costs requests of its own.",
    )
    contexts: str | None = Field(
        None,
        description="The column with the retrieved texts, best first: a list of texts, or of mappings with text, "
        "content or page_content. Default: those that the model returns with its answer, else the column contexts.",
    )
    k: int | None = Field(None, ge=1, description="How many of the texts count for context_precision. Default: all.")
    questions: int = Field(
        3, ge=1, le=20, description="How many questions the judge makes of an answer, for answer_relevance."
    )
    max_tokens: int = Field(2048, ge=1, description="Tokens that a verdict, or a list of claims, may have.")

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return (self.contexts or "contexts",)

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, metrics: tuple[RagMetric, ...]) -> tuple[RagMetric, ...]:
        return each_once("metric")(metrics)

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        for key, metric in (("k", "context_precision"), ("questions", "answer_relevance")):
            if key in self.model_fields_set and not any(name.startswith(metric) for name in self.metrics):
                raise refuse_here(f"it is for {metric}, which is not among the metrics; remove it", key)
        return self
