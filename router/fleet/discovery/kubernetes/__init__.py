"""Workers in Kubernetes: pods, or the endpoints of Services, followed by list and watch.

Spoken over the router's own HTTP client: of the API two calls are needed, and a client library would bring
more packages than the whole service has. The rules are those of the API's documentation ("Efficient
detection of changes"): list, then watch from the list's resourceVersion, go on from the last one seen after
a broken connection, list anew after 410 Gone.
"""

from __future__ import annotations
