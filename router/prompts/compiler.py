"""From a chat template to Python: jinja2's compiler, with the limits of `guard` and the usual cases inline.

jinja2's sandbox looks up every attribute and makes every call through a slow function. Here such an operation
is first tried as Python does it, where the types at run time are exactly those for which the sandbox would
come to the same (a key of a plain dict, a name in a namespace, a harmless method of a str); anything else
still goes through the sandbox. Sums and concatenations of texts become one f-string, after its size was
counted; an attribute that is only tested for truth never becomes an Undefined.

What must be known of a part's surroundings is marked beforehand (`marking`).
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, optimizeconst
from jinja2.idtracking import VAR_LOAD_RESOLVE

from router.prompts import shortcuts
from router.prompts.marking import FOR_TRUTH, TICK, UNCHECKED, WEIGHED, Marker, name_of
from router.prompts.shortcuts import DICT_METHODS, LOOP, OF_DICT, TESTS, TEXT_METHODS, Operand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jinja2.compiler import Frame


QUICK_METHODS = TEXT_METHODS.keys() | DICT_METHODS


class Compiler(CodeGenerator):
    """See the module. jinja2 finds the methods by their names."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        """Compile a whole template."""
        self._marker = Marker()
        self._marker.mark(node)
        for name in ("clock", "looped", "ListLoop", "Space"):
            self.writeline(f"{name} = environment.runtime[{name!r}]")
        super().visit_Template(node, frame)

    def write_commons(self) -> None:
        """Begin the function of a template or block: what is used often is put into local variables."""
        super().write_commons()
        self.writeline("given, known, budget = context.parent, context.vars, context.budget")
        if self._marker.plain_loops:
            self.writeline("LoopContext = looped")

    def enter_frame(self, frame: Frame) -> None:
        """Load variables without a call."""
        loads = frame.symbols.loads
        if self.get_resolve_func() == "resolve":
            for target, (action, name) in loads.items():
                if action == VAR_LOAD_RESOLVE:
                    found = f"known[{name!r}] if {name!r} in known else given.get({name!r}, missing)"
                    self.writeline(f"{target} = {found}")
            frame.symbols.loads = {key: load for key, load in loads.items() if load[0] != VAR_LOAD_RESOLVE}
        super().enter_frame(frame)
        frame.symbols.loads = loads

    def signature(
        self,
        node: nodes.Call | nodes.Filter | nodes.Test,
        frame: Frame,
        extra_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Write arguments: no function here wants to know the variables of the loops around a call."""
        wanted = {key: value for key, value in (extra_kwargs or {}).items() if key == "caller"}
        super().signature(node, frame, wanted)

    def visit_EnvironmentAttribute(self, node: nodes.EnvironmentAttribute, frame: Frame) -> None:
        """Compile the check of the clock."""
        if node.name == TICK:
            self.write("(clock() > budget.ends and budget.late())")
        else:
            super().visit_EnvironmentAttribute(node, frame)

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, frame: Frame) -> None:  # noqa: ARG002 - jinja2 calls it so
        """Refuse what no chat template does: everything here takes text for text."""
        self.fail("HTML escaping cannot be turned on", node.lineno)

    def visit_Name(self, node: nodes.Name, frame: Frame) -> None:
        """Compile a variable."""
        ref = frame.symbols.ref(node.name)
        if node.ctx == "load" and hasattr(node, FOR_TRUTH):
            self.write(f"({ref} is not missing and {ref})")
        else:
            super().visit_Name(node, frame)

    def visit_NSRef(self, node: nodes.NSRef, frame: Frame) -> None:
        """Compile the target of `set ns.x =`, before which jinja2 has put a check of its type."""
        if node.attr.startswith("_") or hasattr(node, UNCHECKED):
            super().visit_NSRef(node, frame)
        else:
            self.write(f"{frame.symbols.ref(node.name)}.held[{node.attr!r}]")

    @optimizeconst
    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        """Compile `x.y`."""
        if node.attr.startswith("_") or isinstance(node.node, nodes.Const):
            super().visit_Getattr(node, frame)
            return
        of = self._operand(node.node, frame)
        quick = self._quick(node, of)
        if quick:
            self.write(f"({quick} else environment.getattr({of.whole}, {node.attr!r}))")
        else:
            self.write(f"environment.getattr({of.source}, {node.attr!r})")

    @optimizeconst
    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Compile `x['y']`, `x[0]`, or a slice, which is counted."""
        key = node.arg.value if isinstance(node.arg, nodes.Const) else None
        if isinstance(node.arg, nodes.Slice):
            self.write("budget.charged(")
            super().visit_Getitem(node, frame)
            self.write(")")
        elif isinstance(key, str) and not isinstance(node.node, nodes.Const):
            of = self._operand(node.node, frame)
            quick = shortcuts.of_dict(of, key, for_truth=hasattr(node, FOR_TRUTH))
            self.write(f"({quick} else environment.getitem({of.whole}, {key!r}))")
        else:
            super().visit_Getitem(node, frame)

    @optimizeconst
    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:
        """Compile `x is y`."""
        plain = not (node.args or node.kwargs or node.dyn_args or node.dyn_kwargs)
        if node.name in TESTS and plain and not isinstance(node.node, nodes.Const):
            self.write(f"({shortcuts.tested(self._operand(node.node, frame), node.name)})")
        else:
            super().visit_Test(node, frame)

    @optimizeconst
    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        """Compile `x | y`."""
        if node.name == "trim" and node.node is not None and not (node.args or node.kwargs):
            of = self._operand(node.node, frame)
            self.write(f"({shortcuts.trimmed(of)} else {self.filters[node.name]}({of.whole}))")
        else:
            super().visit_Filter(node, frame)

    @optimizeconst
    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        """Compile a call."""
        method = node.node
        constant = all(isinstance(argument, nodes.Const) for argument in node.args)
        special = node.kwargs or node.dyn_args or node.dyn_kwargs or forward_caller
        if not (isinstance(method, nodes.Getattr) and method.attr in QUICK_METHODS and constant) or special:
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        of, name = self._operand(method.node, frame), method.attr
        arguments = "".join(f"{self._source(argument, frame)}, " for argument in node.args)
        slow = f"environment.call(context, environment.getattr({of.whole}, {name!r}), {arguments})"
        self.write(f"({shortcuts.of_method(of, name, arguments)} else {slow})")

    @optimizeconst
    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        """Compile `+`."""
        if isinstance(node.right, nodes.Const) and type(node.right.value) is int:
            of = self._operand(node.left, frame)
            more = node.right.value
            slow = f"environment.summed({of.whole}, {more})"
            self.write(f"({of.kept} + {more} if type({of.first}) is int else {slow})")
        else:
            self._join(list(_summands(node)), "environment.summed", frame)

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Compile `~`."""
        self._join(node.nodes, "environment.concatenated", frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Compile a list."""
        self._building(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Compile a mapping."""
        self._building(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Compile a tuple, or the targets of an assignment."""
        self._building(super().visit_Tuple, node, frame)

    def _building(self, visit: Callable[..., None], node: nodes.Expr, frame: Frame) -> None:
        if not hasattr(node, WEIGHED) or getattr(node, "ctx", "load") == "store":
            visit(node, frame)
            return
        self.write("environment.built(")
        visit(node, frame)
        self.write(")")

    def _join(self, parts: list[nodes.Expr], slow: str, frame: Frame) -> None:
        """Put texts together; `slow` does it for whatever is none."""
        if all(isinstance(part, nodes.Const) for part in parts) or any(map(_is_other, parts)):
            self.write(f"{slow}({', '.join(self._source(part, frame) for part in parts)})")
            return
        values = [
            part.value if isinstance(part, nodes.Const) else self._operand(part, frame) for part in parts
        ]
        whole = ", ".join(value.whole if isinstance(value, Operand) else repr(value) for value in values)
        self.write(f"({shortcuts.joined(values)} else {slow}({whole}))")

    def _quick(self, node: nodes.Getattr, of: Operand) -> str:
        """Return the quick way to an attribute, up to its "else", or "" when there is none."""
        owner = name_of(node.node)
        if owner == "loop" and node.attr in LOOP:
            return shortcuts.of_loop(of, node.attr)
        if owner in self._marker.spaces:
            return shortcuts.of_space(of, node.attr)
        if node.attr in OF_DICT:
            return ""
        return shortcuts.of_dict(of, node.attr, for_truth=hasattr(node, FOR_TRUTH))

    def _operand(self, node: nodes.Expr, frame: Frame) -> Operand:
        source = self._source(node, frame)
        if isinstance(node, nodes.Name):
            ref = frame.symbols.ref(node.name)
            return Operand(source, ref, ref, source)
        name = self.temporary_identifier()
        return Operand(source, f"({name} := {source})", name, name)

    def _source(self, node: nodes.Expr, frame: Frame) -> str:
        """Return what a node compiles to."""
        self.write("")
        stream, self.stream = self.stream, StringIO()
        self.visit(node, frame)
        source, self.stream = self.stream.getvalue(), stream
        return source


def _summands(node: nodes.Expr) -> Iterator[nodes.Expr]:
    """Yield a, b and c of `a + b + c`, which is `(a + b) + c`."""
    if isinstance(node, nodes.Add):
        yield from _summands(node.left)
        yield node.right
    else:
        yield node


def _is_other(node: nodes.Expr) -> bool:
    """Whether it is a constant, but no text."""
    return isinstance(node, nodes.Const) and type(node.value) is not str
