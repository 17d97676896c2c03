"""Tool calls: read from a model's text by the formats of open models, and from the JSON of APIs, files and agents."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from pytest_llmeval.text.escaping import encodable
from pytest_llmeval.text.wording import describe, quoted
from pytest_llmeval.types import JSON, GenerateRequest, GenerateResponse, ToolCall, as_builtin

__all__ = ["calls_as_json", "calls_in_text", "described_calls", "read_tool_calls", "with_tool_calls"]

_R = TypeVar("_R")

_MOST_CHARACTERS = 200_000
"""A longer text holds no calls: no model writes so many."""
_MOST_OF_PYTHON = 50_000
"""The most characters that Python's parser reads, which needs much memory for each."""
_MOST_LEVELS = 50
_MOST_BITS = 10_000
"""The bits of the largest number in arguments: Python refuses to write one of more than 4,300 digits."""
_ARGUMENTS = ("arguments", "parameters", "args", "input")
"""The names under which a call's arguments stand."""


def with_tool_calls(request: object, response: _R) -> _R:
    """Return the reply to a request with tools with the calls that its text holds, if the model did not tell them."""
    if not isinstance(request, GenerateRequest) or not isinstance(response, GenerateResponse):
        return response
    if not request.tools or response.tool_calls is not None or not response.has_text:
        return response
    return replace(response, tool_calls=calls_in_text(response.text, request.tools))


# From a model's text


def calls_in_text(text: str, tools: str = "") -> tuple[ToolCall, ...]:
    """Return the tool calls that a text holds, in order; none if it is in no format that is known.

    ``<tool_call>{…}</tool_call>`` is that of Hermes and of Qwen 2.5 and 3, ``<function=NAME>`` with
    ``<parameter=NAME>`` that of Qwen3-Coder, with JSON inside that of Llama 3.1, ``✿FUNCTION✿`` that of Qwen-Agent,
    ``<|python_tag|>`` that of Llama 3, ``[TOOL_CALLS]`` that of Mistral. Without a mark, which tokenizers leave out if
    it is a special token, the whole text (or a fenced block that is the whole text) is a call or several: JSON objects
    with a name and arguments (or parameters), or calls of Python in brackets, ``[f(a=1), g()]``. ``tools`` are the
    tools of the request as JSON text: they say of which type an argument is that is written as text, and what an
    argument without a name is called.
    """
    text = text.strip()
    if not text or len(text) > _MOST_CHARACTERS:
        return ()
    mark = _MARK.search(text)
    read = _without_mark if mark is None else _FORMATS[mark[0]]
    return tuple(map(_read_call, read(text if mark is None else text[mark.start() :], tools)))


_MARK = re.compile(r"<tool_call>|<function=|<\|python_tag\|>|\[TOOL_CALLS\]|✿FUNCTION✿")
_NAME = re.compile(r"""["']name["']\s{0,9}:\s{0,9}["']([^"'\n]{1,200})["']""")


def _hermes(text: str, tools: str) -> Iterator[ToolCall]:
    place = 0
    while (place := text.find("<tool_call>", place)) >= 0:
        place += len("<tool_call>")
        start = _skip(text, place)
        if text.startswith("{", start) and (found := _decoded(text, start)) is not None:
            value, place = found  # a text in it may hold the closing tag
            yield from _calls_of(value, text[start:place])
            continue
        ends = [end for tag in ("</tool_call>", "<tool_call>") if (end := text.find(tag, place)) >= 0]
        body = text[place : min(ends, default=len(text))].strip()
        place += len(body)
        if body.startswith("<function="):
            yield from _functions(body, tools)
        elif body:
            yield from _calls_of(_python_value(body), body)


_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|(?=<function=)|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


def _functions(text: str, tools: str) -> Iterator[ToolCall]:
    """Yield the calls of Qwen3-Coder, whose arguments are texts of their own, and of Llama 3.1, where they are JSON."""
    for name, body in _FUNCTION.findall(text):
        name, body = name.strip(), body.strip()
        if body and not body.startswith("<parameter="):
            yield _call(name, body)
            continue
        types = _parameters(tools, name)
        arguments: dict[str, JSON] = {
            key.strip(): _typed(value.removeprefix("\n").removesuffix("\n"), types.get(key.strip()))
            for key, value in _PARAMETER.findall(body)
        }
        yield ToolCall(name=name, arguments=arguments)


