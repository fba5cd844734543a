"""What NVIDIA's libraries do on a machine with GPUs, which this one has not: for tests of suspension.

A folder holds the state. `PID` there is a process with GPU memory, with the number of bytes in it, `PID.locked` one
whose CUDA calls wait, and `PID.host` one whose memory is on the host. `fails` names the steps that the driver refuses.
While there is a file `idle`, the GPUs have nothing to do.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

UUIDS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001")

_LIBRARY = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int has(const char *pattern, int pid) {
    char path[512];
    snprintf(path, sizeof path, pattern, STATE, pid);
    return access(path, F_OK) == 0;
}
static void put(const char *pattern, int pid, int there) {
    char path[512];
    snprintf(path, sizeof path, pattern, STATE, pid);
    if (there) close(open(path, O_CREAT | O_WRONLY, 0666)); else unlink(path);
}
static void turn(const char *from, const char *to, int pid) {
    char one[512], other[512];
    snprintf(one, sizeof one, from, STATE, pid);
    snprintf(other, sizeof other, to, STATE, pid);
    rename(one, other);
}
static int fails(const char *step) {
    char path[512], text[256] = "";
    snprintf(path, sizeof path, "%s/fails", STATE);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = 0;
    fclose(file);
    return strstr(text, step) != 0;
}
int cuInit(unsigned flags) { return 0; }
int cuCheckpointProcessGetState(int pid, int *state) {
    *state = has("%s/%d.host", pid) ? 2 : has("%s/%d.locked", pid) ? 1 : 0;
    return 0;
}
int cuCheckpointProcessLock(int pid, void *args) {
    if (fails("lock")) return 801;
    if (!has("%s/%d", pid)) return 1;
    put("%s/%d.locked", pid, 1);
    return 0;
}
int cuCheckpointProcessCheckpoint(int pid, void *args) {
    if (fails("checkpoint")) return 2;
    usleep(SLOW_US);
    turn("%s/%d", "%s/%d.host", pid);
    return 0;
}
int cuCheckpointProcessRestore(int pid, void *args) {
    if (fails("restore")) return 2;
    if (args) {
        char path[512];
        unsigned count = *(unsigned *)((char *)args + sizeof(void *));
        const unsigned char *pairs = *(const unsigned char **)args;
        snprintf(path, sizeof path, "%s/moves", STATE);
        FILE *file = fopen(path, "a");
        for (unsigned n = 0; file && n < count; n++)
            fprintf(file, "%d %d\n", pairs[32 * n + 15], pairs[32 * n + 31]);
        if (file) fclose(file);
    }
    usleep(SLOW_US);
    turn("%s/%d.host", "%s/%d", pid);
    return 0;
}
int cuCheckpointProcessUnlock(int pid, void *args) { put("%s/%d.locked", pid, 0); return 0; }
"""

_PYNVML = """
    import contextlib, pathlib, types

    STATE = pathlib.Path({state!r})
    UUIDS = {uuids!r}

    class NVMLError(Exception):
        pass

    def __getattr__(name):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        def not_supported(*args):
            raise NVMLError("not supported")
        return not_supported

    def nvmlInit(): pass
    def nvmlDeviceGetCount(): return {gpus}
    def nvmlDeviceGetHandleByIndex(index): return index
    def nvmlDeviceGetName(handle): return "NVIDIA Z100"
    def nvmlDeviceGetUUID(handle): return UUIDS[handle]
    def nvmlDeviceGetMinorNumber(handle): raise NVMLError("not known")
    def nvmlSystemGetDriverVersion(): return "580.1"
    def _processes(handle):
        found = {{}}
        for path in STATE.iterdir():
            if path.name.isdigit() and handle == 0 and pathlib.Path("/proc", path.name).exists():
                with contextlib.suppress(FileNotFoundError):  # its memory has just gone to the host
                    found[int(path.name)] = int(path.read_text() or 0)
        return found
    def nvmlDeviceGetMemoryInfo(handle):
        return types.SimpleNamespace(used=sum(_processes(handle).values()), total={total})
    def nvmlDeviceGetUtilizationRates(handle):
        idle = (STATE / "idle").exists()
        return types.SimpleNamespace(gpu=1 if idle else 90, memory=10)
    def nvmlDeviceGetComputeRunningProcesses(handle):
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in _processes(handle).items()]
"""

