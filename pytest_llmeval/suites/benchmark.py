"""A benchmark written in Python: a class that says which questions there are, and when an answer is right."""

from __future__ import annotations

import difflib
import inspect
import re
import reprlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pytest_llmeval.data.code_version import version_of_class
from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import Document
from pytest_llmeval.errors import RequestError
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.loading.loader import suite_of
from pytest_llmeval.suites.loading.suite import NO_SCORERS, Suite
from pytest_llmeval.text.wording import Keys, dotted, nearest, quoted

__all__ = ["Benchmark", "load_benchmark"]

_KEYS = (
    *("description", "prompt", "choices", "target", "category", "cluster", "human", "filters", "generate", "epochs"),
    *("tags", "gates", "min_measurable", "not_measurable", "primary_metric", "variants"),
)
_CLOSE = 0.85
"""An attribute that is at least so similar to one of ours is taken for a misspelling: ``loader`` is not ``load``.

For a method that the file does not call, less similarity suffices: that of ``wording.nearest``."""
_ALIASES = {"normalise": "normalize", "is_equivalent": "is_equiv"}
"""Names of other programs, whose ``is_equiv`` takes the target first: ``is_equiv(gold, pred)``."""
_FOREIGN = ("set_pred", "evaluate")
"""Hooks of other programs that would decide what is right, and have no equivalent here."""
_HOOKS = {
    "load": "load_data load_dataset get_data get_samples",
    "normalise": "postprocess post_process extract_answer parse_answer clean_answer get_answer",
    "is_equivalent": "compare is_correct is_right check check_answer grade judge verify match matches",
}
_COLUMNS = {"qid": "id", "gold": "target"}
"""Columns of other programs' questions, with their names here."""
_LIKE = {theirs: ours for ours, names in _HOOKS.items() for theirs in names.split()}
"""Hooks of other programs, with what takes their place."""
_TARGET_WORDS = frozenset({"gold", "target", "reference"})
_ANSWER_WORDS = frozenset({"pred", "prediction", "answer"})


class Benchmark:
    """A suite in Python. A subclass in a test file is collected as a YAML suite is, one item for each question.

    ``load`` gives the rows; their keys ``id``, ``question``, ``choices``, ``target`` and ``category`` mean what they
    mean in a suite, and any other is a variable for the prompt's template. The other attributes are keys of the suite
    format, with values as YAML would hold them. Without ``score`` a reply is right where ``is_equivalent`` says so of
    it and of a target, both normalised. ``normalize(text)`` is another name of ``normalise``, and
    ``is_equiv(target, answer)`` of ``is_equivalent(answer, target)``; where the names of its two parameters say which
    is which (``gold``, ``target``, ``reference``; ``pred``, ``prediction``, ``answer``), either is called by them.
    """

    suite: ClassVar[str] = ""
    """The suite's name in reports; the class's own where it is empty."""
    description: ClassVar[str] = ""
    prompt: ClassVar[Mapping[str, Any]] = {}
    choices: ClassVar[Any] = None
    target: ClassVar[Any] = None
    category: ClassVar[str | None] = None
    cluster: ClassVar[str | None] = None
    human: ClassVar[str | None] = None
    filters: ClassVar[Sequence[Any]] = ()
    generate: ClassVar[Mapping[str, Any]] = {}
    epochs: ClassVar[Any] = None
    score: ClassVar[Any] = None
    tags: ClassVar[Sequence[str]] = ()
    gates: ClassVar[Sequence[str]] = ()
    min_measurable: ClassVar[float | None] = None
    not_measurable: ClassVar[Mapping[str, float]] = {}
    primary_metric: ClassVar[Any] = None
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    judged_by: str | None = None
    """A text that names the model which ``is_equivalent`` asks, and its settings; None if it asks none."""

    folder: Path
    """The folder of the file that the class stands in; set before ``load`` is called."""

    def load(self) -> Iterable[Mapping[str, Any]]:
        """Return the rows, in order."""
        raise NotImplementedError(f"{type(self).__name__} has no method load, which gives the rows")

    def normalise(self, text: str) -> str:
        """Return what is compared of a reply, and of a target. By default without white space at the ends."""
        return text.strip()

    def is_equivalent(self, answer: str, target: str) -> bool:
        """Tell whether an answer is right; both are normalised. By default, whether they are equal."""
        return answer == target


