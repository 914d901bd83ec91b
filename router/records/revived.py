"""What entries say, as the core has it: policies, weights, prompts, batches of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from router.core.blocks import Namespace, PromptBlocks, block_keys, namespace_root
from router.core.cost import POLICIES, Policy, Weights
from router.core.events import Batch, Cleared, Event, Removed
from router.pairs.choice import DECODE
from router.records import entries
from router.records.codes import as_tokens, numbers
from router.records.format import RecordError
from router.records.request import Request
from router.records.seal import opened, salted

if TYPE_CHECKING:
    from array import array


def policy_of(name: str) -> Policy:
    """Return a policy by its name. Raises RecordError when there is none."""
    policy = DECODE if name == DECODE.name else POLICIES.get(name)
    if policy is None:
        known = ", ".join(POLICIES)
        raise RecordError(f"there is no policy {name:.40}; expected one of {known}")
    return policy


def weights_of(recorded: dict[str, int | float]) -> Weights:
    """Return the weights of a record. Raises RecordError for what are none."""
    try:
        return msgspec.convert(recorded, Weights)
    except msgspec.ValidationError as error:
        raise RecordError(f"the weights are none: {error}") from error


def prompt_keys(entry: entries.Prompt) -> dict[tuple[int, bool], array[int]]:
    """Return a prompt's block keys, as a re-run has them: it knows no neighbour pairs."""
    found = {}
    for blocks in entry.blocks:
        space = Namespace(entry.model, entry.lora, salted(entry.salt, bigram=blocks.bigram), entry.text)
        root = namespace_root(space, blocks.block_size)
        tokens = as_tokens(blocks.codes, blocks.block_size)
        found[blocks.block_size, False] = block_keys(tokens, blocks.block_size, root)
    return found


def prompt_of(entry: entries.Prompt, keys: dict[tuple[int, bool], array[int]]) -> PromptBlocks:
    """Return a prompt of which the keys are known, and tokens made up."""
    made_up = (as_tokens(blocks.codes, blocks.block_size) for blocks in entry.blocks)
    return PromptBlocks(
        next(made_up, b"") or (b"\0" if entry.blocks else b""),  # which is not known, but no block
        entry.tokens,
        Namespace(entry.model, entry.lora, entry.salt, entry.text),
        reads_cache=entry.reads_cache,
        reusable=entry.reusable,
        keys=keys,
    )


def request_of(entry: entries.Prompt, keys: dict[tuple[int, bool], array[int]]) -> Request:
    """Return a request that has been read."""
    session = None if entry.session is None else entry.session.encode()
    return Request(entry.id, session, prompt_of(entry, keys), keys)


def batch_of(sealed: entries.Sealed) -> Batch:
    """Return a batch of events."""
    return Batch(sealed.ts, [_event(event) for event in sealed.events], None, sealed.undecodable)


def _event(event: entries.Store | entries.Removal | entries.Clear) -> Event:
    if isinstance(event, entries.Store):
        return opened(event)
    if isinstance(event, entries.Removal):
        return Removed(list(numbers(event.hashes)), event.tier, event.group)
    return Cleared()
