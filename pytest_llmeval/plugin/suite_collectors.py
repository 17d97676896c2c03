"""Suites in pytest's tree, and in each a level for the models and one for the variants, if there are several.

A suite is collected whole: its data, and the scorers that are registered for it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from pytest_llmeval.data.garbage import FrozenObjects
from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError, SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation, QuestionMemory, whole_suite
from pytest_llmeval.gates.subjects import check_given_gates, gate_lines, higher_is_better
from pytest_llmeval.inference.judging import Models, are_same
from pytest_llmeval.plugin.gate_setup import with_earlier_replies
from pytest_llmeval.plugin.models import check_abilities, check_replies, compared_models, described_judge, is_overridden
from pytest_llmeval.plugin.process_roles import runs_tests, warn_once_of_suite
from pytest_llmeval.plugin.sample_item import SampleItem
from pytest_llmeval.plugin.settings import ReportPrompts, settings_key, was_given
from pytest_llmeval.plugin.stash import collected_suites_key, frozen_objects_key, suite_paths_key
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.roles import ROLES
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scoring.option_scores import equal_options
from pytest_llmeval.suites.benchmark import Benchmark, load_benchmark
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.format.variants import Variant, variants_of
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.escaping import printable, without_commands
from pytest_llmeval.text.names import escape_id
from pytest_llmeval.text.redaction import describe, redact, redact_inside
from pytest_llmeval.text.wording import quoted, relative_path
from pytest_llmeval.types import JSON, AskedSample

if TYPE_CHECKING:
    from pytest_llmeval.models.replay.model import DataResponses

__all__ = [
    "NotASuite",
    "PlainFailures",
    "RegisteredScorers",
    "SuiteFile",
    "SuiteModel",
    "SuiteVariant",
    "collect_benchmark",
]


_RESERVED_MARKS = frozenset(
    ("filterwarnings", "parametrize", "skip", "skipif", "tryfirst", "trylast", "usefixtures", "xfail")
)


_Below: TypeAlias = "SampleItem | SuiteModel | SuiteVariant"

_question_memory_key = pytest.StashKey[QuestionMemory]()


class PlainFailures(pytest.Collector):
    """A collector that shows an error which the user can mend as one message, without a traceback."""

    is_llm_suite = True

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, LLMEvalError):
            return without_commands(printable(redact(str(excinfo.value)), keep="\n"))
        return redact_inside(super().repr_failure(excinfo))


class SuiteNode(PlainFailures):
    """A suite, whatever it is written in."""

    evaluation: Evaluation
    info: SuiteInfo
    fingerprints: dict[str, str]
    responses: DataResponses | None = None
    """The replies that the data carry, if there is no model to ask."""
    _judges: Models = MappingProxyType({})

    @functools.cached_property
    def warned(self) -> set[str]:
        """Return the warnings that were shown; the variants of a suite share it, and so show each once."""
        return set()

    @functools.cached_property
    def shown_paths(self) -> dict[str, str]:
        """Return the paths of rows from the rootdir; the samples fill it."""
        return {}

    @functools.cached_property
    def samples_asked(self) -> list[AskedSample]:
        """Return all samples, without requests, for models that answer by sample."""
        return whole_suite(self.evaluation)

    @abstractmethod
    def load(self, overrides: Sequence[Override], scorers: Mapping[str, Callable[..., Any]]) -> Suite:
        """Read the suite and its data. ``scorers`` are those that are registered from Python."""

    def collect(self) -> Iterator[_Below]:
        """Load the whole suite, check all of it, and yield an item for every sample, with several models or variants
        in levels.
        """
        if frozen_objects_key not in self.config.stash:
            self.config.stash[frozen_objects_key] = FrozenObjects()
        settings = self.config.stash[settings_key]
        suite = self.load(settings.set, RegisteredScorers(self))
        sources: list[SuiteNode] = [self]
        if suite.spec.variants or settings.variant:
            sources = self._variants(suite)
        else:
            self.set_suite(suite)
        models = {} if any(one.evaluation.scorer.scores_recorded_replies for one in sources) else compared_models(self)
        for model, name in models.items():
            yield SuiteModel.of(self, name, model, sources)
        if not models:
            yield from _samples_of(self, None, sources)

    def _variants(self, suite: Suite) -> list[SuiteNode]:
        """Return the nodes of the variants, loaded and checked, in their order.

        If only the command line gives the suite variants, the suite as it is written comes before them. Raises
        ``SuiteError``.
        """
        written = suite.spec.variants
        variants = variants_of(suite.name, written, self.config.stash[settings_key].variant)
        sources: list[SuiteNode] = []
        if written:
            self._reserve_name(suite)
        else:
            self.set_suite(suite)
            sources.append(self)
        taken: dict[str, str] = {}
        if variants:
            taken |= {name: f"the model {quoted(model)}" for model, name in compared_models(self).items()}
        if variants and not written:
            taken |= {escape_id(one.id): f"the sample {quoted(one.id)}" for one in suite.samples}
        for variant in variants:
            if variant.name in taken:
                message = f"node ids have this name for {taken[variant.name]}: rename the variant"
                raise _variant_error(suite, variant, message)
            source = SuiteVariant.of(self, variant.name)
            source.set_suite(suite.varied(variant), variant.name)
            for other in sources:
                if other.info.fingerprint == source.info.fingerprint:
                    same = f"variant {quoted(other.info.variant)}" if other.info.variant else "suite as it is written"
                    raise _variant_error(suite, variant, f"it asks and judges the same as the {same}: remove one")
            sources.append(source)
        return sources

    def _asked_with(self, prompts: ReportPrompts) -> Mapping[str, JSON]:
        """Return the settings that decide how questions are asked, without texts of prompts if reports have none."""
        if prompts == "full":
            return self.evaluation.asked_with
        from pytest_llmeval.gates.prompt_changes import with_hashed_prompts

        return with_hashed_prompts(self.evaluation.asked_with)

    def _reserve_name(self, suite: Suite) -> None:
        """Raise ``SuiteError`` if another suite of the session has the name."""
        paths = self.session.stash.setdefault(suite_paths_key, {})
        other = paths.setdefault(suite.name, self.nodeid)
        if other != self.nodeid:
            where = relative_path(self.config.rootpath / other)
            raise suite.error(f"{suite.name!r} is also the name of {where}: rename one of them", keys=("suite",))

    def set_suite(self, suite: Suite, variant: str | None = None) -> None:
        """Check a suite that was loaded, and describe it. Raises ``LLMEvalError`` and others for what does not fit."""
        settings = self.config.stash[settings_key]
        self._reserve_name(suite)
        memory = self.config.stash.setdefault(_question_memory_key, QuestionMemory())
        suite, parts = with_earlier_replies(self, suite)
        self.evaluation = Evaluation(suite, memory)
        fingerprint, self.fingerprints = self.evaluation.fingerprints()
        scorer, primary = self.evaluation.scorer, suite.spec.primary_metric
        has_own_judge = "judge" in scorer.roles and is_overridden(self, "llm_judge")
        if "judge" in scorer.roles and not has_own_judge:
            self.evaluation.num_judges = max(1, len(settings.specs_of("judge")))
        metrics, better = self.evaluation.metrics, dict(scorer.better)
        if has_own_judge and metrics:
            metrics = (*metrics, "judge.*")  # the number of judges that a fixture gives is known once it has run
        self.info = SuiteInfo(
            name=suite.name,
            path=self.nodeid,
            description=suite.spec.description,
            scorer=scorer.name,
            settings=self.evaluation.settings,
            fingerprint=fingerprint,
            num_samples=len(suite.samples),
            metrics=metrics,
            overridden=suite.overridden,
            gates=gate_lines(suite, metrics),
            primary_metric=None if primary is None else primary.name,
            higher_is_better=higher_is_better(suite, metrics, better),
            better=better,
            cluster=suite.cluster,
            min_measurable=suite.spec.min_measurable,
            interval=suite.spec.interval,
            # If the scorer asks a judge, it is known once the judge is there.
            judge=None if scorer.roles else self.evaluation.judge,
            judged_by=() if scorer.roles else self.evaluation.judged_by,
            fingerprint_parts={**self.evaluation.fingerprint_parts(), **parts},
            splits_reasoning=bool(suite.spec.generate.tags),
            asked_with=self._asked_with(settings.report_prompts),
            variant=variant,
        )
        given = {"--llm-gate": settings.gate, "llm_gate of the ini file": settings.project_gate}
        check_given_gates(suite, metrics, given)
        self._add_tags(suite.spec.tags)
        for warning in self.evaluation.warnings():
            self._warn(warning)
        self._tell_of_replaced()
        self._allow_code(suite)
        self._set_responses(suite)
        check_replies(self, suite.name, lambda: self.samples_asked)
        check_abilities(self, self.evaluation)
        if (message := equal_options(suite)) is not None:
            # No error: some published data have equal options, and are still worth scoring.
            self._warn(message)
        # Now, as any hook after this can leave out samples.
        self.config.stash.setdefault(collected_suites_key, {})[suite.name] = self.info

    def _allow_code(self, suite: Suite) -> None:
        """Let the suite's scorer run code, and say in ``info`` where. Raises ``SuiteError`` if that is not allowed."""
        settings = self.config.stash[settings_key]
        if not any(one.runs_code for one, _ in suite.spec.score.each()) or not runs_tests(self.config):
            return
        from pytest_llmeval.scoring.sandbox.launch import SandboxError, allow_code

        if not settings.allow_code:
            message = "runs code that the model writes: allow that with --llm-allow-code"
            raise suite.error(message, keys=("score",))
        try:
            sandbox = allow_code(settings.sandbox)
        except SandboxError as error:
            raise OptionError(f"--llm-sandbox {settings.sandbox}: {error}") from None
        where = f"{sandbox.kind}:{sandbox.image}" if sandbox.image else sandbox.kind
        self.info = replace(self.info, settings={**self.info.settings, "sandbox": where})
        if sandbox.kind == "none":
            self._warn("code of replies runs without a sandbox (--llm-sandbox none): it can do what you can do")
        if sandbox.weakness is not None:
            self._warn(f"code of replies runs in {sandbox.kind}: {sandbox.weakness}")

    def _tell_of_replaced(self) -> None:
        """Warn of a model that the command line gives a role and that will not be asked."""
        for role in ROLES:
            specs = self.config.stash[settings_key].specs_of(role)
            is_asked = role in self.evaluation.scorer.roles
            if specs and is_asked and was_given(self.config, role) and is_overridden(self, f"llm_{role}"):
                message = f"--llm-{role} {specs[0].name} is not asked: a conftest.py has the fixture llm_{role}"
                self._warn(message)

    def set_judges(self, judges: Models) -> None:
        """Set the models that the scorer asks, in ``info`` too: the suite's numbers depend on them.

        Raises ``ModelError`` if they differ from those that were set before.
        """
        if self._judges and are_same(self._judges, judges):
            return
        texts, digests = [], []
        for role, models in judges.items():
            for number, model in enumerate(models, 1):
                text, digest = described_judge(model)
                before = f"{role} {number} " if len(models) > 1 else "" if role == "judge" else f"the {role} "
                texts.append(f"{before}{text}")
                digests.append(digest)
        others = self.evaluation.judged_by
        whole = hashlib.sha256(json.dumps([*digests, *others]).encode()).hexdigest()
        if self._judges and whole != self.info.judge:
            known = self.info.judged_by[: len(texts)]
            both = f"{' and '.join(known)}, and now by {' and '.join(texts)}"
            raise ModelError(f"suite {self.info.name!r} was judged by {both}: give it one {' and one '.join(judges)}")
        self.evaluation.num_judges = len(judges.get("judge", ())) or 1
        self.info = replace(self.info, judge=whole, judged_by=(*texts, *others), metrics=self.evaluation.metrics)
        self._judges = judges

    def items(self, parent: SuiteNode | SuiteModel, model: str | None) -> Iterator[SampleItem]:
        """Yield an item for every sample, under ``parent``; ``model`` as ``SampleItem`` has it."""
        items: list[SampleItem] = []
        for number, sample in enumerate(self.evaluation.suite.samples, 1):
            items.append(SampleItem.of(parent, self, sample, model, number, like=items[0] if items else None))
        yield from items

    def _set_responses(self, suite: Suite) -> None:
        """Use the replies that the data carry, unless there is a model to ask and the scorer judges its replies."""
        has_model = bool(self.config.stash[settings_key].models) or is_overridden(self)
        if (not has_model or self.evaluation.scorer.scores_recorded_replies) and suite.has_own_responses:
            from pytest_llmeval.models.replay.model import DataResponses

            self.responses = DataResponses()

    def _warn(self, message: str) -> None:
        if message not in self.warned:
            self.warned.add(message)
            warn_once_of_suite(self, message)

    def _add_tags(self, tags: Sequence[str]) -> None:
        for place, tag in enumerate(tags):
            where = ("tags", place)
            if tag in _marks_with_meaning(self.config):
                raise self.evaluation.suite.error(
                    f"{tag!r} is the name of a mark that already has a meaning", keys=where
                )
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", pytest.PytestUnknownMarkWarning)
                    mark = getattr(pytest.mark, tag)
            except pytest.PytestUnknownMarkWarning:
                self.config.addinivalue_line("markers", f"{tag}: tag of an LLM suite")
                mark = getattr(pytest.mark, tag)
            except pytest.fail.Exception:
                message = f"{tag!r} is not among the registered markers, and --strict-markers is on: register it"
                raise self.evaluation.suite.error(message, keys=where) from None
            self.add_marker(mark)


