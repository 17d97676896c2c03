"""Makes a sample's question: what is presented of it, its prompt, and its requests with their tools, turns and tags of
reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pytest_llmeval.evaluation.pipeline import Pipeline
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scoring.base import PreparedSample, SettingsError
from pytest_llmeval.suites.loading.suite import ScoreFiles, Suite
from pytest_llmeval.suites.prompts import render_prompt
from pytest_llmeval.suites.turns import as_conversations, render_turns, turn_samples
from pytest_llmeval.templates.templates import TemplateError
from pytest_llmeval.text.escaping import unusable_character
from pytest_llmeval.text.messages import shown_turn
from pytest_llmeval.text.reasoning import holds_tags, split_reasoning
from pytest_llmeval.text.tool_schemas import tools_as_text
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest, Prompt, Request, Sample

__all__ = ["QuestionMaker", "located"]


@contextmanager
def located(suite: Suite) -> Iterator[None]:
    """Turn a scorer's ``SettingsError`` into the ``SuiteError`` that says where its keys stand."""
    try:
        yield
    except SettingsError as error:
        raise suite.error(str(error), keys=error.keys) from None


class QuestionMaker:
    """Makes the questions of one suite's samples. Raises ``SuiteError`` for what the suite's author has to mend.

    ``score`` are the settings of ``scorer``.
    """

    def __init__(self, suite: Suite, score: ScoreSettings, scorer: Pipeline) -> None:
        self._suite = suite
        self._score = score
        self._scorer = scorer
        self.tools = self._suite_tools()
        """The tools of all samples, as a request has them; empty for none."""
        with located(suite):
            self._extra_template = self._checked_extra_template()
        others = (settings.column_of_reply for settings, _ in score.each())
        self._columns_of_replies = tuple(column for column in others if column is not None)
        self._shots: dict[str, tuple[Mapping[str, object], str]] = {}

    def presented(self, sample: Sample) -> PreparedSample:
        """Return what the scorer presents of a sample, and of the turns of a conversation. Raise ``SuiteError``."""
        sample = self._others_apart(sample)
        turns = turn_samples(self._suite, sample) if self._suite.spec.prompt.turns is not None else ()
        if any(turns[:-1]) and (self._columns_of_replies or self._score.needs_baseline):
            message = f"{self._scorer.name} compares the last reply with another; it cannot score an earlier turn"
            raise self._suite.error(message, sample, ("prompt", "turns"))
        try:
            found = self._scorer.present((turns and turns[-1]) or sample)
            return self._scorer.with_turns(found, turns) if any(turns[:-1]) else found
        except SettingsError as error:
            raise self._suite.error(str(error), sample, ("score", *error.keys)) from None
        except ValueError as error:
            if (problem := self._suite.unmapped(sample)) is not None:
                raise self._suite.error(problem, keys=("dataset",)) from None
            raise self._suite.error(str(error), sample) from None

    def _others_apart(self, sample: Sample) -> Sample:
        """Return the sample with the replies that the model's is compared with, all without their reasoning."""
        tags, earlier = self._suite.spec.generate.tags, sample.earlier
        if earlier is not None and earlier.text is not None and holds_tags(earlier.text, tags):
            sample = replace(sample, earlier=replace(earlier, text=split_reasoning(earlier.text, tags).text))
        for column in self._columns_of_replies:
            text = sample.variables.get(column)
            if isinstance(text, str) and holds_tags(text, tags):
                apart = {column: split_reasoning(text, tags).text}
                sample = replace(sample, variables={**sample.variables, **apart})
        return sample

    def made(self, sample: Sample) -> PreparedSample:
        """Return what is presented of a sample, with its prompt and its requests."""
        presented = self._with_continuation(self.presented(sample))
        prompt, users = self._render(sample, presented)
        delimiter, generate = self._delimiter(prompt), self._suite.spec.generate
        if users:  # the few tokens that a scorer needs by itself are too few for the other turns
            generate = generate.model_copy(update={"max_tokens": generate.max_tokens})
        try:
            requests = self._scorer.requests(presented, prompt, delimiter=delimiter, generate=generate)
        except SettingsError as error:
            raise self._suite.error(str(error), keys=error.keys) from None
        except ValueError as error:
            raise self._suite.error(str(error), sample) from None
        if users:
            try:
                requests = as_conversations(requests, users, self._scorer.name)
            except ValueError as error:
                raise self._suite.error(str(error), keys=("prompt", "turns")) from None
        if delimiter and self._suite.leaves_out_delimiter:
            requests = tuple(_without_delimiter(request, delimiter) for request in requests)
        if tags := self._suite.spec.generate.tags:
            requests = tuple(
                replace(request, reasoning=tags) if isinstance(request, GenerateRequest) else request
                for request in requests
            )
        if self._suite.spec.prompt.has_tools:
            requests = self._with_tools(sample, requests)
        if self._suite.spec.prompt.messages is not None and isinstance(prompt, tuple) and not sample.question:
            presented = _with_question(presented, "\n\n".join(map(shown_turn, prompt)))
        return replace(presented, prompt=prompt, requests=requests)

    def _render(self, sample: Sample, presented: PreparedSample) -> tuple[Prompt, tuple[str, ...]]:
        """Return the prompt, and the user's texts of a conversation that is asked turn by turn; else none."""
        users: tuple[str, ...] = ()
        if self._suite.spec.prompt.turns is not None:
            prompt, users = render_turns(self._suite, sample, self._variables(presented))
        else:
            prompt = render_prompt(
                self._suite,
                sample,
                self._variables(presented),
                [self._shot(shot) for shot in self._suite.shots_for(sample)],
                self._scorer.default_template,
            )
        if presented.labels:
            self._check_options_are_shown(presented, prompt, users)
        return prompt, users

    def _delimiter(self, rendered: Prompt) -> str:
        """Return what stands between prompt and option: by default nothing under a chat template, as in lm-eval, unless
        the reply begins with a prefix that has no white space at its end.
        """
        prompt = self._suite.spec.prompt
        if isinstance(rendered, str) or "delimiter" in prompt.model_fields_set:
            return prompt.delimiter
        last = rendered[-1]
        return prompt.delimiter if last.role == "assistant" and not last.content[-1:].isspace() else ""

    def _check_options_are_shown(self, presented: PreparedSample, prompt: Prompt, users: Sequence[str]) -> None:
        """Refuse a prompt that does not show an option, or shows it under another letter: its letter means nothing."""
        text = prompt if isinstance(prompt, str) else "\n".join([*(turn.content for turn in prompt), *users])
        is_shuffled = list(presented.order) != sorted(presented.order)
        for choice in presented.choices:
            if choice not in text:
                message = (
                    f"does not show the option {choice!r}: write {{{{ lettered_choices }}}} where the options belong"
                )
                raise self._suite.error(message, presented.sample, self.keys_of_prompt)
        for label, choice in zip(presented.labels, presented.choices, strict=True) if is_shuffled else ():
            if f"{label}. {choice}" not in text and not re.search(rf"{label}\W{{1,9}}{re.escape(choice)}", text):
                message = (
                    f"does not show the option {choice!r} under its letter {label}, for options are shuffled: write "
                    "{{ lettered_choices }} where they belong, with their texts as choices, or score: "
                    "{letter: {shuffle: false}}"
                )
                raise self._suite.error(message, presented.sample, self.keys_of_prompt)

    def _suite_tools(self) -> str:
        """Return the tools of all samples, which the suite holds or names, as a request has them."""
        given, keys = self._suite.spec.prompt.tools, ("prompt", "tools")
        if isinstance(given, str):
            try:
                return tools_as_text(ScoreFiles(self._suite).value(given, keys))
            except ValueError as error:
                raise self._suite.error(f"{given}: {error}", keys=keys) from None
        return tools_as_text(given)

    def _with_tools(self, sample: Sample, requests: tuple[Request, ...]) -> tuple[Request, ...]:
        """Return the requests with the sample's own tools, or those of the suite. Raise ``SuiteError`` for other
        requests than for replies.
        """
        column, tools = self._suite.spec.prompt.tools_column, self.tools
        if column is not None:
            keys = ("prompt", "tools_column")
            try:
                tools = tools_as_text(self._suite.column(sample, column, keys)) or tools
            except ValueError as error:
                raise self._suite.error(str(error), sample, keys) from None
        if not all(isinstance(request, GenerateRequest) for request in requests):
            message = f"{self._scorer.name} compares log-likelihoods, and only replies have tools; remove them"
            raise self._suite.error(message, keys=("prompt", "tools" if column is None else "tools_column"))
        return tuple(replace(one, tools=tools) if isinstance(one, GenerateRequest) else one for one in requests)

    def _variables(self, presented: PreparedSample) -> Mapping[str, object]:
        with located(self._suite):
            added = self._scorer.variables(presented)
        return {**presented.sample.variables, **added} if added else presented.sample.variables

    def _shot(self, shot: Sample) -> tuple[Mapping[str, object], str]:
        if shot.id not in self._shots:
            self._shots[shot.id] = self._presented_shot(shot)
        return self._shots[shot.id]

    def _presented_shot(self, shot: Sample) -> tuple[Mapping[str, object], str]:
        fewshot = self._suite.spec.prompt.fewshot
        try:
            presented = self._scorer.present(shot)
        except ValueError as error:
            if fewshot is None or fewshot.answer is None:
                raise self._suite.error(f"few-shot example: {error}", shot) from None
            # The suite says itself what the example answers, so it need not be a question that could be scored.
            return shot.variables, ""
        presented = self._with_continuation(presented)
        try:
            answer = self._scorer.answer_text(presented)
        except ValueError as error:
            if fewshot is None or fewshot.answer is None:
                raise self._suite.error(f"few-shot example: {error}", shot) from None
            answer = ""
        return self._variables(presented), answer

    def _checked_extra_template(self) -> tuple[str, Keys] | None:
        template = self._scorer.extra_template
        if template is not None:
            try:
                self._suite.templates.check(template[0])
            except TemplateError as error:
                raise SettingsError(str(error), template[1]) from None
        return template

    def _with_continuation(self, presented: PreparedSample) -> PreparedSample:
        if self._extra_template is None:
            return presented
        source, keys = self._extra_template
        try:
            text = self._suite.templates.text(source, self._variables(presented))
        except TemplateError as error:
            raise self._suite.error(str(error), presented.sample, keys) from None
        if (problem := unusable_character(text)) is not None:
            raise self._suite.error(f"the rendered text: {problem}", presented.sample, keys)
        return replace(presented, continuation=text)

    @property
    def keys_of_prompt(self) -> Keys:
        prompt = self._suite.spec.prompt
        return "prompt", "turns" if prompt.turns else "template" if prompt.messages is None else "messages"


def _with_question(presented: PreparedSample, question: str) -> PreparedSample:
    """Return the sample with a question for judges and readers, which its data do not have."""
    sample = replace(presented.sample, question=question)
    return replace(presented, sample=sample, parts=tuple(_with_question(one, question) for one in presented.parts))


def _without_delimiter(request: Request, delimiter: str) -> Request:
    """Return the request without the delimiter if the option (or target) behind it begins with white space."""
    if isinstance(request, LoglikelihoodRequest):
        option = request.continuation.removeprefix(delimiter)
        if option != request.continuation and option[:1].isspace():
            return replace(request, continuation=option)
    return request
