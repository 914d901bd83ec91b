"""Templates that would run for ever, grow without end, or make one operation of either."""

from __future__ import annotations

import tracemalloc
from time import perf_counter

import pytest

from router.errors import ConfigError
from router.prompts.guard import MAX_SOURCE
from router.prompts.inexact import Inexact, TooSlow
from router.prompts.running import MAX_MADE
from router.prompts.template import ChatTemplate

LIMIT = 0.2
NESTED = "{% for a in r %}{% for b in r %}{% for d in r %}{% endfor %}{% endfor %}{% endfor %}"
CALLING = (
    "{% macro f(n) %}{% if n %}{% call g(n) %}{% endcall %}{% call g(n) %}{% endcall %}{% endif %}"
    "{% endmacro %}"
    "{% macro g(n) %}{{ f(n - 1) }}{{ caller() }}{% endmacro %}{{ f(60) }}"
)
BLOCK = "{%% block b%d %%}{{ self.b%d() }}{{ self.b%d() }}{%% endblock %%}"
BLOCKS = "".join(map(BLOCK.__mod__, [(n, n + 1, n + 1) for n in range(40)])) + "{% block b40 %}{% endblock %}"
MILLION = "{% set b = [0] * 1000000 %}"
SLOW = [
    "{% set r = range(99999) %}" + NESTED,
    "{% set r = range(99999) %}" + NESTED.replace("{% for d", "x{{ d }}{% for d"),
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    CALLING,
    BLOCKS,
    MILLION + "{% set c = [0] * 1000000 %}{% for i in range(99999) %}{% if b == c %}{% endif %}{% endfor %}",
    MILLION + "{{ range(1, 99999) | reject('in', b) | list }}",
    MILLION + "{% for i in range(1, 99999) if i in b %}{% endfor %}",
    MILLION + "{% for i in range(9999) %}{{ b | min }}{% endfor %}",
]
DOUBLING = (
    "{%% set ns = namespace(x=%s) %%}{%% for i in range(200) %%}{%% set ns.x = %s %%}{%% endfor %%}"
    "{{ ns.x %s}} "
)
INTO_A_VARIABLE = (
    "{% set ns = namespace(x='ab') %}{% for i in range(200) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = y %}{% endfor %}"
)
BY_A_MACRO = (
    "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='ab') %}"
    "{% for i in range(200) %}{% set ns.x = d(ns.x) %}{% endfor %}"
)
KEEPING = (
    "{%% set ns = namespace(x='ab' * 500000, kept=[]) %%}"
    "{%% for i in range(4) %%}{%% set ns.x = ns.x ~ ns.x %%}{%% endfor %%}"
    "{%% for i in range(9999) %%}{%% set ns.kept = ns.kept + [%s] %%}{%% endfor %%}"
)
"""Makes a text of 16 million characters, and then as many more of it as it can."""
KEPT = (
    *("ns.x[1:]", "ns.x ~ 'c'", "ns.x + 'c'", "(ns.x ~ ' ') | trim", "(ns.x ~ ' ').strip()", "ns.x | upper"),
    *(
        "ns.x.upper()",
        "ns.x.encode()",
        "ns.x.split('a')",
        "ns.x.split()",
        "ns.x | list",
        "dict(a=ns.x | lower)",
    ),
    "[ns.x] | map('upper') | list",
)
FORMATS = [
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "{{ ('{:1000000000}' | attr('format'))(1) }}",
    "{{ (['{:1000000000}'] | map(attribute='format') | first)(1) }}",
]
LETTERS = "{% set s = 'a' * 1000000 %}"
TWICE = (
    "{%% set ns = namespace(x=1) %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}"
    "{{ ns.x | string }}"
)
LARGE = [
    LETTERS + "{{ ('%(a)s' * 200000) % {'a': s} }}",
    LETTERS + "{{ ('%(a)s' * 200000) | format(a=s) }}",
    LETTERS + "{{ ('{a}' * 300000).format(a=s) }}",
    LETTERS + "{% set l = [s] * 1000000 %}{{ l | string }}",
    LETTERS
    + "{% set l = [s] * 100 %}{% for i in range(13) %}{% set l = l + l %}{% endfor %}"
    + "{% set l = l + l %}" * 13
    + "{{ l | tojson }}",
    "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x | string }}",
    TWICE % "dict(a=ns.x, b=ns.x)",
    TWICE % "namespace(a=ns.x, b=ns.x)",
    "{{ ('a' * 900000).encode('idna') }}",
    "{{ ([0] * 1000000) | tojson(indent=4096) }}",
    *(KEEPING % made for made in KEPT),
    "{% set s = 'a' * 999999 %}{{ " + " + ".join("s" * 99) + " }}",
    "{% set s = 'a' * 999999 %}{{ " + " ~ ".join("s" * 99) + " }}",
    "{% set s = ['a' * 999999] %}{{ s" + " + s" * 99 + " | join }}",
    "{{ 'x' * 10 ** 10 }}",
    "{{ 2 ** (2 ** 40) }}",
    "{% set n = 10 %}{{ n ** (n ** n) }}",
    "{{ [0] * 10 ** 9 }}",
    "{% set w = 10 ** 9 %}{{ 'x'.ljust(w) }}",
    "{% set w = 10 ** 9 %}{{ 'x'.center(w) }}{{ 'x' | center(w) }}",
    "{% set w = 10 ** 9 %}{{ 'x' | center(w) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{% set s = 'a' * 99999 %}{{ s.replace('a', s) }}",
    "{% set s = 'a' * 99999 %}{{ s | replace('a', s) }}",
    "{% set s = 'a' * 99999 %}{{ s.join(s) }}",
    "{% set s = 'a' * 99999 %}{{ s.join(range(99999) | map('string')) }}",
    "{% set s = 'a' * 99999 %}{{ range(99999) | map('string') | join(s) }}",
    "{% set s = 'a' * 99999 %}{{ range(99999) | list | join(s) }}",
    "{% set s = 'a' * 99999 %}{{ s.translate({97: s}) }}",
    "{% set s = '\n' * 99999 %}{{ s | indent(99999) }}",
    "{{ [1] | tojson(indent=10 ** 9) }}",
    "{{ '\t'.expandtabs(10 ** 9) }}",
    "{{ (5).to_bytes(10 ** 10, 'big') }}",
    "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "{{ range(10 ** 9) | list }}",
    DOUBLING % ("'ab'", "ns.x ~ ns.x", ""),
    DOUBLING % ("'ab'", "ns.x + ns.x", ""),
    DOUBLING % ("['ab']", "ns.x + ns.x", ""),
    DOUBLING % ("3", "ns.x * ns.x", ""),
    DOUBLING % ("['ab']", "[ns.x, ns.x]", ""),
    DOUBLING % ("['ab']", "[ns.x, ns.x]", "| tojson "),
    DOUBLING % ("['ab']", "{'a': ns.x, 'b': ns.x}", "| tojson "),
    INTO_A_VARIABLE,
    BY_A_MACRO,
]


