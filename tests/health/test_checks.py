"""Checks as programs and by their parts; the GPUs by a stand-in of NVIDIA's library."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.health.checks.__main__ import CHECKS, main, run_check
from rota.health.checks.gpu import check_gpus
from rota.health.checks.kernel_log import check_xids
from rota.health.checks.machine import check_cgroup, check_disk, check_memory
from rota.health.checks.result import BROKEN, CheckResult, decode_result
from rota.health.checks.self_test import check_matmul, on_gpus
from rota.health.node_state import Severity


class GpuStandIn:
    """As much of pynvml as the check asks for; one healthy GPU unless a test says otherwise."""

    class NVMLError(Exception):
        """What the library raises."""

    NVML_NVLINK_MAX_LINKS = 4

    def __init__(self, **facts: Any) -> None:
        self.facts: dict[str, Any] = {
            "ecc": 0,
            "rows": (0, 0, 0, 0),
            "throttle": 0,
            "width": 16,
            "temperature": 60,
            "memory": 70,
            "links": [True] * 4,
            "lost": False,
            **facts,
        }

    def nvmlInit(self) -> None:  # noqa: N802 # NVIDIA's names
        if self.facts.get("no_driver"):
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        if self.facts["lost"]:
            raise self.NVMLError("GPU is lost")
        return "GPU-1"

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> int:  # noqa: N802
        return int(self.facts["ecc"])

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, ...]:  # noqa: N802
        rows: tuple[int, ...] = self.facts["rows"]
        return rows

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
        return int(self.facts["throttle"])

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return int(self.facts["width"])

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return int(self.facts["temperature"])

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.facts["memory"]))]

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:  # noqa: N802
        return int(self.facts.get("clock", 1900))

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=self.facts.get("busy", 100))

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> bool:  # noqa: N802
        return bool(self.facts["links"][link])


@pytest.mark.parametrize(
    ("facts", "severity", "said"),
    [
        ({}, Severity.GOOD, ""),
        ({"clock": 345}, Severity.WARNING, "GPU 0 runs at 345 of 1980 MHz under load"),
        ({"clock": 345, "busy": 10}, Severity.GOOD, ""),
        ({"clock": 345, "throttle": 0x4}, Severity.GOOD, ""),
        ({"ecc": 2}, Severity.SEVERE, "GPU 0 had 2 uncorrectable memory errors"),
        ({"rows": (1, 1, 1, 0)}, Severity.WARNING, "waits for a reset"),
        ({"rows": (1, 1, 1, 1)}, Severity.SEVERE, "could not remap"),
        ({"throttle": 0x40 | 0x8}, Severity.WARNING, "slowed down by heat"),
        ({"throttle": 0x80}, Severity.WARNING, "power brake"),
        ({"throttle": 0x4}, Severity.GOOD, ""),
        ({"width": 8}, Severity.WARNING, "8 lanes instead of 16"),
        ({"temperature": 90}, Severity.WARNING, "90 °C"),
        ({"temperature": 95}, Severity.SEVERE, "95 °C"),
        ({"memory": 99}, Severity.WARNING, "memory at 99 °C"),
        ({"links": [True, False, True, True]}, Severity.GOOD, ""),
        ({"links": [False] * 4}, Severity.GOOD, ""),
        ({"lost": True}, Severity.SEVERE, "GPU 0 does not answer"),
        ({"no_driver": True}, Severity.SEVERE, "NVML does not work"),
    ],
)
def test_state_of_a_gpu(facts: dict[str, Any], severity: Severity, said: str) -> None:
    found = check_gpus(GpuStandIn(**facts))

    assert found.severity is severity
    assert said in found.text


@pytest.mark.parametrize(
    ("before", "now", "severity", "said"),
    [
        ([[True] * 4], [[True, False, True, True]], Severity.SEVERE, "GPU 0 has 1 of 4 NVLinks down"),
        ([[True] * 4], [[False] * 4], Severity.SEVERE, "GPU 0 has 4 of 4 NVLinks down"),
        (
            [[True, True, False, False]] * 2,
            [[True, True, False, False]] * 2,
            Severity.GOOD,
            "",
        ),  # a bridge of two links
        ([[True] * 4, [False] * 4], [[True] * 4, [False] * 4], Severity.GOOD, ""),  # one GPU beside a bridge
        ([], [[True] * 4, [True, True, True, False]], Severity.WARNING, "GPU 1 has 3 NVLinks, others have 4"),
    ],
)
def test_nvlink_is_at_fault_if_it_was_up_before_or_is_at_the_other_gpus(
    tmp_path: Path, before: list[list[bool]], now: list[list[bool]], severity: Severity, said: str
) -> None:
    if before:
        assert check_gpus(SeveralGpus(links=before), str(tmp_path)).severity is Severity.GOOD

    for _ in range(2):  # a fault is no new state to compare with
        found = check_gpus(SeveralGpus(links=now), str(tmp_path))
        assert (found.severity, found.text) == (severity, said)


class SeveralGpus(GpuStandIn):
    """A node of healthy GPUs with these NVLinks."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.facts["links"])

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> bool:  # noqa: N802
        return bool(self.facts["links"][handle][link])


