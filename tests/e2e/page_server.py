"""A web server as a job: answers with what it was sent, streams, sets cookies, and has a WebSocket."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from aiohttp import web


async def told(request: web.Request) -> web.StreamResponse:
    """What the server saw of a request."""
    body = await request.read()
    headers = [[name.lower(), value] for name, value in request.headers.items()]
    return web.json_response({"method": request.method, "path": request.raw_path, "headers": headers, "n": len(body)})


async def echo(request: web.Request) -> web.StreamResponse:
    """The body, piece by piece."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    async for piece in request.content.iter_chunked(65536):
        await answer.write(piece)
    return answer


async def digest(request: web.Request) -> web.StreamResponse:
    """The digest of the body, and the body after it has come whole."""
    body = await request.read()
    return web.Response(body=body, headers={"X-Digest": hashlib.sha256(body).hexdigest()})


async def endless(request: web.Request) -> web.StreamResponse:
    """Events without end."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    while True:
        await answer.write(b"data: tick\n\n")
        await asyncio.sleep(0.05)


async def cookies(request: web.Request) -> web.StreamResponse:
    """Cookies and headers that would reach beyond the job."""
    answer = web.Response(text="set")
    for each in (
        "own=1; Path=/; Domain=localhost",
        "rota_session=stolen; Path=/",
        "rota_visit=stolen; Path=/",
        "__Host-rota_session=stolen; Secure; Path=/",
    ):
        answer.headers.add("Set-Cookie", each)
    answer.headers["Clear-Site-Data"] = '"cookies"'
    answer.headers["Alt-Svc"] = 'h2="elsewhere.example:443"'
    return answer


async def socket(request: web.Request) -> web.StreamResponse:
    """Messages back."""
    opened = web.WebSocketResponse(protocols=("second",), max_msg_size=1 << 24)
    await opened.prepare(request)
    async for message in opened:
        if message.type == web.WSMsgType.TEXT:
            if message.data == "close":
                await opened.close(code=4000)
            await opened.send_str(message.data)
        elif message.type == web.WSMsgType.BINARY:
            await opened.send_bytes(message.data)
    return opened


async def page(request: web.Request) -> web.StreamResponse:
    """A page for browsers; what its scripts do is up to the test."""
    return web.Response(text="<!doctype html><title>job</title><h1>a page of the job</h1>", content_type="text/html")


async def main() -> None:
    """Serve on any port that is free, and on a socket as the service `page`."""
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/echo", echo)
    app.router.add_route("*", "/digest", digest)
    app.router.add_get("/endless", endless)
    app.router.add_get("/cookies", cookies)
    app.router.add_get("/socket", socket)
    app.router.add_get("/", page)
    app.router.add_route("*", "/{rest:.*}", told)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    services = Path(os.environ["ROTA_RUN_DIR"]) / ".services"
    services.mkdir(exist_ok=True)
    os.chdir(services)
    Path("page").unlink(missing_ok=True)
    await web.UnixSite(runner, "page").start()
    port = runner.addresses[0][1]
    Path("other").write_text(f"{port}\n", encoding="utf-8")
    print("port", port, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
