"""Every error the router shows to anybody: one small tree.

An error knows its HTTP status, an OpenAI-style `type`, a `code` that says whose fault it was, and the
request field it is about, if any. `body()` is what a client sees; no other text of an exception may
reach one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Fault = Literal["client", "worker", "router", "capacity"]
"""Whose fault an error is; capacity is nobody's: no worker could take the request."""


class RouterError(Exception):
    """The root. `param` names the field at fault; `retry_after` is in seconds."""

    fault: ClassVar[Fault] = "router"
    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def as_dict(self) -> dict[str, Any]:
        """Return the OpenAI-style error object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def body(self) -> bytes:
        """Return the error object as JSON."""
        return msgspec.json.encode(self.as_dict())


class ConfigError(RouterError):
    """A wrong flag, environment variable or configuration file: one line, exit code 2.

    `others`: what else is wrong in the same place, a line for each, for who wants to know it all.
    """

    code = "bad_config"

    def __init__(self, message: str, *, param: str | None = None, others: Sequence[str] = ()) -> None:
        super().__init__(message, param=param)
        self.others = tuple(others)

    @property
    def lines(self) -> tuple[str, ...]:
        """All that is wrong."""
        return self.message, *self.others

    def at(self, source: str) -> ConfigError:
        """Return the same, with where it was given before each line."""
        first, *others = (f"{source}: {line}" for line in self.lines)
        return ConfigError(first, param=self.param, others=others)


def raise_all(wrong: Sequence[ConfigError]) -> None:
    """Raise the first, if there is one, with the lines of the rest as `others`."""
    if wrong:
        message, *others = (line for error in wrong for line in error.lines)
        raise ConfigError(message, param=wrong[0].param, others=others)


class CommandFailed(RouterError):
    """A command cannot do what it was asked: one line, exit code 1."""

    code = "command_failed"


class BadRequest(RouterError):
    """The client's request cannot be understood; the message says what was expected."""

    fault = "client"
    status, type, code = 400, "invalid_request_error", "invalid_value"


class NotAllowed(RouterError):
    """The key that a request needs is missing or wrong."""

    fault = "client"
    status, type, code = 401, "authentication_error", "invalid_api_key"


class NotPermitted(RouterError):
    """The key is right, and what was asked for is outside of what the operator allows."""

    fault = "client"
    status, type, code = 403, "permission_error", "address_not_allowed"


class HostNotAllowed(RouterError):
    """The request names the router by a name that it does not have."""

    fault = "client"
    status, type, code = 403, "permission_error", "host_not_allowed"


class RequestTooSlow(RouterError):
    """The client took longer over its request than its route allows in all."""

    fault = "client"
    status, type, code = 408, "invalid_request_error", "request_timeout"


class RateLimited(RouterError):
    """The client has used what it may; in `retry_after` seconds it may more."""

    fault = "client"
    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class UnknownWorker(RouterError):
    """The fleet has no such worker."""

    fault = "client"
    status, type, code = 404, "invalid_request_error", "worker_not_found"


class NoRoute(RouterError):
    """There is no such route."""

    fault = "client"
    status, type, code = 404, "invalid_request_error", "no_route"


class WrongMethod(RouterError):
    """The route is there, and takes other methods: `allow` says which."""

    fault = "client"
    status, type, code = 405, "invalid_request_error", "method_not_allowed"

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class Busy(RouterError):
    """Something that can be done only once at a time is being done."""

    fault = "client"
    status, type, code = 409, "invalid_request_error", "busy"


class WorkerExists(RouterError):
    """The fleet has this worker, or is still taking leave of it."""

    fault = "client"
    status, type, code = 409, "invalid_request_error", "worker_exists"


class UnknownModel(RouterError):
    """No worker of the fleet serves the `model` asked for."""

    fault = "client"
    status, type, code = 404, "invalid_request_error", "model_not_found"

    def __init__(self, message: str, *, model: str) -> None:
        super().__init__(message, param="model")
        self.model = model


class BodyTooLarge(RouterError):
    """The request body is over the operator's limit."""

    fault = "client"
    status, type, code = 413, "invalid_request_error", "body_too_large"


class NotHere(RouterError):
    """What is asked for is kept by one of the workers, and the router does not know by which."""

    fault = "client"
    status, type, code = 404, "invalid_request_error", "not_routed"


class WrongBodyMode(RouterError):
    """Envoy is set to show the router less of requests than it needs to pick an endpoint."""

    code = "body_mode"


class NoWorker(RouterError):
    """No worker can take the request now."""

    fault = "capacity"
    status, type, code = 503, "service_unavailable", "no_worker"


def all_paused(seconds: float, *, retry_after: int) -> NoWorker:
    """Return what is said to a request that has waited so long for a worker to go on."""
    why = f"every worker that could serve this is paused, for {seconds:g} s now"
    return NoWorker(why, retry_after=retry_after)


class Overloaded(RouterError):
    """The router holds as much as it may."""

    fault = "capacity"
    status, type, code = 503, "service_unavailable", "overloaded"


class QueueFull(RouterError):
    """More requests come than workers can take, and as many wait as may."""

    fault = "capacity"
    status, type, code = 429, "rate_limit_error", "overloaded"


class Stopping(RouterError):
    """The router stops, and the time for requests to end is over."""

    fault = "router"
    status, type, code = 503, "service_unavailable", "stopping"


class TookTooLong(RouterError):
    """The answer was not complete within the time that its route allows in all."""

    fault = "worker"
    status, type, code = 504, "upstream_error", "total_timeout"


class UpstreamFailed(RouterError):
    """A worker refused the connection, closed it, or answered with something that is not HTTP.

    `sent`: the worker may have the request. `stale`: most likely it does not, for it had closed the idle
    connection that the request was written to. `trial`: what the worker's breaker had said when it began.
    """

    fault: ClassVar[Fault] = "worker"
    status, type, code = 502, "upstream_error", "worker_failed"
    sent = True
    stale = False
    trial: int | None = None


class OutOfDescriptors(UpstreamFailed):
    """The router itself, or its machine, has no file descriptor left for a connection: no worker's fault."""

    fault = "router"
    status, type, code = 503, "service_unavailable", "out_of_descriptors"
    sent = False


class WorkerRemoved(UpstreamFailed):
    """The router has closed its connections to the worker, which is to leave: nothing that the worker did."""

    fault = "router"
    status, type, code = 503, "service_unavailable", "worker_removed"

    def __init__(self) -> None:
        super().__init__("the router has closed its connections to the worker")


class UpstreamTimeout(UpstreamFailed):
    """A worker took longer than one of the configured limits."""

    status, code = 504, "worker_timeout"
