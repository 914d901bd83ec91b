"""What each of several processes may use of the limits that hold for all."""

from __future__ import annotations

import pytest

from router.config import OPTIONS, Config
from router.derived import capacity_of
from router.errors import ConfigError
from router.fleet.spec import parse_worker
from router.layers import load
from router.listening import bind_together, listen, shown

WORKER = (parse_worker("http://a:1"),)


@pytest.mark.parametrize(("whole", "parts"), [(0, [0, 0, 0]), (1, [1, 1, 1]), (8, [3, 3, 2]), (9, [3, 3, 3])])
def test_limits_are_divided_and_everybody_has_something(whole: int, parts: list[int]) -> None:
    config = Config(
        workers=WORKER, processes=3, max_inflight=whole, max_worker_inflight=whole, queue_size=whole
    )
    shares = [capacity_of(config, index) for index in range(3)]
    assert [share.in_all for share in shares] == parts
    assert [share.per_worker for share in shares] == parts
    assert [share.waiting for share in shares] == parts


def test_a_worker_that_connects_to_the_router_can_have_one_process_only() -> None:
    flags = {"workers": ["http://a:1,kv=tcp://*:5557,bind=true"]}
    assert load(flags, {}).processes == 1
    with pytest.raises(ConfigError, match="bind=true"):
        load({**flags, "processes": "2"}, {})


def test_sockets_of_one_port_are_ours_alone() -> None:
    sockets = bind_together("127.0.0.1", 0, 3)
    port = sockets[0].getsockname()[1]
    assert {each.getsockname()[1] for each in sockets} == {port}
    assert shown(sockets[0], "https") == f"https://127.0.0.1:{port}"
    for take in (lambda: listen("127.0.0.1", port), lambda: bind_together("127.0.0.1", port, 2)):
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            take()
    for each in sockets:
        each.close()
    listen("127.0.0.1", port).close()


@pytest.mark.parametrize("name", ["max_inflight", "max_worker_inflight", "queue_size"])
def test_what_is_divided_among_processes_says_so(name: str) -> None:
    assert "Divided among --processes" in OPTIONS[name].setting.help
