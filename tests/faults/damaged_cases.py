"""Draws the cases of the campaign of damaged files, and damages the file of each."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import zlib
from collections.abc import Sequence
from typing import Any

from tests.faults import mutations
from tests.faults.damaged_formats import DATA_SUITES, FORMATS, Case, session
from tests.faults.damaged_place import Workplace
from tests.faults.damaged_projects import BOMBS
from tests.faults.mutations import Payloads

__all__ = ["damage", "drawn_case"]

_SETTINGS = (
    *("llm_model", "llm_report", "llm_store", "llm_baseline", "llm_gate", "llm_set", "llm_suite", "llm_model_arg"),
    *(
        "llm_limit",
        "llm_shard",
        "llm_max_drop",
        "llm_alpha",
        "llm_store_max_age",
        "llm_batch_size",
        "llm_report_prompts",
    ),
)
_SETTING_VALUES = (
    *(
        "replay:{secret}",
        "replay:../outside/rows.jsonl",
        "python:../outside/utils.py:run",
        "python:os:system",
        "random?seed=x",
    ),
    *(
        "random?seed=" + "9" * 5000,
        "http://127.0.0.1:9/v1",
        "http://[::1",
        "ollama:",
        "openai:x",
        "python:model.py:Steady?x=\ud800",
    ),
    *(
        "pets.yaml",
        "store",
        "report.json",
        "killed.journal",
        "model.py",
        "out.nope",
        "a: b",
        "pets: accuracy >= 0",
        "1/0",
        "2/1",
    ),
    *(
        "pets: accuracy >= " + "9" * 5000,
        "*: prompt.template={{ 10**10**10 }}",
        "pets: score={json: {schema: {secret}}}",
    ),
    *(
        "pets: prompt.template={% include '{secret}' %}",
        "lm_eval:../../x",
        "lm_eval:" + "x" * 5000,
        "[" * 5000,
        "accuracy=nan",
    ),
    *("!!python/object/apply:os.system ['touch {canary}']", "pets: samples=!!python/object/apply:os.system [x]"),
)


def drawn_case(number: int, seed: int, chosen: Sequence[str] = ()) -> tuple[Case, random.Random]:
    """The case of a number: always the same for a seed. ``chosen``: only of these formats."""
    draw = random.Random(f"{seed} {number} {','.join(chosen)}")
    names = list(chosen or FORMATS)
    (name,) = draw.choices(names, [FORMATS[one].share for one in names])
    file = draw.choice(FORMATS[name].files)
    uses = FORMATS[name].uses(file)
    return Case(number, name, file, draw.choice(uses) if uses else session(judge="session")), draw


def damage(case: Case, draw: random.Random, place: Workplace) -> None:
    """Change the file in the place's project, and note how."""
    payloads = place.payloads
    kind = FORMATS[case.format].kind
    if kind == "settings":
        _damage_settings(case, draw, place)
        return
    if kind == "store":
        _damage_store(case, draw, place)
        return
    path = place.case / case.file
    if kind == "data" and draw.random() < 0.04 and case.format == "data":
        fitting = [bomb for bomb in BOMBS if bomb.split(".", 1)[1] == case.file.split(".", 1)[1]] or list(BOMBS[2:5])
        bomb = draw.choice(fitting)
        suite = place.case / f"data_{DATA_SUITES[case.file]}.yaml"
        suite.write_text(suite.read_text().replace(f"path: {case.file}", f"path: {bomb}"))
        case.what = f"the bomb {bomb}"
        return
    data = path.read_bytes()
    data, case.what = _damaged(data, path.suffix, draw, payloads, case.format)
    path.write_bytes(data)
    case.named = data[:2_000_000].decode("utf-8", "replace")


def _damaged(data: bytes, suffix: str, draw: random.Random, payloads: Payloads, format_: str) -> tuple[bytes, str]:
    def hostile(at: tuple[Any, ...]) -> Any:
        if format_ == "suite" and draw.random() < 0.3:
            return draw.choice(payloads.schemas)
        if draw.random() < 0.1:
            return draw.choice((*payloads.templates, *payloads.paths, *payloads.regexes))
        return draw.choice(payloads.scalars)

    chance = draw.random()
    if chance < 0.2:
        return mutations.damaged_bytes(data, draw)
    if chance < 0.32:
        texts = payloads.yaml if suffix in (".yaml", ".yml") else ()
        return mutations.damaged_lines(data, draw, [f"x: {text}" for text in texts])
    match suffix:
        case ".yaml" | ".yml" if format_ in ("suite", "task") or draw.random() < 0.5:
            special: list[Any] = [*payloads.templates, *payloads.paths, *payloads.regexes]
            special += payloads.schemas if format_ == "suite" else ()
            special += draw.sample([one for one in payloads.scalars if _is_plain(one)], 30)
            return mutations.damaged_yaml(data, draw, payloads, special)
        case ".json":
            return mutations.damaged_json(data, draw, hostile)
        case ".jsonl" | ".journal":
            return mutations.damaged_json_lines(data, draw, hostile)
        case ".csv" | ".tsv":
            return _damaged_table(data, draw, payloads)
        case _:
            return mutations.damaged_bytes(data, draw)