@dataclass(frozen=True, slots=True)
class _Equivalence:
    """The scorer of a benchmark that has none of its own: normalise both, ask whether they are equivalent."""

    benchmark: Benchmark

    metrics = ("accuracy", "no_answer")

    @property
    def judged_by(self) -> str | None:
        """Return the benchmark's own."""
        return self.benchmark.judged_by

    needs_text = True
    """A target is text or a number, or several, as with ``score: exact``; see ``custom.CustomScorer``."""

    @property
    def version(self) -> int:
        """Return a checksum of the sources of the class and of the classes that it derives from."""
        return version_of_class(type(self.benchmark))

    def __call__(self, reply: str, target: Any) -> Any:
        from pytest_llmeval.types import Score

        answer = self._normalised(reply)
        targets = target if isinstance(target, list) else [target]
        right = any(
            self._is_right(answer, self._normalised(one if isinstance(one, str) else repr(one))) for one in targets
        )
        no_answer = not right and answer == ""
        return Score(
            status="correct" if right else "wrong",
            answer=None if no_answer else answer,
            no_answer=no_answer,
            values={"accuracy": float(right)},
        )

    def _normalised(self, text: str) -> str:
        name = _hook_of(type(self.benchmark), "normalise")
        found = self._call(name, text)
        if not isinstance(found, str):
            raise self._error(f"{name} returned {_shown(found)}, expected text")
        return found

    def _is_right(self, answer: str, target: str) -> bool:
        name = _hook_of(type(self.benchmark), "is_equivalent")
        is_target_first = _takes_target_first(getattr(self.benchmark, name), name)
        found = self._call(name, target, answer) if is_target_first else self._call(name, answer, target)
        if type(found).__name__ in ("bool_", "bool") and hasattr(found, "item"):  # numpy's
            found = found.item()
        if not isinstance(found, bool):
            raise self._error(f"{name} returned {_shown(found)}, expected True or False")
        return found

    def _call(self, name: str, *texts: str) -> object:
        try:
            return getattr(self.benchmark, name)(*texts)
        except Exception as error:
            text = " ".join(str(error).split())
            raise self._error(f"{name} raised {type(error).__name__}: {text}") from error

    def _error(self, message: str) -> RequestError:
        return RequestError(f"{type(self.benchmark).__name__}.{message}")


def _hook_of(kind: type[Benchmark], name: str) -> str:
    """Return ``name`` or its alias, whichever the class, or the nearest class that it derives from, has."""
    alias = _ALIASES[name]
    return next((given for owner in kind.__mro__ for given in (alias, name) if given in vars(owner)), name)


def load_benchmark(
    kind: type[Benchmark],
    path: Path,
    *,
    overrides: Sequence[Override] = (),
    shown_path: str | None = None,
    scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
) -> Suite:
    """Return the suite that the class makes. Raises ``SuiteError`` at the class's line, and whatever ``load``
    raises.
    """
    source = Source(path, shown_path or str(path))
    line = _line_of(kind)
    _check_attributes(kind, source, line)
    if kind.load is Benchmark.load:
        theirs = next((name for name in _HOOKS["load"].split() if callable(getattr(kind, name, None))), None)
        advice = "" if theirs is None else f"rename {theirs} to load; "
        message = f"{kind.__name__} has no method load, which gives the rows; {advice}a base for others says"
        raise source.error(f"{message} __test__ = False", line)
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        message = f"{kind.__name__}: a benchmark is made without arguments, and its __init__ says: {error}"
        raise source.error(message, line) from None
    benchmark = kind()
    benchmark.folder = path.parent
    value: dict[str, Any] = {"suite": kind.suite or kind.__name__}
    for name in _KEYS:
        given = _plain(getattr(benchmark, name), (name,), kind, source, line)
        if given not in (None, "", [], {}):
            value[name] = given
    value.setdefault("description", inspect.cleandoc(kind.__doc__ or "").partition("\n")[0])
    value["samples"] = [_as_lists(row) for row in _rows(benchmark, source, line)]
    if benchmark.score is not None:
        value["score"] = _plain(benchmark.score, ("score",), kind, source, line)
    else:
        own = f"{kind.__name__}.is_equivalent"
        value["score"], scorers = own, ChainMap({own: _Equivalence(benchmark)}, scorers)  # type: ignore[arg-type]
    return suite_of(Document(source, value, {(): line or 1}), overrides=overrides, scorers=scorers)


def _rows(benchmark: Benchmark, source: Source, line: int | None) -> list[Mapping[str, Any]]:
    where = f"{type(benchmark).__name__}.load"
    found: object = benchmark.load()
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise source.error(f"{where} returned {_shown(found)}, expected rows: a list of mappings, or yield them", line)
    rows = list(found)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            expected = "expected a mapping of columns, such as {'id': 'q1', 'question': '…', 'target': '…'}"
            raise source.error(f"{where}: row {number} is a {type(row).__name__}, {expected}", line)
        found = [
            f"{quoted(theirs)} and no {quoted(ours)}"
            for theirs, ours in _COLUMNS.items()
            if theirs in row and ours not in row and getattr(benchmark, ours, None) is None
        ]
        if found:
            message = f"{where}: row {number} has {', '.join(found)}, which is what we call it"
            raise source.error(f"{message}: rename it, or give both", line)
    return rows


