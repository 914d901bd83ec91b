"""From a request's body to the token ids that the engine will see, or the reason why they are not known.

    body -> request.parse -> Request -> reader.PromptReader(tokenizer) -> Prompt(tokens, count, exact, why)

    what is in a body      fields, decoding, request; large, structure (long ones, in steps); content;
                           conversation, responses, anthropic (as a chat)
    a model's own          files, hub, encoders, ranks, mistral, vllm_chat, sglang_chat, tokenizer
    its chat template      template, guard, bounds, weight (limits), compiler, marking, shortcuts (to Python),
                           running
    reading                reader, media (up to the first image), truncation, prompt (also what is guessed),
                           remote (a worker's /tokenize)
    what becomes of it     namespace, forward, check (against the engine's counts), store (modes)

The rule of the room: token ids are exact or they are not given. Whatever stands in the way (no tokenizer, an
image, a template that refuses) ends as `exact=False` with the reason and an estimated count, never as a crash
and never as ids that are nearly right; a text may then stand in for its tokens, in a namespace of its own.
Ids travel as unsigned 32-bit little-endian bytes, so that a prompt that came as text never becomes one Python
int per token. I/O is only in `load_tokenizer`, `hub`, `remote` and `check`.
"""
