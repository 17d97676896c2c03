"""Rows that fit any task of lm-eval: their columns and types are read off the task's templates."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import datasets
from jinja2 import Environment, nodes

Row = dict[str, Any]

_WORDS = (
    *("a", "the", "of", "is", "Über", "naïve", "北京", "cat", "Dog,", "river.", "12", "3.5", "$7", "(A)", "B", "Yes"),
    *("no", "True", '"quoted"', "it's", "x=y", "émigré", "ok!", "0"),
)
_TEMPLATES = ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix")
_LIST_USES = ("join", "length", "list", "first", "last", "map", "select", "count")
_ENVIRONMENT = Environment()
_ENVIRONMENT.filters["regex_replace"] = lambda text, *_: text


@dataclass
class Shape:
    """What the templates do with a value."""

    parts: dict[str, Shape] = field(default_factory=dict)
    item: Shape | None = None
    constants: list[Any] = field(default_factory=list)
    is_list: bool = False
    is_text: bool = False
    is_index: bool = False
    length: int = 0
    offset: int = 0
    among: Shape | None = None
    min_length: int = 0

    def part(self, name: str) -> Shape:
        return self.parts.setdefault(name, Shape())

    def entry(self) -> Shape:
        self.is_list = True
        if self.item is None:
            self.item = Shape()
        return self.item


class Shapes:
    """The shapes of all columns of a task."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.columns: dict[str, Shape] = {}
        self.config = config
        for key in _TEMPLATES:
            rule = config.get(key)
            if isinstance(rule, str):
                self._read(key, rule)
        for column in ("choices",) if _needs_choices(config) else ():
            self._shape(column).entry()

    def _shape(self, column: str) -> Shape:
        return self.columns.setdefault(column, Shape())

    def _read(self, key: str, rule: str) -> None:
        if "{{" not in rule and "{%" not in rule:
            if key.startswith("doc_to") and rule.isidentifier():
                shape = self._shape(rule)
                if key == "doc_to_choice":
                    shape.entry()
                elif key == "doc_to_target" and self.config.get("doc_to_choice") is not None:
                    shape.is_index = True
                else:
                    shape.is_text = True
            return
        tree = _ENVIRONMENT.parse(rule)
        self._names: dict[str, Shape] = {}
        body = tree.body[0] if len(tree.body) == 1 else None
        if isinstance(body, nodes.Output) and len(body.nodes) == 1:
            self._read_only_expression(key, body.nodes[0])
        self._walk(tree)

    def _read_only_expression(self, key: str, node: nodes.Node) -> None:
        """What a template that is one expression says of the value that it names."""
        named, choices = self._path(node), self.config.get("doc_to_choice")
        if named is None:
            return
        if key == "doc_to_choice" and not named.parts:
            named.entry()
        if key == "doc_to_target" and choices is not None:
            if not named.parts and not named.is_list and not isinstance(node, nodes.Call):
                named.is_index = True
            elif isinstance(node, nodes.Call) and isinstance(choices, list):
                named.constants += choices

    def _path(self, node: nodes.Node) -> Shape | None:
        """The shape of what an expression names: a column, an entry of it, its own methods left out."""
        if isinstance(node, nodes.Name):
            if node.name in self._names:
                return self._names[node.name]
            return None if node.name in ("range", "loop", "true", "false", "none") else self._shape(node.name)
        if isinstance(node, nodes.Getattr):
            above = self._path(node.node)
            return above.part(node.attr) if above is not None else None
        if isinstance(node, nodes.Getitem):
            above = self._path(node.node)
            if above is None:
                return None
            if isinstance(node.arg, nodes.Slice):
                if isinstance(node.arg.start, nodes.Const) and isinstance(node.arg.start.value, int):
                    above.min_length = max(above.min_length, node.arg.start.value + 5)
                for end in (node.arg.start, node.arg.stop):
                    place = self._path(end) if end is not None else None
                    if place is not None:
                        place.is_index, place.length = True, 4
                return above
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                return above.part(node.arg.value)
            return above.entry()
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.node.attr != "index":
            above = self._path(node.node.node)
            if above is not None and node.node.attr in ("strip", "lstrip", "rstrip", "lower", "upper", "capitalize"):
                above.is_text = True
                return above
            if above is not None and node.node.attr == "split":
                above.is_text = True
            return None
        if isinstance(node, nodes.Filter) and node.name in ("int", "string", "trim"):
            return self._path(node.node) if node.node is not None else None
        return None

    def _walk(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.For) and isinstance(node.target, nodes.Name):
            above = self._path(node.iter)
            if above is not None:
                self._names[node.target.name] = above.entry()
        if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
            self._names[node.target.name] = self._path(node.node) or Shape()
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            self._call(node)
            for argument in node.args:
                self._walk(argument)
            if self._path(node) is None:
                self._walk(node.node.node)
            return
        if isinstance(node, nodes.Filter) and node.node is not None:
            shape = self._path(node.node)
            if shape is not None and node.name in _LIST_USES:
                entry = shape.entry()
                for setting in node.kwargs if node.name == "map" else ():
                    if setting.key == "attribute" and isinstance(setting.value, nodes.Const):
                        entry.part(str(setting.value.value)).is_text = True
        if isinstance(node, nodes.Getitem):
            self._index(node)
        if isinstance(node, nodes.Compare):
            self._compare(node)
        if isinstance(node, nodes.Add | nodes.Sub):
            self._add(node)
        if isinstance(node, nodes.Name | nodes.Getattr | nodes.Getitem):
            self._path(node)
        for child in node.iter_child_nodes():
            self._walk(child)

    def _call(self, node: nodes.Call) -> None:
        assert isinstance(node.node, nodes.Getattr)
        if node.node.attr == "index" and len(node.args) == 1:
            wanted = self._path(node.args[0])
            if wanted is None and isinstance(node.args[0], nodes.Add):  # ["answerA", …].index("answer" + answer)
                wanted = self._path(node.args[0].right)
                if wanted is not None and isinstance(node.node.node, nodes.List):
                    prefix = str(node.args[0].left.as_const())
                    wanted.constants += [text.removeprefix(prefix) for text in node.node.node.as_const()]
                return
            if wanted is None:
                return
            if isinstance(node.node.node, nodes.List | nodes.Const):
                wanted.constants += list(node.node.node.as_const())
            else:
                holder = self._path(node.node.node)
                if holder is not None:
                    holder.entry()
                    wanted.among = holder

    def _index(self, node: nodes.Getitem) -> None:
        if isinstance(node.arg, nodes.Slice | nodes.Const):
            above = self._path(node.node)
            if isinstance(node.arg, nodes.Slice) and above is not None and not above.is_list:
                above.is_text = True
            return
        base: nodes.Node = node.arg
        offset = 0
        if isinstance(node.arg, nodes.Sub) and isinstance(node.arg.right, nodes.Const):
            base, offset = node.arg.left, int(node.arg.right.value)
        index = self._path(base)
        if index is None:
            return
        if isinstance(node.node, nodes.Dict):
            index.constants += list(node.node.as_const())
            return
        index.is_index, index.offset = True, offset
        index.length = len(node.node.as_const()) if isinstance(node.node, nodes.List | nodes.Const) else 2
        if not isinstance(node.node, nodes.List | nodes.Const):
            above = self._path(node.node)
            if above is not None:
                above.entry()

    def _compare(self, node: nodes.Compare) -> None:
        shape = self._path(node.expr)
        for operand in node.ops:
            if shape is not None and isinstance(operand.expr, nodes.Const) and operand.op in ("eq", "ne"):
                shape.constants.append(operand.expr.value)
            if (
                shape is not None
                and isinstance(operand.expr, nodes.Const)
                and operand.op in ("gt", "lt", "gteq", "lteq")
            ):
                shape.is_index = True
            if (
                shape is not None
                and isinstance(operand.expr, nodes.List | nodes.Const | nodes.Tuple)
                and operand.op == "in"
            ):
                shape.constants += list(operand.expr.as_const())

    def _add(self, node: nodes.BinExpr) -> None:
        for one, other in ((node.left, node.right), (node.right, node.left)):
            shape = self._path(one)
            if shape is not None and isinstance(other, nodes.Const):
                if isinstance(other.value, int):
                    shape.is_index = True
                    shape.offset = other.value if isinstance(node, nodes.Sub) else 0
                elif isinstance(other.value, str) and not shape.constants:
                    shape.is_text = True


