"""Limits on a chat template while it renders: time, size of its texts, and what single operations may make.

A template is somebody else's program, run between requests. Its loops and macros are given a check of the
clock at every turn, and what it adds, joins or multiplies is measured, so that rendering ends in time
whatever the template says. What no check can bound beforehand (a few filters of jinja2 that chat templates do
not use) is taken out. A template that goes too far fails like one that raises.

The checks are compiled into the template as plain calls: one costs about 0.1 us, and nothing that a template
assigns can hide them.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeVisitor

from router.prompts.bounds import (
    BINOP_CHECKS,
    FILTER_CHECKS,
    MAX_CHARACTERS,
    MAX_ITEMS,
    METHOD_CHECKS,
    checked,
    too_large,
)
from router.prompts.inexact import TooSlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2.compiler import Frame
    from jinja2.runtime import Context

MAX_MADE = 8 * MAX_CHARACTERS
"""How much a template may make in one rendering: characters, and items of lists, kept or not."""

MAX_DEPTH = 24
"""How deep lists and mappings may be nested in those that a template makes in a loop."""

MAX_SOURCE = 1024 * 1024
"""The longest template, in characters."""

UNBOUNDED_FILTERS = ("batch", "slice", "wordwrap", "urlize", "pprint", "xmlattr", "random", "filesizeformat")

_OF_DICT = frozenset(dir(dict))
_TICK = "tick()"
_IN_LOOP = "in_loop"


class Budget(threading.local):
    """What the rendering in this thread has left: `ends` on the clock of perf_counter, `made` to be made."""

    ends = float("inf")
    made = MAX_MADE

    def begin(self, seconds: float) -> None:
        """Give a rendering its time and its size."""
        self.ends = perf_counter() + seconds
        self.made = MAX_MADE


class _Marker(NodeVisitor):
    """Put a check into every loop and macro, and mark the lists and mappings made in one."""

    def __init__(self) -> None:
        self._depth = 0

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Go through everything."""
        looping = isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock)
        self._depth += looping
        super().generic_visit(node, *args, **kwargs)
        self._depth -= looping
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            check = nodes.EnvironmentAttribute(_TICK, lineno=node.lineno)
            node.body.insert(0, nodes.ExprStmt(check, lineno=node.lineno))
        elif self._depth and isinstance(node, nodes.List | nodes.Dict | nodes.Tuple):
            setattr(node, _IN_LOOP, True)


class _Generator(CodeGenerator):
    """Compiles the checks in."""

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802 (jinja2 finds it by this name)
        """Compile `+`."""
        self._call("added", [node.left, node.right], frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (jinja2 finds it by this name)
        """Compile `~`."""
        self._call("concatenated", node.nodes, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802 (jinja2 finds it by this name)
        """Compile a list."""
        self._building(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802 (jinja2 finds it by this name)
        """Compile a mapping."""
        self._building(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802 (jinja2 finds it by this name)
        """Compile a tuple, or the targets of an assignment."""
        self._building(super().visit_Tuple, node, frame)

    def _building(self, visit: Callable[..., None], node: nodes.Expr, frame: Frame) -> None:
        if not hasattr(node, _IN_LOOP) or getattr(node, "ctx", "load") == "store":
            visit(node, frame)
            return
        self.write("environment.built(")
        visit(node, frame)
        self.write(")")

    def _call(self, name: str, arguments: list[nodes.Expr], frame: Frame) -> None:
        self.write(f"environment.{name}(")
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")


class GuardedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose templates cannot run for long or grow large, once `budget.begin` was called."""

    intercepted_binops = frozenset({"*", "**", "%"})
    code_generator_class = _Generator

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.budget = Budget()
        # jinja2 calls it to put together what a macro, a block or the whole template has put out.
        self.concat = self._joined  # type: ignore[method-assign] # it is an attribute, "".join
        for name in UNBOUNDED_FILTERS:
            self.filters.pop(name, None)
        self.globals.pop("lipsum", None)
        for name, check in FILTER_CHECKS.items():
            self.filters[name] = checked(self.filters[name], check)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse, and mark where checks belong."""
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the template is longer than {MAX_SOURCE} characters")
        tree = super()._parse(source, name, filename)
        _Marker().visit(tree)
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look into mappings first, where messages and tools are: the sandbox's own way costs 1 us more."""
        if type(obj) is dict and attribute not in _OF_DICT:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def tick(self) -> None:
        """Raise TooSlow when the time is over. Called once per turn of a loop."""
        if perf_counter() > self.budget.ends:
            raise TooSlow("the chat template takes too long")

    def added(self, left: Any, right: Any) -> Any:
        """Do what `+` does."""
        result = left + right
        if isinstance(result, str):
            self._made(len(result), MAX_CHARACTERS)
        elif isinstance(result, list | tuple):
            self._made(len(result), MAX_ITEMS)
        return result

    def concatenated(self, *values: Any) -> str:
        """Do what `~` does."""
        return self._joined([value if isinstance(value, str) else str(value) for value in values])

    def built(self, value: Any) -> Any:
        """Pass on a list or mapping, unless lists in lists make it deep: comparing such takes for ever."""
        level, seen = [value], set()
        for _ in range(MAX_DEPTH):
            deeper: list[Any] = []
            for holder in level:
                if isinstance(holder, list | tuple | dict) and id(holder) not in seen:
                    seen.add(id(holder))
                    deeper.extend(holder.values() if isinstance(holder, dict) else holder)
            if not deeper:
                return value
            level = deeper
        raise TemplateError("the chat template makes lists that are nested too deeply")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse an operation whose result would be too large, before it is made."""
        BINOP_CHECKS[operator](left, right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str):
            self._made(len(result), MAX_CHARACTERS)
        return result

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls; a text's methods only within the limits."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str | bytes | int):
            check = METHOD_CHECKS.get(function.__name__)
            if check is not None:
                check(owner, *args, **kwargs)
        result = super().call(context, function, *args, **kwargs)
        if isinstance(result, str):
            self._made(len(result), MAX_CHARACTERS)
        return result

    def _joined(self, parts: Iterable[str]) -> str:
        pieces = list(parts)
        self._made(sum(map(len, pieces)), MAX_CHARACTERS)
        return "".join(pieces)

    def _made(self, size: int, limit: int) -> None:
        budget = self.budget
        budget.made -= size
        if size > limit or budget.made < 0:
            raise too_large()
