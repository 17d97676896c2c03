"""Templates' loops, literals, ``~``, slices and comparisons, sent through the sandbox's own measuring functions."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.visitor import NodeTransformer

__all__ = ["Measure", "MeasuredCode"]


class MeasuredCode(CodeGenerator):
    """Calls an attribute of the environment directly.

    No template's source makes such a node, so that the measuring functions have no name by which a template, or a
    filter such as ``map``, could call them.
    """

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if not isinstance(node.node, nodes.EnvironmentAttribute):
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        self.write(f"environment.{node.node.name}(")
        for argument in node.args:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")


class Measure(NodeTransformer):
    """Rewrites a tree for ``MeasuredCode``: ``loop``, ``concat`` and ``made`` are methods of the environment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        node.iter = _measured("loop", node.iter, nodes.Const(1 + size // 64))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _measured("concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _measured("made", node.expr)
        for operand in node.ops:
            operand.expr = _measured("made", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _measured("made", node.node)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _measured("made", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _measured("made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _measured("made", node) if node.ctx == "load" else node


def _measured(name: str, *arguments: Any) -> nodes.Call:
    attribute = nodes.EnvironmentAttribute(name)
    return nodes.Call(attribute, list(arguments), [], None, None, lineno=arguments[0].lineno)
