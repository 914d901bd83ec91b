from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from router.collector import spare_the_collector

def watch(phase, info):
    if phase == "start":
        walked.append(sum(len(gc.get_objects(generation=each)) for each in range(info["generation"] + 1)))

walked, kept = [], []
forever = [[] for _ in range(200_000)]
spare_the_collector()
gc.callbacks.append(watch)
for number in range(300_000):
    made = [number]
    kept.append(made if number % 3 else None)
print(len(walked), max(walked))
"""


def test_the_collector_never_walks_much_at_a_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    runs, most = map(int, done.stdout.split())
    assert runs > 10
    assert most < 40_000  # some 10 ms
