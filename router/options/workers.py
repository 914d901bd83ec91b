"""Which workers there are, how they are asked, and how they are found."""

from __future__ import annotations

from router.options.kinds import DAY, NETWORK, PATH, WORKER
from router.setting import Setting, number, word

SETTINGS = {
    "workers": Setting(
        WORKER,
        "A worker's URL, followed by what it should not be asked for itself: kv=tcp://host:port,"
        "replay=tcp://host:port,topic=T,block-size=N,dp=N,engine=sglang|vllm,role=both|prefill|decode,"
        "bind=true,model=ANOTHER-NAME. Repeat the flag for every worker; the variable holds several, "
        "separated by spaces; the file a list of such texts or of mappings with url and the same keys",
        repeated=True,
    ),
    "worker_file": Setting(
        PATH,
        "YAML or JSON file with a list of workers, as texts or mappings like those of the --config file; "
        "it is followed: workers that are added, changed or removed there come and go within a second",
    ),
    "worker_allow": Setting(
        NETWORK,
        "Range of addresses, such as 10.0.0.0/8, in which POST /admin/workers may add workers and their "
        "events may be; repeat the flag for several. Without it none can be added",
        repeated=True,
    ),
    "worker_api_key": Setting(
        word("characters without spaces", "KEY", r"[!-~]+"),
        "Key of the workers' own, sent with everything that they are asked, instead of clients' keys",
        secret=True,
    ),
    "worker_ca": Setting(
        PATH,
        "PEM file of the authorities that workers' certificates must be signed by; else the system's",
    ),
    "probe_seconds": Setting(number(0.05, 3600), "Time between two probes of a worker", "seconds"),
    "drain_seconds": Setting(
        number(0, DAY),
        "How long the requests of a worker that is removed may take to end before they are cut",
        "seconds",
    ),
}
