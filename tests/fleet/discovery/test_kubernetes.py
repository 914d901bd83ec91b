"""The fleet follows a cluster whatever its API server does."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from router.fleet.discovery.kubernetes.settings import Api, Seek
from router.fleet.discovery.kubernetes.source import KubernetesSource
from tests.fleet.discovery.api_server import ApiServer, api_server, endpoint, endpoint_slice, pod
from tests.fleet.discovery.following import Following, following, logged
from tests.fleet.discovery.test_reconciler import settled
from tests.fleet.test_membership import faults, request
from tests.waiting import until
from workers.fleet import Fleet as StandIns
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

FILES = Path(__file__).parents[2] / "fixtures" / "tls"
SEEK = Seek(selector="app=vllm", namespaces=("ns",))


class Pods:
    """Stand-ins with addresses of their own, as pods have."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls

    def pod(self, at: int, uid: str = "", **more: Any) -> dict[str, Any]:
        """Return one as the API shows it."""
        _, _, place = self.urls[at].partition("://")
        host, _, port = place.partition(":")
        return pod(uid or f"u{at}", host, int(port), **more)


@asynccontextmanager
async def pods(count: int) -> AsyncIterator[Pods]:
    specs = [WorkerSpec(host=f"127.0.1.{at + 1}") for at in range(count)]
    async with StandIns(specs) as fleet:
        yield Pods([worker.url for worker in fleet.workers])


