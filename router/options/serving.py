"""Where and how the router serves: its address, its processes, TLS, other routers, its page, its end."""

from __future__ import annotations

from router.options.kinds import ALLOWED_HOST, HOST, NETWORK, PATH, SHARE
from router.setting import Setting, integer, number, one_of, word

SETTINGS = {
    "host": Setting(HOST, "Address to listen on"),
    "port": Setting(integer(0, 65535), "TCP port to listen on; 0 takes a free one"),
    "processes": Setting(
        integer(1, 256),
        "Processes that serve the port, each with its own view of every worker, and all with one load. "
        "--max-inflight, --max-worker-inflight and --queue-size are divided among them, at least 1 for "
        "each; clients' limits hold for all together",
        "processes",
    ),
    "share": Setting(
        SHARE,
        "Redis or Valkey server over whose publish and subscribe the routers before one fleet tell each "
        "other of their load; needs kv-router[share]. While it cannot be reached each goes by its own. A "
        "password is better given as a variable or in the file than as a flag that a process list shows",
        secret=True,
    ),
    "share_channel": Setting(
        word("up to 128 letters, digits or any of . : _ / -", "NAME", r"[\w.:/-]{1,128}"),
        "Channel of --share; only routers with the same one hear each other",
    ),
    "tls_cert": Setting(
        PATH,
        "PEM file of a certificate and its chain: serve HTTPS, and gRPC over TLS for --epp-port; read again "
        "on SIGHUP. It must be a regular file, no pipe, of 16 MiB at most, as must those of the key and of "
        "authorities",
    ),
    "tls_key": Setting(
        PATH, "PEM file of the certificate's key, where that is a file of its own; without a passphrase"
    ),
    "tls_client_ca": Setting(
        PATH,
        "PEM file of the authorities that clients' certificates must be signed by; read again with the "
        "certificate",
    ),
    "forwarded_allow": Setting(
        NETWORK,
        "Range of addresses of proxies in front of the router, whose X-Forwarded-* are added to; those "
        "of others are replaced. Repeat the flag for several",
        repeated=True,
    ),
    "epp_port": Setting(
        integer(0, 65535),
        "Port of the endpoint picker, which tells Envoy over gRPC (ext_proc, the Gateway API's inference "
        "extension) where a request should go; 0 is none; needs kv-router[epp]",
    ),
    "dashboard": Setting(
        one_of(("auto", "off", "on")),
        "The page at / that shows the fleet; auto is on where --host is an address of this machine alone",
    ),
    "allowed_hosts": Setting(
        ALLOWED_HOST,
        "Name under which the page, /workers, /watch, /explain, /metrics and /admin may be asked for "
        "besides localhost and addresses, where that is asked at all: when --host is an address of this "
        "machine alone and no client needs a key, or when any name is given; repeat the flag for "
        "several, * is any",
        repeated=True,
    ),
    "leave_seconds": Setting(
        number(0, 3600),
        "How long the router goes on after SIGTERM, with 503 from /ready, so that balancers turn away",
        "seconds",
    ),
    "grace_seconds": Setting(
        integer(0, 3600), "How long requests under way may take to end after that", "seconds"
    ),
}
