"""From a request's body to the token ids that the engine will see, or the reason why they are not known.

    body -> request.parse -> Request -> reader.PromptReader(tokenizer) -> Prompt(tokens, count, exact, why)

The rule of the room: token ids are exact or they are not given. Whatever stands in the way (no tokenizer, an
image, a template that refuses) ends as `exact=False` with the reason and an estimated count, never as a crash
and never as ids that are nearly right. Ids travel as unsigned 32-bit little-endian bytes, so that a prompt
that came as text never becomes one Python int per token. Nothing here does I/O except `load_tokenizer`.
"""
