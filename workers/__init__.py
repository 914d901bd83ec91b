"""Engine stand-ins that behave at the HTTP and ZMQ edge as SGLang and vLLM do. Never imports `router`."""
