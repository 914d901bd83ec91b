"""What an operator has given, as a message may show it: with the user and the password of a URL left out."""

from __future__ import annotations

import re

# As far as the last @: what is wrong with a URL can be that a password in it is not escaped.
_USER = re.compile(r"\A([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)


def discreet(text: str) -> str:
    """Return the text; `***@` stands for all before its last @, but for a scheme."""
    return _USER.sub(r"\1***@", text) if "@" in text else text
