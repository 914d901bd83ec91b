"""How workers are found in a Kubernetes cluster."""

from __future__ import annotations

from router.options.kinds import LABEL, PATH, PORT, SELECTOR
from router.setting import Setting, integer, one_of, word

SETTINGS = {
    "discover": Setting(
        one_of(("off", "kubernetes")),
        "Follow the workers of a Kubernetes cluster, as the settings kubernetes-* say; with "
        "--worker-allow only those within its ranges",
    ),
    "kubernetes_selector": Setting(
        SELECTOR, "Labels of the pods, or of the EndpointSlices, that are workers"
    ),
    "kubernetes_namespaces": Setting(
        word("a namespace, or * for all", "NAMESPACE", r"\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
        "Namespace that they are in; repeat the flag for several; the router's own without it",
        repeated=True,
    ),
    "kubernetes_kind": Setting(
        one_of(("pods", "endpointslices")),
        "What is followed: pods, or EndpointSlices (the selector kubernetes.io/service-name=NAME means "
        "those of a Service)",
    ),
    "kubernetes_port": Setting(
        PORT,
        "Port that the engines serve on; the first that is declared without it. The annotation "
        "kv-router/port of a pod, or of a slice, is stronger, as are kv-router/kv-port, replay-port, "
        "scheme, role, model, engine, topic, block-size and dp",
    ),
    "kubernetes_kv_port": Setting(
        integer(0, 65535), "Port of rank 0's KV events; 0 is what the worker says itself"
    ),
    "kubernetes_replay_port": Setting(
        integer(0, 65535), "Port of rank 0's replay of events; 0 is what the worker says"
    ),
    "kubernetes_role_label": Setting(
        word("a label's name", "LABEL", LABEL),
        "Label that holds the role of a worker: prefill, decode or both",
    ),
    "kubernetes_model_label": Setting(
        word("a label's name", "LABEL", LABEL),
        "Label that holds a name which requests may use for the model, besides those the worker says",
    ),
    "kubernetes_api": Setting(
        word("http://host:port or https://host:port", "URL", r"https?://[!-~]+"),
        "API server, such as http://127.0.0.1:8001 of kubectl proxy; in a pod the cluster's without it",
    ),
    "kubernetes_token": Setting(
        PATH, "File of the token that the API server wants; in a pod the service account's without it"
    ),
    "kubernetes_ca": Setting(
        PATH, "PEM file of the authorities that the API server's certificate must be signed by"
    ),
}
