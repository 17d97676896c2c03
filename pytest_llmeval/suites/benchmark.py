"""A benchmark written in Python: a class that says which questions there are, and when an answer is right."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pytest_llmeval.suites.files import Source
from pytest_llmeval.suites.loader import suite_of
from pytest_llmeval.suites.overrides import Override
from pytest_llmeval.suites.sniff import benchmark_names
from pytest_llmeval.suites.suite import NO_SCORERS, Suite
from pytest_llmeval.suites.wording import quoted
from pytest_llmeval.suites.yaml_lines import Document

__all__ = ["Benchmark", "check_name", "load_benchmark"]

_KEYS = ("description", "prompt", "choices", "target", "category", "filters", "generate", "epochs", "tags")


class Benchmark:
    """A suite in Python. A subclass in a test file is collected as a YAML suite is, one item for each question.

    ``load`` gives the rows; their keys ``id``, ``question``, ``choices``, ``target`` and ``category`` mean what they
    mean in a suite, and any other is a variable for the prompt's template. The other attributes are keys of the suite
    format, with values as YAML would hold them. Without ``score`` a reply is right where ``is_equivalent`` says so of
    it and of a target, both normalised.
    """

    suite: ClassVar[str] = ""
    """The suite's name in reports; the class's own where it is empty."""
    description: ClassVar[str] = ""
    prompt: ClassVar[Mapping[str, Any]] = {}
    choices: ClassVar[Any] = None
    target: ClassVar[Any] = None
    category: ClassVar[str | None] = None
    filters: ClassVar[Sequence[Any]] = ()
    generate: ClassVar[Mapping[str, Any]] = {}
    epochs: ClassVar[Any] = None
    score: ClassVar[Any] = None
    tags: ClassVar[Sequence[str]] = ()

    folder: Path
    """The folder of the file that the class stands in; set before ``load`` is called."""

    def load(self) -> Iterable[Mapping[str, Any]]:
        """The rows, in order."""
        raise NotImplementedError(f"{type(self).__name__} has no method load, which gives the rows")

    def normalise(self, text: str) -> str:
        """What is compared of a reply, and of a target. By default without white space at the ends."""
        return text.strip()

    def is_equivalent(self, answer: str, target: str) -> bool:
        """Whether an answer is right; both are normalised. By default, whether they are equal."""
        return answer == target


@dataclass(frozen=True, slots=True)
class _Equivalence:
    """The scorer of a benchmark that has none of its own: normalise both, ask whether they are equivalent."""

    benchmark: Benchmark

    metrics = ("accuracy", "no_answer")

    @property
    def version(self) -> int:
        """A checksum of the class's source."""
        try:
            return zlib.crc32(inspect.getsource(type(self.benchmark)).encode())
        except (OSError, TypeError):
            return 1

    def __call__(self, reply: str, target: Any) -> Any:
        from pytest_llmeval.types import Score

        answer = self.benchmark.normalise(reply)
        targets = target if isinstance(target, list) else [target]
        right = any(
            self.benchmark.is_equivalent(answer, self.benchmark.normalise(one if isinstance(one, str) else str(one)))
            for one in targets
        )
        no_answer = not right and answer == ""
        return Score(
            status="correct" if right else "wrong",
            answer=None if no_answer else answer,
            no_answer=no_answer,
            values={"accuracy": float(right)},
        )


def load_benchmark(
    kind: type[Benchmark],
    path: Path,
    *,
    overrides: Sequence[Override] = (),
    shown_path: str | None = None,
    scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
) -> Suite:
    """The suite that the class makes. Raises ``SuiteError`` at the class's line, and whatever ``load`` raises."""
    benchmark = kind()
    benchmark.folder = path.parent
    source = Source(path, shown_path or str(path))
    line = _line_of(kind)
    value: dict[str, Any] = {"suite": kind.suite or kind.__name__}
    for name in _KEYS:
        given = getattr(kind, name)
        if given not in (None, "", (), {}, []):
            value[name] = _plain(given)
    value.setdefault("description", inspect.cleandoc(kind.__doc__ or "").partition("\n")[0])
    rows = list(benchmark.load())
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise source.error(
                f"{kind.__name__}.load: row {number} is a {type(row).__name__}, expected a mapping of columns", line
            )
    value["samples"] = [_plain(row) for row in rows]
    if kind.score is not None:
        value["score"] = _plain(kind.score)
    else:
        own = f"{kind.__name__}.is_equivalent"
        value["score"], scorers = own, {**scorers, own: _Equivalence(benchmark)}
    return suite_of(Document(source, value, {(): line or 1}), overrides=overrides, scorers=scorers)


def _plain(value: Any) -> Any:
    """Lists and dicts, as YAML gives them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _line_of(kind: type[Benchmark]) -> int | None:
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return None


def check_name(kind: type[Benchmark], path: Path, shown_path: str) -> None:
    """Raise ``SuiteError`` for a benchmark that ``benchmark_names`` would not find."""
    if kind.__name__ not in benchmark_names(path):
        bases = ", ".join(base.__name__ for base in kind.__bases__)
        raise Source(path, shown_path).error(
            f"{kind.__name__} derives from {quoted(bases)}: the name of what a benchmark derives from ends with "
            "Benchmark; rename it",
            _line_of(kind),
        )
