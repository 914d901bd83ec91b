"""Bodies that came before are read once."""

from __future__ import annotations

from router.core.blocks import Namespace, PromptBlocks
from router.fleet.route import Route
from router.prompts.prompt import known
from router.prompts.remembered import MAX_BODY_BYTES, MAX_MARKS, Reading, Remembered
from router.prompts.request import Kind, parse

ROUTE = ("m", None, "vllm")


def reading(body: bytes, kind: Kind = Kind.COMPLETIONS) -> Reading:
    blocks = PromptBlocks(b"", 1, Namespace("m"))
    return Reading(parse(kind, body), ROUTE, None, trusted=True, prompt=known(b"", 0), blocks=blocks)


def keep(bodies: Remembered, body: bytes) -> Reading:
    """Let a body come twice."""
    read = reading(body)
    for _ in range(2):
        bodies.add(body, read)
    return read


def test_a_body_that_comes_once_is_not_kept() -> None:
    bodies = Remembered()
    bodies.add(b'{"prompt": "x"}', reading(b'{"prompt": "x"}'))
    assert bodies.get(Kind.COMPLETIONS, b'{"prompt": "x"}') is None
    assert len(bodies) == 0


def test_of_those_that_come_once_the_latest_are_known() -> None:
    bodies = Remembered()
    texts = [b'{"prompt": "%d"}' % number for number in range(2 * MAX_MARKS)]
    for text in texts:
        bodies.add(text, reading(text))
    for text in (texts[0], texts[-1]):
        bodies.add(text, reading(text))
    assert bodies.get(Kind.COMPLETIONS, texts[0]) is None
    assert bodies.get(Kind.COMPLETIONS, texts[-1]) is not None


def test_a_body_is_known_by_all_of_its_bytes_and_its_kind() -> None:
    bodies = Remembered()
    read = keep(bodies, b'{"prompt": "x"}')
    assert bodies.get(Kind.COMPLETIONS, b'{"prompt": "x"}') is read
    assert bodies.get(Kind.COMPLETIONS, b'{"prompt":  "x"}') is None
    assert bodies.get(Kind.OTHER, b'{"prompt": "x"}') is None


def test_the_body_asked_for_longest_ago_leaves_first() -> None:
    bodies = Remembered(most=45)
    texts = [b'{"prompt": "%d"}' % number for number in range(4)]
    for text in texts[:3]:
        keep(bodies, text)
    assert bodies.get(Kind.COMPLETIONS, texts[0]) is not None
    keep(bodies, texts[3])
    kept = [bodies.get(Kind.COMPLETIONS, text) is not None for text in texts]
    assert kept == [True, False, True, True]


def test_a_body_that_is_added_again_counts_once() -> None:
    bodies = Remembered(most=45)
    text = b'{"prompt": "1"}'
    for _ in range(5):
        bodies.add(text, reading(text))
    keep(bodies, b'{"prompt": "2"}')
    assert len(bodies) == 2


def test_a_long_body_is_not_kept() -> None:
    bodies = Remembered()
    text = b'{"prompt": "%s"}' % (b"x" * MAX_BODY_BYTES)
    keep(bodies, text)
    assert len(bodies) == 0


def test_a_reading_holds_for_its_model_adapter_and_engine() -> None:
    read = reading(b'{"prompt": "x"}')
    assert read.holds(Route("m", None, "vllm", []), None)
    assert not read.holds(Route("m", "adapter", "vllm", []), None)
    assert not read.holds(Route("m", None, "sglang", []), None)
    assert not read.holds(Route("n", None, "vllm", []), None)
