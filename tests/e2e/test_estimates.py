"""A manager that learns what its jobs need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota.core.errors import RotaError

pytestmark = pytest.mark.slow
HOLD = "import sys, time; held = b'x' * (int(sys.argv[2]) * 2**20); time.sleep(0.2)"
MIB = 2**20


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("manager"), "--emulate", "gpu=8/4", "--cgroups", "off")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _job(mib: int, **resources: object) -> dict[str, object]:
    return {
        "name": "hold",
        "run": ["python3", "-c", HOLD, "--mib", str(mib)],
        "resources": resources,
        "workdir": "/",
    }


def _is_trusted(manager: Manager, mib: int) -> bool:
    """Whether what was learned so far is trusted; nothing runs for the question."""
    (job_id,) = manager.client.submit(_job(mib, memory="auto", cpus=0.1), held=True)
    told = manager.client.job(job_id)["spec"]["estimated"]["memory"]
    manager.client.act(job_id, "cancel")
    return bool(told["trusted"])


def test_nothing_known_gives_the_usual(manager: Manager) -> None:
    (job_id,) = manager.client.submit(_job(8, memory="auto", cpus=0.1))

    found = manager.wait(job_id)

    assert found["spec"]["resources"]["memory"] == "4Gi"
    why = "nothing was learned of it yet"
    assert found["spec"]["estimated"] == {"memory": {"given": "4Gi", "trusted": False, "error": None, "why": why}}


def test_learned_estimate_is_given_where_it_is_trusted(manager: Manager) -> None:
    ids = manager.client.submit([_job(mib, memory="2Gi", cpus=0.1) for mib in range(40, 340, 20)])
    for job_id in ids:
        manager.wait(job_id, within_s=120)
    eventually(lambda: _is_trusted(manager, 210), within_s=120, every_s=0.5)  # first it learns of some of them only

    (job_id,) = manager.client.submit(_job(210, memory="auto", cpus=0.1))
    (other,) = manager.client.submit({**_job(210, memory="auto", cpus=0.1), "name": "never-seen"})

    found = manager.wait(job_id)
    told = found["spec"]["estimated"]["memory"]
    assert told["trusted"] is True
    assert told["error"] < 0.25
    assert 210 * MIB < told["given"] < 1024 * MIB
    assert manager.wait(other)["spec"]["estimated"]["memory"]["trusted"] is False


def test_far_beyond_what_was_learned_the_usual_is_given_and_why_is_said(manager: Manager) -> None:
    (job_id,) = manager.client.submit(_job(100000, memory="auto"), held=True)

    told = manager.client.job(job_id)["spec"]["estimated"]["memory"]
    manager.client.act(job_id, "cancel")

    assert (told["given"], told["trusted"]) == ("4Gi", False)
    assert "mib is 100000; known runs of name=hold have " in told["why"]
    assert told["why"] in manager.rota("why", job_id).stdout


def test_job_that_ran_out_of_what_was_chosen_is_tried_again_with_more(manager: Manager) -> None:
    needy = HOLD.replace("int(sys.argv[2])", "(int(sys.argv[2]) + 600)").replace("sleep(0.2)", "sleep(1)")
    asked = {**_job(100, memory="auto", cpus=0.1), "run": ["python3", "-c", needy, "--mib", "100"]}
    (job_id,) = manager.client.submit(asked)

    eventually(lambda: manager.client.job(job_id)["failure"] == "out-of-memory", within_s=60)
    assert "which Rota chose; tried again with" in manager.rota("why", job_id).stdout
    found = manager.wait(job_id, within_s=60)

    assert found["state"] == "succeeded"
    told = found["spec"]["estimated"]["memory"]
    assert told["raised"] >= 1
    assert told["given"] > 600 * MIB
    assert found["attempt"] == told["raised"] + 1
    said = manager.rota("why", job_id).stdout
    assert f"(auto, raised {told['raised']} time" in said
    assert "memory: out of memory with " in said

    (following,) = manager.client.submit(asked)
    again = manager.wait(following, within_s=60)
    assert again["attempt"] == 1
    assert again["spec"]["estimated"]["memory"]["given"] == told["given"]


def test_request_estimate_and_use_are_side_by_side(manager: Manager) -> None:
    (job_id,) = manager.client.submit(_job(160, memory="2Gi", cpus=0.1))
    manager.wait(job_id)

    lines = {each["what"]: each for each in manager.client.resources(job_id)}

    memory = lines["memory"]
    assert memory["asked"] == 2 << 30
    assert 160 * MIB < memory["used"] < 260 * MIB
    assert memory["low"] < memory["estimate"] < memory["high"]
    assert "2.00 GiB" in manager.rota("show", job_id).stdout
    assert "(auto)" not in manager.rota("why", job_id).stdout


def test_report_lists_who_asked_for_too_much(manager: Manager) -> None:
    rows = manager.client.over_requested(7)

    mine = [row for row in rows if row["name"] == "hold" and row["what"] == "memory" and row["asked"] == 2 << 30]
    assert len(mine) >= 15
    assert all(row["asked"] >= 2 * row["used"] for row in rows)
    told = manager.rota("estimate", "report")
    assert "hold" in told.stdout
    assert "of 1 owner asked for at least twice what they used in the last 7 days; not used: " in told.stderr


def test_mistake_beside_auto_is_named(manager: Manager) -> None:
    with pytest.raises(RotaError, match=r"gpus"):
        manager.client.submit(_job(8, memory="auto", gpus="some"))


def test_file_with_auto_passes_the_check(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: sleep 0\nresources: {gpus: auto, memory: auto}\n")

    assert manager.rota("check", str(tmp_path / "job.yaml")).returncode == 0
