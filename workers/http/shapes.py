"""What answers look like: OpenAI's two routes as SGLang writes them, and its native one.

A shape turns a generation into one object, or a piece of text into one stream event. Field order and
extra fields are those of SGLang 0.5.23; vLLM's are in `vllm_shapes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from workers.engine.request import Request
    from workers.http.edge import Edge
    from workers.http.generation import Generation


class Shape(Protocol):
    """One route's way to write answers."""

    def whole(self) -> Any:
        """Return the complete answer of a finished generation."""
        ...

    def opening(self) -> list[Any]:
        """Return the events before the first token."""
        ...

    def piece(self, index: int, fresh: list[int], finish: str | None) -> list[Any]:
        """Return the events for new tokens of one request, ended or not."""
        ...

    def closing(self) -> list[Any]:
        """Return the events after the last token."""
        ...


@dataclass(frozen=True, slots=True)
class Counts:
    """The tokens of all requests together; `cached` is the engine's own count.

    A prompt that is answered n times counts once, and so does what its first copy found in the cache.
    """

    prompts: list[Request]
    prompt: int
    completion: int
    cached: int

    @classmethod
    def of(cls, generation: Generation) -> Counts:
        """Return a generation's."""
        prompts = generation.requests[:: generation.ask.copies]
        return cls(
            prompts=prompts,
            prompt=sum(request.prompt_tokens for request in prompts),
            completion=sum(len(request.output) for request in generation.requests),
            cached=sum(request.cached_tokens or 0 for request in prompts),
        )


@dataclass(slots=True)
class OpenAI:
    """/v1/completions, or /v1/chat/completions when `chat`."""

    edge: Edge
    generation: Generation
    chat: bool
    created: int = field(default_factory=lambda: int(time()))

    def whole(self) -> dict[str, Any]:
        """Return the complete answer (see `Shape`)."""
        choices = [self._choice(index, request) for index, request in enumerate(self.generation.requests)]
        kind = "chat.completion" if self.chat else "text_completion"
        return self._envelope(kind, choices) | {"usage": self._usage()}

    def _choice(self, index: int, request: Request) -> dict[str, Any]:
        text = self.edge.tokenizer.text(request.output)
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {"index": index, **said, "logprobs": None, **self._ending(request.finish)}

    def _ending(self, finish: str | None) -> dict[str, Any]:
        return {"finish_reason": finish, "matched_stop": None}

    def opening(self) -> list[Any]:
        """Return the events that name the role, one per request (see `Shape`)."""
        if not self.chat:
            return []
        role = {"role": "assistant", "content": ""}
        return [self._chunk(index, {"delta": role}, None) for index in range(len(self.generation.requests))]

    def piece(self, index: int, fresh: list[int], finish: str | None) -> list[Any]:
        """Return one event, or two when a chat ends (see `Shape`)."""
        text = self.edge.tokenizer.text(fresh)
        if not self.chat:
            return [self._chunk(index, {"text": text}, finish)]
        said = [self._chunk(index, {"delta": {"content": text}}, None)] if text else []
        return said if finish is None else [*said, self._chunk(index, {"delta": {}}, finish)]

    def closing(self) -> list[Any]:
        """Return the usage event if it was asked for (see `Shape`)."""
        if not self.generation.ask.include_usage:
            return []
        return [self._envelope(self._stream_kind, []) | {"usage": self._usage()}]

    def _chunk(self, index: int, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": index, **said, "logprobs": None, **self._ending(finish)}
        return self._envelope(self._stream_kind, [choice])

    @property
    def _stream_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _envelope(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        generation = self.generation
        return {
            "id": generation.id,
            "object": kind,
            "created": self.created,
            "model": generation.ask.model,
            "choices": choices,
        }

    def _usage(self) -> dict[str, Any]:
        counts = Counts.of(self.generation)
        return {
            "prompt_tokens": counts.prompt,
            "completion_tokens": counts.completion,
            "total_tokens": counts.prompt + counts.completion,
            "prompt_tokens_details": {"cached_tokens": counts.cached}
            if self.edge.spec.cache_report
            else None,
        }


@dataclass(slots=True)
class Native:
    """SGLang's /generate: cumulative text, and everything else under meta_info."""

    edge: Edge
    generation: Generation
    created: float = field(default_factory=time)

    def whole(self) -> Any:
        """Return one object, or a list for a list of prompts (see `Shape`)."""
        answers = [self._answer(request) for request in self.generation.requests]
        return answers if self.generation.ask.batch else answers[0]

    def opening(self) -> list[Any]:
        """Return nothing (see `Shape`)."""
        return []

    def piece(self, index: int, fresh: list[int], finish: str | None) -> list[Any]:  # noqa: ARG002 see below
        """Return all text so far (see `Shape`)."""
        answer = self._answer(self.generation.requests[index])
        return [answer | {"index": index}] if self.generation.ask.batch else [answer]

    def closing(self) -> list[Any]:
        """Return nothing (see `Shape`)."""
        return []

    def _answer(self, request: Request) -> dict[str, Any]:
        return {
            "text": self.edge.tokenizer.text(request.output),
            "output_ids": request.output,
            "meta_info": {
                "id": request.rid,
                "finish_reason": _native_finish(request),
                "prompt_tokens": request.prompt_tokens,
                "weight_version": self.edge.weight_version,
                "completion_tokens": len(request.output),
                "cached_tokens": request.cached_tokens or 0,
                "e2e_latency": time() - self.created,
            },
        }


def _native_finish(request: Request) -> dict[str, Any] | None:
    if request.finish is None:
        return None
    length = {"length": len(request.output)} if request.finish == "length" else {}
    return {"type": request.finish, **length}
