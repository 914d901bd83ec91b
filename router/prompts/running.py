"""What a compiled template works with while it renders: its budget, its variables, its loops and namespaces.

They stand in for jinja2's own classes, do what those do as far as a template can see, and are cheaper:
jinja2 makes a context in 8 us, and looks into a namespace in 1 us.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.utils import Namespace, missing

from router.prompts.bounds import MAX_CHARACTERS, MAX_ITEMS, too_large
from router.prompts.inexact import TooSlow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jinja2 import Undefined

    from router.prompts.guard import GuardedEnvironment

    Blocks = Mapping[str, Any]

MAX_MADE = 8 * MAX_CHARACTERS
"""How much a template may make in one rendering: characters, and items of lists, kept or not."""


class Budget:
    """What one rendering has left: `ends` on the clock of perf_counter, `made` to be made."""

    __slots__ = ("ends", "made")

    def __init__(self, seconds: float = float("inf")) -> None:
        """Give a rendering its time and its size."""
        self.ends = perf_counter() + seconds
        self.made = MAX_MADE

    def fits(self, size: int, limit: int = MAX_CHARACTERS) -> bool:
        """Count what is made, in characters or items; raise when it is too much."""
        self.made -= size
        if size > limit or self.made < 0:
            raise too_large()
        return True

    def charged(self, value: Any) -> Any:
        """Pass on what a template has made, counted: a text, or a list."""
        if isinstance(value, str | bytes):
            self.fits(len(value))
        elif isinstance(value, list | tuple | dict):
            self.fits(len(value), MAX_ITEMS)
        return value

    def late(self) -> NoReturn:
        """Say that the time is over."""
        raise TooSlow("the chat template takes too long")


class Variables(Context):
    """A template's variables: `parent` are those given to it, the globals among them; `vars` its own."""

    budget: Budget

    def __init__(
        self, environment: GuardedEnvironment, parent: dict[str, Any], name: None, blocks: Blocks, **_: Any
    ) -> None:
        """Leave out what templates with imports need."""
        self.environment = environment
        self.eval_ctx = environment.eval_ctx
        self.name = name
        self.parent = parent
        self.vars = {}
        self.exported_vars = set()
        self.blocks = {name: [block] for name, block in blocks.items()} if blocks else {}

    def derived(self, locals: dict[str, Any] | None = None) -> Variables:  # noqa: A002 (jinja2's name)
        """Return variables for a scope of its own, in the same rendering."""
        made: Variables = super().derived(locals)  # type: ignore[assignment] # the environment's context_class
        made.budget = self.budget
        return made


def call_macro(macro: Macro, values: tuple[Any, ...]) -> str | None:
    """Return what a macro makes of `values` if it takes just these; its own way takes 1.5 us more."""
    more = macro._argument_count - len(values)  # noqa: SLF001 (jinja2 has no other way past its own call)
    if more < 0 or macro.caller or macro.catch_kwargs or macro.catch_varargs:
        return None
    return macro._func(*values, *(missing,) * more)  # noqa: SLF001 (as above)


class Space(Namespace):
    """What `namespace()` makes. `held` is what a template has put there; it sees nothing else of it.

    As in transformers 5, names in it begin with no underscore.
    """

    __slots__ = ("held",)
    __getattribute__ = object.__getattribute__

    def __init__(*args: Any, **named: Any) -> None:
        """Take any names, `self` too."""
        held = args[0].held = dict(*args[1:], **named)
        for name in held:
            if type(name) is not str or name[:1] == "_":
                _check_name(name)

    def __getattr__(self, name: str) -> Any:
        """Answer filters that look for themselves."""
        try:
            return self.held[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        """Assign."""
        _check_name(name)
        self.held[name] = value

    def __repr__(self) -> str:
        return f"<Namespace {self.held!r}>"


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


class ListLoop:
    """The `loop` of a loop over a list, for a template that asks it for nothing but its attributes."""

    __slots__ = ("final", "index0", "items", "undefined")
    index0: int

    def __init__(self, items: list[Any], undefined: type[Undefined]) -> None:
        """`index0` is set at every turn, `final` is its last value."""
        self.items = items
        self.final = len(items) - 1
        self.undefined = undefined

    @property
    def previtem(self) -> Any:
        """The item before this one."""
        if self.index0 == 0:
            return self.undefined("there is no previous item")
        return self.items[self.index0 - 1]

    @property
    def nextitem(self) -> Any:
        """The item after this one."""
        if self.index0 == self.final:
            return self.undefined("there is no next item")
        return self.items[self.index0 + 1]


def looped(items: Iterable[Any], undefined: type[Undefined], *recursive: Any) -> Iterable[tuple[Any, Any]]:
    """Return the turns of a loop, each with its `loop`."""
    if type(items) is list and not recursive:
        return _turns(items, ListLoop(items, undefined))
    return LoopContext(items, undefined, *recursive)


def _turns(items: list[Any], loop: ListLoop) -> Iterator[tuple[Any, ListLoop]]:
    for loop.index0, item in enumerate(items):
        yield item, loop
