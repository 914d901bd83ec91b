"""The page at `/`: a few static files of the package, which ask `/watch` and `/explain` for what they show.

Nothing of them comes from elsewhere, and the policy that is sent along lets nothing else run, load or frame
them. They hold nothing of the fleet, so that no key is needed to get them.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import Response

from router.api.hosts import is_loopback

if TYPE_CHECKING:
    from fastapi import FastAPI

_SCRIPTS = ("page.js", "dom.js", "fleet.js", "resets.js", "picture.js", "decisions.js")
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/page/{name}": (name, "text/javascript; charset=utf-8") for name in _SCRIPTS},
}
PAGE_PATHS = frozenset(_FILES)
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def has_page(setting: str, address: str) -> bool:
    """Whether there is a page, by --dashboard and by the address that is listened on."""
    if setting == "auto":
        return is_loopback(address)
    return setting == "on"


def add_page(app: FastAPI) -> None:
    """Add the routes of the files, which are read once, now."""
    here = files("router.page")
    for path, (name, kind) in _FILES.items():
        _add(app, path, here.joinpath(name).read_bytes(), kind)


def _add(app: FastAPI, path: str, content: bytes, kind: str) -> None:
    @app.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, media_type=kind, headers=_HEADERS)
