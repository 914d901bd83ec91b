"""What a worker cannot be: values out of range, names that are none, settings that exclude each other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workers.engine.loops import LOOPS
from workers.engine.timing import PROFILES
from workers.publisher import address_of

if TYPE_CHECKING:
    from workers.publisher import PublisherConfig
    from workers.spec import WorkerSpec

MOST_PORT = 65_535
COUNTS: dict[str, tuple[int, int]] = {
    "page_size": (1, 65_536),
    "capacity_tokens": (1, 100_000_000),
    "dp": (1, 1024),
    "max_model_len": (1, 100_000_000),
    "chunk_tokens": (1, 100_000_000),
    "max_running": (1, 1_000_000),
    "port": (0, MOST_PORT),
    "bootstrap_port": (0, MOST_PORT),
}
EVENT_COUNTS: dict[str, tuple[int, int]] = {
    "port": (0, MOST_PORT),
    "replay_port": (0, MOST_PORT),
    "load_port": (0, MOST_PORT),
    "hwm": (1, 2**31 - 1),
    "buffer_steps": (1, 10_000_000),
}
PAIR_SECONDS = (0.001, 86_400.0)
BANDWIDTHS = (1e3, 1e15)  # bytes/s
MOST_TIER = 10_000.0  # device sizes
_TCP = re.compile(r"tcp://([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


class SpecError(ValueError):
    """A value that no worker can be made from: `setting` is its name, `wanted` what was expected."""

    def __init__(self, setting: str, wanted: str) -> None:
        super().__init__(f"{setting} {wanted}")
        self.setting, self.wanted = setting, wanted


def check(spec: WorkerSpec) -> None:
    """Return if a worker can be made from a spec; raises SpecError."""
    for name, bounds in COUNTS.items():
        _within(name, getattr(spec, name), bounds)
    _within("pair_seconds", spec.pair_seconds, PAIR_SECONDS)
    _within("transfer_bandwidth", spec.transfer_bandwidth, BANDWIDTHS)
    _check_names(spec)
    _check_sizes(spec)
    _check_engine(spec)
    _check_tiers(spec)
    if spec.events is not None:
        _check_events(spec.events, spec.dp)


def _expect(holds: object, setting: str, wanted: str) -> None:
    if not holds:
        raise SpecError(setting, wanted)


def _within(setting: str, value: float, bounds: tuple[float, float]) -> None:
    low, high = bounds  # a comparison with nan is false
    _expect(low <= value <= high, setting, f"must be from {low} to {high}, not {value}")


def _check_names(spec: WorkerSpec) -> None:
    for setting, name in [("model", spec.model), *(("adapters", name) for name in spec.adapters)]:
        _expect(
            name.strip() and name.isprintable(), setting, f"must be a name that can be read, not {name!r}"
        )
    names = [spec.model, *spec.adapters]
    _expect(len(set(names)) == len(names), "adapters", "must differ from each other and from the model")
    _expect(spec.host.strip(), "host", "must be an address to bind, not an empty text")
    _expect(
        spec.profile in PROFILES, "profile", f"must be one of {', '.join(PROFILES)}, not {spec.profile!r}"
    )
    _expect(spec.loop in LOOPS, "loop", f"must be one of {', '.join(LOOPS)}, not {spec.loop!r}")
    if spec.tokenizer is not None:
        wanted = f"must be a directory with a tokenizer.json, not {str(spec.tokenizer)!r}"
        _expect((spec.tokenizer / "tokenizer.json").is_file(), "tokenizer", wanted)


def _check_sizes(spec: WorkerSpec) -> None:
    _expect(spec.chunk_tokens >= spec.page_size, "chunk_tokens", f"must be at least a page, {spec.page_size}")
    two = 2 * spec.page_size
    _expect(spec.capacity_tokens >= two, "capacity_tokens", f"must be at least two pages, {two}")


def _check_engine(spec: WorkerSpec) -> None:
    sglang = spec.engine == "sglang"
    _expect(not sglang or spec.hash_form == "int", "hash_form", "bytes is vLLM's only")
    _expect(sglang or not spec.bigram, "bigram", "is SGLang's only")
    _expect(sglang or spec.loop == "normal", "loop", "is SGLang's only")
    decodes = spec.role == "decode"
    _expect(decodes or not spec.decode_radix_cache, "decode_radix_cache", "needs a decode loop")
    load_port = None if spec.events is None else spec.events.load_port
    _expect(sglang or load_port is None, "load_port", "is SGLang's only")


def _check_tiers(spec: WorkerSpec) -> None:
    if spec.tiers is None:
        return
    caches = spec.role != "decode" or spec.decode_radix_cache
    _expect(caches, "tier", "on a decode loop needs a cache: decode_radix_cache")
    storage = spec.tiers.storage
    _expect(spec.engine == "sglang" or not storage, "tier", "storage is SGLang's only")
    _expect(0 < spec.tiers.host <= MOST_TIER, "tier", f"host must be more than 0x and at most {MOST_TIER:g}x")
    _expect(0 <= storage <= MOST_TIER, "tier", f"storage must be at most {MOST_TIER:g}x")
    _within("host_bandwidth", spec.tiers.host_bandwidth, BANDWIDTHS)
    _within("storage_bandwidth", spec.tiers.storage_bandwidth, BANDWIDTHS)


def _check_events(events: PublisherConfig, ranks: int) -> None:
    for name, bounds in EVENT_COUNTS.items():
        if (value := getattr(events, name)) is not None:
            _within(f"events.{name}", value, bounds)
    if events.connect is not None:
        wanted = f"must be tcp://host:port, not {events.connect!r}"
        _expect(_TCP.fullmatch(events.connect), "events.connect", wanted)
        _, port = address_of(events.connect)
        last = MOST_PORT - ranks + 1
        wanted = f"must be tcp://host:port with a port from 1 to {last}, not {port}"
        _expect(1 <= port <= last, "events.connect", wanted)
        _expect(not events.port, "events.port", "binds a port, while events.connect connects to one")
