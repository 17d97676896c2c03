"""Scorers whose judge can be asked in a suite's own words.

These are its task. What the settings say of the verdict follows them, then what every judge is told of the material
and of the form; and no template can show the reply, which stands in its fence alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from pytest_llmeval.data.spec import Spec, refuse_here
from pytest_llmeval.scorers.judging.judged_scorer import JudgedScorer, JudgedSettings
from pytest_llmeval.scoring.base import FileReader, PreparedSample, SettingsError, SuiteView
from pytest_llmeval.templates.templates import TemplateError, Templates, is_template
from pytest_llmeval.text.characters import unusable_character
from pytest_llmeval.text.wording import Keys, describe
from pytest_llmeval.types import Sample

__all__ = ["OwnPrompt", "PromptedScorer", "PromptedSettings"]


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
    """Settings of scorers whose judge can be asked in the suite's own words."""

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


P = TypeVar("P", bound=PromptedSettings)


_TASK = "task"


_MATERIAL = ("question", "target", "response", "reply", "row")
"""Names of what a judge is shown as data, or that hold it."""


class PromptedScorer(JudgedScorer[P]):
    """A scorer with the setting ``prompt``."""

    @property
    @abstractmethod
    def default_prompt(self) -> str:
        """Our own words for the task."""

    @property
    def facts(self) -> tuple[str, ...]:
        """Lines that follow the task, whoever words it: what the settings say."""
        return ()

    @property
    @abstractmethod
    def meaning(self) -> str:
        """Describe the possible verdicts for a prompt of the suite's own; the default prompt says them itself."""

    @property
    def columns_of_replies(self) -> tuple[str, ...]:
        """Columns that hold replies, which the judge is shown as data."""
        return ("response",)

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        """Return a template that cannot be read, or that names what is data; recorded verdicts on no reply."""
        if self.is_about_data and not suite.has_own_responses:
            return (
                "recorded verdicts are about replies that the data hold: name their column, dataset.fields.response",
                ("score", self.settings.kind, "recorded"),
            )
        if self._template is None:
            return None
        try:
            names = suite.templates.names(self._template)
        except TemplateError as error:
            return str(error), ("score", *self._keys)
        people = set() if suite.spec.human is None else {"human", *_named(suite, suite.spec.human)}
        for name in sorted(names & people):
            return f"uses {name}, by which people said what the judge is to find out", ("score", *self._keys)
        data = {*_MATERIAL, *_sources(suite, self.columns_of_replies)}
        for name in sorted(names & data):
            advice = "; name the column in dataset.fields" if name == "row" else ""
            return (
                f"uses {name}, and what the judge is shown as data cannot stand among its instructions: write of the "
                f"question, the reference answer and the reply in words{advice}",
                ("score", *self._keys),
            )
        return None

    def judges(self) -> list[str]:
        """Verdicts that were recorded are those of some judge, whom the suite's author knows."""
        recorded = dict.fromkeys(self.settings.recorded_columns)
        return [f"verdicts recorded in {' and '.join(recorded)}"] if recorded else []

    def present(self, sample: Sample) -> PreparedSample:
        """With the judge's task, where the suite words it. ``SettingsError`` where its template fails."""
        presented = super().present(sample)
        if self._template is None:
            return presented
        return replace(presented, judged_with={**presented.judged_with, _TASK: self._rendered(sample)})

    def task(self, presented: PreparedSample) -> str:
        """Return the instructions, but for the form of the verdict."""
        own = presented.judged_with.get(_TASK)
        return "\n".join([self.default_prompt, *self.facts] if own is None else [own, *self.facts, self.meaning])

    def _rendered(self, sample: Sample) -> str:
        data = (*_MATERIAL, *self.columns_of_replies)
        known = {name: value for name, value in sample.variables.items() if name not in data}
        try:
            text = self._templates.text(self._template or "", {**known, "default_prompt": self.default_prompt}).strip()
        except TemplateError as error:
            raise SettingsError(str(error), self._keys) from None
        problem = unusable_character(text) if text else "found nothing, expected the judge's task"
        if problem is not None:
            raise SettingsError(f"the rendered text: {problem}", self._keys)
        return text

    @cached_property
    def _templates(self) -> Templates:
        return Templates()

    @property
    def _template(self) -> str | None:
        return None if self.settings.prompt is None else self.settings.prompt.template

    @property
    def _keys(self) -> Keys:
        return self.settings.kind, "prompt"


def _sources(suite: SuiteView, names: Iterable[str]) -> set[str]:
    """Return these columns and those that the suite makes them of."""
    found = set(names)
    fields: Mapping[str, object] = MappingProxyType({}) if suite.spec.dataset is None else suite.spec.dataset.fields
    for name in names:
        rule = fields.get(name)
        if isinstance(rule, str):
            found |= _named(suite, rule)
    return found


def _named(suite: SuiteView, rule: str) -> set[str]:
    """Return the columns of a rule: a column, or a template."""
    return set(suite.templates.names(rule)) if is_template(rule) else {rule, rule.partition(".")[0]}
