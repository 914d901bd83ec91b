"""A real browser for the page: Debian's Chromium, headless, driven by playwright."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


@dataclass(slots=True)
class Look:
    """One page that is open, what its console has said, and what it has asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def looking(url: str, **options: Any) -> AsyncIterator[Look]:
    """Open the page in a browser of its own; `options` are those of a browser's context."""
    program = shutil.which("chromium")
    assert program is not None, "the tests of the page need chromium (Debian's package chromium)"
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=program, args=FLAGS)
        try:
            context = await browser.new_context(**options)
            context.set_default_timeout(30_000)
            look = Look(await context.new_page())
            look.page.on("console", lambda message: look.said.append(message.text))
            look.page.on("pageerror", lambda error: look.said.append(str(error)))
            look.page.on("request", lambda request: look.asked.append(request.url))
            await look.page.goto(url)
            yield look
        finally:
            await browser.close()
