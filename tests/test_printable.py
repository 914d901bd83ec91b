"""Whatever a text holds, it is printable afterwards, and JSON still says the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from router.printable import printable, printable_json

ANY = st.text(st.characters())  # surrogates among them


@given(ANY)
def test_any_text_becomes_printable_and_what_is_printable_stays(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


def test_what_cannot_be_printed_is_escaped() -> None:
    assert printable("a\n\x1b[2J\x7f\x9b\N{RIGHT-TO-LEFT OVERRIDE}é") == r"a\n\x1b[2J\x7f\x9b\u202eé"


@given(st.dictionaries(ANY, ANY), st.sampled_from([None, 2]), st.booleans())
def test_json_becomes_printable_and_says_the_same(
    said: dict[str, str], indent: int | None, ascii_only: bool
) -> None:
    shown = printable_json(json.dumps(said, indent=indent, ensure_ascii=ascii_only))
    assert all(line.isprintable() for line in shown.split("\n"))
    assert json.loads(shown) == json.loads(json.dumps(said))
