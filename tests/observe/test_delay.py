from __future__ import annotations

import time

from router.observe.delay import LoopDelay
from tests.waiting import until


async def test_a_loop_that_is_held_up_shows_it() -> None:
    delays: list[float] = []
    watch = LoopDelay(delays.append)
    await until(lambda: bool(delays), "a first delay")
    time.sleep(0.3)  # noqa: ASYNC251 - what is to be seen
    await until(lambda: max(delays) > 0.15, "the delay")
    watch.close()


async def test_none_is_below_zero() -> None:
    delays: list[float] = []
    watch = LoopDelay(delays.append)
    await until(lambda: len(delays) > 3, "some delays")
    watch.close()
    assert min(delays) >= 0
