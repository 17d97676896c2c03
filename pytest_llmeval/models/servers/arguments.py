"""The user's settings of a model behind a server, as one value: its endpoints, and how it is asked.

Written behind the model after ``?``, or with ``--llm-model-arg``. Keys are given by the name of a variable only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.endpoints import Endpoint, parse_endpoint
from pytest_llmeval.types import JSON

__all__ = ["DEFAULT_TIMEOUT_S", "Endpoint", "ServerArguments", "check_variable", "hide_keys"]

DEFAULT_TIMEOUT_S = 600.0

_ANTHROPIC = "https://api.anthropic.com"
_WELL_KNOWN: Mapping[str, str] = MappingProxyType(
    {"https://api.openai.com": "OPENAI_API_KEY", _ANTHROPIC: "ANTHROPIC_API_KEY"}
)
"""Hosts that are given a key without being told: each its own, over TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArguments:
    """Everything that a user said of one model behind one or more servers.

    ``model`` None is the server's only model; ``dialect`` None is found out. Prices are per million tokens.
    """

    endpoints: tuple[Endpoint, ...]
    model: str | None = None
    dialect: str | None = None
    tokenizer: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    extra_body: Mapping[str, JSON] = field(default_factory=dict)
    max_length: int | None = None
    max_tokens_field: str | None = None
    price_in: float | None = None
    price_out: float | None = None
    shared_folder: Path | None = None
    """Where the processes of a session agree on how many requests a host gets at once; None in one process."""

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        endpoints: Sequence[Endpoint],
        *,
        model: str | None,
        dialect: str | None = None,
        shown: str = "",
    ) -> ServerArguments:
        """Make the arguments from values as ``parse_argument`` returns them; ``endpoints`` are those beside
        ``base_url``'s.

        ``api_key_env`` and ``max_connections`` count for each endpoint that has none of its own. Raises
        ``OptionError`` for an endpoint that is given twice; one address with two keys is two endpoints.
        """
        listed = [*endpoints, *(parse_endpoint(url, shown) for url in given.get("base_url", ()))]
        dialect = given.get("dialect", dialect)
        completed = tuple(_completed(endpoint, given, dialect) for endpoint in listed)
        for number, endpoint in enumerate(completed):
            if (endpoint.url, endpoint.api_key_env) in {(one.url, one.api_key_env) for one in completed[:number]}:
                raise OptionError(
                    f"{shown}: the server {endpoint.url} is given twice, expected it once, or with another api_key_env"
                )
        return cls(
            endpoints=completed,
            model=model,
            dialect=dialect,
            tokenizer=given.get("tokenizer"),
            timeout_s=given.get("timeout", DEFAULT_TIMEOUT_S),
            extra_body=given.get("extra_body", {}),
            max_length=given.get("max_length"),
            max_tokens_field=given.get("max_tokens_field"),
            price_in=given.get("price_in"),
            price_out=given.get("price_out"),
        )


def _completed(endpoint: Endpoint, given: Mapping[str, Any], dialect: str | None) -> Endpoint:
    return replace(
        endpoint,
        api_key_env=endpoint.api_key_env or given.get("api_key_env") or _WELL_KNOWN.get(endpoint.host),
        max_connections=endpoint.max_connections or given.get("max_connections"),
        protocol="anthropic" if dialect == "anthropic" or endpoint.host == _ANTHROPIC else endpoint.protocol,
    )


def check_variable(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> None:
    """Raise ``OptionError`` where the variable of the endpoint's key is not set or cannot be a key."""
    name = endpoint.api_key_env
    if name is None:
        return
    value = environ.get(name, "").strip()
    if not value:
        shown = name if name.isupper() else "that api_key_env names (not shown: it may be a key)"
        raise OptionError(
            f"the variable {shown}, which holds the key for {endpoint.url}, is not set; set it, or name another with "
            "api_key_env=NAME"
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise OptionError(f"the variable {name} holds no key: it has spaces, line breaks or letters beyond ASCII in it")


def hide_keys(text: str) -> str:
    """Return a model's name before it was checked: without what might be a key, wherever it was put."""
    text = re.sub(r"://[^?#&,\s]*@", "://", text)
    text = re.sub(r"(^|[=,&\s])[^=,&\s/@:]*:[^=,&\s@]*@", r"\1***@", text)  # without a scheme
    text = re.sub(r"(base_url\s*=[^?&]*\?)[^&]*", r"\1***", text)
    return re.sub(r"(api_key_env\s*=)[^,&#]*|(extra_body\s*=)[^&#]*", r"\1\2***", text)
