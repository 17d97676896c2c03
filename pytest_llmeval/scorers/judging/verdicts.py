"""Verdicts of a judge: asked for as JSON, read strictly, and asked for again where they cannot be read.

A verdict that did not come is never a number: the sample is unscored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

import regex

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON, Ask, GenerateRequest, GenerateResponse, Response, Score

__all__ = ["NUM_TRIES", "AskingVerdict", "Verdict", "json_object", "no_verdict", "verdict"]

T = TypeVar("T")
NUM_TRIES = 3
"""The number of times that a verdict is asked for until one can be read."""
_MAX_CHARACTERS = 100_000
"""The most characters of a verdict that is read at all."""
_MAX_SHOWN = 10_000
"""The most characters of a verdict that a record keeps: one that is longer says little, and may be megabytes."""
_DRAWN_AT = 0.7
"""The temperature of the later tries, if the first one's is lower: the likeliest reply would be the same again."""
_YES_OR_NO = regex.compile(r"[\W_]*(yes|no)[\W_]*", regex.IGNORECASE)
_LONGEST_WORD = 50
"""Characters of a YES or NO with what stands around it."""
_FENCED = regex.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n```", regex.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[T]):
    """The verdict of a judge. ``value`` is None where it could not be read, and ``problem`` says why.

    ``replies`` are all tries; the last one counts.
    """

    value: T | None
    problem: str | None
    replies: tuple[GenerateResponse, ...]

    @property
    def shown(self) -> dict[str, JSON]:
        """Return the details in a report: the verdict's text, and what all tries together took."""
        return {
            "raw": self.replies[-1].text[:_MAX_SHOWN] if self.replies else None,
            "num_prompt_tokens": sum(one.num_prompt_tokens for one in self.replies),
            "num_tokens": sum(one.num_tokens for one in self.replies),
            "seconds": math.fsum(one.seconds for one in self.replies),
            "tries": len(self.replies),
        }


AskingVerdict: TypeAlias = Generator[Ask, Sequence[Response | Failed], Verdict[T]]


def verdict(
    request: GenerateRequest, read: Callable[[Mapping[str, JSON]], T], *, is_json: bool = True
) -> AskingVerdict[T]:
    """Ask a judge, and ask twice more with other seeds if ``read`` raises ``ValueError`` for the verdict.

    The verdict is a JSON object or, without ``is_json``, YES or NO, which is read as ``{"yes": true}``. A request that
    failed is not sent again, since its model has tried that. After a verdict that was cut none is asked for: the next
    would be cut too, and cost as much.
    """
    replies: list[GenerateResponse] = []
    problem = ""
    for number in range(NUM_TRIES):
        (response,) = yield Ask("judge", (_again(request, number),))
        if isinstance(response, RequestError):
            problem = first_line(str(response))
            break
        if not isinstance(response, GenerateResponse):
            problem = f"found a {type(response).__name__}, expected a reply"
            break
        replies.append(response)
        try:
            value = read(json_object(response.text) if is_json else _yes_or_no(response.text))
            if is_json and _is_shown(response.text, request):
                raise ValueError("the verdict stands word for word in what the judge was shown")
            return Verdict(value=value, problem=None, replies=tuple(replies))
        except ValueError as error:
            problem = str(error)
        if response.finish_reason == "length":
            problem = _why_cut(request, response)
            break
    if replies:  # the same command again is to ask again
        yield Ask("judge", (), unusable=tuple(_again(request, number) for number in range(len(replies))))
    return Verdict(value=None, problem=problem, replies=tuple(replies))


def _why_cut(request: GenerateRequest, response: GenerateResponse) -> str:
    """Return the problem of a verdict that was cut, with its beginning."""
    if 0 < response.num_tokens < request.max_tokens:
        limit = (
            f"after {response.num_tokens:,} tokens, before its max_tokens ({request.max_tokens:,}): the context is full"
        )
    else:
        limit = f"at max_tokens ({request.max_tokens:,}): raise the scorer's setting max_tokens"
    if response.text.strip():
        return f"the verdict was cut {limit}; it began {quoted(response.text.strip())}"
    if response.reasoning:
        return f"the judge's reasoning was cut {limit}; it began {quoted(response.reasoning)}"
    return f"the verdict was cut {limit}; it is empty"


def _again(request: GenerateRequest, number: int) -> GenerateRequest:
    if number == 0:
        return request
    return replace(request, temperature=max(request.temperature, _DRAWN_AT), seed=request.seed + number)


def _is_shown(text: str, request: GenerateRequest) -> bool:
    """Tell whether the judge's prompt contains the JSON of a verdict, however it is spaced.

    Such a verdict is a copy of an example, or of what the judged reply wants to be said about itself.
    """
    said = "".join(_unfenced(text).split())
    turns = [request.prompt] if isinstance(request.prompt, str) else [turn.content for turn in request.prompt]
    return any(said in "".join(turn.split()) for turn in turns)


def _yes_or_no(text: str) -> dict[str, JSON]:
    """Return ``{"yes": true}`` or false for a reply that is one of the two words, however it is written and marked.

    ``ValueError`` for anything else: nothing is looked for in prose.
    """
    text = text.strip()
    found = None if len(text) > _LONGEST_WORD else _YES_OR_NO.fullmatch(text)
    if found is None:
        raise ValueError(f"the verdict is neither YES nor NO; it began {quoted(text)}")
    return {"yes": found[1].lower() == "yes"}


def json_object(text: str) -> dict[str, JSON]:
    """Return the JSON object that a reply is, bare or in one fence: the whole of it, for prose around it may say
    otherwise.

    ``ValueError`` for anything else, for a name that stands twice, for what is no JSON (NaN), and for a number that
    Python cannot hold. Line breaks may stand in a text as they are: grammars of some servers let models write them.
    """
    text = text.strip()
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"the verdict has {len(text):,} characters, expected at most {_MAX_CHARACTERS:,}")
    try:
        found = json.loads(
            _unfenced(text),
            object_pairs_hook=_once,
            parse_constant=_refused,
            parse_int=_whole,
            parse_float=_finite,
            strict=False,
        )
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("the verdict is not one JSON object") from None
    if not isinstance(found, dict):
        raise ValueError("the verdict is not a JSON object")
    return found


def _unfenced(text: str) -> str:
    fenced = _FENCED.fullmatch(text.strip())
    return text.strip() if fenced is None else fenced[1]


def _once(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the verdict has a name twice")
    return found


def _refused(constant: str) -> JSON:
    raise ValueError(f"the verdict holds {constant}, which is no JSON")


def _whole(digits: str) -> JSON:
    try:
        return int(digits)
    except ValueError:  # Python's own words advise to change the interpreter
        raise ValueError(f"the verdict holds a number of {len(digits):,} digits") from None


def _finite(digits: str) -> JSON:
    if not math.isfinite(number := float(digits)):
        raise ValueError("the verdict holds a number that is too large")
    return number


def no_verdict(problem: str | None, details: Mapping[str, JSON]) -> Score:
    """Return the score of a sample on which there is no verdict."""
    return Score(status="unscored", reason=f"no verdict: {problem}", details=details)
