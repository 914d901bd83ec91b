from __future__ import annotations

import pytest

from router.errors import ConfigError
from router.prompts.inexact import Inexact
from router.prompts.template import ChatTemplate

SLICES = (
    "{% set rest = messages[1:] %}{% for x in rest | list %}"
    "{% for c in x.content[1:] %}{% endfor %}{% endfor %}"
)


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(variables)


def test_special_tokens_are_there_by_name_and_arguments_win_over_them() -> None:
    assert render("{{ bos_token }}") == "<s>"
    assert render("{{ bos_token }}", bos_token="<x>") == "<x>"


def test_tojson_keeps_order_and_escapes_neither_html_nor_unicode() -> None:
    value = {"z": "<b>&'é", "a": [1.0, None, True]}
    assert render("{{ v | tojson }}", v=value) == '{"z": "<b>&\'é", "a": [1.0, null, true]}'
    assert render("{{ v | tojson(indent=1) }}", v={"a": 1}) == '{\n "a": 1\n}'


def test_blocks_are_trimmed_and_loops_can_be_left() -> None:
    assert render("{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "012"
    assert render("  {% if true %}\nx\n  {% endif %}\n") == "x\n"


def test_generation_blocks_render_what_is_inside() -> None:
    assert render("a{% generation %}{{ x }}b{% endgeneration %}c", x="-") == "a-bc"


def test_strftime_now_is_the_year_of_today() -> None:
    assert len(render("{{ strftime_now('%Y') }}")) == len("2026")


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('only user and assistant') }}",
        "{{ missing.attribute }}",
        "{{ missing | tojson }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set _ = messages.append(1) %}",
    ],
)
def test_whatever_a_template_raises_is_a_reason(source: str) -> None:
    with pytest.raises(Inexact, match=r"^the chat template failed: ."):
        render(source, messages=[])


def test_the_reason_a_template_gives_is_kept() -> None:
    with pytest.raises(Inexact, match="only user and assistant"):
        render("{{ raise_exception('only user and assistant') }}")


def test_a_template_that_does_not_compile_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="the chat template does not compile: "):
        ChatTemplate("{% for %}", {})


@pytest.mark.parametrize(
    ("source", "names", "owners"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", {"m"}, set()),
        ("{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}", {"m"}, {"m"}),
        (
            SLICES,
            {"x"},
            {"x"},
        ),
        ("{% macro f(content) %}{% for c in content %}{% endfor %}{% endmacro %}", set(), set()),
    ],
)
def test_loops_over_content_are_found(source: str, names: set[str], owners: set[str]) -> None:
    template = ChatTemplate(source, {})
    assert (set(template.message_names), set(template.content_owners)) == (names, owners)
