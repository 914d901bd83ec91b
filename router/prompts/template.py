"""A model's own chat template, run as `transformers` runs it, in a sandbox.

What `transformers` gives to a template: blocks trimmed on both sides, loop controls, `{% generation %}`
blocks (markers for training, transparent here), `tojson` that keeps order and escapes neither HTML nor
Unicode, `raise_exception`, `strftime_now`, and the special tokens by name. A template is compiled once.

A template is somebody else's program. What it raises becomes `Inexact`, with the first line of its message;
`guard` keeps it from running for long and from growing large.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols

from router.errors import ConfigError
from router.prompts.guard import GuardedEnvironment
from router.prompts.inexact import Inexact, TooSlow
from router.prompts.weight import weigh

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jinja2.parser import Parser

REASON_CHARACTERS = 200
"""How much of a template's own message is shown."""

MAX_INDENTED = 8 * 1024 * 1024
"""The most that JSON may hold, in characters and items, times the blanks it is indented by."""

RENDER_SECONDS = 2.0
"""How long a rendering may take, in a thread. A chat of 128k tokens takes a few milliseconds."""


_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


class ChatTemplate:
    """A compiled template. `source` is its text.

    `message_names` are the names its loops give to a message; `content_owners` are the names over whose
    content it loops. From these, engines conclude whether it wants strings or lists of parts.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._environment = _environment()
        try:
            tree = self._environment.parse(source)
            self._template = self._environment.from_string(source)
        except Exception as error:  # noqa: BLE001 (what jinja2 makes of it may not even be Python)
            raise ConfigError(f"the chat template does not compile: {_first_line(error)}") from None
        self._given = {**self._environment.globals, **special_tokens}
        self.source = source
        self.message_names = frozenset(_message_names(tree))
        self.content_owners = frozenset(_content_owners(tree))

    def render(self, variables: Mapping[str, Any], seconds: float = RENDER_SECONDS) -> str:
        """Render with the special tokens and `variables`, which win; raise Inexact when it fails.

        About 20 us for a short chat. Raises TooSlow after so many `seconds`.
        """
        try:
            return self._environment.render(self._template, {**self._given, **variables}, seconds)
        except TooSlow:
            raise
        except Exception as error:  # noqa: BLE001 (a template can raise anything)
            raise Inexact(f"the chat template failed: {_first_line(error)}") from None


class Generation(Extension):
    """`{% generation %} ... {% endgeneration %}`: renders what is inside."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Replace the block by its body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body, lineno=line)]


def _environment() -> GuardedEnvironment:
    environment = GuardedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.add_filter("tojson", _tojson)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(indent, int) and indent * weigh(value) > MAX_INDENTED:
        raise jinja2.TemplateError("tojson: the indentation is too wide")
    if indent is None and separators is None and not (ensure_ascii or sort_keys):
        return _ENCODE(value)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    """The router's local time: an engine in another zone, or just past midnight, may render another day."""
    return datetime.now().astimezone().strftime(pattern)


def _first_line(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:REASON_CHARACTERS]


def _message_names(tree: nodes.Template) -> Iterator[str]:
    """Yield the targets of loops over `messages`, or over a variable made from it."""
    sources = {"messages"}
    for assign in tree.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name) and _name(assign.node) in sources:
            sources.add(assign.target.name)
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name) and _name(loop.iter) in sources:
            yield loop.target.name


def _content_owners(tree: nodes.Template) -> Iterator[str]:
    """Yield x for every loop over `x.content` or `x['content']`."""
    for loop in tree.find_all(nodes.For):
        source = _bare(loop.iter)
        if isinstance(source, nodes.Getattr):
            key: object = source.attr
        elif isinstance(source, nodes.Getitem) and isinstance(source.arg, nodes.Const):
            key = source.arg.value
        else:
            continue
        owner = _name(source.node)
        if key == "content" and owner is not None:
            yield owner


def _bare(node: nodes.Node | None) -> nodes.Node | None:
    """Strip filters, tests and slices: `messages[1:] | list` is still `messages`."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node


def _name(node: nodes.Node | None) -> str | None:
    bare = _bare(node)
    return bare.name if isinstance(bare, nodes.Name) else None
