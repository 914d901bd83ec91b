"""The workers of a cluster: one watch for each namespace, one set for all."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from router.errors import ConfigError
from router.fleet.discovery.kubernetes.objects import EndpointSlice, Pod
from router.fleet.discovery.kubernetes.reading import of_pod, of_slice
from router.fleet.discovery.kubernetes.settings import EVERY
from router.fleet.discovery.kubernetes.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.fleet.discovery.kubernetes.settings import Api, Seek
    from router.fleet.discovery.wanted import Tell, Wanted

_ROOTS = {"pods": "/api/v1", "endpointslices": "/apis/discovery.k8s.io/v1"}
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """An object and the workers that were read from it, or what is `wrong` with it."""

    found: Pod | EndpointSlice
    wanted: list[Wanted]
    wrong: str = ""


class KubernetesSource:
    """Follows what `seek` says at `api`."""

    name = "kubernetes"

    def __init__(self, api: Api, seek: Seek) -> None:
        self._api = api
        self._seek = seek
        self._watches: list[Watch[Pod] | Watch[EndpointSlice]] = []
        self._known: dict[str, _Known] = {}

    @property
    def failing(self) -> bool:
        """Whether any namespace cannot be read now."""
        return any(watch.failing for watch in self._watches)

    async def run(self, tell: Tell) -> None:
        """Follow all namespaces."""

        def changed() -> None:
            tell(list(self._wanted()))

        # Those of a run before go on: what they have found holds until they have listed anew.
        self._watches = self._watches or [self._watch(path, changed) for path in self._paths()]
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())

    def _watch(self, path: str, changed: Callable[[], None]) -> Watch[Pod] | Watch[EndpointSlice]:
        selector = self._seek.selector
        if self._seek.kind == "pods":
            return Watch(self._api, path, selector, Pod, changed)
        return Watch(self._api, path, selector, EndpointSlice, changed)

    def _paths(self) -> list[str]:
        root, kind = _ROOTS[self._seek.kind], self._seek.kind
        if EVERY in self._seek.namespaces:
            return [f"{root}/{kind}"]
        return [f"{root}/namespaces/{quote(name, safe='')}/{kind}" for name in self._seek.namespaces]

    def _wanted(self) -> Iterator[Wanted]:
        """Yield each process once: a pod can be in several slices, with several addresses."""
        seen: set[str] = set()
        before, self._known = self._known, {}
        for watch in self._watches:
            for key, found in watch.objects.items():
                known = before.get(key)
                if known is None or known.found is not found:
                    known = self._read(found, known)
                self._known[key] = known
                for wanted in known.wanted:
                    name = wanted.process or wanted.spec.url
                    if name not in seen:
                        seen.add(name)
                        yield wanted

    def _read(self, found: Pod | EndpointSlice, before: _Known | None) -> _Known:
        """Return the workers of one object; what is wrong with it is said once."""
        try:
            read = of_pod(found, self._seek) if isinstance(found, Pod) else of_slice(found, self._seek)
            return _Known(found, list(read))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one is not for the others to bear
            wrong = (
                error.message if isinstance(error, ConfigError) else f"{found.metadata.name}: {error!r:.200}"
            )
            if before is None or before.wrong != wrong:
                _log.error("discovery: %s; it is left out", wrong)
            return _Known(found, [], wrong)
