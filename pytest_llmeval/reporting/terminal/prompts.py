"""Lines of ``--llm-show-prompts``: the exact prompt of a sample, with the scored part marked."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.types import (
    EmbeddingRequest,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Message,
    Prompt,
    Response,
)

__all__ = ["judge_lines", "prompt_lines"]


def prompt_lines(question: PreparedSample, *, marks: tuple[str, str] = ("⟦", "⟧")) -> Iterator[str]:
    """Yield lines that show each request; ``marks`` stand around what is scored.

    Options that follow the same context are shown one under the other, the right ones with ``*``.
    """
    opening, closing = marks
    right = question.right
    shown: Prompt | None = None
    for place, request in enumerate(question.requests):
        if isinstance(request, LoglikelihoodRollingRequest | EmbeddingRequest):
            yield from (opening + printable(request.text, keep="\n") + closing).split("\n")
            return  # nothing is expected of a text that is scored whole, or embedded
        context = request.prompt if isinstance(request, GenerateRequest) else request.context
        first, scored = context != shown, f"{opening}{_scored(request)}{closing}"
        shown = context
        marker = " *" if place in right and len(question.requests) > 1 else ""
        if not first:
            yield f"{scored}{marker}"
        elif isinstance(context, str):
            yield from printable(f"{context}{scored}{marker}", keep="\n").split("\n")
        else:
            yield "(turns, before the model's chat template)"
            is_begun = context[-1].role == "assistant"
            for turn in context[: len(context) - is_begun]:
                yield from printable(f"<{turn.role}> {turn.content}", keep="\n").split("\n")
            begun = context[-1].content if is_begun else ""
            yield from printable(f"<assistant> {begun}{scored}{marker}", keep="\n").split("\n")
    target = question.target
    yield f"target: {printable(target if isinstance(target, str) else ' | '.join(target))}"


def judge_lines(
    evaluation: Evaluation, question: PreparedSample, *, marks: tuple[str, str] = ("⟦", "⟧")
) -> Iterator[str]:
    """Yield the first prompt of a judge, about the reply that the data hold or about a placeholder."""
    if "judge" not in evaluation.scorer.roles:
        return
    given = question.sample.response
    reply = given if isinstance(given, str) else f"{marks[0]}the reply{marks[1]}"
    contexts = (f"{marks[0]}a context{marks[1]}",) if "contexts" not in question.sample.variables else None
    responses: list[Response] = [
        GenerateResponse(text=reply, contexts=contexts)
        if isinstance(request, GenerateRequest)
        else LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)
        for request in question.requests
    ]
    asking = evaluation.asking(question, responses)
    try:
        asked = next(asking)
    except StopIteration:  # the reply of the data is decided without a judge
        return
    finally:
        asking.close()
    for request in asked.requests if asked.role == "judge" else ():
        if isinstance(request, GenerateRequest):
            yield "judge (turns, before its chat template)"
            prompt = request.prompt
            turns = (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt
            for turn in turns:
                yield from printable(f"<{turn.role}> {turn.content}", keep="\n").split("\n")


def _scored(request: LoglikelihoodRequest | GenerateRequest) -> str:
    if isinstance(request, GenerateRequest):
        stop = f", stop {list(request.stop)!r}" if request.stop else ""
        return f"reply of up to {request.max_tokens} tokens{stop}"
    return printable(request.continuation)
