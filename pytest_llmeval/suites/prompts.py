"""Makes prompts of a sample's template, the examples before it, the system text and the beginning of the reply, as text
or as the turns of a chat.

The parts are put together as lm-eval 0.4.13 does it (``fewshot_context`` and ``build_qa_turn`` of
``lm_eval/api/task.py``, ``maybe_delimit`` and ``requires_delimiter`` of ``lm_eval/api/utils.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.prompt_spec import MessageSpec
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.templates.templates import RenderedExample, TemplateError
from pytest_llmeval.text.escaping import unusable_character
from pytest_llmeval.text.messages import check_turns, read_messages
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import Message, Prompt, Sample

__all__ = ["render_prompt"]

_FEWSHOT: Keys = ("prompt", "fewshot")
_MESSAGES: Keys = ("prompt", "messages")


def render_prompt(
    suite: Suite,
    sample: Sample,
    variables: Mapping[str, object],
    shots: Sequence[tuple[Mapping[str, object], str]],
    default_template: str,
) -> Prompt:
    """Return the prompt of one sample.

    ``variables`` are the sample's and what its scorer adds; ``shots`` are the variables and the answer of each example.
    An example is its question, ``answer_delimiter``, its prefix and its answer. Examples and question are joined by
    ``prompt.fewshot.delimiter``; before them stand the system text and ``system_delimiter``, behind them the prefix of
    the reply. With ``prompt.chat`` the system text is a message of its own, the prefix begins the assistant's turn, and
    the rest is the user's, or with ``multi_turn`` a turn of the user and one of the assistant for each example.
    ``prompt.messages`` stand between the system text and the prefix in place of all others.
    Examples that are the same objects as before are not rendered again. Raises ``SuiteError`` for a template that fails
    or text that no model can read.
    """
    rendering = _Rendering(suite, sample, default_template)
    spec = suite.spec.prompt
    system = rendering.text(spec.system, variables, ("prompt", "system")) if spec.system else ""
    prefix = rendering.text(spec.prefix, variables, ("prompt", "prefix")) if spec.prefix else ""
    if spec.messages is not None:
        return rendering.conversation(variables, system, prefix)
    examples = [rendering.example(*shot) for shot in shots]
    question = rendering.question(variables)
    delimiter = spec.fewshot.delimiter if spec.fewshot is not None else "\n\n"
    if not spec.chat:
        text = delimiter.join([*_texts(examples), question + _before_reply(question, prefix, spec.delimiter) + prefix])
        between = delimiter if spec.system_delimiter is None else spec.system_delimiter
        return system + between + text if system else text
    messages = [Message(role="system", content=system)] if system else []
    if spec.fewshot is not None and spec.fewshot.multi_turn:
        messages.extend(turn for example in examples if not isinstance(example, str) for turn in example)
        messages.append(Message(role="user", content=question))
    else:
        messages.append(Message(role="user", content=delimiter.join([*_texts(examples), question])))
    if prefix:
        messages.append(Message(role="assistant", content=prefix))
    return tuple(messages)


@dataclass(frozen=True, slots=True)
class _Rendering:
    """The rendering of a sample's prompt, or of one of its examples, whose ``example_variables`` are then given."""

    suite: Suite
    sample: Sample
    default_template: str
    example_variables: Mapping[str, object] | None = None

    def question(self, variables: Mapping[str, object]) -> str:
        template = self.suite.spec.prompt.template
        if template is None:
            return self.text(self.default_template, variables, ("score",))
        return self.text(template, variables, ("prompt", "template"))

    def conversation(self, variables: Mapping[str, object], system: str, prefix: str) -> tuple[Message, ...]:
        messages: list[Message] = []
        for place, spec in enumerate(self.suite.spec.prompt.messages or ()):
            keys = (*_MESSAGES, place)
            if spec.column is None:
                given: object = [self._message(spec, variables, keys)]
            else:
                given = self.suite.column(self.sample, spec.column, _MESSAGES)
            try:
                messages += read_messages(given)
            except ValueError as error:
                if spec.column is None:
                    raise self._error(str(error).removeprefix("message 1: "), keys) from None
                raise self._error(f"{spec.column}: {error}", _MESSAGES) from None
        try:
            check_turns(messages)
        except ValueError as error:
            raise self._error(str(error), _MESSAGES) from None
        if system:
            if messages[0].role == "system":
                raise self._error("the messages begin with a system message of their own", ("prompt", "system"))
            messages.insert(0, Message(role="system", content=system))
        if prefix:
            if messages[-1].role == "assistant":
                raise self._error("the last message is the assistant's, and begins the reply", ("prompt", "prefix"))
            messages.append(Message(role="assistant", content=prefix))
        return tuple(messages)

    def _message(self, spec: MessageSpec, variables: Mapping[str, object], keys: Keys) -> dict[str, Any]:
        """Return a message as data have it."""

        def text(name: str) -> str | None:
            source: str | None = getattr(spec, name)
            return None if source is None else self.text(source, variables, (*keys, name))

        made: dict[str, Any] = {name: text(name) for name in ("content", "tool_call_id", "name")}
        return {
            "role": spec.role,
            **made,
            "tool_calls": self._values(spec.tool_calls, variables, (*keys, "tool_calls")),
        }

    def _values(self, value: object, variables: Mapping[str, object], keys: Keys) -> Any:
        """Return a value with its texts rendered; one that is a single expression becomes the expression's value."""
        if isinstance(value, str):
            return self._rendered(value, lambda source: self.suite.templates.value(source, variables), keys)
        if isinstance(value, list | tuple):
            return [self._values(own, variables, (*keys, place)) for place, own in enumerate(value)]
        if isinstance(value, dict):
            return {key: self._values(own, variables, (*keys, key)) for key, own in value.items()}
        return value

    def example(self, variables: Mapping[str, object], answer: str) -> RenderedExample:
        memo = self.suite.templates.examples
        rendered = memo.get(self.default_template, variables, answer)
        if rendered is None:
            rendered = replace(self, example_variables=variables)._example(variables, answer)
            memo.keep(rendered, self.default_template, variables, answer)
        return rendered

    def _example(self, variables: Mapping[str, object], answer: str) -> RenderedExample:
        spec = self.suite.spec.prompt
        fewshot = spec.fewshot
        if fewshot is None or fewshot.template is None:
            question = self.question(variables)
        else:
            question = self.text(fewshot.template, variables, (*_FEWSHOT, "template"))
        if fewshot is not None and fewshot.answer is not None:
            answer = self.text(fewshot.answer, variables, (*_FEWSHOT, "answer"))
        if fewshot is None or fewshot.prefix is None:
            prefix = self.text(spec.prefix, variables, ("prompt", "prefix"))
        else:
            prefix = self.text(fewshot.prefix, variables, (*_FEWSHOT, "prefix"))
        reply = prefix + (" " if _is_joined(prefix, answer) else "") + answer
        if fewshot is not None and fewshot.multi_turn:
            return Message(role="user", content=question), Message(role="assistant", content=reply)
        delimiter = spec.delimiter
        if fewshot is not None and fewshot.answer_delimiter is not None:
            delimiter = fewshot.answer_delimiter
        elif self.suite.leaves_out_delimiter and reply[:1].isspace():
            delimiter = ""  # as before an option that begins with white space
        return question + (_before_reply(question, prefix, delimiter) if prefix else delimiter) + reply

    def text(self, source: str, values: Mapping[str, object], keys: Keys) -> str:
        if not source:
            return ""
        text: str = self._rendered(source, lambda source: self.suite.templates.text(source, values), keys)
        if (problem := unusable_character(text)) is not None:
            raise self._error(f"the rendered text: {problem}", keys)
        return text

    def _rendered(self, source: str, render: Callable[[str], Any], keys: Keys) -> Any:
        try:
            return render(source)
        except TemplateError as error:
            default = "the scorer's default template, since there is no prompt.template: " if keys == ("score",) else ""
            raise self._error(f"{default}{error}", keys) from None

    def _error(self, message: str, keys: Keys) -> SuiteError:
        if self.example_variables is None:
            return self.suite.error(message, self.sample, keys)
        row = self.example_variables.get("row")
        places = [self.suite.place(shot) for shot in self.suite.shots_for(self.sample) if shot.variables["row"] is row]
        return self.suite.error(f"in its example{f' {places[0]}' if places else ''}: {message}", self.sample, keys)


def _before_reply(question: str, prefix: str, delimiter: str) -> str:
    """Return what stands between a question and the prefix of its answer, which may bring white space of its own."""
    return delimiter if _is_joined(question, prefix) else ""


def _is_joined(before: str, after: str) -> bool:
    """Tell whether both texts are not empty and no white space stands where they meet."""
    return bool(before and after) and not (before[-1].isspace() or after[0].isspace())


def _texts(examples: Sequence[RenderedExample]) -> list[str]:
    return [example for example in examples if isinstance(example, str)]
