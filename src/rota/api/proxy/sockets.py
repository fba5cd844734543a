"""One WebSocket between a browser and a job: the handshake is made with both, messages are passed on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from websockets.client import ClientProtocol
from websockets.datastructures import Headers as WebsocketHeaders
from websockets.exceptions import InvalidState, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import WebSocketURI

from rota.api.limits.asgi import Receive, Send
from rota.api.proxy.headers import Headers, without_sockets
from rota.api.proxy.http import BadAnswer
from rota.api.proxy.stream import JobStream, NoConnection

MOST_MESSAGE = 16 << 20
"""The size of a message of the job; those of browsers are bounded by the server."""
HANDSHAKE_S = 30.0
GONE = 1001
NO_STATUS, ABNORMAL, FAILED = 1005, 1006, 1011
_DATA = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class ForwardedSocket:
    """One WebSocket of a browser."""

    def __init__(self, scope: Any, receive: Receive, send: Send, *, target: bytes, headers: Headers) -> None:
        self._scope = scope
        self._receive, self._send = receive, send
        self._target = target.decode("latin-1")
        self._headers = without_sockets(headers)
        self.has_begun = False
        """Whether the browser's handshake was answered."""

    async def run(self, stream: JobStream) -> None:
        """Carry the socket to its end; raises `NoConnection` or `BadAnswer` before the browser was answered."""
        message = await self._receive()
        if message["type"] != "websocket.connect":
            return
        protocol = self._protocol()
        try:
            early = await asyncio.wait_for(self._shake_hands(protocol, stream), HANDSHAKE_S)
        except TimeoutError:  # until it is answered, nothing says that the browser has gone
            raise BadAnswer(f"it did not answer within {HANDSHAKE_S:g} s") from None
        self.has_begun = True
        accepted: dict[str, Any] = {"type": "websocket.accept", "subprotocol": protocol.subprotocol, "headers": []}
        await self._send(accepted)
        work = [
            asyncio.create_task(each)
            for each in (self._upward(protocol, stream), self._downward(protocol, stream, early))
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        except NoConnection as error:
            await self._send({"type": "websocket.close", "code": FAILED, "reason": str(error)[:120]})
        finally:
            for each in work:
                each.cancel()
            await asyncio.wait(work)

    def _protocol(self) -> ClientProtocol:
        uri = WebSocketURI(secure=False, host="task", port=80, path="/", query="")
        names: Any = self._scope.get("subprotocols") or None
        return ClientProtocol(uri, subprotocols=names, max_size=MOST_MESSAGE)

    async def _shake_hands(self, protocol: ClientProtocol, stream: JobStream) -> list[Frame]:
        """Open the job's end; return the frames that came with its answer."""
        request = protocol.connect()
        own = request.headers
        request.path = self._target
        request.headers = WebsocketHeaders()
        for key, value in self._headers:
            request.headers[key.decode("latin-1")] = value.decode("latin-1")
        for name in ("Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol"):
            if name in own:
                request.headers[name] = own[name]
        protocol.send_request(request)
        await _flush(protocol, stream)
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            received = await stream.read()
            protocol.receive_data(received) if received else protocol.receive_eof()
        events = protocol.events_received()
        if protocol.handshake_exc is not None:
            if stream.why:
                raise NoConnection(stream.why)
            raise _refused([event for event in events if isinstance(event, Response)])
        return [event for event in events if isinstance(event, Frame)]

    async def _upward(self, protocol: ClientProtocol, stream: JobStream) -> None:
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                code = message.get("code") or GONE
                with contextlib.suppress(ProtocolError, InvalidState):
                    protocol.send_close(GONE if code in (NO_STATUS, ABNORMAL) else code)
                await _flush(protocol, stream)
                return
            if (text := message.get("text")) is not None:
                protocol.send_text(text.encode())
            else:
                protocol.send_binary(message["bytes"])
            await _flush(protocol, stream)

    async def _downward(self, protocol: ClientProtocol, stream: JobStream, early: list[Frame]) -> None:
        joined = bytearray()
        is_text = False
        frames: list[Any] = list(early)
        while True:
            for frame in frames:
                if not isinstance(frame, Frame) or frame.opcode not in _DATA:
                    continue
                if frame.opcode is not Opcode.CONT:
                    is_text = frame.opcode is Opcode.TEXT
                joined += frame.data
                if frame.fin:
                    await self._pass_on(bytes(joined), is_text=is_text)
                    joined.clear()
            if protocol.state is not State.OPEN:
                break
            received = await stream.read()
            protocol.receive_data(received) if received else protocol.receive_eof()
            await _flush(protocol, stream)
            frames = protocol.events_received()
        closed = protocol.close_rcvd
        known = FAILED if closed is None else {NO_STATUS: 1000}.get(int(closed.code), int(closed.code))
        await self._send({"type": "websocket.close", "code": known, "reason": "" if closed is None else closed.reason})

    async def _pass_on(self, data: bytes, *, is_text: bool) -> None:
        if is_text:
            await self._send({"type": "websocket.send", "text": data.decode("utf-8", "replace")})
        else:
            await self._send({"type": "websocket.send", "bytes": data})


async def _flush(protocol: ClientProtocol, stream: JobStream) -> None:
    for data in protocol.data_to_send():
        if data:
            await stream.write(data)


def _refused(answers: list[Response]) -> BadAnswer:
    if answers and answers[0].status_code != 101:
        return BadAnswer(f"it refused the socket with {answers[0].status_code}")
    return BadAnswer("it did not answer as a server of WebSockets does")
