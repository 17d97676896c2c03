"""The steps before the first test: options are read and checked, helpers registered, and samples planned."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.plugin.process_roles import asks_for_suites, distributes, is_path, is_worker, runs_tests
from pytest_llmeval.plugin.reporting_hooks import Reporting, Writing, add_collected, llm_session, write_lines
from pytest_llmeval.plugin.settings import OPTIONS, Settings, check_rules, read_settings, settings_key, was_given
from pytest_llmeval.plugin.stash import frozen_objects_key, process_key

__all__ = [
    "begin",
    "configure",
    "explain_lm_eval_options",
    "header_lines",
    "refuse_early_exit",
    "send_collected",
    "show_variants",
]

_LM_EVAL_OPTIONS = {
    "--limit": "--llm-limit first:10",
    "--model": "--llm-model gpt2",
    "--model_args": "--llm-model gpt2 for pretrained=gpt2, --llm-model-arg KEY=VALUE for others",
    "--num_fewshot": "--llm-set '*: prompt.fewshot.count=5'",
    "--tasks": "--llm-suite lm_eval:arc_easy",
}


def refuse_early_exit(early_config: pytest.Config, error: SystemExit) -> None:
    """Raise ``pytest.UsageError`` if a conftest.py has ended a session of suites with 0, by ``sys.exit()``."""
    if not error.code and asks_for_suites(early_config.known_args_namespace):
        raise pytest.UsageError("a conftest.py or a plugin called sys.exit() when it was loaded: nothing ran")


def explain_lm_eval_options(parser: pytest.Parser, arguments: Sequence[str]) -> None:
    """Let pytest's error on options of lm-eval, unless somebody has registered them, name those that are meant."""
    theirs = {argument.partition("=")[0] for argument in arguments} & _LM_EVAL_OPTIONS.keys()
    if theirs:
        unknown = {one.partition("=")[0] for one in parser.parse_known_and_unknown_args(arguments)[1]}
        parser.extra_info.update({f"lm-eval's {one} is here": _LM_EVAL_OPTIONS[one] for one in theirs & unknown})


def configure(config: pytest.Config) -> None:
    """Set the session up for its options. Raises ``pytest.UsageError`` for options that cannot be used."""
    config.addinivalue_line(
        "markers",
        "llm_suite(name, not_measurable={}, min_measurable=0.9): the LLM suite that a test records to with llm_record, "
        "what a sample counts as on which a metric is not measurable, and the share of samples on which it has to be",
    )
    for plugin in config.option.plugins or ():
        if plugin.startswith("no:llmeval-"):  # without one, a session might not notice that a gate failed
            raise pytest.UsageError(
                f"-p {plugin}: a part cannot be switched off; -p no:llmeval_suites is for the whole"
            )
    try:
        check_rules(config)
        if any("::gate[" in argument for argument in config.args):
            from pytest_llmeval.plugin.other_plugins import name_suites_of_gates

            name_suites_of_gates(config)
        if not all(is_path(config, argument) for argument in config.args):
            from pytest_llmeval.plugin.named_suites import move_names

            move_names(config)
        settings = config.stash[settings_key] = read_settings(config)
        config.stash[process_key] = os.getpid()
        if settings.suite:
            from pytest_llmeval.plugin.named_suites import NamedSuites

            config.pluginmanager.register(NamedSuites(config, settings), "llmeval-named-suites")
        if any(spec.kind.imports_from_project for spec in settings.all_specs):
            from pytest_llmeval.plugin.models import make_importable

            make_importable(config)
        if not is_worker(config):
            # An option that says what is the default anyway may be given without the one that it belongs to.
            if settings != Settings() or any(was_given(config, option.name) for option in OPTIONS):
                _check(config, settings)
            if (settings.report or settings.asks_for_gates) and runs_tests(config):
                llm_session(config)
            _register_reporting(config)
    except LLMEvalError as error:
        raise _usage_error(error) from None
    _register_helpers(config, settings)
    config.add_cleanup(lambda: _close_frozen_objects(config))  # before pytest's own, and so called after them


def _usage_error(error: LLMEvalError) -> pytest.UsageError:
    """Return pytest's kind of error with the same message, without secrets that the user's options may hold."""
    from pytest_llmeval.text.redaction import redact

    return pytest.UsageError(redact(str(error)))


def _close_frozen_objects(config: pytest.Config) -> None:
    if frozen_objects_key in config.stash:
        config.stash[frozen_objects_key].close()


