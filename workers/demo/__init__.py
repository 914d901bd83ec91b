"""`python -m workers demo`: the router's main job shown on stand-ins, with nothing else installed.

The rule of this room: it uses the router and the stand-ins as a user does, as processes and over HTTP.
"""

from __future__ import annotations
