"""Variants of a suite: named sets of changed keys, run side by side.

A variant is a suite of its own, called ``boolq@polite``: records, baselines and gates know it by this name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_llmeval.errors import OptionError
from pytest_llmeval.suites.format.overrides import Override, keys_of_text, parse_override, why_not_set
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

__all__ = ["VARIANT_PATTERN", "GivenVariant", "Variant", "VariantError", "parse_variant", "variants_of"]

_OPERATORS = ("and", "or", "not")
VARIANT_PATTERN = rf"(?!(?:{'|'.join(_OPERATORS)})(?![\s\S]))[A-Za-z0-9_][A-Za-z0-9_.\-]*"
"""A name that stands in node ids, behind ``@`` and in the expression of ``-k`` as it is."""

_OPTION = "--llm-variant"
_EXAMPLE = "expected 'SUITE: NAME: KEY=VALUE', such as 'boolq: polite: prompt.system=\"You are careful.\"'"
_FORM = re.compile(r"(?P<suite>\S.*?)\s*:\s*(?P<name>[^:=]*?)\s*:\s*(?P<rest>[^:=]*=.*)", re.DOTALL)


class VariantError(ValueError):
    """A variant that cannot be read. ``name`` is its name, ``key`` the key in it that is wrong, if it is one."""

    def __init__(self, message: str, name: str, key: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.key = key


@dataclass(frozen=True, slots=True)
class Variant:
    """A named set of changed keys of a suite, in the order in which they are applied."""

    name: str
    overrides: tuple[Override, ...]


@dataclass(frozen=True, slots=True)
class GivenVariant:
    """A changed key of a variant, from the command line: the variant is added if the suite has none of this name."""

    name: str
    override: Override

    @property
    def text(self) -> str:
        """Return what the user wrote."""
        return self.override.text


def parse_variant(text: str) -> GivenVariant:
    """Return what ``SUITE: NAME: KEY=VALUE`` asks for. Raises ``OptionError``."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{_OPTION} {quoted(text)}: {_EXAMPLE}")
    if re.fullmatch(VARIANT_PATTERN, found["name"]) is None:
        raise OptionError(f"{_OPTION} {quoted(text)}: {_name_problem(found['name'])}")
    try:
        parsed = parse_override(f"{found['suite']}: {found['rest']}", _OPTION, _EXAMPLE)
    except OptionError as error:
        _, _, problem = str(error).partition(quoted(f"{found['suite']}: {found['rest']}"))
        raise OptionError(f"{_OPTION} {quoted(text)}{problem}") from None
    return GivenVariant(found["name"], Override(parsed.suite, parsed.keys, parsed.value, text, _OPTION))


def variants_of(
    suite: str, written: Mapping[str, Mapping[str, JSON]], given: Iterable[GivenVariant] = ()
) -> tuple[Variant, ...]:
    """Return the variants of a suite in their order: those of its key ``variants``, then those that are added.

    Raises ``VariantError`` for what is ``written``.
    """
    found: dict[str, list[Override]] = {}
    for name, changes in written.items():
        if re.fullmatch(VARIANT_PATTERN, name) is None:
            raise VariantError(_name_problem(name), name)
        if not isinstance(changes, Mapping):
            raise VariantError("expected a mapping of keys to values, such as {generate.temperature: 0.3}", name)
        if not changes:
            raise VariantError("it names no key to change, such as {generate.temperature: 0.3}", name)
        found[name] = [_written(suite, name, key, value) for key, value in changes.items()]
    for one in given:
        if one.override.matches(suite):
            found.setdefault(one.name, []).append(one.override)
    return tuple(Variant(name, tuple(overrides)) for name, overrides in found.items())


def _written(suite: str, name: str, key: str, value: JSON) -> Override:
    try:
        keys = keys_of_text(str(key))
    except ValueError as error:
        raise VariantError(str(error), name, key) from None
    if (problem := why_not_set(keys)) is not None:
        raise VariantError(problem, name, key)
    return Override(suite, keys, value, f"variant {name}", at=("variants", name, key))


def _name_problem(name: str) -> str:
    if name in _OPERATORS:
        return f"found the name {quoted(name)}, which is an operator in pytest's -k"
    return f"found the name {quoted(name)}, expected letters, digits, '_', '-' and '.', not beginning with '-' or '.'"
