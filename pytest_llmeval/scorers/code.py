"""The reply is a program: it runs in a sandbox, and the sample's tests say whether it is right."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pytest_llmeval.data.spec import FROM_LIST, refuse
from pytest_llmeval.errors import ModelError
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.references import several_or_one, target_texts
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.scoring.sandbox.launch import allowed_sandbox
from pytest_llmeval.scoring.sandbox.verdict import PROBLEMS, CodeLimits, CodeVerdict, judge, judge_by_command
from pytest_llmeval.text.wording import describe
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["CodeScorer", "CodeSettings", "code_of"]

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_TESTS, _SETUP, _ENTRY_POINT = "tests", "setup", "entry_point"
"""Columns of a sample."""


class CodeSettings(ScorerSettings):
    """The reply is code that passes the sample's tests; it runs with --llm-allow-code only."""

    kind: Literal["code"] = "code"
    language: Literal["python"] | None = Field(
        None,
        description="python (the default): the tests are Python, run apart from the program, and call its functions.",
    )
    run: Annotated[tuple[str, ...] | None, FROM_LIST] = Field(
        None,
        json_schema_extra={"minItems": 1},
        description="A command for another language, such as [node, test.js]. The tests are written to the file that "
        "its last word names, the code to reply with the same suffix (reply.js); exit code 0 is a pass. The tests run "
        "in the program's own process, which can end it with 0.",
    )
    timeout_s: float = Field(
        5.0, gt=0, le=3600, description="Seconds of processor time for a program; one that needs more is wrong."
    )
    memory_mb: int = Field(1024, ge=64, description="MiB for a program; one that needs more is wrong.")

    runs_code: ClassVar[bool] = True
    needs_target: ClassVar[bool] = False

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return (_SETUP, _ENTRY_POINT)

    @model_validator(mode="after")
    def _one_language(self) -> CodeSettings:
        if self.run is not None and self.language is not None:
            raise refuse("score.code.run: found language, too: a command is for another language; remove one")
        is_file = self.run is None or not (len(self.run) < 2 or "/" in self.run[-1])
        if not is_file or (self.run and self.run[-1].partition(".")[0] in ("reply", "errors")):
            raise refuse(
                "score.code.run: expected a command whose last word names the file of the tests: [node, test.js]; "
                "reply and errors are names of other files"
            )
        return self

    def make(self) -> CodeScorer:
        return CodeScorer.of(self)


class CodeScorer(SettingsScorer[CodeSettings]):
    """A scorer that is right if the program passes all tests."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer", *(f"failed_{problem}" for problem in PROBLEMS))

    def present(self, sample: Sample) -> PreparedSample:
        """Read the sample's tests, what stands before the reply's code, and the names that the tests call.

        A target is a solution, which few-shot examples show; what it defines is what the tests call. Raises
        ``ValueError`` for tests that are missing or no text.
        """
        judged_with = {_TESTS: _lines(sample, _TESTS)}
        if not judged_with[_TESTS].strip():
            raise ValueError(f"has no tests, expected them in the column {_TESTS} (or dataset.fields.{_TESTS})")
        for column in (_SETUP, _ENTRY_POINT):
            if sample.variables.get(column) is not None:
                judged_with[column] = _lines(sample, column)
        if self.settings.run is None:
            _check_python(judged_with[_TESTS], _TESTS)
            _check_python(_completed(judged_with.get(_SETUP, "")), _SETUP)
        texts = () if sample.target is None else target_texts(sample)
        heads = _head(judged_with.get(_SETUP, "")) if self.settings.run is None else ()
        if names := "\n".join(dict.fromkeys(name for text in (*texts, *heads) for name in _defined(text))):
            judged_with[_ENTRY_POINT] = "\n".join(filter(None, (judged_with.get(_ENTRY_POINT), names)))
        return PreparedSample(sample=sample, target=several_or_one(texts), judged_with=judged_with)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Run the program. Raises ``ModelError`` if code may not run, or no sandbox starts."""
        given = presented.judged_with
        entry_points = given.get(_ENTRY_POINT, "").split("\n") if given.get(_ENTRY_POINT) else []
        code = code_of(reply(responses), entry_points)
        if not code.strip():
            return right_or_wrong(False, None, values=_values(None))
        verdict = self._verdict(code, given.get(_SETUP, ""), given[_TESTS], entry_points)
        details = {} if verdict.problem is None else {"problem": verdict.problem, "detail": verdict.detail}
        return right_or_wrong(verdict.problem is None, code, values=_values(verdict), details=details)

    def _verdict(self, code: str, setup: str, tests: str, entry_points: Sequence[str]) -> CodeVerdict:
        sandbox = allowed_sandbox()
        if sandbox is None:
            raise ModelError("the reply is code, which runs only where that is allowed: --llm-allow-code")
        limits = CodeLimits(self.settings.timeout_s, self.settings.memory_mb)
        try:
            if self.settings.run is not None:
                return judge_by_command(sandbox, setup + code, tests, self.settings.run, limits)
            helpers, program = _completed(setup), setup + code
            if not _is_python(program) and _is_python(code):  # a whole function, and not what goes on from its head
                program = helpers + code
            return judge(sandbox, program, setup=helpers, tests=tests, entry_points=entry_points, limits=limits)
        except OSError as error:
            raise ModelError(f"code could not be judged (sandbox: {sandbox.kind}): {error}") from None


