"""Writes a suite as YAML that the suite format reads back as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import parse_yaml

__all__ = ["as_yaml"]

_PLAIN = re.compile(r"[^\W\d][\w ./@^-]*")
_MAX_INLINE = 90


def as_yaml(value: Mapping[str, Any], source: Source) -> str:
    """The mapping as YAML; ``source`` is named should it not be readable."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    if parse_yaml(text, source).value != value:  # JSON is YAML too, and leaves nothing to interpret
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    return text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = (
        "\n" in text and text[0].strip() and text.rstrip(" \n") == text and " \n" not in text and "\t" not in text
    )
    style = "|" if is_block else None if _PLAIN.fullmatch(text) and text == text.strip() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.SequenceNode:
    is_short = not any(isinstance(value, dict | list) or "\n" in str(value)[:-1] for value in values)
    inline = is_short and sum(len(str(value)) + 4 for value in values) < _MAX_INLINE
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=inline)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)
