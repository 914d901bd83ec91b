"""Limits on a chat template while it renders: time, size of its texts, and what single operations may make.

A template is somebody else's program, run between requests. Its loops, macros and blocks are given a check of
the clock at every turn, and so are calls and filters; what it adds, joins, cuts out, multiplies or puts into
lists is measured, and what no check can bound beforehand (a few filters of jinja2 that chat templates do not
use) is taken out. A template that goes too far fails like one that raises.

What holds: a template that was written for a model ends in time whatever a client's body holds. A template
that is hostile itself is stopped in the ways that are tested, with a text or list at a time of the sizes
named in `bounds`; but single operations on lists that it has made of others by `+` may take longer and grow
larger than that. Templates come from the operator's or the workers' own files, not from clients.

The checks are compiled into the template (`compiler`), and nothing that a template assigns can hide them.
"""

from __future__ import annotations

import threading
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, cast

from jinja2 import TemplateError, nodes
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from router.prompts.bounds import BINOP_CHECKS, FILTER_CHECKS, METHOD_CHECKS, check_format, checked, counted
from router.prompts.compiler import Compiler
from router.prompts.running import Budget, ListLoop, Space, Variables, call_macro, looped
from router.prompts.shortcuts import OF_DICT
from router.prompts.weight import weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2.environment import Template
    from jinja2.runtime import Context

MAX_SOURCE = 128 * 1024
"""The longest template, in characters; published ones have up to 20,000, and compiling so much takes 4 s."""

SMALL = 64
"""Lists that are no longer than that are added to others without a look at what is in them."""

COMPARING_TESTS = ("in", "eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "le", "<=", "gt", ">")
"""Tests that may look at much; filters apply them to every item without a turn of a loop."""

UNBOUNDED_FILTERS = ("batch", "slice", "wordwrap", "urlize", "pprint", "xmlattr", "random", "filesizeformat")


class _Running(threading.local):
    """The budget of the rendering in this thread."""

    budget = Budget()


class GuardedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose templates cannot run for long or grow large. Render with `render`."""

    intercepted_binops = frozenset({"*", "**", "%"})
    code_generator_class = Compiler
    context_class = Variables
    runtime: ClassVar = {"clock": perf_counter, "looped": looped, "ListLoop": ListLoop, "Space": Space}
    """What compiled templates use by these names."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._running = _Running()
        self.eval_ctx = nodes.EvalContext(self)
        # jinja2 calls it to put together what a macro, a block or the whole template has put out.
        self.concat = self._joined  # type: ignore[method-assign] # it is an attribute, "".join
        for name in UNBOUNDED_FILTERS:
            self.filters.pop(name, None)
        self.globals.pop("lipsum", None)
        self.globals["namespace"] = Space
        for name, check in FILTER_CHECKS.items():
            self.filters[name] = checked(self.filters[name], check)
        for name, work in self.filters.items():
            self.add_filter(name, work)
        for name in COMPARING_TESTS:
            self.tests[name] = counted(cast("Callable[..., Any]", self.tests[name]), self._charged)

    def add_filter(self, name: str, work: Callable[..., Any]) -> None:
        """Let templates use a filter; what it makes is counted."""
        self.filters[name] = work if work is len else counted(work, self._charged)

    @property
    def budget(self) -> Budget:
        """What the rendering in this thread has left."""
        return self._running.budget

    def render(self, template: Template, variables: dict[str, Any], seconds: float) -> str:
        """Render within `seconds`; raises TooSlow, and whatever a template raises. 5 us for a short chat.

        `variables` are all of them, the globals too.
        """
        self._running.budget = budget = Budget(seconds)
        given = Variables(self, variables, None, template.blocks)
        given.budget = budget
        pieces = list(template.root_render_func(given))
        budget.fits(sum(map(len, pieces)))
        return "".join(pieces)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse, unless it is too long."""
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the template is longer than {MAX_SOURCE} characters")
        return super()._parse(source, name, filename)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look into mappings first, where messages and tools are: the sandbox's own way costs 1 us more."""
        if type(obj) is dict and attribute not in OF_DICT:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if type(obj) is Space:
            return self._of_space(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Do what `x[y]` does."""
        if type(obj) is Space and isinstance(argument, str):
            return self._of_space(obj, str(argument))
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return what stands in for the `format` of a text, whichever way a template has found it."""
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else checked(wrapped, partial(check_format, value.__self__))

    def _of_space(self, space: Space, name: str) -> Any:
        return space.held[name] if name in space.held else self.undefined(obj=space, name=name)

    def summed(self, *values: Any) -> Any:
        """Do what `a + b + c` does."""
        result = values[0]
        for value in values[1:]:
            grows = isinstance(value, list) and isinstance(result, list) and len(value) > SMALL < len(result)
            result = self._charged(result + value)
            if grows:
                self.built(result)
        return result

    def concatenated(self, *values: Any) -> str:
        """Do what `~` does."""
        return self._joined([value if isinstance(value, str) else str(value) for value in values])

    def built(self, value: Any) -> Any:
        """Pass on a list or mapping whose content is not too much, however often it holds the same."""
        weigh(value)
        return value

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse an operation whose result would be too large, before it is made."""
        BINOP_CHECKS[operator](left, right)
        made = self._charged(super().call_binop(context, operator, left, right))
        return made if isinstance(made, str | int | float) else self.built(made)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls; a text's methods only within the limits."""
        if type(function) is Macro and not kwargs:
            text = call_macro(function, args)
            if text is not None:
                return text
        if function is Space:
            space = Space(*args, **kwargs)
            self.built(space.held)
            return space
        if function is dict:
            return self.built(dict(*args, **kwargs))
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str | bytes | int):
            check = METHOD_CHECKS.get(function.__name__)
            if check is not None:
                check(owner, *args, **kwargs)
        return self._charged(super().call(context, function, *args, **kwargs))

    def _charged(self, value: Any) -> Any:
        budget = self._running.budget
        if perf_counter() > budget.ends:
            budget.late()
        return budget.charged(value)

    def _joined(self, parts: Iterable[str]) -> str:
        pieces = list(parts)
        self.budget.fits(sum(map(len, pieces)))
        return "".join(pieces)