def _python_tag(text: str, tools: str) -> Iterator[ToolCall]:
    body = re.split(r"<\|e(?:om|ot)_id\|>", text.removeprefix("<|python_tag|>"), maxsplit=1)[0].strip()
    body = body.replace("<|python_tag|>", "")
    if body.startswith(("{", "[{")):
        yield from _json_calls(body) or (ToolCall(name=_name_in(body), text=body),)
    elif body:
        calls = _python_calls(body if body.startswith("[") else f"[{body}]", tools)
        # A built-in tool is written as a method: brave_search.call(query="…").
        named = [ToolCall(name=one.name.removesuffix(".call"), arguments=one.arguments, text=one.text) for one in calls]
        yield from named or (ToolCall(name="", text=body),)


_MISTRAL_NAME = re.compile(r"\s*([^\s\[\]{}]+?)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\]\s*)?(?=\{)")


def _mistral(text: str, tools: str) -> Iterator[ToolCall]:
    place = 0
    while (place := text.find("[TOOL_CALLS]", place)) >= 0:
        place = start = _skip(text, place + len("[TOOL_CALLS]"))
        if text.startswith(("[", "{"), start) and (found := _decoded(text, start)) is not None:
            value, place = found
            yield from _calls_of(value, text[start:place])
        elif (named := _MISTRAL_NAME.match(text, start)) is not None:
            found = _decoded(text, named.end())
            if found is not None and isinstance(found[0], dict):
                place = found[1]
                yield ToolCall(name=named[1], arguments=found[0])
            else:
                yield ToolCall(name=named[1], text=_before_mark(text, named.end()))
        elif body := _before_mark(text, start):
            yield ToolCall(name=_name_in(body), text=body)


def _before_mark(text: str, start: int) -> str:
    end = text.find("[TOOL_CALLS]", start)
    return text[start : len(text) if end < 0 else end].strip()


def _qwen_agent(text: str, tools: str) -> Iterator[ToolCall]:
    for part in text.split("✿FUNCTION✿")[1:]:
        name, _, rest = part.partition("✿ARGS✿")
        body = re.split("✿RESULT✿|✿RETURN✿", rest, maxsplit=1)[0]
        yield _call(name.strip(": \t\r\n"), body.strip().removeprefix(":").strip())


def _without_mark(text: str, tools: str) -> Sequence[ToolCall]:
    text = _unfenced(text)
    if (named := _MISTRAL_NAME.match(text)) is not None and named[1] in _tool_parameters(tools):
        return list(_mistral(f"[TOOL_CALLS]{text}", tools))
    if text.startswith(("{", "[")) and (found := _json_calls(text)):
        return found
    return _python_calls(text, tools) if _LIST_OF_CALLS.match(text) and text.endswith("]") else ()


def _unfenced(text: str) -> str:
    """Return what stands in a fenced block that is the whole text; another text as it is."""
    if not text.startswith("```") or not text.endswith("```"):
        return text
    first, _, rest = text.partition("\n")
    return rest.removesuffix("```").strip() if rest and re.fullmatch(r"```[\w-]*", first.strip()) else text


def _json_calls(text: str) -> list[ToolCall]:
    """Return the calls of a text that consists of JSON objects, a list of them or several behind each other.

    An empty list if it is anything else, or if an object has not both a name and arguments: it is an answer in JSON.
    """
    values: list[JSON] = []
    place = 0
    while place < len(text):
        found = _decoded(text, place)
        if found is None:
            return []
        value, place = found
        values += value if isinstance(value, list) else [value]
        place = _skip(text, place, " \t\r\n;,")
    calls = [_call_in(value) for value in values]
    return [call for call in calls if call is not None] if None not in calls else []


def _call_in(value: JSON) -> ToolCall | None:
    """Return the call that an object is which stands without a mark; None if it may be something else."""
    inner = value.get("function") if isinstance(value, dict) else None
    one = inner if isinstance(inner, dict) else value
    if not isinstance(one, dict) or not isinstance(name := one.get("name"), str):
        return None
    key = next((key for key in _ARGUMENTS[:2] if isinstance(one.get(key), dict | str)), None)
    return None if key is None else _call(name, one[key])


_LIST_OF_CALLS = re.compile(r"\[\s*[^\W\d][\w.]*\(")


def _python_calls(text: str, tools: str) -> list[ToolCall]:
    """Return the calls that Python code lists, ``[f(a=1), g()]``; an empty list if the text is anything else."""
    try:
        return _calls_of_list(_python_tree(text), tools)
    except (RecursionError, ValueError):  # of a number with more digits than Python writes
        return []


