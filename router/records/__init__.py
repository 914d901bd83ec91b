"""Records: what came from the engines and what was decided, in compact files, and its re-run.

The rule of this room: the event loop only notes references; a thread turns them into entries, and into
files. Neither text nor token ids nor anything they can be read from get into an entry: blocks, the engines'
hashes and cache salts become codes under a secret that is never written. `entries`, `codes`, `seal`,
`format`, `rerun` and `judge` are pure.
"""

from __future__ import annotations
