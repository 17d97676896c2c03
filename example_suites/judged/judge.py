"""A judge made of rules, so that the suites beside it need no second model: it compares last numbers and counts lines.

pytest --llm-model demo --llm-judge SPEC --confcutdir=SOMEWHERE_ELSE …, or remove conftest.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pytest_llmeval.types import GenerateRequest, GenerateResponse, Message, ModelIdentity

__all__ = ["RuleJudge"]

_PART = re.compile(r"^([A-Z][a-z ]+):\n(`{3,})\n(.*?)\n\2$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class RuleJudge:
    """Reads what it is asked as a model would, and answers in the form that its instructions show."""

    identity = ModelIdentity(name="rules", backend="judge.py", fingerprint="rules, version 1")
    answers_one_by_one = True

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        """A verdict for each request, as JSON."""
        return [GenerateResponse(text=json.dumps(_verdict(request.prompt))) for request in requests]


def _verdict(prompt: str | tuple[Message, ...]) -> dict[str, object]:
    system, user = (turn.content for turn in prompt if isinstance(turn, Message))
    form = json.loads(system[system.rindex("\n{") :])
    parts = {title: text for title, _, text in _PART.findall(user)}
    reply, reference = parts["Reply"], parts.get("Reference answer", "")
    if "equivalent" in form:
        return {"reason": "The last numbers are compared.", "equivalent": _is_right(reply, reference)}
    return {name: _of_one(name, entry, reply, reference) for name, entry in form.items()}


def _of_one(name: str, entry: dict[str, object], reply: str, reference: str) -> dict[str, object]:
    if name in ("accuracy", "right"):
        reason, is_good = "The last numbers are compared.", _is_right(reply, reference)
    elif name in ("completeness", "sum"):
        reason, is_good = "There is a sum where there is an equals sign.", "=" in reply
    elif name == "unit":
        words = set(re.findall(r"[a-z]+", reference)) & set(re.findall(r"[a-z]+", reply))
        reason, is_good = f"Words of the reference answer: {', '.join(sorted(words)) or 'none'}.", bool(words)
    else:
        reason, is_good = "Two lines at most are clear.", 0 < len(reply.strip().splitlines()) <= 2
    if "score" in entry:
        return {"reason": reason, "score": 5 if is_good else 1}
    return {"reason": reason, "label": "pass" if is_good else "fail"}


def _is_right(reply: str, reference: str) -> bool:
    found, expected = (_NUMBER.findall(text)[-1:] for text in (reply, reference))
    return bool(found) and found == expected
