from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.commands.running import command
from tests.e2e.processes import both

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = {"model": "stand-in", "prompt": list(range(1, 100)), "max_tokens": 1}


async def test_a_decision_is_a_table_with_the_chosen_rank_first(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps(PROMPT))
    async with both(count=2) as (_, front, client):
        busy = (await client.post("/v1/completions", json=PROMPT)).headers["x-kv-router-worker"]
        place = busy.removeprefix("http://")
        ended = await command("explain", str(file), "--url", front.url)
        assert (ended.code, ended.err) == (0, "")
        title, _, head, chosen, other = ended.out.splitlines()
        assert title == f"to {place} rank 0  99 prompt tokens, 16 a block, policy kv"
        assert head.split()[:3] == ["WORKER", "RANK", "CACHED"]
        assert chosen.split()[:3] == [">", place, "0"]
        assert (chosen.split()[-1], other.split()[-1]) == ("4.5", "148.5")
        body = json.dumps(PROMPT).encode()
        piped = await command("explain", "-", "--url", front.url, "--json", stdin=body)
        assert json.loads(piped.out)["chosen"] == {"worker": busy, "rank": 0}
        unknown = await command(
            "explain", "-", "--url", front.url, stdin=b'{"model": "nobody", "prompt": "x"}'
        )
        assert (unknown.code, unknown.out) == (1, "")
        assert unknown.err.startswith(f"kv-router: {front.url} answers 404: ")
        wrong = await command("explain", "-", "--url", front.url, stdin=b"{")
        assert wrong.code == 1
        assert " answers 400: " in wrong.err


async def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for file, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        ended = await command("explain", str(file))
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == f"kv-router: {file} cannot be read: {why}\n"
