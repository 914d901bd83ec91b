"""How prompts become token ids."""

from __future__ import annotations

from router.options.kinds import PATH
from router.setting import Setting, integer, number, one_of

SETTINGS = {
    "tokenizer": Setting(
        PATH,
        "tokenizer.json (or tekken.json, tiktoken.model), the directory it is in, or a name on the "
        "Hugging Face hub, for all models; without it each worker's own path, where it can be read here",
    ),
    "tokenize_seconds": Setting(
        number(0.001, 60),
        "How long a request waits for a worker's /tokenize where the router has no tokenizer",
        "seconds",
    ),
    "forward_input_ids": Setting(
        one_of(("off", "on")),
        "Send SGLang the token ids of text prompts, so that it need not tokenise again, once its own "
        "counts have agreed with them",
    ),
    "max_body_bytes": Setting(
        integer(1024, 2**32), "Largest request body taken; the default is 64 MiB", "bytes"
    ),
}
