"""What an operator has given, as a message may show it: without what a URL has that can be a secret.

That is its user and password, its query and its fragment.
"""

from __future__ import annotations

import re

# As far as the last @: what is wrong with a URL can be that a password in it is not escaped.
_REST = re.compile(r"([?#]).+", re.DOTALL)
_PATH = re.compile(r"\A([a-z][a-z0-9+.-]*://[^/]*/).+", re.IGNORECASE | re.DOTALL)
_USER = re.compile(r"\A([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)


def discreet(text: str) -> str:
    """Return the text; `***@` is all before its last @, but for a scheme, `***` all after ? or #."""
    return _REST.sub(r"\1***", _USER.sub(r"\1***@", text))


def only_place(text: str) -> str:
    """Return the text as `discreet` does, of a URL without its path."""
    return _PATH.sub(r"\1***", discreet(text))