class SuiteFile(SuiteNode, pytest.Module):
    """A suite file. It is a ``Module``, as autouse fixtures of module scope need one (doctest does the same)."""

    obj = None

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path) -> SuiteFile:
        """Return the suite at ``path``.

        pytest gives a file outside of the rootdir that is named on the command line no name in node ids: two such
        suites would have one node id.
        """
        root = parent.config.rootpath
        if path.is_relative_to(root):
            suite: SuiteFile = cls.from_parent(parent, path=path)
        else:
            suite = cls.from_parent(parent, path=path, nodeid=Path(os.path.relpath(path, root)).as_posix())
        return suite

    def load(self, overrides: Sequence[Override], scorers: Mapping[str, Callable[..., Any]]) -> Suite:
        return load_suite(self.path, overrides=overrides, shown_path=relative_path(self.path), scorers=scorers)


class _Level(pytest.Class):
    """A level between a file and its samples. It is a ``Class``, as editors show no other level of pytest's tree."""

    obj = None


class BenchmarkSuite(SuiteNode, pytest.Class):
    """A suite that a class in a Python file makes."""

    kind: type[Benchmark]

    @classmethod
    def of(cls, parent: pytest.Collector, kind: type[Benchmark]) -> BenchmarkSuite:
        """Return the suite of the class ``kind``, which stands in the module ``parent``."""
        suite: BenchmarkSuite = cls.from_parent(parent, name=kind.__name__)
        suite.kind = suite.obj = kind
        suite.own_markers.extend(_marks_of(kind))
        suite.keywords.update((mark.name, mark) for mark in suite.own_markers)
        return suite

    def load(self, overrides: Sequence[Override], scorers: Mapping[str, Callable[..., Any]]) -> Suite:
        shown_path = relative_path(self.path)
        if any(mark.name == "parametrize" for mark in self.own_markers):
            message = "is for test functions; give the benchmark variants, or each case a class of its own"
            raise SuiteError(f"{self.name}: pytest.mark.parametrize {message}", path=shown_path)
        return load_benchmark(self.kind, self.path, overrides=overrides, shown_path=shown_path, scorers=scorers)


