"""What is made of the metrics for those who watch a router: pages, a dashboard, alerts."""

from __future__ import annotations
