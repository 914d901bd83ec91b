from __future__ import annotations

import re
from importlib.resources import files

import pytest

from router.api.page import PAGE_PATHS, has_page


@pytest.mark.parametrize(
    ("setting", "address", "expected"),
    [
        ("auto", "127.0.0.1", True),
        ("auto", "127.1.2.3", True),
        ("auto", "::1", True),
        ("auto", "0.0.0.0", False),
        ("auto", "::", False),
        ("auto", "fe80::1%eth0", False),
        ("auto", "10.0.0.1", False),
        ("off", "127.0.0.1", False),
        ("on", "0.0.0.0", True),
    ],
)
def test_there_is_a_page_for_this_machine_alone_unless_told_otherwise(
    setting: str, address: str, *, expected: bool
) -> None:
    assert has_page(setting, address) is expected


def test_every_file_of_the_page_is_served_and_none_is_asked_of_anybody_else() -> None:
    served = {path.rpartition("/")[2] or "index.html" for path in PAGE_PATHS}
    kept = [one for one in files("router.page").iterdir() if not one.name.startswith("__")]
    assert served == {one.name for one in kept}
    for one in kept:
        text = one.read_text().replace("http://www.w3.org/", "")
        assert not re.search(r"https?://\w|//cdn|@import|url\(", text), one.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), one.name
        assert not re.search(r"\sstyle=|\son\w+=|javascript:", text), one.name
