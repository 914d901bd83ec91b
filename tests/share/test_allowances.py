"""Limits that several processes count in one memory: together they give out what one bucket would."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from random import Random

import pytest

from router.api.keys import Client, ClientLimits, Keyring, read_keys
from router.core.bucket import Bucket
from router.errors import RateLimited
from router.share.allowances import Allowances, open_allowances

PROCESSES = 6
RATE, BURST, SECONDS = 5.0, 7.0, 200
# Each process takes all it can get in each second, whatever second the others have come to.
GREEDY = f"""
import sys
from router.share.allowances import Allowances

bucket = Allowances(int(sys.argv[1])).bucket("one", {RATE}, {BURST})
taken = 0
for now in range(1, {SECONDS} + 1):
    while not bucket.take(1, now):
        taken += 1
print(taken)
"""


async def test_processes_together_give_out_what_one_bucket_holds_and_gains() -> None:
    file = open_allowances()
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", GREEDY, str(file), pass_fds=[file], stdout=subprocess.PIPE
        )
        for _ in range(PROCESSES)
    ]
    total = sum([int((await each.communicate())[0]) for each in processes])
    os.close(file)
    whole = BURST + RATE * (SECONDS - 1)
    assert whole - 1 <= total <= whole


def test_a_shared_bucket_does_what_an_own_one_does() -> None:
    random = Random(1)
    shared, own = Allowances(open_allowances()).bucket("a", 3.0, 9.0), Bucket(3.0, 9.0)
    now = 0.0
    for _ in range(2000):
        now += random.expovariate(1)
        amount = random.expovariate(0.2)
        assert shared.take(amount, now) == own.take(amount, now)


def test_names_and_limits_have_buckets_of_their_own_and_full_ones_take_no_room() -> None:
    allowances = Allowances(open_allowances())
    for round_ in range(3):
        now = 100.0 * round_
        for number in range(10_000):
            assert allowances.bucket(f"{round_} {number}", 1.0, 1.0).take(1, now) == 0
        buckets = [allowances.bucket(f"{round_} {number}", 1.0, 1.0) for number in range(10_000)]
        assert sum(bucket.take(1, now) == 0 for bucket in buckets) <= 3
    assert allowances.bucket("2 1", 1.0, 2.0).take(1, now) == 0


@pytest.mark.parametrize("kind", ["requests", "prompt tokens"])
def test_clients_of_two_processes_are_one(kind: str) -> None:
    allowances = Allowances(open_allowances())
    rings = [Keyring(allowances.bucket) for _ in range(2)]
    for ring in rings:
        read: dict[bytes, tuple[str, ClientLimits]] = {}
        read_keys(
            "sk-0123456789 name=a requests-per-second=1 burst=2 prompt-tokens-per-minute=2", read, "keys"
        )
        ring.hold(read)
    (here,), (there,) = (ring.clients() for ring in rings)

    def take(client: Client) -> None:
        if kind == "requests":
            client.take_request(lambda: 1.0)
        else:
            client.take_prompt(1, lambda: 1.0)

    take(here)
    take(there)
    for client in (here, there):
        with pytest.raises(RateLimited, match=kind):
            take(client)