def _check(config: pytest.Config, settings: Settings) -> None:
    """Raise ``LLMEvalError`` for options that cannot be used; if nothing will run, only their wording is checked."""
    is_run = runs_tests(config)
    if settings.ray is not None and settings.model_specs and distributes(config):
        raise OptionError(
            "--llm-ray: its replicas share the work, and one pytest process is enough: leave out -n (or give -n 0)"
        )
    if settings.all_specs:
        from pytest_llmeval.plugin.budget import budget_of
        from pytest_llmeval.plugin.models import check_model_options

        if any(spec.kind.is_remote for spec in settings.all_specs):
            from pytest_llmeval.models.servers.kind import close_connected

            config.add_cleanup(close_connected)
        check_model_options(settings, loads=is_run, budget=budget_of(config))
        if is_run:
            from pytest_llmeval.plugin.launched_servers import start_keeper
            from pytest_llmeval.plugin.models import model_settings

            start_keeper(config, settings.all_specs, model_settings(settings, settings.device))
    if doubled := [key for key, number in Counter(key for key, _ in settings.label).items() if number > 1]:
        raise OptionError(f"--llm-label {doubled[0]}: it was given twice, and has one value; leave one out")
    changed = Counter((one.name, one.override.suite, one.override.keys) for one in settings.variant)
    if (twice := next((key for key, number in changed.items() if number > 1), None)) is not None:
        from pytest_llmeval.text.wording import dotted, quoted

        name, suite, keys = twice
        what = f"{suite}: {name}: {dotted(keys)}"
        raise OptionError(f"--llm-variant {quoted(what)}: it was given twice, and has one value; leave one out")
    from pytest_llmeval.plugin.gate_setup import check_gates, read_baseline

    check_gates(config, settings)
    from pytest_llmeval.plugin.store import check_store

    check_store(config, settings, is_run=is_run)
    if is_run and (settings.baseline is not None or settings.models):
        read_baseline(config, settings)
    if is_run and settings.update_baseline is not None:
        from pytest_llmeval.plugin.kept_baseline import BaselineWriter

        BaselineWriter(config, settings).check()
    if is_run and settings.report:
        from pytest_llmeval.reporting.writers.formats import check_target

        for target in settings.report:
            check_target(target)


def _register_reporting(config: pytest.Config) -> None:
    """Register the hooks of the process that reports: the only one, or the controller of pytest-xdist."""
    config.pluginmanager.register(Reporting(config), "llmeval-reporting")
    config.pluginmanager.register(Writing(config), "llmeval-writing")
    if distributes(config):
        from pytest_llmeval.plugin.xdist_distribution import WorkDistribution

        config.pluginmanager.register(WorkDistribution(config, add_collected), "llmeval-distribution")


def _register_helpers(config: pytest.Config, settings: Settings) -> None:
    """Register the hooks of every process. Among wrappers of one hook, the last that is registered is the outermost."""
    manager = config.pluginmanager
    if is_worker(config):
        from pytest_llmeval.plugin.xdist_messages import UsageErrors

        manager.register(UsageErrors(), "llmeval-usage-errors")
    if any(manager.hasplugin(name) for name in ("timeout", "pytest_timeout")):
        from pytest_llmeval.plugin.other_plugins import LoadingTime

        manager.register(LoadingTime(config), "llmeval-loading-time")
    if config.getoption("lf", False):
        from pytest_llmeval.plugin.other_plugins import rerun_misread

        rerun_misread(config)
    if config.option.collectonly and manager.hasplugin("vscode_pytest"):
        from pytest_llmeval.plugin.other_plugins import VSCodeTree

        manager.register(VSCodeTree(), "llmeval-vscode-tree")
    if settings.strict:
        from pytest_llmeval.plugin.recording import Strict

        manager.register(Strict(), "llmeval-strict")
    if settings.limit is not None:
        from pytest_llmeval.plugin.plan import LimitSamples

        manager.register(LimitSamples(settings.limit), "llmeval-limit")
    if settings.shard is not None:
        from pytest_llmeval.plugin.plan import ShardTests

        manager.register(ShardTests(settings.shard), "llmeval-shard")
    if len(settings.models) > 1:
        from pytest_llmeval.plugin.models import ModelOrder

        manager.register(ModelOrder(settings), "llmeval-model-order")


def header_lines(config: pytest.Config) -> list[str]:
    """Return the session's models and baseline, for its header. Raises ``pytest.UsageError``."""
    settings = config.stash[settings_key]
    if not settings.all_specs:
        return []
    from pytest_llmeval.plugin.gate_setup import describe_baseline
    from pytest_llmeval.plugin.models import describe_models
    from pytest_llmeval.plugin.store import describe_store
    from pytest_llmeval.roles import ROLES

    try:
        lines = [f"llm-model: {line}" for line in describe_models(settings, settings.model_specs)]
        for role in ROLES:
            lines += [f"llm-{role}: {line}" for line in describe_models(settings, settings.specs_of(role))]
    except LLMEvalError as error:
        raise _usage_error(error) from None
    described = {
        "llm-ray": _replicas(settings),
        "llm-store": describe_store(config),
        "llm-baseline": describe_baseline(config),
    }
    return [*lines, *(f"{name}: {text}" for name, text in described.items() if text is not None)]


def _replicas(settings: Settings) -> str | None:
    """Return where the replicas of ``--llm-ray`` run, and how many; None without the option."""
    if settings.ray is None:
        return None
    if settings.replicas is None:
        return f"{settings.ray} (a replica for each GPU, or for each machine if it has none)"
    return f"{settings.ray} ({settings.replicas} replica{'' if settings.replicas == 1 else 's'})"


def send_collected(session: pytest.Session) -> None:
    """Send the controller of this worker the samples and suites that were collected."""
    from pytest_llmeval.plugin.plan import collected_in
    from pytest_llmeval.plugin.xdist_messages import send

    send(session.config, collected_in(session))


def show_variants(session: pytest.Session) -> None:
    """Write how many requests the variants of suites make."""
    from pytest_llmeval.plugin.plan import variant_lines

    write_lines(session.config, variant_lines(session))


def begin(session: pytest.Session) -> None:
    """Plan the samples that are to run; in the only process, also expect them. Raises ``pytest.UsageError``."""
    from pytest_llmeval.plugin.plan import collected_in, plan

    collected = collected_in(session)
    if collected.samples:
        plan(session)
    if not is_worker(session.config):
        add_collected(session.config, collected, [session.items[place].nodeid for place in collected.samples])
    if collected.samples:
        from pytest_llmeval.plugin.live_line import start

        start(session)