def test_full_disk_passes_by_itself_and_one_that_is_gone_does_not(tmp_path: Path) -> None:
    with patch("tempfile.TemporaryFile", side_effect=OSError(errno.ENOSPC, "No space left on device")):
        full = check_disk(str(tmp_path))
    with patch("tempfile.TemporaryFile", side_effect=OSError(errno.EIO, "Input/output error")):
        damaged = check_disk(str(tmp_path))

    assert (full.severity, full.passes) == (Severity.SEVERE, True)
    assert (damaged.severity, damaged.passes) == (Severity.SEVERE, False)
    assert not check_disk(str(tmp_path / "gone")).passes
    for result in (full, damaged):
        assert decode_result("disk", result.exit_code, result.encode().encode()).passes is result.passes


def test_disk_that_can_be_written_is_good_and_a_folder_that_is_gone_is_not(tmp_path: Path) -> None:
    assert check_disk(str(tmp_path)).severity in (Severity.GOOD, Severity.WARNING)
    assert check_disk(str(tmp_path / "gone")).severity is Severity.SEVERE


def test_memory_errors_of_the_host_are_severe(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 10 kB\n")
    (tmp_path / "mc0").mkdir()
    (tmp_path / "mc0" / "ue_count").write_text("3\n")

    assert check_memory(tmp_path, tmp_path).severity is Severity.SEVERE
    (tmp_path / "mc0" / "ue_count").write_text("0\n")
    assert check_memory(tmp_path, tmp_path).severity is Severity.WARNING


def test_missing_controllers_are_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")

    assert check_cgroup(tmp_path).text == "cgroups lack memory, pids"


def test_product_that_is_right_is_good_and_a_wrong_one_is_severe(monkeypatch: pytest.MonkeyPatch) -> None:
    from rota.health.checks import self_test

    monkeypatch.setattr(self_test, "_torch", lambda: None)
    assert check_matmul().severity is Severity.GOOD
    fake = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 1))
    monkeypatch.setattr(self_test, "_torch", lambda: fake)
    monkeypatch.setattr(self_test, "_on_gpu", lambda torch, left, right, place: left @ right + (left == 3))
    assert check_matmul().text == "self-test: wrong result of a product on cuda:0"


def test_check_is_a_program_with_an_exit_code_and_a_line_of_json() -> None:
    told = subprocess.run([sys.executable, "-m", "rota.health.checks", "cgroup"], capture_output=True, text=True)

    assert told.returncode in (0, 1)
    assert json.loads(told.stdout)["check"] == "cgroup"
    assert main(["nothing"]) == BROKEN
    assert "gpu" in CHECKS


@pytest.mark.parametrize(
    ("code", "output", "severity", "text"),
    [
        (0, b"", Severity.GOOD, ""),
        (0, b"all is well", Severity.GOOD, ""),
        (2, b'noise\n{"status": 2, "text": "fan stopped", "values": {"rpm": 0}}\n', Severity.SEVERE, "fan stopped"),
        (1, b'{"status": 1}', Severity.WARNING, "mine"),
        (1, b"x" * 100_000 + b'\n{"status": 1, "text": "\\u001b[2Jhot"}\n', Severity.WARNING, " [2Jhot"),
    ],
)
def test_result_of_a_program_of_a_user(code: int, output: bytes, severity: Severity, text: str) -> None:
    found = decode_result("mine", code, output)

    assert (found.severity, found.text, found.broken) == (severity, text, False)


CRASH = b"Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module named 'psutil'\n\n"


