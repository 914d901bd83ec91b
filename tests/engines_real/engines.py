"""The few engines that are up at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.engines_real.engine import Engine, NotUp

if TYPE_CHECKING:
    from tests.engines_real.engine import Plan


@dataclass(slots=True)
class Engines:
    """Those that are up: two at most, since each takes 3.5 GB.

    One that has not come up is not tried again: a test that needs it fails at once, for the reason of before.
    """

    running: dict[Plan, Engine] = field(default_factory=dict)
    failed: dict[Plan, NotUp] = field(default_factory=dict)

    def have(self, *plans: Plan) -> list[Engine]:
        """Return these engines, up; others are stopped for them, and dead ones started anew. Raises NotUp."""
        for plan in filter(self.failed.get, plans):
            raise self.failed[plan]
        for plan, engine in list(self.running.items()):
            if plan not in plans or engine.process.poll() is not None:
                self.running.pop(plan).stop()
        for plan in plans:
            self._start(plan)
        for plan in plans:
            self._wait(plan)
        return [self.running[plan] for plan in plans]

    def _start(self, plan: Plan) -> None:
        if plan not in self.running:
            try:
                self.running[plan] = Engine.start(plan)
            except NotUp as error:
                self.failed[plan] = error
                raise

    def _wait(self, plan: Plan) -> None:
        try:
            self.running[plan].wait()
        except NotUp as error:
            self.failed[plan] = error
            self.running.pop(plan).stop()
            raise

    def close(self) -> None:
        """Stop them all; none is left even if somebody does not wait for that."""
        try:
            for engine in self.running.values():
                engine.stop()
        finally:
            for engine in self.running.values():
                engine.kill()
