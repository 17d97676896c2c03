"""Finds what ``python:MODULE:NAME`` names, and makes a model of it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.text.redaction import describe, one_line, redact
from pytest_llmeval.text.wording import quoted, relative_path
from pytest_llmeval.types import JSON, SPECIAL_SAMPLING

__all__ = [
    "METHODS",
    "NO_TOOLS",
    "OWN_ARGUMENTS",
    "TOOLS",
    "concurrency_of",
    "find_object",
    "imported_name",
    "is_factory",
    "make_answerer",
    "missing_module",
    "needs_tools",
    "offered_settings",
    "own_traceback",
    "price_of",
    "signature_of",
    "split_target",
    "timeout_of",
]

_PROMPT_NAMES = frozenset(
    (
        "prompt",
        "prompts",
        "question",
        "query",
        "text",
        "message",
        "messages",
        "input",
        "inputs",
        "x",
        "task",
        "user",
        "texts",
    )
)
TOOLS = "tools"
"""The parameter of a function that takes the tools of a request."""
_SETTINGS = ("max_tokens", "stop", "temperature", "top_p", "seed", "epoch", *SPECIAL_SAMPLING, TOOLS)
NO_TOOLS = "the function takes no tools; give it a parameter tools, for the list of them in the form of OpenAI's API"
METHODS = ("generate", "loglikelihood", "embed", "answer_samples")
"""An object with one of these methods is a model; anything else that can be called is a function of the prompt."""
_MOST_FRAMES = 20
_REQUIREMENTS = "requirements.txt"
_OF_FILE = "_llmeval_model_"
OWN_ARGUMENTS = ("concurrency", "timeout", "shown")
"""Arguments that are not the function's own: the number of concurrent calls, the seconds that one may take, and the
names of its arguments that are no secrets."""


def split_target(location: str, model: str) -> tuple[str, str]:
    """Return ``agents:crew`` as ``("agents", "crew")``; ``path/to/agents.py:crew`` likewise. Raises
    ``OptionError``.
    """
    module, colon, name = location.rpartition(":")
    if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
        raise OptionError(
            f"--llm-model {one_line(model)}: expected python:MODULE:NAME or python:FILE.py:NAME, such as "
            "python:my_agents:answer"
        )
    if not module.endswith(".py") and not all(part.isidentifier() for part in module.split(".")):
        raise OptionError(
            f"--llm-model {one_line(model)}: {one_line(module)!r} is neither a module (my_package.my_module) nor a "
            "file that ends with .py"
        )
    return module, name


def concurrency_of(arguments: Mapping[str, JSON], model: str, name: str = "concurrency") -> int | None:
    """Return how many calls run at a time: the argument ``name``, None without it. Raises ``OptionError``."""
    if name not in arguments:
        return None
    found = arguments[name]
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise OptionError(f"--llm-model {model}: {name} is {found!r}, expected a whole number above 0")
    return found


def timeout_of(arguments: Mapping[str, JSON], model: str) -> float | None:
    """Return how many seconds a call may take: the argument ``timeout``, None without it. Raises ``OptionError``."""
    if "timeout" not in arguments:
        return None
    found = arguments["timeout"]
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= sys.float_info.max:
        raise OptionError(f"--llm-model {model}: timeout is {quoted(str(found))}, expected seconds, a number above 0")
    return float(found)


def price_of(arguments: Mapping[str, JSON], model: str, name: str) -> float | None:
    """Return what a million tokens cost: the argument ``name``, None without it. Raises ``OptionError``."""
    if name not in arguments:
        return None
    found = arguments[name]
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= sys.float_info.max:
        raise OptionError(
            f"--llm-model {model}: {name} is {quoted(str(found))}, expected the price of a million tokens"
        )
    return float(found)


def missing_module(module: str) -> str | None:
    """Return why a module is missing, found without importing it; None if it seems to be there."""
    if module.endswith(".py"):
        return None if Path(module).expanduser().is_file() else f"there is no file {module}"
    top, _, below = module.partition(".")
    try:
        spec = None if top in sys.builtin_module_names else importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None and top not in sys.modules:
        return f"there is no module {top!r} on the import path, which begins with the current folder and the rootdir"
    folders = list((spec.submodule_search_locations if spec is not None else None) or ())
    if below and spec is not None and not folders:
        return f"{top!r} is a module, not a package: there is no {module!r}"
    return None


def find_object(module: str, name: str, model: str) -> Any:
    """Return what is called ``name`` in the module, which is imported.

    Raises ``ModelError``, with the user's own traceback where his code failed.
    """
    try:
        importlib.invalidate_caches()
        is_file = module.endswith(".py")
        found: Any = _import_file(Path(module).expanduser()) if is_file else importlib.import_module(module)
    except Exception as error:
        problem = f"model {model}: cannot import {module}: {describe(error)}{_requirements(module, error)}"
        raise ModelError("\n".join((problem, *own_traceback(error)))) from None
    except SystemExit as error:
        raise ModelError(
            f"model {model}: cannot import {module}: it ends the process (sys.exit({error.code!r}))"
        ) from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = difflib.get_close_matches(part, [known for known in dir(found) if not known.startswith("_")], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            where = f" ({found.__file__})" if isinstance(found, ModuleType) and getattr(found, "__file__", None) else ""
            raise ModelError(f"model {model}: there is no {part!r} in {module}{where}{hint}") from None
    return found


def _requirements(module: str, error: Exception) -> str:
    """Return what to install, where a file beside the module says it."""
    if not isinstance(error, ModuleNotFoundError) or error.name == module:
        return ""
    try:
        spec = None if module.endswith(".py") else importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    origin = Path(module).expanduser() if module.endswith(".py") else Path((spec and spec.origin) or "")
    path = origin.with_name(_REQUIREMENTS) if origin.name else origin
    return f"; pip install -r {relative_path(path)} installs what it needs" if path.is_file() else ""


def imported_name(module: str) -> str:
    """Return the name under which ``find_object`` has imported a module, or a file that ends with .py."""
    return f"{_OF_FILE}{Path(module).stem}" if module.endswith(".py") else module


def _import_file(path: Path) -> ModuleType:
    """Run the file as a module of its own, which finds its neighbours as ``python FILE.py`` would."""
    path = path.absolute()
    name = imported_name(str(path))
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def make_answerer(found: Any, arguments: Mapping[str, JSON], model: str, name: str) -> tuple[Any, dict[str, JSON]]:
    """Return the object or callable to ask, and the arguments of each of its calls.

    A class is instantiated and a factory called with the arguments; a function that takes a prompt gets them with every
    call. Raises ``ModelError``.
    """
    if inspect.isclass(found):
        return _constructed(found, arguments, model, name), {}
    if any(callable(getattr(found, method, None)) for method in METHODS):
        if arguments:
            raise ModelError(f"model {model}: {name} is an object, and cannot take {_names(arguments)}")
        return found, {}
    if not callable(found):
        raise ModelError(
            f"model {model}: {name} is {_a(found)}, expected a function of the prompt, a class, or an object with "
            "generate, loglikelihood or embed"
        )
    signature = signature_of(found)
    if signature is None:
        return found, dict(arguments)
    if is_factory(signature, arguments):
        return _constructed(found, arguments, model, name), {}
    _check_arguments(signature, arguments, model, name, takes_prompt=True)
    return found, dict(arguments)


def _constructed(make: Callable[..., Any], arguments: Mapping[str, JSON], model: str, name: str) -> Any:
    signature = signature_of(make)
    if signature is not None:
        _check_arguments(signature, arguments, model, name, takes_prompt=False)
    try:
        made = make(**arguments)
    except Exception as error:
        problem = f"model {model}: {name}({_names(arguments)}) raised {describe(error)}"
        if (place := _place_of_refusal(error)) is not None:
            raise ModelError(f"{problem} ({place})") from None
        raise ModelError("\n".join((problem, *own_traceback(error)))) from None
    if callable(made) or any(callable(getattr(made, method, None)) for method in METHODS):
        return made
    raise ModelError(
        f"model {model}: {name}({_names(arguments)}) made {_a(made)}, expected something to call with a prompt, or an "
        "object with generate, loglikelihood or embed; a function that answers takes the prompt as its first argument, "
        "without a default"
    )


def _place_of_refusal(error: Exception) -> str | None:
    """Return the file and line where a factory or class refuses its arguments itself, by a ``ValueError``; None for all
    else.

    Another exception, or one of code below it, is explained by its traceback alone.
    """
    own = error.__traceback__.tb_next if error.__traceback__ is not None else None  # behind our call
    if type(error) is not ValueError or own is None:
        return None
    last = own
    while last.tb_next is not None:
        last = last.tb_next
    file = last.tb_frame.f_code.co_filename
    return f"{Path(file).name}:{last.tb_lineno}" if file == own.tb_frame.f_code.co_filename else None


def is_factory(signature: inspect.Signature, arguments: Mapping[str, JSON]) -> bool:
    """Tell whether a function has no place for a prompt: what the arguments leave has defaults, and none is named like
    one.

    ``*args`` take a prompt.
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return False
        if parameter.kind in positional and name not in arguments:
            if parameter.default is inspect.Parameter.empty:
                return False
            return name.lower() not in _PROMPT_NAMES
    return True


