"""vLLM 0.32's answers on OpenAI's two routes, field by field and in its order.

Most fields are null here as they are there. What a router has to be ready for: behind `usage` can come a
prompt's token ids, which a client may ask for, and the list of blocks for another worker; usage in a stream
is shorter than in a whole answer; the last piece of text carries the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any

from workers.http.pair import offer
from workers.http.shapes import Counts

if TYPE_CHECKING:
    from workers.engine.request import Request
    from workers.http.edge import Edge
    from workers.http.generation import Generation

FINGERPRINT = "vllm-0.32.0-stand-in"
_SAID = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))


@dataclass(slots=True)
class VllmOpenAI:
    """/v1/completions, or /v1/chat/completions when `chat`."""

    edge: Edge
    generation: Generation
    chat: bool
    created: int = field(default_factory=lambda: int(time()))

    def whole(self) -> dict[str, Any]:
        """Return the complete answer (see `Shape`)."""
        choices = [self._choice(index, request) for index, request in enumerate(self.generation.requests)]
        said = self._envelope("chat.completion" if self.chat else "text_completion", choices)
        said |= {"service_tier": None, "system_fingerprint": FINGERPRINT, "usage": self._usage()}
        if self.chat:
            said |= {"prompt_logprobs": None, "prompt_token_ids": self._prompt_ids(0), "prompt_text": None}
        return said | {"kv_transfer_params": self._offer(), "ec_transfer_params": None, "metrics": None}

    def _choice(self, index: int, request: Request) -> dict[str, Any]:
        text = self.edge.tokenizer.text(request.output)
        said = {"message": {"role": "assistant", "content": text} | _SAID} if self.chat else {"text": text}
        ids = request.output if self.generation.ask.wants_ids else None
        ending = {"logprobs": None, "finish_reason": request.finish, "stop_reason": None, "token_ids": ids}
        prompt = {} if self.chat else {"prompt_logprobs": None, "prompt_token_ids": self._prompt_ids(index)}
        return {"index": index} | said | ending | prompt | {"routed_experts": None}

    def opening(self) -> list[Any]:
        """Return the events that name the role, one per request (see `Shape`)."""
        if not self.chat:
            return []
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        prompt = {"prompt_token_ids": self._prompt_ids(0), "prompt_text": None}
        indices = range(len(self.generation.requests))
        return [self._chunk({"index": index} | role) | prompt for index in indices]

    def piece(self, index: int, fresh: list[int], finish: str | None) -> list[Any]:
        """Return one event (see `Shape`)."""
        text, ids = self.edge.tokenizer.text(fresh), fresh if self.generation.ask.wants_ids else None
        said = self._chat_piece(text, finish) if self.chat else self._text_piece(text, finish)
        if not self.chat:
            first = len(fresh) == len(self.generation.requests[index].output)
            said["prompt_token_ids"] = self._prompt_ids(index) if first else None
        chunk = self._chunk({"index": index} | said | {"token_ids": ids})
        last = finish is not None and not self.generation.ask.include_usage
        return [chunk | {"system_fingerprint": FINGERPRINT} if last else chunk]

    def _chat_piece(self, text: str, finish: str | None) -> dict[str, Any]:
        said = {"delta": {"content": text}, "logprobs": None, "finish_reason": finish}
        return said if finish is None else said | {"stop_reason": None}

    def _text_piece(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}

    def closing(self) -> list[Any]:
        """Return the usage event if it was asked for (see `Shape`)."""
        if not self.generation.ask.include_usage:
            return []
        usage = self._usage()
        del usage["completion_tokens_details"]
        if usage["prompt_tokens_details"] is not None:
            kept = ("cached_tokens", "created_cache_tokens") if self.chat else ("cached_tokens",)
            usage["prompt_tokens_details"] = {name: usage["prompt_tokens_details"][name] for name in kept}
        return [self._envelope(self._stream_kind, []) | {"usage": usage, "system_fingerprint": FINGERPRINT}]

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return self._envelope(self._stream_kind, [choice])

    @property
    def _stream_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _envelope(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": ("chatcmpl-" if self.chat else "cmpl-") + self.generation.id,
            "object": kind,
            "created": self.created,
            "model": self.generation.ask.model,
            "choices": choices,
        }

    def _prompt_ids(self, index: int) -> list[int] | None:
        return self.generation.ask.prompts[index] if self.generation.ask.wants_ids else None

    def _offer(self) -> dict[str, Any] | None:
        """Return where the prompt's KV can be fetched, if it is to be decoded elsewhere."""
        if not self.generation.ask.pairs[0].offers:
            return None
        request = self.generation.requests[0]
        return offer(self.edge, request.rid, request.sequence.pages(request.prompt_tokens))

    def _usage(self) -> dict[str, Any]:
        """Return the usage of a whole answer."""
        counts = Counts.of(self.generation)
        size = self.edge.spec.page_size
        created = sum(request.prompt_tokens // size * size for request in counts.prompts) - counts.cached
        details = {
            "cached_tokens": counts.cached,
            "created_cache_tokens": created if self.chat else None,
            "multimodal_tokens": None,
        }
        return {
            "prompt_tokens": counts.prompt,
            "total_tokens": counts.prompt + counts.completion,
            "completion_tokens": counts.completion,
            "prompt_tokens_details": details if self.edge.spec.cache_report else None,
            "completion_tokens_details": None,
        }
