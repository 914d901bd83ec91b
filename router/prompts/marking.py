"""What the compiler of chat templates must know of a part's surroundings, marked in the tree beforehand.

Every loop, macro and block is given a check of the clock, and so is the condition of a loop.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeVisitor

from router.prompts.shortcuts import LOOP

TICK = "tick"
"""The check of the clock, as an attribute of the environment: the compiler puts something cheaper there."""

WEIGHED = "weighed"
"""Marks lists and mappings in which there is more than constants: what is in them is counted."""

UNCHECKED = "unchecked"
"""Marks the target of `{% set x.y %}...`: jinja2 does not check there that `x` is a namespace."""

FOR_TRUTH = "for_truth"
"""Marks what nobody sees but as true or false."""


class Marker(NodeVisitor):
    """Puts a check into every loop, macro and block; marks lists, and what is only tested for truth.

    `plain_loops`: the template asks `loop` for nothing but attributes that a ListLoop has. `spaces` are the
    names of what may be a namespace.
    """

    def __init__(self) -> None:
        self.plain_loops = True
        self.spaces: set[str] = set()

    def mark(self, tree: nodes.Template) -> None:
        """Mark a whole template."""
        asked = [node for node in tree.find_all(nodes.Getattr) if name_of(node.node) == "loop"]
        uses = [node for node in tree.find_all(nodes.Name) if node.name == "loop"]
        self.plain_loops = len(asked) == len(uses) and all(node.attr in LOOP for node in asked)
        self.spaces = {node.name for node in tree.find_all(nodes.NSRef)}
        self.visit(tree)

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Go through everything."""
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(nodes.Not(_tick(node), lineno=node.lineno), node.test, lineno=node.lineno)
        if isinstance(node, nodes.AssignBlock) and isinstance(node.target, nodes.NSRef):
            setattr(node.target, UNCHECKED, True)
        if isinstance(node, nodes.If | nodes.CondExpr | nodes.For):
            _mark_truth(node.test)
        elif isinstance(node, nodes.Not):
            _mark_truth(node.node)
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block):
            node.body.insert(0, nodes.ExprStmt(_tick(node), lineno=node.lineno))
        elif isinstance(node, nodes.List | nodes.Dict | nodes.Tuple):
            items = [item.value if isinstance(item, nodes.Pair) else item for item in node.items]
            if not all(isinstance(item, nodes.Const) for item in items):
                setattr(node, WEIGHED, True)


def _tick(node: nodes.Node) -> nodes.EnvironmentAttribute:
    return nodes.EnvironmentAttribute(TICK, lineno=node.lineno)


def _mark_truth(node: nodes.Node | None) -> None:
    """Mark what nobody sees but as true or false."""
    if isinstance(node, nodes.And | nodes.Or):
        _mark_truth(node.left)
        _mark_truth(node.right)
    elif node is not None:
        setattr(node, FOR_TRUTH, True)


def name_of(node: nodes.Node) -> str | None:
    """Return the name of a variable, or None for anything else."""
    return node.name if isinstance(node, nodes.Name) else None