@pytest.mark.parametrize(
    ("code", "output", "errors", "text"),
    [
        (1, b"", CRASH, "without JSON that has the status 1: ModuleNotFoundError: No module named 'psutil'"),
        (1, b'{"status": 0, "text": "begun"}', CRASH, "its exit code is 1, but its JSON has the status 0: Mod"),
        (1, b'{"text": "looking at fan 2"}', CRASH, "without JSON that has the status 1"),
        (2, b"", b"usage: probe [-h]\nprobe: error: no such option: --x\n", "status 2: probe: error: no such option"),
        (2, b"[2]", b"", "without JSON that has the status 2"),
        (2, b'{"status": true}', b"", "its JSON has the status True"),
        (2, b'{"status": 1, "text": "warm"}', b"", "its exit code is 2, but its JSON has the status 1"),
        (0, b'{"status": 2, "text": "fan stopped"}', b"", "its exit code is 0, but its JSON has the status 2"),
        (1, b'{"status": ' + b"[" * 9000, b"", "without JSON that has the status 1"),
        (1, b'{"status": 1, "text": "cut off', b"", "without JSON that has the status 1"),
        (3, b'{"status": 3, "text": "no sensor here"}', b"", "it can't tell: no sensor here"),
        (127, b"", b"probe: error while loading shared libraries: libfoo.so", "exit code 127: probe: error while"),
        (-11, b'{"status": 0}', b"", "it was killed by SIGSEGV"),
        (1, bytes(range(256)) * 1000, b"\xff\x00\x1b", "without JSON that has the status 1"),
    ],
)
def test_check_that_fails_by_itself_proves_nothing(code: int, output: bytes, errors: bytes, text: str) -> None:
    found = decode_result("mine", code, output, errors)

    assert (found.severity, found.broken) == (Severity.GOOD, True)
    assert text in found.text
    assert len(found.text) <= 500


@given(code=st.integers(-64, 255), output=st.binary(max_size=200), errors=st.binary(max_size=200))
def test_no_output_at_random_is_a_verdict(code: int, output: bytes, errors: bytes) -> None:
    found = decode_result("mine", code, output, errors)

    assert found.severity is Severity.GOOD
    assert found.broken is (code != 0)


@given(status=st.sampled_from(list(Severity)), text=st.text(), values=st.dictionaries(st.text(), st.integers()))
def test_result_that_a_check_of_ours_prints_is_read_back(status: Severity, text: str, values: dict[str, int]) -> None:
    told = CheckResult(check="mine", severity=status, text=text, values=values)

    found = decode_result("mine", told.exit_code, f"noise\n{told.encode()}\n".encode())

    assert (found.severity, found.broken) == (status, False)
    json.loads(found.encode())


def kernel_line(number: int, text: str, age_s: float = 5.0) -> str:
    return f"4,{number},{int((time.monotonic() - age_s) * 1e6)},-;{text}\n SUBSYSTEM=pci\n"


def test_xids_of_the_kernel_s_log_are_reported_once_with_their_action(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(
        kernel_line(1, "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.", age_s=700.0)
        + kernel_line(2, "usb 1-1: new device")
        + kernel_line(3, "NVRM: Xid (PCI:0000:3b:00): 13, pid=7, Graphics SM Warp Exception")
    )
    assert check_xids(str(tmp_path), log).severity is Severity.GOOD  # the first is old, the other is the job's

    with log.open("a") as file:
        file.write(kernel_line(4, "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."))
    found, again = check_xids(str(tmp_path), log), check_xids(str(tmp_path), log)

    assert (found.severity, found.text) == (Severity.SEVERE, "GPU 0000:3b:00 reported Xid 79: reboot the node")
    assert again.severity is Severity.GOOD


def test_kernel_log_that_can_t_be_read_proves_nothing(tmp_path: Path) -> None:
    found = check_xids(str(tmp_path), tmp_path / "absent")

    assert found.severity is Severity.GOOD
    assert "can't be read" in found.text


@pytest.mark.parametrize(
    ("check", "told", "severity", "said"),
    [
        ("dcgm", "| Overall Health | Healthy |", Severity.GOOD, ""),
        ("dcgm", "| Overall Health | Warning |", Severity.WARNING, "DCGM: Overall Health Warning"),
        ("dcgm", "| GPU 3 | NVLink system: Failure |", Severity.SEVERE, "DCGM: GPU 3 NVLink system: Failure"),
        ("dcgm-diag", "| PCIe | Pass - All |", Severity.GOOD, ""),
        ("dcgm-diag", "| Memory | Fail - GPU: 1 |", Severity.SEVERE, "DCGM: Memory Fail - GPU: 1"),
    ],
)
def test_dcgm_is_asked_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, told: str, severity: Severity, said: str
) -> None:
    program = tmp_path / "dcgmi"
    program.write_text(f"#!/bin/sh\necho '{told}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    found = run_check(check, str(tmp_path))
    program.write_text("#!/bin/sh\necho 'Error: unable to establish a connection to the specified host'; exit 255\n")
    without_engine = run_check(check, str(tmp_path))

    assert (found.severity, found.text) == (severity, said)
    assert without_engine.broken


@pytest.mark.parametrize(
    ("error", "is_broken"),
    [
        ("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be", False),
        ("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 139 GiB", True),
        ("CUDA error: no kernel image is available for execution on the device", True),
        ("", True),
    ],
)
def test_error_of_a_self_test_speaks_against_the_node_only_if_it_is_the_node_s(error: str, is_broken: bool) -> None:
    def test() -> CheckResult:
        raise RuntimeError(error)

    found = on_gpus("matmul", test)

    assert (found.broken, found.severity is Severity.WARNING) == (is_broken, not is_broken)