def _is_plain(value: Any) -> bool:
    return not (isinstance(value, float) and not math.isfinite(value))


def _damaged_table(data: bytes, draw: random.Random, payloads: Payloads) -> tuple[bytes, str]:
    cells = re.split(rb"([,\t\n])", data)
    place = draw.randrange(len(cells))
    new = draw.choice((*payloads.scalars, '"', '""', '"a', 'a"b', '"a\nb"', ",", "\t", ",".join("x" * 5000)))
    text = new if isinstance(new, str) else json.dumps(new)
    cells[place] = text.encode("utf-8", "surrogatepass")
    return b"".join(cells), f"cell {place} becomes {text[:60]!r}"


def _damage_store(case: Case, draw: random.Random, place: Workplace) -> None:
    """A store file: bytes as all files, or a whole line with other values under a right checksum (``resealed``)."""
    folder = place.case / "store"
    (path,) = folder.glob("replies-*.jsonl")
    data = path.read_bytes()
    chance = draw.random()
    if chance < 0.1:
        how = draw.choice(("link", "folder", "pipe", "empty", "many", "twice"))
        case.what = f"the store: {how}"
        strange = folder / "replies-0123456789abcdef.jsonl"
        if how == "link":
            strange.symlink_to(place.outside / "secret.txt")
        elif how == "folder":
            strange.mkdir()
        elif how == "pipe":
            os.mkfifo(strange)
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "twice":
            shutil.copy(path, strange)
        else:
            path.write_bytes(data * 200)
    elif chance < 0.45:
        lines = data.split(b"\n")
        at = draw.randrange(len(lines) - 1)
        value, done = mutations.damaged_value(
            json.loads(lines[at]), draw, lambda _: draw.choice(place.payloads.scalars)
        )
        if isinstance(value, dict) and draw.random() < 0.8:  # in their order, so that the head is where it was
            value.pop("crc", None)
            checked = json.dumps(value, separators=(",", ":"))[1:].encode("ascii")
            lines[at] = b'{"crc":"%08x",%b' % (zlib.crc32(checked), checked)
            done += ", resealed"
            case.is_readable = True
        else:
            lines[at] = json.dumps(value, separators=(",", ":")).encode("ascii")
        path.write_bytes(b"\n".join(lines))
        case.what = f"line {at + 1}: {done}"
    else:
        data, case.what = mutations.damaged_bytes(data, draw) if chance < 0.8 else mutations.damaged_lines(data, draw)
        path.write_bytes(data)


def _damage_settings(case: Case, draw: random.Random, place: Workplace) -> None:
    """An ini file or environment variables with hostile values."""
    special = [
        *_SETTING_VALUES,
        *place.payloads.paths,
        *(one for one in place.payloads.scalars if isinstance(one, str)),
    ]
    lines = {}
    for name in draw.sample(_SETTINGS, draw.choice((1, 1, 2))):
        value = draw.choice(special).replace("{secret}", place.payloads.secret).replace("{canary}", str(place.canary))
        lines[name] = value
    lines.setdefault("llm_model", "python:model.py:Steady")
    case.what = ", ".join(f"{name} = {value[:60]!r}" for name, value in lines.items())
    case.named = "\n".join(f"{name} = {value}" for name, value in lines.items())
    if case.file == "environment":
        safe = {f"PYTEST_{name.upper()}": value.replace("\0", "")[:100_000] for name, value in lines.items()}
        case.environment = {name: value.encode("utf-8", "replace").decode() for name, value in safe.items()}
        return
    text = "[pytest]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
    data = text.encode("utf-8", "replace")
    if draw.random() < 0.2:
        data, done = mutations.damaged_bytes(data, draw)
        case.what += f"; {done}"
    (place.case / "pytest.ini").write_bytes(data.decode("utf-8", "replace").encode())
