"""The systemd unit of the documentation: its words, its check by systemd, and a start where systemd runs."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import ROTA, eventually
from rota.sdk import place

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "run-a-manager.md"
NAME = "rota-test.service"


def unit() -> str:
    return PAGE.read_text().partition("<!-- unit -->\n```ini\n")[2].partition("```")[0]


def parsed() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit())
    return parser


def test_unit_names_the_folders_that_rota_uses() -> None:
    service = parsed()["Service"]

    assert service["ExecStart"].endswith(f"--data /var/lib/{service['StateDirectory']}")
    assert Path("/run") / service["RuntimeDirectory"] == place.MACHINE_FOLDER
    assert (service["StateDirectoryMode"], service["RuntimeDirectoryMode"]) == ("0711", "0755")
    assert (service["Delegate"], service["KillMode"], service["TasksMax"]) == ("yes", "process", "infinity")


def test_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze to check a unit with")
    path = tmp_path / "rota.service"
    path.write_text(unit().replace("/opt/rota/bin/rota", sys.executable))

    told = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)

    complaints = [
        line for line in told.stderr.splitlines() if "rota.service" in line and "DelegateSubgroup" not in line
    ]
    assert complaints == []
    assert told.returncode == 0, told.stderr


def test_commands_of_other_users_find_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, state = tmp_path / "run", tmp_path / "state"
    monkeypatch.setattr(place, "MACHINE_FOLDER", run)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(run))
    old = os.umask(0o077)
    try:
        place.write_sign(place.ManagerAddress(url="http://127.0.0.1:7650"), tmp_path)
    finally:
        os.umask(old)
    run.chmod(0o755)
    modes = (run.stat().st_mode & 0o777, (run / "manager.json").stat().st_mode & 0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-user"))

    found = place.find_manager()
    run.chmod(0o777)
    untrusted = place.find_manager()
    place.remove_sign()

    assert modes == (0o755, 0o644)
    assert untrusted is None
    assert not (run / "manager.json").exists()
    if os.geteuid() == 0:
        assert found == place.ManagerAddress(url="http://127.0.0.1:7650")
    else:
        assert found is None  # only what root wrote is trusted


def test_own_manager_that_is_gone_gives_way_to_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only what root wrote is trusted")
    run, state = tmp_path / "run", tmp_path / "state"
    monkeypatch.setattr(place, "MACHINE_FOLDER", run)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    for folder, port, pid in ((run, 1, os.getpid()), (state / "rota", 2, 2**22 + 1)):
        folder.mkdir(parents=True, mode=0o755)
        (folder / "manager.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "pid": pid}))

    found = place.find_manager()
    (state / "rota" / "manager.json").write_text(json.dumps({"url": "http://127.0.0.1:2", "pid": os.getpid()}))

    assert found is not None
    assert found.url == "http://127.0.0.1:1"
    assert place.find_manager() == place.ManagerAddress(url="http://127.0.0.1:2")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Path]:
    """The unit, started by systemd with a port and a folder of its own."""
    if os.geteuid() != 0 or shutil.which("systemctl") is None:
        pytest.skip("needs root and systemd")
    state = subprocess.run(["systemctl", "is-system-running"], capture_output=True, text=True).stdout.strip()
    if state not in ("running", "degraded"):
        pytest.skip(f"systemd does not run here: {state or 'no answer'}")
    if place.MACHINE_FOLDER.exists():
        pytest.skip("a manager runs here as a service already")
    command = " ".join(f'"{word}"' for word in ROTA)
    start = f"{command} up --emulate gpu=1/1 --port 0 --run-as nobody --data /var/lib/rota-test"
    text = unit().replace("StateDirectory=rota", "StateDirectory=rota-test")
    lines = [f"ExecStart={start}" if line.startswith("ExecStart=") else line for line in text.splitlines()]
    path = Path("/run/systemd/system") / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + f"\n[Service]\nEnvironment=PYTHONPATH={':'.join(filter(None, sys.path))}\n")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    try:
        subprocess.run(["systemctl", "start", NAME], check=True)
        yield place.MACHINE_FOLDER / "manager.json"
    finally:
        subprocess.run(["systemctl", "stop", NAME], check=False)
        path.unlink()
        subprocess.run(["systemctl", "daemon-reload"], check=False)
        shutil.rmtree("/var/lib/rota-test", ignore_errors=True)


@pytest.mark.slow
def test_service_starts_runs_a_job_and_keeps_it_over_a_restart(service: Path) -> None:
    from rota.sdk.client import Client

    eventually(service.exists)
    client = Client(json.loads(service.read_text())["url"])
    job_id = client.submit({"run": "id -un; sleep 5; echo done", "workdir": "/"})[0]
    eventually(lambda: client.job(job_id)["state"] == "running")
    subprocess.run(["systemctl", "restart", NAME], check=True)
    eventually(lambda: service.exists() and Client(json.loads(service.read_text())["url"]).nodes())
    client = Client(json.loads(service.read_text())["url"])

    eventually(lambda: client.job(job_id)["state"] == "succeeded")

    assert b"".join(client.logs(job_id)).decode() == "nobody\ndone\n"
    assert client.job(job_id)["attempt"] == 1