TRAINING = """
    import os, pathlib, sys, time

    state, steps, gpu_bytes = pathlib.Path({state!r}), int(sys.argv[1]), int(sys.argv[2])
    mine, log = state / str(os.getpid()), open(sys.argv[3], "a+")
    log.seek(0)
    begun = len(log.read().split()) if len(sys.argv) > 4 else 0
    if not (state / (mine.name + ".host")).exists():
        mine.write_text(str(gpu_bytes))
    host, locked = state / (mine.name + ".host"), state / (mine.name + ".locked")

    def waits():
        if not locked.exists() and host.exists():  # it may have been locked between the two looks
            assert locked.exists(), "a step without its memory"
        return locked.exists()

    for step in range(begun, steps):
        while waits():
            time.sleep(0.005)
        time.sleep(0.01)
        print(step, file=log, flush=True)
    mine.unlink()
"""
"""Takes GPU memory and makes steps; a step that finds its memory away is a fault of the suspension."""


class CudaStandIn:
    """The two libraries and a training for them, in a folder."""

    def __init__(self, folder: Path, *, gpus: int = 1, slow_s: float = 0.05, total: int = 16 << 30) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a C compiler for the stand-in of the CUDA library")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.folder, self.total = folder, total
        self.state = folder / "state"
        self.state.mkdir()
        self.state.chmod(0o777)
        self.library = folder / "libcuda-stand-in.so"
        source = folder / "cuda.c"
        source.write_text(_LIBRARY)
        flags = [f'-DSTATE="{self.state}"', f"-DSLOW_US={int(slow_s * 1e6)}", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", str(self.library), str(source)], check=True)
        listed = _PYNVML.format(state=str(self.state), uuids=UUIDS[:gpus], gpus=gpus, total=total)
        (folder / "pynvml.py").write_text(textwrap.dedent(listed))
        self.script = folder / "training.py"
        self.script.write_text(textwrap.dedent(TRAINING.format(state=str(self.state))))

    def training(self, log: Path, *, steps: int = 100, gpu_bytes: int = 1 << 30, continues: bool = False) -> str:
        """The command of a training that writes a line for each step; `continues`: after those that it finds there."""
        return f"exec {sys.executable} -S {self.script} {steps} {gpu_bytes} {log}{' on' if continues else ''}"

    def refuse(self, *steps: str) -> None:
        """Let the driver refuse these steps from now on."""
        (self.state / "fails").write_text(" ".join(steps))

    def free_bytes(self, devices: Sequence[int]) -> int:
        """The memory of the first GPU that no process holds."""
        held = 0
        for pid in self.on_gpu():
            with contextlib.suppress(FileNotFoundError):  # its memory has just gone to the host
                held += int((self.state / str(pid)).read_text() or 0)
        return self.total - held

    def moved(self) -> list[tuple[int, int]]:
        """From which GPU to which other memory was restored, without those that stay where they are."""
        path = self.state / "moves"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(one), int(other)) for one, other in lines if int(one) < int(other)]

    def on_gpu(self) -> list[int]:
        """The processes that hold GPU memory; one that was killed has left its file, and holds none."""
        found = [path.name for path in self.state.iterdir() if path.name.isdigit()]
        return sorted(int(name) for name in found if Path("/proc", name).exists())

    def on_host(self) -> list[int]:
        """The processes whose GPU memory is on the host."""
        return sorted(int(path.stem) for path in self.state.iterdir() if path.suffix == ".host")
