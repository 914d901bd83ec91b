"""Load on live workers or routers: the workloads of `workers.traces`, over HTTP and in real time."""