def _check_attributes(kind: type[Benchmark], source: Source, line: int | None) -> None:
    """Raise ``SuiteError`` for an attribute that was meant to be one of ours."""
    known = [name for name in dir(Benchmark) if not name.startswith("_")] + ["folder", *_ALIASES.values()]
    for owner in kind.__mro__:
        if owner is Benchmark or not issubclass(owner, Benchmark):
            continue
        for name, alias in _ALIASES.items():
            if name in vars(owner) and alias in vars(owner):
                message = f"{owner.__name__} has both {name} and {alias}, which mean the same; remove one"
                raise source.error(message, line)
        for name, value in vars(owner).items():
            if name in (*known, "pytestmark") or name.startswith("_") or name.isupper():
                continue
            where = f"{owner.__name__}.{name}"
            if name in ("samples", "dataset"):
                raise source.error(f"{where}: a benchmark's rows come from its method load; rename the attribute", line)
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=_CLOSE)
            if near:
                message = f"{where}: a benchmark has no {name}; did you mean {quoted(near[0])}? Otherwise rename it"
                raise source.error(message, line)
            if name in SuiteSpec.model_fields:
                message = f"{where}: {name} has no meaning in a benchmark; write the suite in YAML, or rename it"
                raise source.error(message, line)
            if inspect.isroutine(value):
                _check_method(kind, owner, name, source, line)


def _check_method(kind: type[Benchmark], owner: type[Benchmark], name: str, source: Source, line: int | None) -> None:
    """Raise ``SuiteError`` for a method that would never be called, though its author expects it."""
    if _is_used(kind, name):
        return
    where = f"{owner.__name__}.{name}"
    if name in _FOREIGN:
        message = f"{where}: a benchmark has no {name}; what is right is decided by normalise and is_equivalent"
        raise source.error(f"{message}; move it there, or rename it", line)
    hooks = (*_ALIASES, *_ALIASES.values())
    near = _LIKE.get(name) or _held_in(name, (*hooks, "load")) or nearest(name, hooks)
    if near is not None:
        message = f"{where}: a benchmark has no {name}, and nothing in the file calls it; did you mean {quoted(near)}?"
        raise source.error(f"{message} Otherwise rename it", line)


def _held_in(name: str, hooks: Sequence[str]) -> str | None:
    """Return the first of the hooks whose words stand together in the name: ``normalise`` in ``normalise_answer``."""
    words = f"_{'_'.join(_words(name))}_"
    return next((hook for hook in hooks if f"_{hook}_" in words), None)


def _words(name: str) -> list[str]:
    """Return the words of a name: ``is`` and ``equivalent`` for ``is_equivalent`` and for ``isEquivalent``."""
    return [word for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_") if word]


def _takes_target_first(method: Callable[..., object], name: str) -> bool:
    """Tell whether a method takes the target first, by the names of its first two parameters, else by custom."""
    try:
        parameters = list(inspect.signature(method).parameters)[:2]
    except (TypeError, ValueError):  # some of C have none
        parameters = []
    kinds = [
        "target" if _TARGET_WORDS.intersection(words) else "answer" if _ANSWER_WORDS.intersection(words) else None
        for words in map(_words, parameters)
    ]
    if set(kinds) == {"target", "answer"}:
        return kinds[0] == "target"
    return name != "is_equivalent"


def _is_used(kind: type[Benchmark], name: str) -> bool:
    """Tell whether a file of the class or of what it derives from mentions the method beside its definition: a
    helper.
    """
    owners = [owner for owner in kind.__mro__ if issubclass(owner, Benchmark) and owner is not Benchmark]
    return any(_is_mentioned(owner, name) for owner in owners)


def _is_mentioned(owner: type[Benchmark], name: str) -> bool:
    try:
        text = inspect.getsource(inspect.getmodule(owner) or owner)
    except (OSError, TypeError):
        return False
    name = re.escape(name)
    return re.search(rf"\b{name}\b", re.sub(rf"(?m)\bdef {name}\b|^\s*{name}\s*=(?!=)", "", text)) is not None


def _plain(value: Any, keys: Keys, kind: type[Benchmark], source: Source, line: int | None) -> Any:
    """Return a value as lists and dicts, as YAML gives them. Raises ``SuiteError`` for what YAML cannot write."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part, (*keys, str(key)), kind, source, line) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, (*keys, place), kind, source, line) for place, part in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    message = f"{kind.__name__}.{dotted(keys)}: found {_shown(value)}, expected what YAML can write: text, a number, …"
    raise source.error(message, line)


def _as_lists(value: Any) -> Any:
    """Return a value as lists and dicts, as YAML gives them."""
    if isinstance(value, Mapping):
        return {str(key): _as_lists(part) for key, part in value.items()}
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value


def _shown(value: object) -> str:
    """Return a value in a message, without addresses: every worker of pytest-xdist is to say the same."""
    if value is None:
        return "None"
    kind = f"a {type(value).__name__}"
    return f"{reprlib.repr(value)} ({kind})" if isinstance(value, bool | int | float | str | Mapping) else kind


def _line_of(kind: type[Benchmark]) -> int | None:
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return None
