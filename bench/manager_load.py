"""Load on the live manager: durable submissions per second, a long queue, the time from submission to start.

Set-up: a real `rota up` on SQLite in a temporary folder, on the same machine as the load generator. Each of 16
connections sends the next request when the last is answered, over HTTP/1.1 keep-alive. A submission counts
when its 201 has arrived, which is after its commit with `synchronous=FULL`. The rate of empty POSTs is measured in
the same way in the same run, before and after. With 50,000 jobs waiting for a device that one job holds: the first
page of jobs as `rota ps` requests it (median of 20); the times of the engine's steps after a completion (by the
manager's own clock, from `/stats`); the longest time of `/healthz` while the queue is submitted in lists of 2,000 and
while `rota why` forecasts the start of its last job; and the manager's resident memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from managers import Manager, eventually

CONNECTIONS = 16
SECONDS = float(os.environ.get("BENCH_SECONDS", "5"))
WAITING = int(os.environ.get("BENCH_WAITING", "50000"))


async def load(url: str, path: str, body: bytes, *, seconds: float, most: int = 1 << 60) -> tuple[float, int]:
    """Return the requests answered per second over all connections, and their number."""
    place = urlsplit(url)
    head = f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    deadline = time.perf_counter() + seconds
    done = 0

    async def one() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        while time.perf_counter() < deadline and done < most:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            assert answer.split(b" ", 2)[1] in (b"200", b"201"), answer
            done += 1
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return done / (time.perf_counter() - begun), done


def submissions(manager: Manager) -> None:
    job = json.dumps({"run": "true", "name": "load", "resources": {"gpus": 1}}).encode()
    url = manager.client.url
    before, _ = asyncio.run(load(url, "/healthz", b"", seconds=SECONDS / 2))
    rate, count = asyncio.run(load(url, "/api/v1/jobs", job, seconds=SECONDS))
    after, _ = asyncio.run(load(url, "/healthz", b"", seconds=SECONDS / 2))
    empty = (before + after) / 2
    print(f"durable submissions: {rate:.0f} per second ({count} in all, {CONNECTIONS} connections; goal 500)")
    print(f"empty POSTs: {empty:.0f} per second; ratio {rate / empty:.2f} (goal 0.4)")


def long_queue(manager: Manager, blocker: str) -> None:
    known = sum(tenant["jobs"].get("waiting", 0) for tenant in manager.client.tenants())
    job = {"run": "true", "name": "load", "resources": {"gpus": 1}}
    with longest_wait(manager) as while_submitting:
        while known < WAITING:
            count = min(2000, WAITING - known)
            last = manager.client.submit([job] * count)[-1]
            known += count
    pages = []
    for _ in range(20):
        begun = time.perf_counter()
        next(iter(manager.client.jobs(limit=100)))
        pages.append(time.perf_counter() - begun)
    with longest_wait(manager) as while_forecasting:
        begun = time.perf_counter()
        manager.client.why(last)
        why_s = time.perf_counter() - begun
    before = manager.client.get("/stats")["steps"]
    manager.client.act(blocker, "cancel")
    eventually(lambda: manager.client.get("/stats")["steps"] > before + 40)
    stats = manager.client.get("/stats")
    steps = stats["step_s"][before - stats["steps"] :]
    assert manager.process is not None
    status = Path(f"/proc/{manager.process.pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
    print(f"{known} waiting: first page {statistics.median(pages) * 1e3:.0f} ms (goal 100)")
    wait_ms = while_forecasting[0] * 1e3
    print(f"{known} waiting: why of the last job {why_s:.1f} s; other requests wait at most {wait_ms:.0f} ms")
    print(f"lists of 2,000: other requests wait at most {while_submitting[0] * 1e3:.0f} ms")
    print(
        f"{known} waiting: step after a completion, median of {len(steps)}: {statistics.median(steps) * 1e3:.2f} ms, "
        f"longest {max(steps) * 1e3:.2f} ms (goal 10)"
    )
    print(f"{known} waiting: manager's memory {resident:.0f} MB (goal 1000)")


@contextmanager
def longest_wait(manager: Manager) -> Iterator[list[float]]:
    """Measure the longest wait of other requests meanwhile."""
    worst = [0.0]
    over = threading.Event()

    def ask() -> None:
        with closing(HTTPConnection(urlsplit(manager.client.url).netloc, timeout=60)) as connection:
            while not over.is_set():
                begun = time.perf_counter()
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                worst[0] = max(worst[0], time.perf_counter() - begun)
                time.sleep(0.005)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield worst
    finally:
        over.set()
        asking.join()


def submit_to_start(folder: Path) -> None:
    manager = Manager(folder, "--emulate", "gpu=8/4").start()
    waits = []
    try:
        for number in range(30):
            mark = folder / f"mark-{number}"
            begun = time.time()
            job_id = manager.submit(f"date +%s.%N > {mark}", resources={"gpus": 1})
            manager.wait(job_id)
            waits.append(float(mark.read_text()) - begun)
    finally:
        manager.clean_up()
    print(f"submit to process start, idle: median {statistics.median(waits) * 1e3:.0f} ms of {len(waits)} (goal 100)")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        submit_to_start(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        manager = Manager(Path(folder), "--emulate", "gpu=1/1").start()
        try:
            blocker = manager.submit("sleep 3600", resources={"gpus": 1}, priority=9)
            manager.wait(blocker, "running")
            submissions(manager)
            long_queue(manager, blocker)
        finally:
            manager.kill()
            manager.clean_up()


if __name__ == "__main__":
    main()
