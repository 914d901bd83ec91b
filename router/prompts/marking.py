"""What the compiler of chat templates must know of a part's surroundings, marked in the tree beforehand.

Every loop and macro is given a check of the clock.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeVisitor

from router.prompts.shortcuts import LOOP

TICK = "tick"
"""The check of the clock, as an attribute of the environment: the compiler puts something cheaper there."""

IN_LOOP = "in_loop"
"""Marks lists and mappings that are made in a loop or macro."""

FOR_TRUTH = "for_truth"
"""Marks what nobody sees but as true or false."""


class Marker(NodeVisitor):
    """Puts a check into every loop and macro; marks lists made in one, and what is only tested for truth.

    `plain_loops`: the template asks `loop` for nothing but attributes that a ListLoop has. `spaces` are the
    names of what may be a namespace.
    """

    def __init__(self) -> None:
        self._depth = 0
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
        looping = isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock)
        if isinstance(node, nodes.If | nodes.CondExpr | nodes.For):
            _mark_truth(node.test)
        elif isinstance(node, nodes.Not):
            _mark_truth(node.node)
        self._depth += looping
        super().generic_visit(node, *args, **kwargs)
        self._depth -= looping
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            check = nodes.EnvironmentAttribute(TICK, lineno=node.lineno)
            node.body.insert(0, nodes.ExprStmt(check, lineno=node.lineno))
        elif self._depth and isinstance(node, nodes.List | nodes.Dict | nodes.Tuple):
            setattr(node, IN_LOOP, True)


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
