"""Prompts: the template of a sample, the examples before it, and the system text, as text or as the turns of a chat."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from pytest_llmeval.suites.mapping import unusable_character
from pytest_llmeval.suites.suite import Suite
from pytest_llmeval.suites.templates import TemplateError
from pytest_llmeval.suites.wording import Keys
from pytest_llmeval.types import Message, Prompt, Sample

__all__ = ["render_prompt"]


def render_prompt(
    suite: Suite,
    sample: Sample,
    variables: Mapping[str, object],
    shots: Sequence[tuple[Mapping[str, object], str]],
    default_template: str,
) -> Prompt:
    """The prompt of one sample.

    ``variables`` are the sample's and what its scorer adds; ``shots`` are the variables and the answer of each example.
    The parts (system text, examples, question) are joined by ``prompt.fewshot.delimiter``; an example is the rendered
    template, ``prompt.delimiter`` and its answer. With ``prompt.chat`` the system text is a message of its own and the
    rest is the user's. Examples that are the same objects as in the call before are not rendered again. Raises
    ``SuiteError`` for a template that fails or text that no model can read.
    """
    prompt = suite.spec.prompt
    fewshot = prompt.fewshot
    template = prompt.template if prompt.template is not None else default_template
    keys: Keys = ("prompt", "template") if prompt.template is not None else ("score",)

    def rendered(source: str, values: Mapping[str, object], at: Keys) -> str:
        try:
            text = suite.templates.text(source, values)
        except TemplateError as error:
            default = "the scorer's default template, since there is no prompt.template: " if at == ("score",) else ""
            raise suite.error(f"{default}{error}", sample, at) from None
        if (problem := unusable_character(text)) is not None:
            raise suite.error(f"the rendered text: {problem}", sample, at)
        return text

    system = rendered(prompt.system, variables, ("prompt", "system")) if prompt.system else ""
    made_of: tuple[object, ...] = (template, *(part for shot in shots for part in shot))
    known = suite.templates.examples
    if known is not None and len(known[0]) == len(made_of) and all(map(operator.is_, known[0], made_of)):
        examples = known[1]
    else:
        examples = []
        for shot_variables, answer in shots:
            shown = answer
            if fewshot is not None and fewshot.answer is not None:
                shown = rendered(fewshot.answer, shot_variables, ("prompt", "fewshot", "answer"))
            examples.append(rendered(template, shot_variables, keys) + prompt.delimiter + shown)
        suite.templates.examples = (made_of, examples)
    parts = [*examples, rendered(template, variables, keys)]
    delimiter = fewshot.delimiter if fewshot is not None else "\n\n"
    if prompt.chat:
        user = Message(role="user", content=delimiter.join(parts))
        return (Message(role="system", content=system), user) if system else (user,)
    return delimiter.join([system, *parts] if system else parts)
