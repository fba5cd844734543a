"""The manager's log: one event a line, with ids, and without any secret."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow


def lines(manager: Manager) -> list[str]:
    return (manager.folder / "up.log").read_text().splitlines()


@pytest.mark.attack("looks for secrets and tokens in the manager's log", stopped_by="neither is ever logged")
def test_json_log_has_an_event_a_line_and_no_secret(tmp_path: Path) -> None:
    settings = tmp_path / "rota.yaml"
    settings.write_text("emulate: gpu=2/2\nlog_format: json\nlog_level: debug\n")
    manager = Manager(tmp_path, "--config", str(settings)).start()
    token = manager.client.post("/tokens", {"name": "ada", "tenants": ["nlp"]})["token"]
    try:
        job_id = manager.submit("echo $KEY; exit 3", env={"KEY": {"secret": "hunter2"}, "PLAIN": "visible7"})
        manager.wait(job_id)
        request = urllib.request.Request(
            manager.client.url + "/api/v1/jobs?name=hunter3", headers={"X-Request-ID": "mine-1"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.headers["X-Request-ID"] == "mine-1"
        eventually(lambda: any("mine-1" in line for line in lines(manager)))
        manager.stop()
    finally:
        manager.clean_up()

    events = [json.loads(line) for line in lines(manager)]
    assert not any(word in line for line in lines(manager) for word in ("hunter", "visible7", token))
    assert {"at", "level", "logger", "event"} <= set.intersection(*(set(each) for each in events))
    told = [(each["state"], each.get("attempt")) for each in events if each["event"] == "job"]
    assert told[-1] == ("failed", 1)
    ended = [each for each in events if each["event"] == "job"][-1]
    assert (ended["job"], ended["exit_code"], ended["failure"], ended["why"]) == (job_id, 3, "exit", "exit code 3")
    submitted = next(each for each in events if each["event"] == "submit")
    assert submitted["request"] in {each["request"] for each in events if each["event"] == "request"}
    mine = next(each for each in events if each.get("request") == "mine-1")
    assert (mine["method"], mine["path"], mine["status"], mine["level"]) == ("GET", "/api/v1/jobs", 200, "debug")
    assert [each["event"] for each in events if each["event"] in ("ready", "stopping", "stopped")] == [
        "ready",
        "stopping",
        "stopped",
    ]


def test_text_log_is_for_people_and_quiet_where_asked(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2").start()
    try:
        job_id = manager.submit("exit 3", name="x")
        manager.wait(job_id)
        eventually(lambda: any(f"job={job_id} attempt=1 state=failed" in line for line in lines(manager)))
        assert lines(manager)[0].startswith("rota manages this machine at http://127.0.0.1:")
        manager.stop()
        before = len(lines(manager))
        manager.options = (*manager.options, "--log-level", "warning")
        manager.start()
        manager.wait(manager.submit("exit 3"))
        assert len(lines(manager)) == before + 1
    finally:
        manager.clean_up()


def test_what_uvicorn_says_takes_the_same_way(tmp_path: Path) -> None:
    import socket
    from urllib.parse import urlsplit

    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--log-format", "json").start()
    try:
        place = urlsplit(manager.client.url)
        with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
            connection.sendall(b"this is no HTTP\r\n\r\n")
            connection.recv(100)
        eventually(lambda: any("Invalid HTTP request" in line for line in lines(manager)))
    finally:
        manager.clean_up()
    events = [json.loads(line) for line in lines(manager)]
    assert ("uvicorn.error", "warning") in {(each["logger"], each["level"]) for each in events}
