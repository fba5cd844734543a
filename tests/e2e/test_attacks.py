"""What should not work does not: each attack gets its right refusal, and changes nothing."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from managers import Manager
from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.files.job import job_file, job_of, launch_of, read_job_file
from rota.files.job_shape import JobFile

Json = dict[str, Any]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("target"), "--emulate", "gpu=2/2").start()
    made.client.submit({"run": "true", "name": "honest"})
    yield made
    made.clean_up()


def ask(manager: Manager, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    place = urlsplit(manager.client.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=20)
    sent = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may answer a huge body before all of it was sent
            connection.request(method, path, body=sent, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def post(**job: Any) -> Json:
    return {"run": "true", **job}


JOBS = "/api/v1/jobs"
DEEP = b"[" * 100_000 + b"]" * 100_000
ATTACKS: dict[str, tuple[str, str, object, dict[str, str], int]] = {
    "a name that climbs": ("POST", JOBS, post(name="../../etc/passwd"), {}, 422),
    "a name with a slash": ("POST", JOBS, post(name="a/b"), {}, 422),
    "a name with a newline": ("POST", JOBS, post(name="a\nSet-Cookie: x"), {}, 422),
    "a name with a NUL": ("POST", JOBS, post(name="a\0b"), {}, 422),
    "a name without end": ("POST", JOBS, post(name="x" * 1000), {}, 422),
    "a tenant that climbs": ("POST", JOBS, post(tenant="../other"), {}, 422),
    "a command with a NUL": ("POST", JOBS, post(run="echo \0"), {}, 422),
    "a variable that is none": ("POST", JOBS, post(env={"A=B": "x"}), {}, 422),
    "a variable with a NUL": ("POST", JOBS, post(env={"A": "x\0y"}), {}, 422),
    "a role that climbs": ("POST", JOBS, {"roles": {"../x": {"run": "true"}}}, {}, 422),
    "more tasks than there can be": ("POST", JOBS, post(workers=10**9), {}, 422),
    "more GPUs than there can be": ("POST", JOBS, post(resources={"gpus": 10**12}), {}, 422),
    "negative GPUs": ("POST", JOBS, post(resources={"gpus": -1}), {}, 422),
    "a priority beyond all": ("POST", JOBS, post(priority=10**9), {}, 422),
    "an unknown field": ("POST", JOBS, post(uid=0), {}, 422),
    "a signal that kills": ("POST", JOBS, post(checkpoint={"signal": "SIGKILL"}), {}, 422),
    "a body that is no JSON": ("POST", JOBS, b"run: true", {}, 422),
    "a body nested without end": ("POST", JOBS, DEEP, {}, 422),
    "a body of 100 MB": ("POST", JOBS, b" " * (100 << 20), {}, 413),
    "a list of nothing": ("POST", JOBS, [], {}, 422),
    "a number instead of a job": ("POST", JOBS, 7, {}, 422),
    "a job that depends on itself": ("POST", JOBS, post(name="self", depends_on=["self"]), {}, 422),
    "a key without end": ("POST", JOBS, post(), {"Idempotency_Key": "k" * 5000}, 422),
    "an id that climbs": ("GET", f"{JOBS}/..%2F..%2Fetc%2Fpasswd", None, {}, 404),
    "logs of an id that climbs": ("GET", f"{JOBS}/..%2f1/logs", None, {}, 404),
    "logs of a task that climbs": ("GET", f"{JOBS}/1/logs?task=-1", None, {}, 422),
    "logs of an attempt that is none": ("GET", f"{JOBS}/1/logs?attempt=99999999999999999999", None, {}, 422),
    "an injection into the list": ("GET", f"{JOBS}?tenant=x%27%20OR%201%3D1--&all=true", None, {}, 422),
    "a state that is none": ("GET", f"{JOBS}?state=%27%3B+DROP+TABLE+jobs", None, {}, 422),
    "a page before the first": ("GET", f"{JOBS}?after=-1", None, {}, 422),
    "an action that is none": ("POST", f"{JOBS}/1/delete", None, {}, 422),
    "a node that climbs": ("POST", "/api/v1/nodes/..%2Fx/drain", None, {}, 404),
    "another site's page": ("POST", JOBS, post(), {"Origin": "https://evil.example"}, 403),
    "a name that was rebound": ("GET", JOBS, None, {"Host": "evil.example"}, 403),
    "a token that is none": ("GET", JOBS, None, {"Authorization": "Bearer wrong"}, 401),
    "a token of another kind": ("GET", JOBS, None, {"Authorization": "Basic YTpi"}, 401),
    "a token for everything": ("POST", "/api/v1/tokens", {"name": "x", "role": "god"}, {}, 422),
    "the path of a file": ("GET", "/../../../etc/passwd", None, {}, 404),
}


STOPPED_BY = {
    200: "the value is bound, never part of the statement",
    401: "the token is looked up by its digest",
    403: "the check of Host and Origin",
    404: "an id is looked up, never joined to a path",
    413: "the bound on the size of a body",
    422: "the request is validated before anything is stored",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.attack(f"sends {name}", stopped_by=STOPPED_BY[case[-1]]))
        for name, case in ATTACKS.items()
    ],
)
def test_attack_is_refused(
    target: Manager, method: str, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    got, said = ask(target, method, path, body, **headers)

    assert got == status, said
    assert "Traceback" not in said
    assert "root:" not in said
    assert [job["name"] for job in target.client.jobs(all=True)] == ["honest"]


@pytest.mark.attack("sends a body in chunks without end", stopped_by="the bound on the size of a body, as it arrives")
@pytest.mark.slow
def test_chunks_without_end_are_cut_off(target: Manager) -> None:
    place = urlsplit(target.client.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=20) as raw:
        raw.sendall(f"POST {JOBS} HTTP/1.1\r\nHost: {place.netloc}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(200):
                raw.sendall(chunk)
        assert b" 413 " in raw.recv(100)


@pytest.mark.attack(
    "sends requests made at random from the API's schema", stopped_by="every answer is an answer, none is a failure"
)
@pytest.mark.slow
def test_requests_made_from_the_schema_find_no_failure(tmp_path: Path) -> None:
    """Every operation but the endless stream of events, with requests that fit its schema and some that do not."""
    manager = Manager(tmp_path, "--emulate", "gpu=1/1").start()
    program = Path(sys.executable).with_name("st")
    command = [str(program), "run", f"{manager.client.url}/api/openapi.json", "--checks", "not_a_server_error"]
    command += [
        "--max-examples",
        "10",
        "--phases",
        "fuzzing",
        "--exclude-path-regex",
        "events",
        "--request-timeout",
        "30",  # some answers are computed by a process that has to start first
    ]
    try:
        manager.client.drain("n1")  # commands that were made up at random must not run
        told = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path)
        assert told.returncode == 0, told.stdout[-4000:]
        assert manager.client.get("/stats")["trouble"] is None
    finally:
        manager.clean_up()


@pytest.mark.attack(
    "submits a YAML bomb, Python objects and a loop", stopped_by="the safe loader, and bounds on values"
)
def test_yaml_bomb_and_python_objects_are_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8)
    )
    for text in (bomb, "run: !!python/object/apply:os.system ['true']\n", "run: &a [*a]\n"):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        with pytest.raises(RotaError) as refused:
            read_job_file(path)
        assert len(str(refused.value)) < 500


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [field.alias or name for name, field in JobFile.model_fields.items()]
AMOUNTS = st.sampled_from(
    ["4", 4, 0.5, "500m", "16Gi", "1h30m", "inf", -1, 1e400, "NaN", [], {}, {"gpus": "1e9"}, "9" * 400]
)


@pytest.mark.attack(
    "submits job files of random values", stopped_by="the job file is validated, and refused in one line"
)
@given(st.dictionaries(st.sampled_from(FIELDS), plain | AMOUNTS, max_size=8))
def test_any_job_file_is_read_or_refused_in_one_line(values: Json) -> None:
    assert "\n" not in verdict(values)


def verdict(values: Json) -> str:
    """What is said of a job file; nothing if it will do."""
    try:
        file = job_file(values)
        job_of(file, JobId("1"))
        launch_of(file, JobId("1"))
    except RotaError as refused:
        return str(refused)
    return ""