def _check_arguments(
    signature: inspect.Signature, arguments: Mapping[str, JSON], model: str, name: str, *, takes_prompt: bool
) -> None:
    offered = offered_settings(signature, arguments) if takes_prompt else ()
    left_out = SPECIAL_SAMPLING.keys() if needs_tools(signature) else {*SPECIAL_SAMPLING, TOOLS}
    settings = dict.fromkeys(name for name in offered if name not in left_out)
    try:
        signature.bind(*(("",) if takes_prompt else ()), **settings, **arguments)
    except TypeError as error:
        known = [own for own, one in signature.parameters.items() if one.kind is not one.VAR_POSITIONAL]
        unknown = next((given for given in arguments if given not in known), None)
        near = difflib.get_close_matches(unknown or "", known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {name}{signature}"
        raise ModelError(f"model {model}: {name} cannot be called with these arguments: {error}{hint}") from None


def offered_settings(signature: inspect.Signature, arguments: Mapping[str, JSON]) -> tuple[str, ...]:
    """Return the settings of a request that a function has a parameter for, besides its first, which takes the prompt.

    A setting that the user gave as an argument is not offered.
    """
    parameters = list(signature.parameters.values())
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    first = next((one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY), None)
    taken = {one.name for one in parameters if one.kind in named and one.name != first}
    return tuple(name for name in _SETTINGS if name in taken and name not in arguments)


def needs_tools(signature: inspect.Signature) -> bool:
    """Tell whether a function cannot be called without tools: then a suite without any gives it an empty list."""
    parameter = signature.parameters.get(TOOLS)
    return parameter is not None and parameter.default is inspect.Parameter.empty


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of what can be called; None if it does not tell them."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def own_traceback(error: BaseException, above: Iterable[str] = ()) -> list[str]:
    """Return the lines of the error's traceback that are the user's: from where his code begins, at most 20 frames.

    ``above`` are files of ours that stand before it.
    """
    ours = {__file__, importlib.__file__, *above}
    frame = own = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file in ours or "importlib" in file:
            own = frame.tb_next
        frame = frame.tb_next
    if own is None:  # his code was never reached
        return []
    shown = traceback.TracebackException(type(error), error, own, limit=-_MOST_FRAMES)
    return redact("".join(shown.format())).rstrip("\n").split("\n")


def _names(arguments: Mapping[str, JSON]) -> str:
    return ", ".join(arguments)


def _a(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
