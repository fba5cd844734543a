"""Single cheap requests against a real manager: each gets one clear line, changes nothing, holds the loop briefly."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from machine_load import slowness
from managers import Manager
from rota.api.limits.callers import MESSAGES_BURST, MESSAGES_PER_SECOND, FairRequests
from rota.core.errors import RotaError
from rota.files.up_file import LimitsPart
from rota.files.yaml_input import parse_yaml
from rota.web.draft import plain_values, values_of

Json = dict[str, Any]
JOBS = "/api/v1/jobs"
AS_ROOT = ("--run-as", "default=daemon") if os.geteuid() == 0 else ()
LONGEST_HOLD_S = 0.25
"""CPU time on the loop's thread; about 0.1 s on an idle machine, and tests share theirs."""


def job(**fields: Any) -> Json:
    return {"run": "true", **fields}


def yaml_bomb(levels: int = 8) -> str:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(levels)]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def target() -> Iterator[Manager]:
    made = Manager(reachable(), "--emulate", "gpu=2/2", "--require-token", *AS_ROOT).start_guarded()
    yield made
    made.clean_up()


def ask(manager: Manager, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    place = urlsplit(manager.client.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=30)
    given = {"Authorization": f"Bearer {manager.token}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def reachable() -> Path:
    """A folder that the account of jobs can pass through, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="rota-inputs-", dir="/var/tmp"))
    made.chmod(0o755)
    return made


def longest_hold_s(manager: Manager) -> float:
    return float(json.loads(ask(manager, "GET", "/api/v1/stats")[1])["longest_hold_s"])


def attack(what: str, stopped_by: str, body: object, status: int, word: str, **headers: str) -> Any:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    mark = pytest.mark.attack(what, stopped_by=stopped_by)
    return pytest.param(sent, headers, status, word, marks=mark, id=what)


BOUNDS = "bounds on the request, checked before it is expanded"
READER = "the one reader of JSON, which refuses by name"
ATTACKS = [
    attack(
        "40 jobs of 4096 tasks without gang", BOUNDS, [job(gang=False, workers=4096)] * 40, 422, "jobs are submitted"
    ),
    attack("one job of 4096 tasks without gang", BOUNDS, job(gang=False, workers=4096), 422, "jobs are submitted"),
    attack(
        "64 roles of 64 tasks without gang",
        BOUNDS,
        {"gang": False, "roles": {f"r{i}": job(count=64) for i in range(64)}},
        422,
        "jobs are submitted",
    ),
    attack("a gang of 4096 tasks without devices", "the limit of such tasks", job(workers=4096), 422, "limits.tasks"),
    attack(
        "900 kB of variables for each of 900 tasks",
        BOUNDS,
        job(gang=False, workers=900, env={f"k{i}": "x" * 900 for i in range(999)}),
        422,
        "its own copy",
    ),
    attack("5,000 jobs in one list", BOUNDS, [job()] * 5000, 422, "jobs are submitted"),
    attack("100 jobs with 900 dependencies each", BOUNDS, [job(depends_on=["1"] * 900)] * 100, 422, "depends_on"),
    attack("1,001 dependencies", "the shape of a job file", job(depends_on=["1"] * 1001), 422, "depends_on"),
    attack("90,000 unknown fields", BOUNDS, job(**{f"k{i}": 1 for i in range(90_000)}), 422, "fields"),
    attack(
        "90,000 variables of a role", BOUNDS, {"roles": {"a": job(env={f"k{i}": "" for i in range(90_000)})}}, 422, ""
    ),
    attack("90,000 device types", BOUNDS, job(resources={"gpu": ["t"] * 90_000}), 422, "values"),
    attack("200,000 empty lists", READER, b"[" + b"[]," * 200_000 + b"[]]", 422, "values"),
    attack("a field whose name has 3 MB", "comparison of short words only", {"x" * 3_000_000: 1}, 422, "unknown field"),
    attack("a body nested 900 deep", READER, b'{"run":"x","plan":' + b'{"a":' * 900 + b"1" + b"}" * 901, 422, "deeply"),
    attack("half a character", READER, b'{"run":"echo \\ud800"}', 422, "half a character"),
    attack("half a character as raw bytes", READER, b'{"run":"echo \xed\xa0\x80"}', 422, "not UTF-8"),
    attack("a whole number of 5,000 digits", READER, b'{"run":"x","priority":' + b"9" * 5000 + b"}", 422, "digits"),
    attack("a whole number of 30 digits", READER, b'{"run":"x","plan":{"a":' + b"9" * 30 + b"}}", 422, "too large"),
    attack("NaN", READER, b'{"run":"x","estimate":NaN}', 422, "NaN"),
    attack("infinity by another name", READER, b'{"run":"x","plan":{"a":1e999}}', 422, "not finite"),
    attack("a field given twice", READER, b'{"run":"x","run":"y"}', 422, "twice"),
    attack(
        "a duration that makes a pattern backtrack",
        "amounts of at most 64 characters",
        job(time_limit="1d" + " " * 20_000 + "x"),
        422,
        "not a duration",
    ),
    attack(
        "an amount of 60,000 digits",
        "amounts of at most 64 characters",
        job(resources={"memory": "9" * 60_000}),
        422,
        "",
    ),
    attack(
        "a gzip bomb",
        "bodies are taken as they are",
        b"\x1f\x8b" + b"\0" * 100,
        415,
        "compression",
        Content_Encoding="gzip",
    ),
    attack("headers of 100 kB", "the bound on headers", job(), 431, "headers", X_Long="x" * 100_000),
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "headers", "status", "word"), ATTACKS)
def test_cheap_request_is_refused_by_name_and_quickly(
    target: Manager, body: bytes, headers: dict[str, str], status: int, word: str
) -> None:
    got, said = ask(target, "POST", JOBS, body, **headers)

    assert got == status, said
    assert word in said
    assert len(said) < 1000
    assert "Traceback" not in said
    assert list(target.client.jobs(all=True)) == []
    assert longest_hold_s(target) < LONGEST_HOLD_S


@pytest.mark.slow
@pytest.mark.attack(
    "a body that comes one byte at a time", stopped_by="closing the oldest half-sent request; time limits"
)
def test_half_sent_requests_keep_no_one_out(tmp_path: Path) -> None:
    settings = tmp_path / "rota.yaml"
    settings.write_text("limits: {connections: 50}\n")
    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--config", str(settings)).start()
    place = urlsplit(manager.client.url)
    half = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    held = [socket.create_connection((place.hostname or "", place.port or 0)) for _ in range(200)]
    try:
        for each in held:
            with suppress(OSError):
                each.sendall(half)
        begun_s = time.monotonic()
        done = manager.submit("true")

        assert time.monotonic() - begun_s < 5 * slowness()
        manager.wait(done, "succeeded")
        assert manager.process is not None
        descriptors = len(list(Path(f"/proc/{manager.process.pid}/fd").iterdir()))
        assert descriptors < 50 + 60
    finally:
        for each in held:
            each.close()
        manager.clean_up()


@pytest.mark.slow
@pytest.mark.attack("submissions without end from one token", stopped_by="the rate of its token: 429 with Retry-After")
@pytest.mark.attack("thousands of waiting jobs from one token", stopped_by="the number of its waiting jobs: 429")
def test_token_has_a_rate_and_a_number_of_waiting_jobs(tmp_path: Path) -> None:
    settings = tmp_path / "rota.yaml"
    settings.write_text("limits: {jobs_per_second: 0.01, jobs_burst: 30, waiting_jobs: 25}\nrequire_token: true\n")
    manager = Manager(reachable(), "--emulate", "gpu=2/2", "--config", str(settings), *AS_ROOT).start_guarded()
    try:
        body = json.dumps([job()] * 20).encode()
        assert ask(manager, "POST", f"{JOBS}?held=true", body)[0] == 201
        refused = ask(manager, "POST", f"{JOBS}?held=true", json.dumps([job()] * 7).encode())
        assert refused[0] == 429
        assert "waiting jobs" in refused[1]
        refused = ask(manager, "POST", JOBS, json.dumps([job()] * 12).encode())
        assert refused[0] == 429
        assert "jobs per second" in refused[1]
        assert ask(manager, "POST", JOBS, json.dumps(job()).encode())[0] == 201
        assert len(list(manager.client.jobs(all=True))) == 21
    finally:
        manager.clean_up()


@pytest.mark.slow
@pytest.mark.attack("spells its token differently in each request", stopped_by="one reader of tokens; the rate: 429")
def test_spellings_of_a_token_share_a_rate(tmp_path: Path) -> None:
    settings = tmp_path / "rota.yaml"
    settings.write_text("limits: {requests_per_second: 0.1, requests_burst: 3}\nrequire_token: true\n")
    manager = Manager(reachable(), "--emulate", "gpu=2/2", "--config", str(settings), *AS_ROOT).start_guarded()
    try:
        spellings = [
            f"{scheme}{spaces}{manager.token}" for scheme in ("Bearer", "bEARER") for spaces in (" ", "  ", "   ")
        ]
        answers = [ask(manager, "GET", "/api/v1/nodes", Authorization=each) for each in spellings]
        assert [status for status, _ in answers] == [200] * 3 + [429] * 3
    finally:
        manager.clean_up()


@pytest.mark.slow
@pytest.mark.attack("requests without end from one token", stopped_by="the rate of its requests: 429 with Retry-After")
def test_requests_of_a_token_have_a_rate(tmp_path: Path) -> None:
    settings = tmp_path / "rota.yaml"
    settings.write_text("limits: {requests_per_second: 0.1, requests_burst: 5}\nrequire_token: true\n")
    manager = Manager(reachable(), "--emulate", "gpu=2/2", "--config", str(settings), *AS_ROOT).start_guarded()
    try:
        answers = [ask(manager, "GET", "/api/v1/nodes") for _ in range(8)]
        assert [status for status, _ in answers] == [200] * 5 + [429] * 3
        assert "try again in" in answers[-1][1]
        assert ask(manager, "GET", "/healthz")[0] == 200
    finally:
        manager.kill()
        manager.clean_up()


YAML = {
    "a YAML bomb of 400 bytes": (yaml_bomb(), "more than 3000 values"),
    "a YAML bomb of merged mappings": (
        "a: &a {x: 1}\n"
        + "\n".join(f"b{i}: &b{i} {{<<: [{','.join(['*' + ('a' if not i else f'b{i - 1}')] * 9)}]}}" for i in range(8)),
        "more than 3000 values",
    ),
    "YAML that contains itself": ("run: &a [*a]", "repeats what it is in"),
    "YAML nested 5,000 deep": ("[" * 5000, "nested too deeply"),
    "a time in base 60": ("run: x\ntime_limit: 1:30:00", "base 60"),
    "a YAML number of 5,000 digits": (f"priority: {'9' * 5000}", "digits"),
    "a YAML number in hex without end": (f"priority: 0x{'f' * 60}", "decimal"),
    "a YAML number in octal": ("resources: {gpus: 010}", "010 is not a decimal number"),
    "a YAML number in hex": ("resources: {gpus: 0x10}", "0x10 is not a decimal number"),
    "a YAML number in binary": ("priority: -0b11", "-0b11 is not a decimal number"),
    "a YAML number with underscores": ("tasks: 1_0", "underscores"),
    "a YAML fraction with underscores": ("estimate: 1_0.5", "underscores"),
    "a tagged YAML number in octal": ("priority: !!int '010'", "010 is not a decimal number"),
    "a number that is none, in YAML": ("estimate: .nan", "finite"),
    "half a character in YAML": ('run: "\\ud800"', "Unicode"),
    "60 kB of YAML values": ("[" + ",".join(["a"] * 30_000) + "]", "more than 3000 values"),
}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        pytest.param(*case, marks=pytest.mark.attack(what, stopped_by="the one reader of YAML"), id=what)
        for what, case in YAML.items()
    ],
)
def test_job_file_in_the_dashboard_is_refused_by_name_and_quickly(text: str, word: str) -> None:
    parse_yaml("a: 1", "warm")
    begun_s = time.thread_time()

    with pytest.raises(RotaError, match=word):
        values_of(text)

    assert time.thread_time() - begun_s < 0.5, "on a busy machine; a bomb that is expanded takes seconds"


@pytest.mark.attack("infinity in a job file of the dashboard", stopped_by="values that JSON can't hold are refused")
def test_infinity_in_the_dashboard_is_refused() -> None:
    with pytest.raises(RotaError, match="JSON"):
        plain_values(values_of("run: x\nestimate: .inf"))


@pytest.mark.attack(
    "floods the web socket of its page", stopped_by="a rate of messages; the rest waits in the connection"
)
def test_messages_of_a_page_are_throttled() -> None:
    async def flood() -> int:
        taken = 0

        async def page(scope: Any, receive: Any, send: Any) -> None:
            nonlocal taken
            while True:
                await receive()
                taken += 1

        async def receive() -> Json:
            await asyncio.sleep(0)
            return {"type": "websocket.receive", "text": "x"}

        scope = {"type": "websocket", "path": "/", "headers": []}
        app = FairRequests(
            page, LimitsPart(), token_required=True, is_valid=lambda digest: True, of_session=lambda scope: "x"
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await app(scope, receive, cast(Any, None))
        return taken

    taken = asyncio.run(flood())

    assert MESSAGES_BURST <= taken <= MESSAGES_BURST + MESSAGES_PER_SECOND * 0.5 + 1
