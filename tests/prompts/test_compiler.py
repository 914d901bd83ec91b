"""Our compiled templates beside those of transformers: the same text, or an error from both."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

from router.errors import ConfigError
from router.prompts.inexact import Inexact
from router.prompts.template import ChatTemplate
from tests.prompts import corpus
from tests.prompts.fragments import KEYS, STATEMENTS, VALUES

TEMPLATES = sorted((Path(__file__).parent.parent / "fixtures" / "templates").glob("*.jinja"))
ADDRESS = re.compile(r"0x[0-9a-f]+")


def theirs(template: Any, variables: dict[str, Any]) -> str | None:
    """Return what transformers renders, or None for any error."""
    try:
        return ADDRESS.sub("0x", template.render(**variables))
    except Exception:  # noqa: BLE001 (a template can raise anything)
        return None


def ours(template: ChatTemplate, variables: dict[str, Any]) -> str | None:
    """Return what we render, or None."""
    try:
        return ADDRESS.sub("0x", template.render(variables))
    except Inexact:
        return None


def compiled(source: str) -> tuple[ChatTemplate, Any] | None:
    """Return a template as we compile it and as transformers does, or None when neither can."""
    try:
        other = _compile_jinja_template(source)
    except (SyntaxError, TemplateError):
        with pytest.raises(ConfigError):
            ChatTemplate(source, {})
        return None
    return ChatTemplate(source, {}), other


CASES = (
    "{% for m in a %}{% block x scoped %}{{ loop.index }}{{ m }}{% endblock %}{% endfor %}",
    "{% for m in a %}{% block x %}{{ m }}|{% endblock %}{% endfor %}",
    (
        "{% for m in a recursive %}{{ m.x }}{% if m.kids %}({{ loop(m.kids) }}){% endif %}{{ loop.depth "
        "}}{% endfor %}"
    ),
    "{% for m in a %}{{ loop.cycle('a','b') }}{{ loop.changed(m) }}{{ loop.last }}{% endfor %}",
    "{% for m in a %}{{ loop }}{% endfor %}",
    "{% for m in a %}{% for q in loop %}{{ q }}{% endfor %}{% endfor %}",
    "{% macro f(x, loop) %}{{ loop.index }}{% endmacro %}{{ f(1, a[0]) }}",
    "{% for m in a %}{% macro g(y) %}{{ y }}{{ loop.index }}{{ m }}{% endmacro %}{{ g(1) }}{% endfor %}",
    "{% macro f(x) %}{{ varargs }}{{ kwargs }}{{ x }}{% endmacro %}{{ f(1,2,3,z=4) }}",
    (
        "{% macro f(x, caller=none) %}{{ x }}{{ caller is none }}{% endmacro %}{{ f(1) }}{% call f(2) "
        "%}{% endcall %}"
    ),
    (
        "{% macro f(x=5, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ f() }}{{ f(1) }}{{ f(y=2) }}{{ f.name "
        "}}{{ f.arguments }}{{ f.catch_kwargs }}"
    ),
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1,2) }}",
    "{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f() }}",
    (
        "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns }}{{ ns.c is defined }}{% set "
        "ns.c = [1] %}{{ ns.c[0] }}{{ ns['a'] }}{{ ns.held }}{{ ns.items }}"
    ),
    "{% set ns = namespace(a=1) %}{% set ns._b = 1 %}",
    "{{ namespace(_b=1) }}",
    "{% set x = {'a': 1} %}{% set x.a = 2 %}",
    (
        "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set ns = namespace() %}{% set ns.x, ns.y = 3, 4 %}{{ ns.x "
        "+ ns.y }}"
    ),
    "{{ 'a' + 1 }}",
    "{{ 1 + 1 }}{{ 1.5 + 1 }}{{ true + 1 }}{{ [1] + [2] }}",
    "{{ ('<' | e) + 'a<' }}",
    "{{ 'a<' + ('<' | safe) }}{{ 'a<' ~ ('<' | e) }}",
    "{{ missing + 'a' }}",
    "{{ 'a' ~ missing ~ none ~ 1.0 }}",
    "{{ a[0].x.y }}",
    "{{ a.append(1) }}",
    "{{ a[0].update({}) }}",
    "{{ a[0].pop('x') }}{{ a }}",
    "{{ a[0].get('x') }}{{ a[0].get('nope') }}{{ a[0].get('nope', 'd') }}",
    "{% if not missing %}1{% endif %}{% if missing.x %}2{% endif %}",
    (
        "{% if a[0].missing %}1{% else %}2{% endif %}{{ 3 if a[0].nope else 4 }}{{ a[0].nope or 'z' }}{{ "
        "a[0].nope and 'z' }}"
    ),
    "{% for m in a if m.x %}{{ m.x }}{{ loop.length }}{% else %}none{% endfor %}",
    (
        "{% for m in a %}{% if loop.first %}{% continue %}{% endif %}{{ loop.previtem.x }}{% break %}{% "
        "endfor %}"
    ),
    (
        "{{ a | map(attribute='x') | list }}{{ a | selectattr('x') | list | length }}{{ a | groupby('x') "
        "}}{{ a|sort(attribute='x')|first }}"
    ),
    "{{ a[0]['items'] }}{{ a[0].items() | list }}{{ a[0]|items|list }}",
    "{% set s %}{{ a[0].x }}!{% endset %}{{ s }}{{ s is string }}",
    "{% filter upper %}x{{ a[0].x }}{% endfilter %}",
    "{{ strftime_now('%Y') }}",
    "{{ 'x'.format }}",
    "{{ '{}'.format(a[0].x) }}{{ '{0.x}'.format(a[0]) }}",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}",
    "{{ cycler('a','b').next() }}{{ joiner(',')() }}",
    "{{ dict(a=1) }}{{ range(3)|list }}",
    "{% with x = 5 %}{{ x }}{% endwith %}{{ x }}",
    "{{ self }}",
    (
        "{{ x is mapping }}{{ a is iterable }}{{ a[0] is mapping }}{{ none is none }}{{ 1 is true }}{{ "
        "true is true }}"
    ),
)
LISTS = {"a": [{"x": "1", "kids": [{"x": "2"}]}, {"x": "3"}]}
MORE: tuple[dict[str, Any], ...] = (
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False, "reasoning_effort": "high"},
    {"preserve_thinking": True},
)
INPUTS = {"source": STATEMENTS, "a": VALUES, "b": VALUES, "m": st.dictionaries(KEYS, VALUES, max_size=4)}
BEFORE = (
    "{% set ns = namespace(x=a, role='r', y=b) %}"
    "{% macro f(v) %}<{{ v }}{{ caller() if caller }}>{% endmacro %}"
)


@given(**INPUTS)
@settings(max_examples=300)
def test_a_template_renders_as_it_does_in_transformers(
    source: str, a: Any, b: Any, m: dict[str, Any]
) -> None:
    made = compiled(BEFORE + source)
    if made is not None:
        variables = {"a": a, "b": b, "m": m}
        assert ours(made[0], variables) == theirs(made[1], variables)


@pytest.mark.parametrize("source", CASES)
def test_what_a_template_language_can_do_it_does_here_too(source: str) -> None:
    made = compiled(source)
    assert made is not None
    assert ours(made[0], LISTS) == theirs(made[1], LISTS)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", corpus.KINDS)
def test_a_published_template_renders_every_conversation_as_in_transformers(path: Path, kind: str) -> None:
    source = path.read_text(encoding="utf-8")
    one, other = ChatTemplate(source, {}), _compile_jinja_template(source)
    for body, more in product(corpus.conversations(kind)[:12], MORE):
        variables = {"bos_token": "<s>", "tools": None, **body, **more}
        assert ours(one, variables) == theirs(other, variables)
