"""The parts of the API's objects that are read (core/v1 Pod, discovery.k8s.io/v1 EndpointSlice)."""

from __future__ import annotations

import msgspec


class Meta(msgspec.Struct, rename="camel"):
    """`deletion_timestamp` is there once the object is being deleted."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class ContainerPort(msgspec.Struct, rename="camel"):
    """A port that a container declares."""

    container_port: int
    name: str = ""


class Container(msgspec.Struct):
    """A container of a pod."""

    ports: list[ContainerPort] | None = None


class PodSpec(msgspec.Struct):
    """What a pod should be."""

    containers: list[Container] | None = None


class Condition(msgspec.Struct):
    """`status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""


class Address(msgspec.Struct):
    """One of a pod's addresses."""

    ip: str = ""


class PodStatus(msgspec.Struct):
    """What a pod is."""

    phase: str = ""
    ip: str = msgspec.field(name="podIP", default="")
    ips: list[Address] | None = msgspec.field(name="podIPs", default=None)
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class EndpointConditions(msgspec.Struct):
    """None means true for `ready`, false for `terminating`."""

    ready: bool | None = None
    terminating: bool | None = None


class Target(msgspec.Struct):
    """The object behind an endpoint, mostly a pod."""

    uid: str = ""
    name: str = ""


class Endpoint(msgspec.Struct, rename="camel"):
    """All of its `addresses` are of the same thing."""

    addresses: list[str]
    conditions: EndpointConditions | None = None
    target_ref: Target | None = None


class EndpointPort(msgspec.Struct):
    """A port that all endpoints of a slice have."""

    name: str | None = None
    port: int | None = None


class EndpointSlice(msgspec.Struct):
    """A part of a Service's endpoints."""

    metadata: Meta
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class ListMeta(msgspec.Struct, rename="camel"):
    """`continue_`: where the next page begins, "" on the last one."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """One page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct):
    """Why something went wrong."""

    code: int = 0
    message: str = ""


class Bookmark(msgspec.Struct):
    """Any object, of which only the version is wanted."""

    metadata: Meta