@pytest.mark.parametrize("source", SLOW)
def test_a_template_that_runs_for_ever_is_stopped(source: str) -> None:
    template = ChatTemplate(source, {})
    began = perf_counter()
    with pytest.raises(TooSlow, match="takes too long"):
        template.render({}, LIMIT)
    assert perf_counter() - began < 50 * LIMIT


@pytest.mark.parametrize("source", [*LARGE, *FORMATS])
def test_a_template_that_grows_without_end_is_stopped(source: str) -> None:
    template = ChatTemplate(source, {})
    with pytest.raises(Inexact):
        template.render({}, 5)


@pytest.mark.parametrize(
    "source", [DOUBLING % ("'ab'", "ns.x ~ ns.x", ""), *(KEEPING % made for made in KEPT)]
)
def test_what_a_template_made_before_it_was_stopped_is_bounded(source: str) -> None:
    template = ChatTemplate(source, {})
    tracemalloc.start()
    with pytest.raises(Inexact):
        template.render({}, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * MAX_MADE


@pytest.mark.parametrize("source", FORMATS)
def test_a_wide_field_is_refused_before_it_is_made(source: str) -> None:
    template = ChatTemplate(source, {})
    tracemalloc.start()
    with pytest.raises(Inexact, match="too large"):
        template.render({}, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1024 * 1024


@pytest.mark.parametrize(
    "source",
    [
        "x" * (MAX_SOURCE + 1),
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for a in b %}" * 400 + "{% endfor %}" * 400,
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{{ x" + ".y" * 20_000 + " }}",
        "{% include 'x' %}{% endfor %}",
        "{{ messages | batch(3) }}",
        "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    ],
    ids=lambda source: source[:12],
)
def test_a_template_that_cannot_be_compiled_is_refused_in_one_line(source: str) -> None:
    with pytest.raises(ConfigError, match="does not compile") as caught:
        ChatTemplate(source, {})
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'ab' * 3 }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ 1 + 2 }}{{ [1] + [2] }}", "ababab102433[1, 2]"),
        ("{{ '%s-%d' % ('a', 5) }}{{ '%s' | format('b') }}{{ '{} {x:>3}'.format(1, x=2) }}", "a-5b1   2"),
        (
            "{{ 'a-b'.replace('-', '+') }}{{ 'aaa'.replace('a', 'b', 1) }}{{ 'a' | replace('a', 'c') }}",
            "a+bbaac",
        ),
        (
            "{{ ', '.join(['a', 'b']) }}{{ [1, 2] | join('|') }}{{ range(3) | map('string') | join }}",
            "a, b1|2012",
        ),
        (
            "{{ 'a\nb' | indent(2) }}{{ 'x' | center(3) }}{{ 'x'.ljust(3) }}.{{ 2.567 | round(1) }}",
            "a\n  b x x  .2.6",
        ),
        ("{{ 'a' ~ 1 ~ none ~ missing }}", "a1None"),
        ("{% for i in [1, 2] %}{% set p = [i, {'a': (i, 3)}] %}{{ p[1].a[0] }}{% endfor %}", "12"),
        ("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% else %}-{% endfor %}", "x1"),
        ("{% macro f(x) %}<{{ x }}{{ caller() if caller }}>{% endmacro %}{{ f(1) }}", "<1>"),
    ],
)
def test_what_templates_do_every_day_is_as_it_was(source: str, expected: str) -> None:
    assert ChatTemplate(source, {}).render({}) == expected


