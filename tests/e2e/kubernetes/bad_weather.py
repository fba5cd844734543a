"""Bad weather between Rota and the API server: a proxy that is slow, refuses, cuts watches and lets them expire."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from ports import free_port

Json = dict[str, Any]
_HOP = frozenset({"transfer-encoding", "content-encoding", "content-length", "connection", "host"})


class BadWeather:
    """A proxy in a thread of its own. What it does wrong can be changed while it runs."""

    def __init__(self, kubeconfig: Path, seed: int = 1) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.port = free_port()
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        self.kubeconfig = kubeconfig.with_suffix(f".weather-{self.port}")
        self.kubeconfig.write_text(yaml.safe_dump(document))
        self.delay_s = 0.0
        self.late_s = 0.0
        """By how much answers to binds are held back after they were done."""
        self.refuses = 0.0
        """The part of requests that is refused, half of them after they were done."""
        self.hides_deletions = False
        """Whether watches leave deletions out."""
        self.expires = False
        """Whether watches are answered with 410 Gone."""
        self.refused = 0
        self.binds = 0
        """How many were asked for."""
        self._random = random.Random(seed)
        self._watches: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> BadWeather:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=20)

    def cut_watches(self) -> None:
        """End every watch that is open, in the middle of whatever it says."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._watches])

    def _work(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=True) as self._session:
            app = web.Application(client_max_size=1 << 26)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._ready.set()
            await self._stopping.wait()
            await runner.cleanup()
        await asyncio.sleep(0.3)  # TLS connections take a moment to close

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        self.binds += request.path.endswith("/binding")
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if "watch" in request.query:
            return await self._watch(request)
        unlucky = self._random.random() < self.refuses
        code = self._random.choice((429, 500) if request.method == "GET" else (409, 429, 500))
        if unlucky and self._random.random() < 0.5:
            return self._refusal(code)
        async with self._ask(request, await request.read()) as answer:
            body = await answer.read()
            if self.late_s and request.path.endswith("/binding"):
                await asyncio.sleep(self.late_s)
            if unlucky and code == 500:
                return self._refusal(500)
            headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            return web.Response(status=answer.status, body=body, headers=headers)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if self.expires:
            return self._refusal(410)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async with self._ask(request, None) as answer:
                async for line in answer.content:
                    if not (self.hides_deletions and b'"type":"DELETED"' in line[:40]):
                        await response.write(line)
        except asyncio.CancelledError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._watches.discard(task)
        return response

    def _ask(self, request: web.Request, body: bytes | None) -> Any:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self._server}{request.rel_url}"
        return self._session.request(request.method, url, data=body, headers=headers, timeout=timeout)

    def _refusal(self, code: int) -> web.Response:
        self.refused += 1
        reason = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}[code]
        status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "bad weather"}
        return web.json_response(status, status=code)