def collect_benchmark(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> BenchmarkSuite | list[pytest.Collector] | None:
    """Return the suite of a class that derives from ``Benchmark`` and stands in this module; None for other objects.

    A class with ``__test__ = False`` has no suite, and a second name in the module adds none.
    """
    if not isinstance(collector, pytest.Module) or not isinstance(obj, type) or not issubclass(obj, Benchmark):
        return None
    if obj.__module__ != getattr(collector.obj, "__name__", None):
        return None
    if obj.load is Benchmark.load and obj.__subclasses__():
        return None  # a base of other benchmarks
    is_alias = name != obj.__name__ and getattr(collector.obj, obj.__name__, None) is obj
    return [] if is_alias or not getattr(obj, "__test__", True) else BenchmarkSuite.of(collector, obj)


def _marks_of(kind: type) -> list[pytest.Mark]:
    """Return the marks of a class and its bases, as pytest collects them for a test class."""
    given = [vars(owner).get("pytestmark", []) for owner in reversed(kind.__mro__)]
    marks = [mark for some in given for mark in (some if isinstance(some, list) else [some])]
    return [getattr(mark, "mark", mark) for mark in marks]


class SuiteVariant(SuiteNode, _Level):
    """A variant of a suite: the level between the suite and its samples, unless several models are given."""

    @classmethod
    def of(cls, file: SuiteNode, name: str) -> SuiteVariant:
        """Return the variant ``name`` of the suite ``file``."""
        variant: SuiteVariant = cls.from_parent(file, name=name)
        variant.warned = file.warned
        return variant

    def load(self, overrides: Sequence[Override], scorers: Mapping[str, Callable[..., Any]]) -> Suite:
        raise NotImplementedError("the suite above loads its variants")

    def collect(self) -> Iterator[_Below]:
        """Yield the samples, loaded and checked by then."""
        yield from self.items(self, None)


def _variant_error(suite: Suite, variant: Variant, message: str) -> SuiteError:
    """Return an error at the variant, or one that names the option that has added it."""
    if variant.name in suite.spec.variants:
        return suite.error(message, keys=("variants", variant.name))
    return suite.error(f"{variant.overrides[0].where}: {message}")


class SuiteModel(_Level):
    """One model's samples of a suite: the level below the suite if several models are given.

    ``sources`` are the suite, or its variants.
    """

    model: str
    sources: Sequence[SuiteNode]

    @classmethod
    def of(cls, parent: pytest.Collector, name: str, model: str, sources: Sequence[SuiteNode]) -> SuiteModel:
        """Return the level of ``model`` under ``parent``, called ``name`` in node ids."""
        level: SuiteModel = cls.from_parent(parent, name=name)
        level.model, level.sources = model, sources
        return level

    def collect(self) -> Iterator[_Below]:
        """Yield the samples, loaded and checked by then, for this model."""
        yield from _samples_of(self, self.model, self.sources)


class ModelVariant(SuiteModel):
    """One model's samples of a variant."""

    def collect(self) -> Iterator[_Below]:
        """Yield the samples, loaded and checked by then, for this model."""
        (source,) = self.sources
        self.own_markers.extend(source.own_markers)
        self.keywords.update((mark.name, mark) for mark in source.own_markers)
        yield from source.items(self, self.model)


def _samples_of(parent: SuiteNode | SuiteModel, model: str | None, sources: Sequence[SuiteNode]) -> Iterator[_Below]:
    """Yield the samples of the suite or of its variants, these in levels."""
    for source in sources:
        if not isinstance(source, SuiteVariant):
            yield from source.items(parent, model)
        elif model is None:
            yield source
        else:
            yield ModelVariant.of(parent, source.name, model, [source])


class NotASuite(pytest.File):
    """A YAML file that was named on the command line and that no plugin collects; it raises why it is no suite."""

    is_llm_suite = True

    def collect(self) -> Iterator[pytest.Item]:
        raise self.CollectError(
            f"{self.nodeid}: not a suite: its first key must be `suite`, "
            "and `score` with `samples` or `dataset` must stand at the start of a line"
        )


def _marks_with_meaning(config: pytest.Config) -> set[str]:
    """Return marks that pytest or plugins have registered with arguments: a bare tag would be a wrong use of them."""
    registered = (line.partition(":")[0].strip() for line in config.getini("markers"))
    return {*_RESERVED_MARKS, *(name.partition("(")[0] for name in registered if "(" in name)}


_GROUP = "pytest_llmeval.scorers"
_HOOK = "pytest_llmeval_scorers"

_points_key = pytest.StashKey[EntryPoints]()


class RegisteredScorers(Mapping[str, Callable[..., Any]]):
    """Scorers that conftest.py files, plugins and installed packages register for the suite at ``node``, by name.

    A scorer of a package is imported when it is looked up, and only then refused: a suite that does not use it runs.
    Raises ``OptionError`` for a scorer that cannot be used.
    """

    def __init__(self, node: pytest.Collector) -> None:
        self._given: dict[str, Callable[..., Any]] = {}
        hook = node.session.gethookproxy(node.path).pytest_llmeval_scorers
        for given in hook():
            if not isinstance(given, Mapping):
                raise OptionError(f"{_HOOK}: found a {type(given).__name__}, expected a mapping of names to scorers")
            for name, scorer in given.items():
                _check_name(name, _HOOK)
                _check_scorer(name, scorer, _HOOK)
                if self._given.setdefault(name, scorer) is not scorer:
                    places = " and ".join(_places(hook, name))
                    raise OptionError(f"{_HOOK}: two scorers are called {name!r}, in {places}; rename one of them")
        stash = node.config.stash
        if _points_key not in stash:
            stash[_points_key] = entry_points(group=_GROUP)
        self._points = stash[_points_key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._given, *self._points.names)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:  # Mapping's own would import the scorer
        return name in self._given or name in self._points.names

    def __getitem__(self, name: str) -> Callable[..., Any]:
        offered = {_HOOK: self._given[name]} if name in self._given else {}
        for point in self._points.select(name=name):
            package = f"the package {'(unknown)' if point.dist is None else point.dist.name}"
            _check_name(name, package)
            try:
                offered[package] = point.load()
            except Exception as error:
                where = f"{package}: the scorer {name!r} = {point.value}"
                raise OptionError(f"{where} cannot be loaded: {describe(error)}") from error
            _check_scorer(name, offered[package], package)
        if not offered:
            raise KeyError(name)
        (first, scorer), *others = sorted(offered.items())
        for other, found in others:
            if found is not scorer:
                raise OptionError(f"{first} and {other}: both have a scorer called {name!r}; rename or uninstall one")
        return scorer


def _places(hook: Any, name: str) -> Iterator[str]:
    """Yield the files, or the plugins, that register a scorer of this name."""
    for found in hook.get_hookimpls():
        if not (found.wrapper or found.hookwrapper) and name in found.function():
            file = getattr(found.plugin, "__file__", None)
            yield found.plugin_name if file is None else relative_path(Path(file))


def _check_name(name: str, origin: str) -> None:
    if name in SCORERS:
        raise OptionError(f"{origin}: {name!r} is a scorer of pytest-llmeval-suites; rename yours")


def _check_scorer(name: str, scorer: object, origin: str) -> None:
    if not callable(scorer):
        raise OptionError(f"{origin}: {name!r} is a {type(scorer).__name__}, expected a function or a class")