def _calls_of_list(tree: ast.expr | None, tools: str) -> list[ToolCall]:
    if not isinstance(tree, ast.List):
        return []
    calls = []
    for node in tree.elts:
        name = _dotted_name(node.func) if isinstance(node, ast.Call) else None
        if name is None or not isinstance(node, ast.Call):
            return []
        calls.append(_python_call(node, name, tools))
    return calls


def _python_call(node: ast.Call, name: str, tools: str) -> ToolCall:
    whole = ToolCall(name=name, text=ast.unparse(node))
    parameters = list(_parameters(tools, name))
    if len(node.args) > len(parameters):
        return whole
    arguments: dict[str, JSON] = {}
    given = [*zip(parameters, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
    for key, value in given:
        if key is None or key in arguments or isinstance(value, ast.Starred):
            return whole
        arguments[key] = _literal(value)
    return ToolCall(name=name, arguments=arguments)


def _literal(node: ast.expr) -> JSON:
    """Return the value of a literal, in which true, false and null may be written as in JSON; of any other expression
    its text.
    """
    match node:
        case ast.Constant(value=None | bool() | int() | str() as value):
            return value
        case ast.Constant(value=float() as number) if math.isfinite(number):
            return number
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as number)) if (
            number != math.inf
        ):
            return -number if isinstance(sign, ast.USub) else number
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_literal(part) for part in parts]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {str(_literal(key)): _literal(own) for key, own in zip(keys, values, strict=True) if key is not None}
    return ast.unparse(node)


_JSON_NAMES: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


def _python_tree(text: str) -> ast.expr | None:
    if len(text) > _MOST_OF_PYTHON:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text such as "\d" is data
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _python_value(text: str) -> JSON:
    """Return the dictionary that a text is in Python; None if it is none. Hermes's own prompt shows calls so."""
    tree = _python_tree(text)
    try:
        return _plain(ast.literal_eval(tree), 0) if isinstance(tree, ast.Dict) else None
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _dotted_name(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _calls_of(value: JSON, text: str) -> Iterator[ToolCall]:
    """Yield the calls of a value that stands behind a mark: anything there is meant as a call."""
    for one in value if isinstance(value, list) else [value]:
        inner = one.get("function") if isinstance(one, dict) else None
        own = inner if isinstance(inner, dict) else one
        if isinstance(own, dict) and isinstance(name := own.get("name"), str):
            yield _call(name, next((own[key] for key in _ARGUMENTS if key in own), None))
        else:
            yield ToolCall(name=_name_in(text), text=text)


def _call(name: str, arguments: JSON) -> ToolCall:
    """Return a call of arguments that may be written as JSON text. Without any it has no arguments."""
    if arguments is None or arguments == "":
        return ToolCall(name=name, arguments={})
    if isinstance(arguments, str):
        found = _decoded(arguments, 0)
        if found is None or arguments[found[1] :].strip() or not isinstance(found[0], dict):
            return ToolCall(name=name, text=arguments)
        arguments = found[0]
    if not isinstance(arguments, dict):
        return ToolCall(name=name, text=json.dumps(arguments, ensure_ascii=False))
    return ToolCall(name=name, arguments=arguments)


def _name_in(text: str) -> str:
    found = _NAME.search(text)
    return found[1] if found else ""


def _refuse(text: str) -> float:
    raise ValueError(f"found {text}, which JSON does not have")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"found {text}, which no float holds")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, strict=False)
"""Reads line breaks in texts, too, which models do not always escape."""


def _decoded(text: str, start: int) -> tuple[Any, int] | None:
    """Return the JSON value that begins in this place, and where it ends; None if there is none."""
    try:
        return _DECODER.raw_decode(text, _skip(text, start))
    except (ValueError, RecursionError):
        return None


def _skip(text: str, place: int, characters: str = " \t\r\n") -> int:
    while place < len(text) and text[place] in characters:
        place += 1
    return place


@lru_cache(maxsize=64)
def _tool_parameters(tools: str) -> Mapping[str, Mapping[str, object]]:
    """Return the type of each parameter by the names of tools."""
    found: dict[str, Mapping[str, object]] = {}
    for tool in json.loads(tools) if tools else ():
        function = tool["function"]
        properties = (function.get("parameters") or {}).get("properties") or {}
        found[function["name"]] = {
            name: schema.get("type") if isinstance(schema, dict) else None for name, schema in properties.items()
        }
    return found


def _parameters(tools: str, name: str) -> Mapping[str, object]:
    return _tool_parameters(tools).get(name, {})


