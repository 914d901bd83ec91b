"""The data plane: requests to workers, and their answers on the way to the client.

The rule of this room: bytes pass through. Nothing of a body is parsed or copied on the way, nothing is
done per piece that could be done per answer, and whoever is slow, silent or gone is that one request's
problem. This is the one HTTP client of the project:

    upstream.Upstream -> connection.Connection -> response.Response -> relay.relay -> client

What a request is and where it goes is decided elsewhere.
"""
