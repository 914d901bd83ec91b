"""The engines of this machine, and the table of what was measured on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engines_real.engines import Engines
from tests.engines_real.plans import BYTES, INTS, RANKS
from tests.engines_real.table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.terminal import TerminalReporter

    from tests.engines_real.engine import Engine


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """All that are up in this run."""
    up = Engines()
    yield up
    up.close()


@pytest.fixture
def pair(engines: Engines) -> list[Engine]:
    """Two engines of one rank each, up."""
    return engines.have(INTS, BYTES)


@pytest.fixture
def ranks(engines: Engines) -> Engine:
    """One engine of two ranks, up."""
    [engine] = engines.have(RANKS)
    return engine


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Call it with what a test has found, in numbers: it stands in the test's row of the table."""
    return lambda text: request.node.user_properties.append(("measured", text))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what needs the same engines: each change of them takes minutes."""
    items.sort(key=lambda item: "ranks" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the table below what pytest says."""
    terminalreporter.write_line("")
    terminalreporter.write_line(table(terminalreporter.stats))
