"""A small real kubelet: it runs the commands of pods as processes of this machine and serves their streams.

It speaks the node's side of exec, attach, portforward and log to the API server, over HTTPS and WebSockets, on a port
that its node's status names, as a kubelet does. There are no containers: a pod is a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import ssl
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from ports import free_port

Json = dict[str, Any]
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
CHUNK = 32 << 10


class Streams:
    """A process with a pseudo-terminal or pipes, what it said, and who listens."""

    def __init__(
        self, argv: list[str], *, tty: bool, has_input: bool = True, env: dict[str, str] | None = None
    ) -> None:
        self.tty = tty
        self.said = bytearray()
        self.listeners: list[asyncio.Queue[tuple[int, bytes] | None]] = []
        self.ended = asyncio.Event()
        self._open = 0
        if tty:
            self._master, slave = pty.openpty()
            ends: tuple[int, int, int] = (slave, slave, slave)
        else:
            self._master = -1
            (its_in, ours), (out, its_out), (err, its_err) = os.pipe(), os.pipe(), os.pipe()
            ends = (its_in, its_out, its_err)
        self.process = subprocess.Popen(
            argv,
            stdin=ends[0] if has_input else subprocess.DEVNULL,
            stdout=ends[1],
            stderr=ends[2],
            start_new_session=True,
            preexec_fn=_own_terminal if tty else None,
            env={**os.environ, **(env or {})},
        )
        for end in set(ends):
            os.close(end)
        if tty:
            self._input = self._master
            self._follow(self._master, STDOUT)
        else:
            self._input = ours
            os.set_blocking(ours, False)
            self._follow(out, STDOUT)
            self._follow(err, STDERR)
        self._waiting = asyncio.ensure_future(self._wait())

    def _follow(self, end: int, channel: int) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(end, False)
        self._open += 1

        def readable() -> None:
            try:
                data = os.read(end, CHUNK)
            except BlockingIOError:
                return
            except OSError:  # the terminal's programs are gone
                data = b""
            if data:
                self.said += data
                self._tell((channel, data))
                return
            loop.remove_reader(end)
            self._open -= 1
            if end != self._master:
                os.close(end)

        loop.add_reader(end, readable)

    def _tell(self, what: tuple[int, bytes] | None) -> None:
        for listener in self.listeners:
            listener.put_nowait(what)

    async def _wait(self) -> None:
        while self.process.poll() is None or self._open:
            await asyncio.sleep(0.01)
        self.ended.set()
        self._tell(None)

    @property
    def code(self) -> int:
        found = self.process.returncode
        return found if found >= 0 else 128 - found

    async def write(self, data: bytes) -> None:
        while data and self._input >= 0:
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except OSError:
                return

    def end_input(self) -> None:
        if self._input >= 0 and not self.tty:
            os.close(self._input)
            self._input = -1

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class ProcessKubelet(Hollow):
    """The kubelet of one node whose pods are processes. `protocols` is what it offers, best first."""

    def __init__(self, bed: Bed, folder: Path, *, protocols: tuple[str, ...] = (V5, V4), node: str = "n1") -> None:
        super().__init__(bed.kubeconfig("admin-token"), beats=True, only=node)
        self.protocols = protocols
        self.opened: list[str] = []
        """What was asked of it: paths and queries."""
        self.pods: dict[str, Streams] = {}
        self._port = free_port()
        self._certificate = _certificate(folder)
        made = node_object(node, 8)
        made["status"]["addresses"] = [{"type": "Hostname", "address": "127.0.0.1"}]
        made["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._port}}
        bed.admin.make(made)
        bed.admin.patch(f"/api/v1/nodes/{node}/status", {"status": made["status"]})

    async def _main(self) -> None:
        app = web.Application()
        app.router.add_get("/exec/{ns}/{pod}/{container}", self._exec)
        app.router.add_get("/attach/{ns}/{pod}/{container}", self._attach)
        app.router.add_get("/portForward/{ns}/{pod}", self._ports)
        app.router.add_get("/containerLogs/{ns}/{pod}/{container}", self._log)
        runner = web.AppRunner(app, shutdown_timeout=0.5)
        await runner.setup()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._certificate)
        await web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=tls).start()
        try:
            await super()._main()
        finally:
            for each in self.pods.values():
                each.kill()
            await runner.cleanup()
            await asyncio.sleep(0.3)  # TLS connections take a moment to close

    # -- pods ------------------------------------------------------------------------------------

    async def _run(self, pod: Json) -> None:
        container = pod["spec"]["containers"][0]
        if "command" not in container:
            await super()._run(pod)
            return
        env = {each["name"]: each["value"] for each in container.get("env", ()) if "value" in each}
        has_input = bool(container.get("stdin"))
        streams = Streams(container["command"], tty=bool(container.get("tty")), has_input=has_input, env=env)
        self.pods[pod["metadata"]["name"]] = streams
        await self._phase(pod, "Running")
        await streams.ended.wait()
        ended = {"name": container["name"], "image": "none", "imageID": "", "restartCount": 0, "ready": False}
        ended["state"] = {"terminated": {"exitCode": streams.code}}
        phase = "Succeeded" if streams.code == 0 else "Failed"
        body = {"status": {"phase": phase, "containerStatuses": [ended]}}
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        await self._quietly("PATCH", path, body, "application/merge-patch+json")

    async def _end(self, pod: Json) -> None:
        if (streams := self.pods.get(pod["metadata"]["name"])) is not None:
            streams.kill()
        await super()._end(pod)

    # -- streams ---------------------------------------------------------------------------------

    def _note(self, request: web.Request) -> str:
        self.opened.append(request.path_qs)
        return request.match_info["pod"]

    async def _log(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(self.pods[self._note(request)].said))

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        asked = request.query
        socket = await self._socket(request)
        try:
            tty, has_input = asked.get("tty") == "1", asked.get("input") == "1"
            streams = Streams(asked.getall("command"), tty=tty, has_input=has_input, env={"IN_POD": "yes"})
        except OSError as error:
            failed = {"status": "Failure", "message": f"error executing command in container: {error}", "code": 500}
            await socket.send_bytes(bytes((ERROR,)) + json.dumps(failed).encode())
            await socket.close()
            return socket
        try:
            await self._serve(socket, streams, told=0)
        finally:
            streams.kill()
        return socket

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        streams = self.pods[self._note(request)]
        socket = await self._socket(request)
        await self._serve(socket, streams, told=len(streams.said))
        return socket

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0)
        await socket.prepare(request)
        await socket.send_bytes(bytes((STDOUT,)))  # a kubelet's first message says nothing
        return socket

    async def _serve(self, socket: web.WebSocketResponse, streams: Streams, *, told: int) -> None:
        heard: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        if told < len(streams.said):
            heard.put_nowait((STDOUT, bytes(streams.said[told:])))
        streams.listeners.append(heard)
        if streams.ended.is_set():
            heard.put_nowait(None)
        reading = asyncio.ensure_future(self._obey(socket, streams))
        try:
            while (
                await asyncio.wait([reading, got := asyncio.ensure_future(heard.get())], return_when="FIRST_COMPLETED")
            ) and got.done():
                if (message := got.result()) is None:
                    break
                await socket.send_bytes(bytes((message[0],)) + message[1])
            else:
                got.cancel()
                return
            await socket.send_bytes(bytes((ERROR,)) + json.dumps(_status(streams.code)).encode())
            await socket.close()
        except ConnectionError:
            return
        finally:
            reading.cancel()
            streams.listeners.remove(heard)

    async def _obey(self, socket: web.WebSocketResponse, streams: Streams) -> None:
        async for message in socket:
            if message.type is not WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STDIN:
                await streams.write(data)
            elif channel == RESIZE:
                size = json.loads(data)
                streams.resize(size["Height"], size["Width"])
            elif channel == CLOSE and socket.ws_protocol == V5 and data == bytes((STDIN,)):
                streams.end_input()

    async def _ports(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        socket = web.WebSocketResponse(protocols=(V4,), max_msg_size=0)
        await socket.prepare(request)
        port = int(request.query["port"])
        for channel in (0, 1):
            await socket.send_bytes(bytes((channel,)) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            await socket.send_bytes(b"\x01" + f"error forwarding port {port} to pod: {error}".encode())
            await socket.close()
            return socket

        async def upward() -> None:
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[:1] == b"\x00":
                    writer.write(message.data[1:])
                    await writer.drain()
            writer.close()

        up = asyncio.ensure_future(upward())
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(CHUNK):
                    await socket.send_bytes(b"\x00" + data)
            await socket.close()
            await up
        finally:  # also where the kubelet is stopped meanwhile
            up.cancel()
            writer.close()
        return socket


def _status(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    details = {"causes": causes}
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": details}


def _certificate(folder: Path) -> Path:
    path = folder / "kubelet.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet"]
    subprocess.run([*words, "-keyout", str(path), "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path
