# The router in one small image: docker build -t kv-router .
# Everything installed is pinned, with hashes, by deploy/docker/*.lock (made by `make lock`).
FROM python:3.11-slim-bookworm AS build

# `--build-arg LOCK=epp` for an image that can pick endpoints for Envoy, too.
ARG LOCK=runtime
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY deploy/docker/*.lock deploy/docker/
RUN python -m venv --without-pip /opt/kv-router \
    && pip --python /opt/kv-router/bin/python install --require-hashes --requirement "deploy/docker/$LOCK.lock"
RUN python -m venv --without-pip /opt/build \
    && pip --python /opt/build/bin/python install --require-hashes --requirement deploy/docker/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY router router
COPY workers workers
RUN pip --python /opt/build/bin/python wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/kv-router/bin/python install --no-deps dist/*.whl

FROM python:3.11-slim-bookworm

LABEL org.opencontainers.image.title="kv-router" \
    org.opencontainers.image.description="KV-event router for SGLang and vLLM" \
    org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --user-group --create-home kv-router
COPY --from=build /opt/kv-router /opt/kv-router
ENV PATH=/opt/kv-router/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 KV_ROUTER_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8000
# Asks the port that the environment, or the file of KV_ROUTER_CONFIG, says: flags are not seen here.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["kv-router", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["kv-router"]
CMD ["serve"]
