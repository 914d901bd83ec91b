"""One request on two workers: a prefill worker computes the prompt, a decode worker answers.

The rule of this room: which pair (`choice`), what each half is asked and in what order (`bootstrap` for
SGLang, `transfer` for vLLM), and what an answer of a half means (`half`). Whether and how often a pair is
tried is the caller's to say; so is where the answer goes. A body is edited as bytes, by its own fields, and
passes otherwise as it came.

Theory of operation. A pair either answers or fails as a whole: with `HalfFailed`, raised only while not one
byte has gone to the client, when nothing of the request runs on either worker any more. From the first byte
on there is only the decode worker's answer, and what becomes of the prefill worker changes nothing.
"""

from __future__ import annotations
