"""Real receivers of messages: a mail server and a web server, in threads of the test."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as Handler

from ports import free_port


@dataclass
class Web:
    """A web server that notes what is posted, and answers as it is told."""

    port: int = 0
    answer: int = 200
    location: str = ""
    posts: list[tuple[str, dict[str, str], str]] = field(default_factory=list)

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(body) for where, _, body in self.posts if where == path]


@contextmanager
def web_server() -> Iterator[Web]:
    web = Web()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            web.posts.append((self.path, dict(self.headers.items()), body))
            self.send_response(web.answer)
            if web.location:
                self.send_header("Location", web.location)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    web.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Mails(Handler):
    def __init__(self) -> None:
        super().__init__()
        self.mails: list[Message] = []

    def handle_message(self, message: Message) -> None:
        self.mails.append(message)


@contextmanager
def mail_server(
    certificate: Path | None = None, *, starts_with_tls: bool = False
) -> Iterator[tuple[list[Message], int]]:
    """Serve mail; with a certificate (and its key in the same file) by STARTTLS, or by TLS from the first byte."""
    handler = Mails()
    port = free_port()
    given: dict[str, Any] = {}
    if certificate is not None:
        secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secured.load_cert_chain(certificate)
        given = {"ssl_context": secured} if starts_with_tls else {"tls_context": secured, "require_starttls": True}
    controller = Controller(handler, hostname="127.0.0.1", port=port, **given)
    controller.start()
    try:
        yield handler.mails, port
    finally:
        controller.stop()
