"""The rows of the table of metrics, by what they tell of.

The rule of this room: a row reads what somebody else counts. Nothing is counted or kept here.
"""

from __future__ import annotations
