"""A proxy in front of a manager that puts terminal escapes into every text that the manager answers."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x7f\x08\u202e\u2066\u200f\u2028\r\nerror: forged\x00"
"""A window title, an erased screen, an 8-bit control, deletions, bidirectional overrides, lines, and NUL."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT")
_KEPT = frozenset({"state", "next", "handle", "token"})
"""Fields that commands compare or send back."""


def spoiled(value: Any, key: str = "") -> Any:
    """Return a JSON value with the hostile text in every text, and in every name of a free field."""
    match value:
        case str():
            return value if key in _KEPT or _MOMENT.match(value) else value + HOSTILE
        case dict():
            return {name: spoiled(item, name) for name, item in value.items()}
        case list():
            return [spoiled(item, key) for item in value]
        case _:
            return value


class Handler(BaseHTTPRequestHandler):
    """Forwards a request, and spoils the answer."""

    target = ""

    def _forward(self) -> None:
        place = urlsplit(self.target)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
        length = int(self.headers.get("content-length") or 0)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")
        }
        with closing(connection):
            connection.request(self.command, self.path, self.rfile.read(length) if length else None, headers)
            answer = connection.getresponse()
            content = answer.read()
        if "json" in (answer.getheader("content-type") or ""):
            content = json.dumps(spoiled(json.loads(content))).encode()
        else:
            content += HOSTILE.encode() + b"\xff\xfe"
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("content-type") or "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _forward  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def hostile_server(target: str) -> Iterator[str]:
    """Run the proxy; return its address."""
    handler = type("TargetedHandler", (Handler,), {"target": target})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(5)
