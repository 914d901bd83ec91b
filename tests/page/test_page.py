"""The page as people see it, over a real router and stand-in workers."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from playwright.async_api import expect

from tests.e2e.asking import rows
from tests.e2e.processes import both, router
from tests.page.browser import Look, looking
from tests.proxy.scripted import Worker, answer
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.e2e.processes import Running
    from tests.proxy.scripted import Peer

PROMPT = {"model": "stand-in", "prompt": list(range(1, 200)), "max_tokens": 1}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202elive\x1b[31m" + "x" * 300
KEY = "sk-0123456789"

AUDIT = (Path(__file__).parent / "audit.js").read_text()


@asynccontextmanager
async def page_of_two(**options: Any) -> AsyncIterator[tuple[Running, httpx2.AsyncClient, Look]]:
    """Open the page of a router with two workers, one of which has answered."""
    async with both(count=2) as (workers, front, client), looking(front.url, **options) as look:
        await expect(look.page.get_by_role("status")).to_have_text("live")
        await client.post("/v1/completions", json=PROMPT)
        await until_awaited(lambda: confirmed(client), "the events of the answer have come")
        yield workers, client, look
        assert look.said == []
        assert all(url.startswith(front.url) for url in look.asked)


async def confirmed(client: httpx2.AsyncClient) -> bool:
    return any(one["ranks"][0]["blocks"].get("GPU") for one in (await rows(client)).values())


def row(page: Page, place: str) -> Any:
    return page.locator("[role=row]").filter(has_text=place)


async def wide(page: Page) -> int:
    """Return by how much the page is wider than its window."""
    found: int = await page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return found


async def test_the_fleet_is_shown_and_follows_what_happens() -> None:
    async with page_of_two(**DESKTOP) as (workers, client, look):
        page = look.page
        urls = [worker["url"] for worker in workers.workers]
        for url in urls:
            await expect(row(page, url.removeprefix("http://"))).to_contain_text("ready")
        busy = (await client.post("/v1/completions", json=PROMPT)).headers["x-kv-router-worker"]
        shown = row(page, busy.removeprefix("http://"))
        await expect(shown).to_contain_text("12 GPU")
        await expect(shown.locator("[data-label='Hit share']")).not_to_have_text("\N{EN DASH}")
        await expect(page.locator("#decisions li").first).to_contain_text("199 tokens")
        await expect(page.locator("#decision")).to_contain_text("192 on GPU, 7 to compute")
        await expect(page.locator("#decision .candidates > li")).to_have_count(2)
        async with httpx2.AsyncClient() as direct:
            await direct.post(f"{busy}/flush_cache")
        await expect(page.locator("#resets li")).to_have_count(1)
        await expect(page.locator("#resets li").first).to_contain_text(busy.removeprefix("http://"))
        await expect(page.locator("#resets li").first).to_contain_text("cleared by the engine")
        await expect(page.locator("#line")).to_have_attribute("aria-label", "1 reset of 1 worker in 5 min")
        await expect(shown.locator("[data-label='Blocks']")).to_contain_text("none")
        workers.kill()
        await expect(shown.locator("[data-label='State'] b")).to_have_text("failed")


async def test_a_prompt_is_explained_as_a_picture() -> None:
    async with page_of_two(**DESKTOP) as (_, _, look):
        page = look.page
        await page.get_by_label("Prompt, or a whole request as JSON").fill("Hello there. " * 20)
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer h3")).to_contain_text("Would go to 127.0.0.1:")
        await expect(page.locator("#answer .candidates > li")).to_have_count(2)
        await expect(page.locator("#answer .mark")).to_have_count(1)
        await page.locator("#prompt").fill(json.dumps({"prompt": PROMPT["prompt"]}))
        await page.keyboard.press("Control+Enter")
        await expect(page.locator("#answer .chosen")).to_contain_text("192 on GPU, 7 to compute")
        await page.locator("#prompt").fill("{not json")
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_role("alert")).to_contain_text("Not JSON")
        await page.locator("#prompt").fill('{"model": "nobody", "prompt": "x"}')
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_role("alert")).to_contain_text("nobody")
        look.said.clear()  # a browser logs every answer that is an error


async def test_everything_can_be_read_and_reached_on_a_phone_and_by_keyboard() -> None:
    async with page_of_two(**PHONE, reduced_motion="reduce") as (workers, _, look):
        page = look.page
        async with httpx2.AsyncClient() as direct:
            await direct.post(f"{workers.workers[0]['url']}/flush_cache")
        await expect(page.locator("#resets li")).to_have_count(1)
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to the workers")).to_be_focused()
        await page.locator("#prompt").fill("Hello")
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer .candidates > li")).to_have_count(2)
        await expect(page.locator("#decisions li")).to_have_count(1)
        await page.locator(".name").first.click()
        await expect(page.locator(".more table").first).to_be_visible()
        assert await wide(page) == 0
        assert await page.evaluate(f"{AUDIT}.unnamed()") == []
        reached = await tabbed(page)
        wanted = ["127.0.0.1:", "5 minutes", "Last resets", "Hold", "199 tokens", "Explain"]
        assert [want for want in wanted if not any(want in one for one in reached)] == []
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(","))) < 150) is (scheme == "dark")
            assert await page.evaluate(f"{AUDIT}.faint()") == []


async def tabbed(page: Page) -> list[str]:
    """Press Tab all the way; return what was reached, each of which must show that it was."""
    reached = []
    await page.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    await page.locator("body").press("Tab")
    for _ in range(30):
        text, outline, is_body = await page.evaluate(
            """() => { const one = document.activeElement, style = getComputedStyle(one);
            const text = (one.ariaLabel || "") + " " + one.textContent;
            return [text, style.outlineStyle, one === document.body]; }"""
        )
        if is_body:
            break
        assert outline != "none", text
        reached.append(text)
        await page.keyboard.press("Tab")
    return reached


async def test_decisions_are_walked_through_by_the_arrows_and_can_be_held() -> None:
    async with page_of_two(**DESKTOP) as (_, client, look):
        page = look.page
        await expect(page.locator("#decisions li")).to_have_count(1)
        await client.post("/v1/completions", json=PROMPT | {"prompt": [7] * 40})
        await expect(page.locator("#decisions li")).to_have_count(2)
        await page.locator("#decisions button").first.focus()
        await page.keyboard.press("ArrowDown")
        await expect(page.locator("#decisions button").nth(1)).to_be_focused()
        await expect(page.locator("#decision")).to_contain_text("199 prompt tokens")
        await page.get_by_role("button", name="Hold").click()
        await client.post("/v1/completions", json=PROMPT)
        await expect(page.locator("#figures")).to_contain_text("Requests")
        async with client.stream("GET", "/watch") as stream:
            await anext(aiter(stream.aiter_bytes()))  # the page has got as much by now
        await expect(page.locator("#decisions li")).to_have_count(2)
        await page.get_by_role("button", name="Hold").click()
        await expect(page.locator("#decisions li")).to_have_count(3)


async def test_what_a_worker_calls_itself_stays_a_name() -> None:
    info = {
        "model_path": HOSTILE,
        "served_model_name": HOSTILE,
        "tokenizer_path": HOSTILE,
        "version": HOSTILE,
    }
    models = {"data": [{"id": HOSTILE}]}

    async def hostile(peer: Peer) -> None:
        said = models if b"/v1/models" in peer.head else info
        await peer.send(answer(json.dumps(said).encode()))

    async with (
        Worker.up(hostile) as worker,
        router([worker.url]) as front,
        looking(front.url, **DESKTOP) as look,
    ):
        page = look.page
        await expect(page.locator(".model").first).to_contain_text(HOSTILE[:40])
        await page.locator(".name").first.click()
        await expect(page.locator(".more dl").first).to_contain_text("onerror")
        await expect(page.locator("#model option")).to_have_count(1)
        await page.locator("#prompt").fill("Hello")
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer h3")).to_contain_text("Would go to")
        assert await page.locator("main img").count() == 0
        assert await page.title() == "kv-router"
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await wide(page) == 0
        assert look.said == []


async def test_a_key_is_asked_for_where_there_is_one() -> None:
    async with (
        router([], "--admin-key", "a-key-of-sixteen-characters", "--api-key", KEY) as front,
        looking(front.url, **DESKTOP) as look,
    ):
        page = look.page
        field = page.get_by_label("This router asks for a key.")
        await expect(field).to_be_focused()
        await field.fill("wrong-key")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_have_text("that key is not valid")
        await field.fill(KEY)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_have_text("live")
        await expect(field).to_be_hidden()
        await page.reload()
        await expect(page.get_by_role("status")).to_have_text("live")
        assert not any(KEY in url for url in look.asked)
        assert KEY not in await page.content()


async def test_a_router_that_comes_back_is_found_again() -> None:
    async with both(count=1) as (workers, front, _):
        port = front.url.rpartition(":")[2]
        async with looking(front.url, **DESKTOP) as look:
            status = look.page.get_by_role("status")
            await expect(status).to_have_text("live")
            front.process.terminate()
            await expect(status).to_have_text("connection lost, trying again")
            await asyncio.wait_for(front.process.wait(), 30)
            async with router([workers.workers[0]["url"]], "--port", port):
                await expect(status).to_have_text("live")