def test_the_checks_cannot_be_hidden_by_assignments() -> None:
    source = "{% set tick = 1 %}{% set concatenated = 2 %}{% set built = 3 %}{% set environment = 4 %}"
    assert (
        ChatTemplate(source + "{% for i in [1] %}{{ [i ~ 'x'] | first }}{% endfor %}", {}).render({}) == "1x"
    )


def test_a_value_in_a_mapping_can_be_set_as_in_transformers() -> None:
    assert ChatTemplate("{% set d.q %}x{{ 1 }}{% endset %}{{ d.q }}", {}).render({"d": {}}) == "x1"
    source = "{% set ns = namespace() %}{% set ns.q %}y{% endset %}{{ ns.q }}"
    assert ChatTemplate(source, {}).render({}) == "y"


def test_deep_data_of_a_client_is_no_reason_to_stop() -> None:
    deep: object = 1
    for _ in range(150):
        deep = {"a": [deep]}
    source = (
        "{% for m in messages %}{{ [m] | length }}{{ {'m': m.role} | tojson(indent=2) | length }}{% endfor %}"
    )
    shallow: object = 1
    for _ in range(90):
        shallow = {"a": [shallow]}
    assert ChatTemplate(source, {}).render({"messages": [{"role": "x", "y": shallow}]}) == "114"
    with pytest.raises(Inexact, match="nested too deeply"):
        ChatTemplate(source, {}).render({"messages": [deep]})
