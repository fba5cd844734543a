"""The client keeps its connection, and notices when the manager has closed it."""

from __future__ import annotations

import socket
import threading

from rota.sdk.client import Client

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_a_connection_that_was_closed_meanwhile_is_not_used_again() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    hung_up = threading.Event()

    def serve() -> None:
        for _ in range(2):
            taken, _ = listening.accept()
            with taken:
                taken.recv(65536)
                taken.sendall(ANSWER)
            hung_up.set()

    server = threading.Thread(target=serve)
    server.start()
    client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
    client.post("/first")
    hung_up.wait(10)

    assert client.post("/second") == {}

    server.join(10)
    client.close()
    listening.close()
