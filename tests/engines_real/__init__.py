"""Real engines in the loop: two vLLM servers on this machine's CPU, the router in front of them.

Rule of the room: nothing here stands in for an engine. What a test holds the router against is the engines'
own words: `usage` of their answers, their metrics, their events on the wire. `make test-engines` sets all of
it up and runs it; `make test` does not collect it.
"""
