"""What differs between engines: one file each, the same three functions in each of them.

`describe` asks a worker who it is and where it publishes its KV events, `is_paused` whether it takes work,
`rank_headers` how a request is pinned to a DP rank. A new engine is one more file and one line in `detect`.
"""
