"""The HTTP edge: routes, bodies and statuses of SGLang 0.5.23 and vLLM 0.32 in front of the same ranks."""