@asynccontextmanager
async def cluster(count: int = 2, seek: Seek = SEEK) -> AsyncIterator[tuple[ApiServer, Pods, Following]]:
    """Run pods, an API server that knows them, and a fleet that follows it."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(pods(count))
        api = await stack.enter_async_context(api_server())
        for at in range(count):
            api.put(here.pod(at))
        source = KubernetesSource(Api(api.url), seek)
        fleet = await stack.enter_async_context(following(source))
        await settled(fleet, *here.urls)
        await until(lambda: api.watchers)
        yield api, here, fleet


async def test_pods_come_are_not_ready_are_deleted_and_are_gone() -> None:
    async with cluster(3) as (api, here, fleet):
        one, two, three = here.urls
        stays = fleet.worker(three)
        api.put(here.pod(0, ready=False))
        await settled(fleet, two, three)
        assert fleet.worker(one).shown()[0] == "draining"
        api.put(here.pod(0))
        await settled(fleet, one, two, three)
        api.put(here.pod(1, deleted=True))
        await until(lambda: two not in fleet.fleet.workers)
        api.delete("u1")
        api.delete("u0")
        await until(lambda: one not in fleet.fleet.workers)
        assert fleet.worker(three) is stays
        assert api.said("labelSelector=app%3Dvllm") == len(api.requests)


async def test_a_pod_that_is_being_deleted_ends_its_requests() -> None:
    async with cluster() as (api, here, fleet):
        worker = fleet.worker(here.urls[0])
        await faults(worker.url, slow=0.2)
        under_way = asyncio.create_task(request(worker))
        await until(lambda: worker.upstream.busy)
        api.put(here.pod(0, deleted=True))
        await settled(fleet, here.urls[1])
        assert b"stand-in" in await under_way


async def test_another_pod_with_the_same_address_is_another_worker() -> None:
    async with cluster() as (api, here, fleet):
        before = fleet.worker(here.urls[0])
        api.delete("u0")
        api.put(here.pod(0, "u9"))
        await until(lambda: fleet.fleet.workers.get(here.urls[0]) not in {None, before})
        await settled(fleet, *here.urls)


async def test_a_broken_watch_goes_on_where_it_was_without_a_new_list() -> None:
    async with cluster() as (api, here, fleet):
        lists = api.said("limit=")
        api.bookmark()
        api.forget()
        await until(lambda: api.watchers)
        api.cut()
        api.put(here.pod(0, deleted=True))
        await settled(fleet, here.urls[1])
        assert api.said("limit=") == lists
        assert api.said(f"resourceVersion={api.version - 1}") >= 1


async def test_what_happened_while_a_version_expired_is_found_by_a_new_list() -> None:
    async with cluster() as (api, here, fleet):
        other = fleet.worker(here.urls[1])
        api.cut()
        del api.objects["u0"]
        api.version += 1
        api.forget()
        await settled(fleet, here.urls[1])
        await until(lambda: api.watchers)
        api.expire()
        api.put(here.pod(0))
        await settled(fleet, *here.urls)
        assert fleet.worker(here.urls[1]) is other


async def test_a_slow_list_keeps_the_fleet() -> None:
    async with cluster() as (api, here, fleet):
        api.lists.clear()
        lists = api.said("limit=")
        api.forget()
        api.version += 1
        api.expire()
        await until(lambda: api.said("limit=") > lists)
        assert fleet.taking() == sorted(here.urls)
        api.put(here.pod(0, deleted=True))
        api.lists.set()
        await settled(fleet, here.urls[1])


async def test_a_server_that_fails_keeps_the_fleet_and_it_is_said_once() -> None:
    async with logged() as log, cluster() as (api, here, fleet):
        api.answers += [500, 500, 500]
        api.cut()
        await until(lambda: log.count("answers again"))
        assert log.count("it answers 500 (as the test wants); the workers stay what they were") == 1
        assert fleet.taking() == sorted(here.urls)


async def test_a_line_without_end_is_read_no_further_and_the_fleet_is_kept() -> None:
    async with logged() as log, cluster() as (api, here, fleet):
        api.babble(17 * 2**20)
        await until(lambda: log.count("a watch brings a line without end; the workers stay what they were"))
        assert fleet.taking() == sorted(here.urls)
        api.put(here.pod(0, deleted=True))
        await settled(fleet, here.urls[1])


async def test_an_idle_connection_that_was_closed_is_no_failure() -> None:
    async with logged() as log, cluster() as (api, here, fleet):
        api.end()
        await until(lambda: api.said("watch=1") >= 2 and api.watchers)
        api.put(here.pod(0, deleted=True))
        await settled(fleet, here.urls[1])
        assert log.count("stay what they were") == 0


async def test_a_token_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with logged() as log, pods(1) as here, api_server() as api:
        api.put(here.pod(0))
        token.write_text("old\n")
        api.token = "old"
        async with following(KubernetesSource(Api(api.url, str(token)), SEEK)) as fleet:
            await settled(fleet, *here.urls)
            api.token = "new"
            api.cut()
            await until(lambda: log.count("401 (the token is not accepted)"))
            assert fleet.discovery.failing() == {"kubernetes": True}
            api.put(here.pod(0, deleted=True))
            token.write_text("new\n")
            await settled(fleet)
            assert log.count("it answers 401") == 1
            assert fleet.discovery.failing() == {"kubernetes": False}


async def test_several_namespaces_one_of_which_is_not_for_us() -> None:
    async with logged() as log, pods(2) as here, api_server() as api:
        api.refused_namespaces.add("closed")
        api.put(here.pod(0, namespace="a"))
        api.put(here.pod(1, namespace="b"))
        seek = Seek(selector="app=vllm", namespaces=("a", "b", "closed"))
        async with following(KubernetesSource(Api(api.url), seek)) as fleet:
            await settled(fleet, *here.urls)
            await until(lambda: log.count("403 (the service account needs get, list and watch on them)"))
        everywhere = Seek(selector="app=vllm", namespaces=("*",))
        async with following(KubernetesSource(Api(api.url), everywhere)) as fleet:
            await settled(fleet, *here.urls)
            assert api.requests[-1].startswith("/api/v1/pods?")


async def test_a_list_comes_in_pages() -> None:
    async with pods(3) as here, api_server() as api:
        api.page = 1
        for at in range(3):
            api.put(here.pod(at))
        async with following(KubernetesSource(Api(api.url), SEEK)) as fleet:
            await settled(fleet, *here.urls)
            assert api.said("continue=") == 2


async def test_endpoint_slices_name_each_pod_once_and_drain_what_terminates() -> None:
    async with pods(2) as here, api_server() as api:
        (one, port), (two, _) = [url.partition("://")[2].split(":") for url in here.urls]
        seek = Seek(kind="endpointslices", selector="kubernetes.io/service-name=s", namespaces=("ns",))
        api.put(endpoint_slice("a", int(port), endpoint("u0", one)))
        api.put(endpoint_slice("b", int(port), endpoint("u0", one), endpoint("u9", one, terminating=True)))
        async with following(KubernetesSource(Api(api.url), seek)) as fleet:
            await settled(fleet, here.urls[0])
            assert api.requests[0].startswith("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?limit=")
            api.put(endpoint_slice("c", int(here.urls[1].rpartition(":")[2]), endpoint("u1", two)))
            await settled(fleet, *here.urls)
            api.put(endpoint_slice("b", int(port)))
            api.put(endpoint_slice("a", int(port), endpoint("u0", one, terminating=True)))
            await settled(fleet, here.urls[1])


async def test_a_pod_with_something_wrong_is_left_out_and_the_others_are_not() -> None:
    async with logged() as log, cluster() as (api, here, fleet):
        api.put(pod("odd", annotations={"kv-router/prot": "1"}))
        await until(lambda: log.count("it is left out"))
        api.put(here.pod(0, deleted=True))
        await settled(fleet, here.urls[1])
        assert log.count("ns/pod-odd: annotation kv-router/prot: expected one of") == 1


async def test_a_slice_of_names_is_left_out_and_the_others_are_followed() -> None:
    async with logged() as log, pods(2) as here, api_server() as api:
        places = [url.partition("://")[2].split(":") for url in here.urls]
        (one, port), (two, other) = places
        seek = Seek(kind="endpointslices", selector="kubernetes.io/service-name=s", namespaces=("ns",))
        api.put(endpoint_slice("a", int(port), endpoint("u0", one)))
        async with following(KubernetesSource(Api(api.url), seek)) as fleet:
            await settled(fleet, here.urls[0])
            await until(lambda: api.watchers)
            names = endpoint_slice("f", 80, endpoint("u9", "model.example.com"))
            api.put({**names, "addressType": "FQDN"})
            api.put(endpoint_slice("b", int(other), endpoint("u1", two)))
            await settled(fleet, *here.urls)
            assert log.count("ns/f: expected an IP address, got 'model.example.com'; it is left out") == 1
            assert fleet.discovery.failing() == {"kubernetes": False}


async def test_an_object_that_cannot_be_read_is_left_out_and_the_others_are_followed() -> None:
    async with logged() as log, cluster() as (api, here, fleet):
        lists = api.said("limit=")
        api.put({**here.pod(0), "status": {"podIP": 5}})
        await settled(fleet, here.urls[1])
        api.expire()
        await until(lambda: api.said("limit=") > lists)
        await until(lambda: api.watchers)
        api.put(here.pod(0))
        await settled(fleet, *here.urls)
        assert log.count("discovery: ns/pod-u0: an answer is not what it should be: Expected `str`") == 2
        assert log.count("stay what they were") == 0


async def test_files_to_which_nobody_writes_or_that_are_none_hold_up_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for given, why in (
        (Api("https://127.0.0.1:1", token=str(pipe)), "nothing comes from it for 3 s"),
        (Api("https://127.0.0.1:1", ca=str(pipe)), f"--kubernetes-ca {pipe}: expected a regular file"),
        (Api("https://127.0.0.1:1", token="/dev/zero"), "it is larger than"),
        (Api("https://127.0.0.1:1", token=str(FILES / "localhost.pem")), "expected a token, one line"),
    ):
        async with logged() as log, following(KubernetesSource(given, SEEK)) as fleet:
            await until(lambda log=log, why=why: log.count(why), why)  # type: ignore[misc]
            assert fleet.discovery.failing() == {"kubernetes": True}


async def test_tls_with_the_clusters_authority(tmp_path: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(FILES / "localhost.pem", FILES / "localhost.key")
    ca = tmp_path / "ca.crt"
    ca.write_bytes((FILES / "other.pem").read_bytes())
    async with logged() as log, pods(1) as here, api_server(server) as api:
        api.put(here.pod(0))
        async with following(KubernetesSource(Api(api.url, ca=str(ca)), SEEK)) as fleet:
            await until(lambda: log.count("the workers stay what they were"))
            assert fleet.taking() == []
            ca.write_bytes((FILES / "localhost.pem").read_bytes())
            await settled(fleet, *here.urls)
