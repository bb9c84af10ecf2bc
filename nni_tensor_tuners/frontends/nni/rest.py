"""JSON requests to NNI's experiment manager."""

import json
import urllib.error
import urllib.request


def request(url, method="GET", body=None):
    """The answer to one request, decoded; None for an empty answer and for "not found".

    Raises
    ------
    OSError
        If the manager cannot be reached, or refuses (`urllib.error.HTTPError`).
    """
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(call, timeout=30) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    return json.loads(answer) if answer.strip() else None