def rows_for(config: Mapping[str, Any], shapes: Shapes, count: int, seed: str) -> list[Row]:
    """``count`` rows, the same for the same ``seed``. Types of a column do not differ between rows."""
    samples = (config.get("fewshot_config") or {}).get("samples")
    stream = random.Random(seed)
    rows = []
    for place in range(count):
        row: Row = {}
        late = []
        for name, shape in shapes.columns.items():
            if shape.among is not None:
                late.append((row, name, shape))
            else:
                row[name] = _value(shape, stream, place, row, late)
        for holder, key, shape in late:
            holder[key] = stream.choice(_found(shape.among, shapes.columns, row) or ["A"])
        rows.append(row)
    if isinstance(samples, list) and "defined" in str(
        config.get("doc_to_target")
    ):  # what only the examples have is no column of the data set
        only = {name for sample in samples for name in sample} - set(_used_by_all(config))
        for row in rows:
            for name in only & set(row):
                if name in ("target",):
                    del row[name]
    return rows


def _used_by_all(config: Mapping[str, Any]) -> Iterator[str]:
    for key in ("doc_to_text",):
        rule = config.get(key)
        if isinstance(rule, str):
            for node in _ENVIRONMENT.parse(rule).find_all(nodes.Name):
                yield node.name


def _found(wanted: Shape | None, columns: Mapping[str, Shape], row: Row) -> list[Any]:
    """The value in ``row`` whose shape is ``wanted``."""
    work: list[tuple[Shape, Any]] = [(columns[name], row[name]) for name in columns if name in row]
    while work:
        shape, value = work.pop()
        if shape is wanted:
            return list(value)
        if isinstance(value, dict):
            work += [(part, value[name]) for name, part in shape.parts.items() if name in value]
    return []


