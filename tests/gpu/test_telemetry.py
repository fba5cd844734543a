"""What is kept of GPUs by device, job and user, against the stand-in of NVIDIA's library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu.machines import GIB, GpuMachine
from rota.core.model.job import JobId
from rota.drivers.local.gpu.idle import IdleStep, IdleWatch
from rota.drivers.local.gpu.job_energy import energy_of
from rota.drivers.local.gpu.sensors import GpuSensors, find_sensors
from rota.drivers.local.gpu.settings import EnergyRates, IdleAction, IdleRule
from rota.drivers.local.gpu.telemetry import GpuHolder, GpuTelemetry, job_series
from rota.drivers.local.gpu.user_report import GpuUseByUser
from rota.drivers.local.task_runner.gpu_energy import GpuEnergy
from rota.drivers.local.task_runner.nvml import Reading
from rota.store.run_folder import write_json

JOB = JobId("7")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuMachine]:
    """A machine of two GPUs, whose library takes the place of one that may be loaded."""
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield GpuMachine(tmp_path / "nvml", 2)
    sys.modules.pop("pynvml", None)


def sensors_of(machine: GpuMachine) -> GpuSensors:
    found = find_sensors(str(machine.folder))
    assert found is not None
    return found


def holder(milli: int = 1000) -> GpuHolder:
    return GpuHolder(job_id=JOB, user="ada", attempt=1, milli=milli, alone=milli == 1000)


def test_a_sample_has_all_that_the_gpu_tells(machine: GpuMachine) -> None:
    sensors = sensors_of(machine)
    sensors.look(0.0)
    machine.change(0, busy=80, memory_busy=40, used=3 * GIB, power_mw=350_000, nvlink_rx_kib=0, nvlink_tx_kib=0)
    sensors.look(1.0)
    machine.change(0, nvlink_rx_kib=2048, ecc_corrected=3)

    first, second = sensors.look(3.0)

    assert first is not None
    assert first.values == (80, 40, 3 * GIB, 350, 30, 345, 3201, 20_000, 10_000, 2**20, 0)
    assert (first.energy_mj, first.ecc_corrected, first.ecc_uncorrected) == (1_000_000, 3, 0)
    assert second is not None
    assert second.value("nvlink_rx_bps") is None
    assert [gpu.name for gpu in sensors.gpus] == ["NVIDIA H200"] * 2


def test_what_a_gpu_does_not_tell_is_left_out_and_a_lost_one_is_none(machine: GpuMachine) -> None:
    del machine.state["gpus"][0]["power_mw"]
    machine.write()
    sensors = sensors_of(machine)
    del machine.state["gpus"][1]["used"]
    machine.write()

    first, second = sensors.look(0.0)

    assert first is not None
    assert first.value("power_w") is None
    assert first.value("busy") == 0
    assert second is None


def test_critical_errors_are_told_once_with_their_gpu(machine: GpuMachine) -> None:
    sensors = sensors_of(machine)
    assert sensors.xids() == []
    machine.change(1, xid=[79, 48])

    assert sensors.xids() == [(1, 79), (1, 48)]
    assert sensors.xids() == []


def test_activity_by_process_is_that_since_the_last_look(machine: GpuMachine) -> None:
    sensors = sensors_of(machine)
    assert sensors.busy_by_process(0) == {}
    machine.change(0, process_busy=[[1, 11, 40], [1, 12, 5], [2, 11, 60]])

    assert sensors.busy_by_process(0) == {11: 50.0, 12: 5.0}
    assert sensors.busy_by_process(0) == {}


def test_a_jobs_series_stays_with_the_job(machine: GpuMachine, tmp_path: Path) -> None:
    sensors = sensors_of(machine)
    (tmp_path / "runs" / JOB).mkdir(parents=True)
    telemetry = GpuTelemetry(tmp_path, sensors.gpus, 0.0, 1.0)
    machine.change(1, busy=90, used=5 * GIB)
    for second in range(5):
        telemetry.take(sensors.look(float(second)), {1: [holder()]}, float(second))
    telemetry.note_xid(1, 79, {1: [holder()]}, 5.0)
    telemetry.take(sensors.look(6.0), {}, 6.0)

    kept = job_series(tmp_path, JOB)

    assert kept is not None
    assert [each["gpu"] for each in kept["gpus"]] == [1]
    assert [point[:4] for point in kept["gpus"][0]["points"]] == [[float(s), 90.0, 0.0, 5.0 * GIB] for s in range(5)]
    assert kept["xids"] == [{"at_s": 5.0, "gpu": 1, "xid": 79}]
    assert (kept["shared"], kept["note"]) == (False, "")
    assert len(telemetry.gpus[1].series.points()) == 6


def test_on_a_shared_gpu_only_its_own_memory_is_a_jobs(machine: GpuMachine, tmp_path: Path) -> None:
    sensors = sensors_of(machine)
    folder = tmp_path / "runs" / JOB / "1" / "0"
    folder.mkdir(parents=True)
    write_json(folder / "gpus.json", {"gpu_memory_now_bytes": 2 * GIB})
    telemetry = GpuTelemetry(tmp_path, sensors.gpus, 0.0, 1.0)
    machine.change(0, busy=90, used=9 * GIB)

    telemetry.take(sensors.look(0.0), {0: [holder(500)]}, 0.0)

    told = telemetry.of_job(JOB)
    assert told is not None
    assert told["gpus"][0]["points"][0][1:4] == [None, None, 2 * GIB]
    assert "can't be attributed" in told["note"]
    assert telemetry.busy_of(JOB, 0.0) is None
    use = telemetry.users.report()["ada"]
    assert (use.held_s, use.shared_s, use.idle_part) == (0.5, 0.5, None)


def test_users_are_reported_by_idle_time_and_that_survives(tmp_path: Path) -> None:
    users = GpuUseByUser(tmp_path, 5.0)
    for busy in (90.0, 0.0, 4.9):
        users.add("ada", 3600.0, busy, 0.0)
    users.add("bob", 3600.0, 0.0, 0.0)
    users.add("bob", 3600.0, 0.0, 100_000.0)
    users.add("bob", 3600.0, 0.0, 100_000.0)
    users.save(0.0)

    again = GpuUseByUser(tmp_path, 5.0).report()

    assert list(again) == ["bob", "ada"]
    assert (again["ada"].held_s, again["ada"].idle_s) == (3 * 3600.0, 2 * 3600.0)
    assert GpuUseByUser(tmp_path, 5.0).report(days=1)["bob"].held_s == 7200.0


def test_energy_is_the_difference_of_counters_even_when_they_begin_again_or_it_rests(tmp_path: Path) -> None:
    energy = GpuEnergy()
    for second, count in enumerate([1_000, 501_000, 200, 100_200, None, 900_200, 900_300]):
        rests = count is None
        energy.add([] if rests else [Reading(0, {}, 0.0, count), Reading(0, {}, 0.0, None)], True, float(second))
    folder = tmp_path / "runs" / JOB / "1" / "0"
    folder.mkdir(parents=True)
    write_json(folder / "energy.json", energy.summary())

    found = energy_of(tmp_path, JOB)

    assert found is not None
    assert (found.joules, found.alone) == (600.1, True)
    told = found.encode(EnergyRates(price_per_kwh=0.3, currency="EUR", carbon_g_per_kwh=360.0))
    assert told["cost"] == pytest.approx(600.1 / 3.6e6 * 0.3)
    assert told["carbon_g"] == pytest.approx(0.06001)


def test_energy_of_shared_gpus_is_not_called_the_jobs(tmp_path: Path) -> None:
    energy = GpuEnergy()
    energy.add([Reading(0, {}, 0.0, 0)], True, 0.0)
    energy.add([Reading(0, {}, 0.0, 3_600_000)], False, 1.0)
    folder = tmp_path / "runs" / JOB / "1" / "0"
    folder.mkdir(parents=True)
    write_json(folder / "energy.json", energy.summary())

    found = energy_of(tmp_path, JOB)

    assert found is not None
    told = found.encode(EnergyRates(price_per_kwh=0.3))
    assert (told["kwh"], told["cost"], told["devices_kwh"]) == (None, None, 0.001)
    assert "shared" in told["note"]


def test_an_idle_job_is_warned_then_stopped_and_one_that_works_again_forgiven() -> None:
    watch = IdleWatch(IdleRule(below_percent=5.0, for_s=100.0, grace_s=50.0, action=IdleAction.STOP))

    assert watch.check(JOB, 0.0, 99.0, 99.0) is None
    assert watch.check(JOB, 4.0, 100.0, 100.0) is IdleStep.WARN
    assert watch.check(JOB, 4.0, 149.0, 149.0) is None
    assert watch.check(JOB, 6.0, 149.5, 149.5) is None
    assert watch.check(JOB, 4.0, 160.0, 160.0) is IdleStep.WARN
    assert watch.check(JOB, 4.0, 210.0, 210.0) is IdleStep.ACT
    assert watch.check(JOB, 4.0, 300.0, 300.0) is None
    assert watch.check(JobId("8"), None, 1e6, 300.0) is None


def test_a_rule_that_only_warns_does_nothing_else() -> None:
    watch = IdleWatch(IdleRule(below_percent=5.0, for_s=1.0, grace_s=1.0))

    assert [watch.check(JOB, 0.0, 9.0, now_s) for now_s in (9.0, 11.0, 13.0)] == [IdleStep.WARN, None, None]
    assert watch.words(0.4) == "its GPUs were busy for 0.4% of the last 1 s, less than 5%"
