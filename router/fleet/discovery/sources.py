"""From settings to the sources that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.fleet.discovery.file import FileSource
from router.fleet.discovery.kubernetes.settings import Seek, api_of, own_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import Config
    from router.fleet.discovery.wanted import Source


def sources_of(config: Config, environ: Mapping[str, str]) -> list[Source]:
    """Return the sources that settings name. Raises ConfigError for what cannot be used at the start."""
    sources: list[Source] = []
    if config.worker_file is not None:
        sources.append(FileSource(config.worker_file))
    if config.discover == "kubernetes":
        sources.append(_kubernetes(config, environ))
    return sources


def _kubernetes(config: Config, environ: Mapping[str, str]) -> Source:
    from router.fleet.discovery.kubernetes.source import KubernetesSource  # noqa: PLC0415 - few need it

    api = api_of(config.kubernetes_api, config.kubernetes_token, config.kubernetes_ca, environ)
    seek = Seek(
        kind="endpointslices" if config.kubernetes_kind == "endpointslices" else "pods",
        selector=config.kubernetes_selector or "",
        namespaces=config.kubernetes_namespaces or (own_namespace(),),
        port=config.kubernetes_port,
        kv_port=config.kubernetes_kv_port or None,
        replay_port=config.kubernetes_replay_port or None,
        role_label=config.kubernetes_role_label,
        model_label=config.kubernetes_model_label,
    )
    return KubernetesSource(api, seek)
