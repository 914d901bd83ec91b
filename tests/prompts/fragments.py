"""Templates put together at random from whatever the language has, and values to render them with."""

from __future__ import annotations

from hypothesis import strategies as st

ATTRIBUTES = (
    *("role", "content", "x", "_y", "items", "keys", "get", "update", "upper", "format", "append", "count"),
    *("held", "final", "index0", "index", "first", "last", "length", "revindex", "revindex0"),
    *("previtem", "nextitem", "depth", "__class__", "name", "arguments", "real"),
)
NAMES = ("a", "b", "m", "ns", "nobody", "loop", "f", "v")
CONSTANTS = (
    "'x'",
    "''",
    "' y\\n'",
    "1",
    "0",
    "-1",
    "2.5",
    "none",
    "true",
    "false",
    "[]",
    "{}",
    "[1, 'x']",
    "{'x': 'y'}",
)
FILTERS = (
    *("trim", "length", "tojson", "upper", "string", "safe", "list", "first", "last", "default('d')"),
    *("join('-')", "items", "map('upper')", "map(attribute='x')", "selectattr('x')", "attr('x')", "e"),
    *("tojson(indent=2)", "replace('x', 'yy')", "int", "reverse", "sort", "trim('x')", "dictsort"),
)
TESTS = (
    *("defined", "undefined", "none", "string", "true", "false", "mapping", "iterable", "sequence"),
    *("number", "boolean", "callable", "eq('x')", "in('xy')"),
)
CALLS = (
    "get('x')",
    "get('y', 1)",
    "items()",
    "keys()",
    "values()",
    "strip()",
    "strip('x')",
    "split('x')",
    "split()",
    "startswith('x')",
    "endswith(1)",
    "rstrip('\\n')",
)
BINARY = (
    "{} + {}",
    "{} ~ {}",
    "{} == {}",
    "{} != {}",
    "{} < {}",
    "{} in {}",
    "{} and {}",
    "{} or {}",
    "{} * {}",
    "{} - {}",
    "{} % {}",
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({}).{}".format, inner, st.sampled_from(ATTRIBUTES)),
        st.builds("({})['{}']".format, inner, st.sampled_from(ATTRIBUTES)),
        st.builds("({})[{}]".format, inner, st.sampled_from(("0", "-1", "1:", "::-1", ":1"))),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("(({}) | {})".format, inner, st.sampled_from(FILTERS)),
        st.builds("(({}) is {})".format, inner, st.sampled_from(TESTS)),
        st.builds("({}).{}".format, inner, st.sampled_from(CALLS)),
        st.builds("({} + 1)".format, inner),
        st.builds("({} + 'x' + {} + 'y')".format, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({}({}))".format, st.sampled_from(("f", "namespace", "range", "dict", "a.upper")), inner),
        st.builds(
            lambda form, one, other: f"({form.format(one, other)})", st.sampled_from(BINARY), inner, inner
        ),
    )


NAME = st.sampled_from(NAMES)
DIRECT = st.builds("{}.{}".format, NAME, st.sampled_from(ATTRIBUTES))
EXPRESSIONS = st.recursive(st.one_of(NAME, DIRECT, st.sampled_from(CONSTANTS)), _larger, max_leaves=6)


def _longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, EXPRESSIONS, inner, inner),
        st.builds(
            "{{% for v in {} %}}{}{{% endfor %}}".format, st.sampled_from(("a", "b", "m", "ns.x")), inner
        ),
        st.builds("{{% for v in {} %}}{}{{% else %}}-{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds(
            "{{% for v in [1, 'x', m] if {} %}}{}{{{{ loop.{} }}}}{{% endfor %}}".format,
            EXPRESSIONS,
            inner,
            st.sampled_from(ATTRIBUTES),
        ),
        st.builds("{{% for k, v in m.items() %}}{{{{ k }}}}{}{{% endfor %}}".format, inner),
        st.builds("{{% set {} %}}{}{{% endset %}}".format, st.sampled_from(("a", "v")), inner),
        st.builds("{{% macro f(v, b='d') %}}{}{{% endmacro %}}".format, inner),
        st.builds("{{% call f({}) %}}{}{{% endcall %}}".format, EXPRESSIONS, inner),
        st.builds("{{% filter trim %}}{}{{% endfilter %}}".format, inner),
        st.builds("{{% generation %}}{}{{% endgeneration %}}".format, inner),
        st.builds("{{% with a = {} %}}{}{{% endwith %}}".format, EXPRESSIONS, inner),
    )


STATEMENTS = st.recursive(
    st.one_of(
        st.builds("{{{{ {} }}}}".format, EXPRESSIONS),
        st.builds(
            "{{% set {} = {} %}}".format,
            st.sampled_from(("a", "v", "ns.x", "ns.role", "m", "ns")),
            EXPRESSIONS,
        ),
        st.sampled_from(
            ("text ", "{% block k %}{{ a }}{% endblock %}", "{{ f('x') }}", "{{ f() }}", "{{ f(1, b=2) }}")
        ),
    ),
    _longer,
    max_leaves=10,
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(-1, 1),
    st.sampled_from(("", "x", " xyx ", "\n<b>&é")),
)
KEYS = st.sampled_from(ATTRIBUTES)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
