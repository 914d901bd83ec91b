"""The endpoint picker of the Gateway API's inference extension: Envoy carries the bytes.

Protocol: Envoy's external processing (ext_proc) over gRPC, as proposal 004 of the inference extension
narrows it: the choice stands in the header and in the metadata x-gateway-destination-endpoint, a subset may
be given as a hint, 503 when no worker can take a request, 429 when there is no room. The rule of this room:
messages in, messages out; what is chosen is decided where it is for requests that the router carries
itself.
"""

from __future__ import annotations
