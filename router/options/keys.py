"""Who may ask for what."""

from __future__ import annotations

from router.api.keys import KEY
from router.options.kinds import PATH
from router.setting import Setting, one_of, word

SETTINGS = {
    "admin_key": Setting(
        word("16 or more characters without spaces", "KEY", r"[!-~]{16,}"),
        "Key of the /admin routes (Authorization: Bearer KEY), which exist only when there is one; "
        "better given as a variable or in the file than as a flag that a process list shows",
        secret=True,
    ),
    "api_keys": Setting(
        PATH,
        "File of the keys that clients need (Authorization: Bearer KEY, or x-api-key), one a line, with "
        "name=, requests-per-second=, burst= and prompt-tokens-per-minute= behind it as wanted; read "
        "again when it changes",
    ),
    "api_key": Setting(
        word("8 or more characters without spaces", "KEY", KEY),
        "A key that clients may use besides; better given as a variable, which may hold several, than as "
        "a flag that a process list shows",
        repeated=True,
        secret=True,
    ),
    "protect_metrics": Setting(one_of(("off", "on")), "Whether /metrics needs a client's key, too"),
    "forward_authorization": Setting(
        one_of(("off", "on")), "Whether workers see the keys of clients where the router checks them"
    ),
}