def _value(shape: Shape, stream: random.Random, place: int, row: Row, late: list[Any]) -> Any:
    if shape.parts:
        made: Row = {}
        for name, part in shape.parts.items():
            if part.among is not None:
                late.append((made, name, part))
            else:
                made[name] = _value(part, stream, place, row, late)
        return made
    if shape.is_list:
        item = shape.item or Shape()
        if item.parts:
            return [_value(item, stream, place, row, late) for _ in range(4)]
        if item.is_index:
            return [stream.randrange(2) for _ in range(4)]
        return [f"{_text(stream)} {number}" for number in range(5)]
    if shape.constants:
        return (
            stream.choice(sorted(set(shape.constants), key=repr))
            if len({type(c) for c in shape.constants}) == 1
            else shape.constants[0]
        )
    if shape.is_index:
        return stream.randrange(shape.length or 2) + shape.offset
    text = f"{_text(stream)} {place}"
    while len(text) < shape.min_length:
        text = f"{_text(stream)} {text}"
    return text


def _text(stream: random.Random) -> str:
    return " ".join(stream.choice(_WORDS) for _ in range(stream.randint(1, 5)))


def _needs_choices(config: Mapping[str, Any]) -> bool:
    steps = [step for pipeline in config.get("filter_list") or () for step in pipeline["filter"]]
    return any(step["function"] == "multi_choice_regex" for step in steps)


def splits_of(config: Mapping[str, Any]) -> list[str]:
    """The names of all splits that the task names."""
    names = [config.get(f"{name}_split") for name in ("training", "validation", "test", "fewshot")]
    names.append((config.get("fewshot_config") or {}).get("split"))
    return list(dict.fromkeys(name for name in names if name is not None))


class Splits(Mapping[str, Any]):
    """What ``datasets.load_dataset`` would give for a task: other rows in each split, made when they are asked for."""

    def __init__(self, config: Mapping[str, Any], name: str, count: int) -> None:
        self._config, self._name, self._count = config, name, count
        self._shapes: Shapes | None = None
        self._made: dict[str, Any] = {}

    def __getitem__(self, split: str) -> Any:
        if split not in self._made:
            if split not in splits_of(self._config):
                raise KeyError(split)
            self._shapes = self._shapes or Shapes(self._config)
            rows = rows_for(self._config, self._shapes, self._count, f"{self._name} {split}")
            self._made[split] = datasets.Dataset.from_list(rows)
        return self._made[split]

    def __iter__(self) -> Iterator[str]:
        return iter(splits_of(self._config))

    def __len__(self) -> int:
        return len(splits_of(self._config))