def code_of(text: str, entry_points: Sequence[str] = ()) -> str:
    """Return the code of a reply: its first fenced block that defines an entry point, else its first that is Python,
    else its first, else the text.

    A text without a block goes on from the prompt, and keeps its white space.
    """
    before, fence, after = text.partition("```")
    if fence and "```" not in after and before.strip() and not after.split("\n")[0].strip():
        return before  # the end of a block that the prompt has begun
    blocks = [found[3] for found in _FENCE.finditer(text)]
    if not blocks:
        return text
    names = "|".join(map(re.escape, entry_points))
    defines = re.compile(rf"^\s*(?:(?:async\s+def|def|class)\s+(?:{names})\b|(?:{names})\s*=)", re.MULTILINE)
    found = [block for block in blocks if names and defines.search(block)] or [*filter(_is_python, blocks), *blocks]
    return found[0]


def _parsed(text: str) -> list[ast.stmt]:
    """Return the statements of a text. Raises ``ValueError`` if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # published texts have escapes that Python warns of
            return ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"{error.msg} (line {error.lineno})") from None
    except (RecursionError, MemoryError):
        raise ValueError("it is nested too deeply") from None


def _is_python(text: str) -> bool:
    try:
        _parsed(text)
    except ValueError:
        return False
    return True


def _head(setup: str) -> tuple[str, ...]:
    """Return the last function of a setup if it has no body but a docstring: the reply goes on from it."""
    last = _parsed(_completed(setup))[-1:]
    if not last or not isinstance(last[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return ()
    is_empty = all(isinstance(one, ast.Pass | ast.Expr) for one in last[0].body)
    return (ast.unparse(last[0]),) if is_empty else ()


def _check_python(text: str, column: str) -> None:
    try:
        _parsed(text)
    except ValueError as error:
        raise ValueError(f"the column {column} is no Python: {error}") from None


def _completed(setup: str) -> str:
    """Return the setup with a body for the function that it may end with the head of."""
    try:
        _parsed(setup)
    except ValueError:
        return f"{setup}    pass\n"
    return setup


def _defined(solution: str) -> list[str]:
    """Return the functions and classes that a solution defines; none of one that goes on from the prompt."""
    try:
        statements = _parsed(solution)
    except ValueError:
        return []
    return [one.name for one in statements if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]


def _lines(sample: Sample, column: str) -> str:
    """Return a column's text; the entries of a list are lines."""
    value = sample.variables.get(column)
    lines = []
    for line in value if isinstance(value, list | tuple) else ["" if value is None else value]:
        if not isinstance(line, str):
            raise ValueError(f"found {describe(line)} in the column {column}, expected text or a list of texts")
        lines.append(line)
    return "\n".join(lines)


def _values(verdict: CodeVerdict | None) -> dict[str, float]:
    return {f"failed_{one}": float(verdict is not None and verdict.problem == one) for one in PROBLEMS}
