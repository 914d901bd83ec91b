"""The KV-event router: a cache-aware routing service for SGLang and vLLM workers."""

from __future__ import annotations

__version__ = "0.1.0"