def _typed(text: str, type_: object) -> JSON:
    """Return an argument that was written as text, as a value of its parameter's type; the text if it is none."""
    if type_ == "string":
        return text
    lowered = text.strip().lower()
    if lowered in ("true", "false", "null", "none"):
        return {"true": True, "false": False}.get(lowered)
    found = _decoded(text, 0)
    return text if found is None or text[found[1] :].strip() else found[0]


_FORMATS: Mapping[str, Callable[[str, str], Iterable[ToolCall]]] = {
    "<tool_call>": _hermes,
    "<function=": _functions,
    "<|python_tag|>": _python_tag,
    "[TOOL_CALLS]": _mistral,
    "✿FUNCTION✿": _qwen_agent,
}
"""The readers of texts, by the mark that the calls begin with."""


# From the JSON of APIs, files and agents


def read_tool_calls(value: object) -> tuple[ToolCall, ...]:
    """Return the calls of a list (or of one call), in any of the usual forms. None is no call.

    A call is a mapping with a name and arguments (``args``, ``input``, ``parameters``), or with both under
    ``function``, as OpenAI's API has it, or an object of a library with such attributes. Arguments may be the text of
    JSON; what is no JSON object stays a text. Raise ``ValueError`` for what is no call.
    """
    value = as_builtin(value)
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        found = _decoded(value, 0)
        if found is None or value[found[1] :].strip() or not isinstance(found[0], list | dict):
            raise ValueError(f"found {quoted(value)}, {_EXPECTED}")
        value = found[0]
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(map(_read_call, entries))


_EXPECTED = "expected a list of calls: [{name: …, arguments: {…}}]"


def _read_call(value: object) -> ToolCall:
    if isinstance(value, ToolCall):
        if value.arguments is None:
            return ToolCall(name=encodable(value.name), text=encodable(value.text))
        return _held(value.name, value.arguments)
    inner = _part(value, "function")
    own = value if inner is None or isinstance(inner, str) else inner
    name = inner if isinstance(inner, str) else _part(own, "name")
    if not isinstance(name, str):
        raise ValueError(f"found {describe(as_builtin(value))}, {_EXPECTED}")
    arguments = next((found for key in _ARGUMENTS if (found := _part(own, key)) is not None), None)
    if arguments is None or isinstance(arguments, str):
        return _read_call(_call(name, arguments))
    return _held(name, arguments)


def _held(name: str, arguments: object) -> ToolCall:
    """Return a call that a report can hold. Raise ``ValueError`` for what JSON cannot hold."""
    name = encodable(name)
    try:
        plain = _plain(arguments, 0)
    except _TooLargeError:  # a model wrote it, and so it is no one's error
        return ToolCall(name=name, text=json.dumps(arguments, default=str))
    if isinstance(plain, dict):
        return ToolCall(name=name, arguments=plain)
    return ToolCall(name=name, text=json.dumps(plain, ensure_ascii=False))


def _part(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, str | int | float | list | tuple | None):
        return None
    try:
        return getattr(value, name, None)
    except Exception:  # of a property of the user's
        return None


class _TooLargeError(ValueError):
    """JSON can hold the arguments, and a report should not."""


def _plain(value: object, level: int) -> JSON:
    """Return a value as JSON has it, with texts that can be encoded. Raise ``ValueError`` for what JSON cannot hold."""
    value = as_builtin(value)
    if level > _MOST_LEVELS:
        raise _TooLargeError(f"found arguments that are nested more than {_MOST_LEVELS} deep")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise _TooLargeError(f"found {describe(value)} in the arguments of a call")
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        return {encodable(str(key)): _plain(own, level + 1) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own, level + 1) for own in value]
    raise ValueError(f"found {describe(value)} in the arguments of a call, expected what JSON can hold")


# For readers


def calls_as_json(calls: Sequence[ToolCall]) -> list[JSON]:
    """Return calls as ``read_tool_calls`` reads them; arguments that are no JSON are their text."""
    return [{"name": one.name, "arguments": one.text if one.arguments is None else {**one.arguments}} for one in calls]


def described_calls(calls: Sequence[ToolCall]) -> str:
    """Return calls as a reader knows them: ``f(a=1), g(b="x")``."""
    return ", ".join(_described_call(one) for one in calls)


def _described_call(call: ToolCall) -> str:
    if call.arguments is None:
        return f"{call.name}({call.text})"
    shown = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())
    return f"{call.name}({', '.join(shown)})"
