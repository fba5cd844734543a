"""CRIU as far as Rota uses it, for tests on machines that have none or may not use it.

It "writes" one process by noting what it runs and where; it "restores" it by starting the same command, stopped, under
the same number and as a child of the process that called, with its output in the pipe that it inherits. The command
must go on by itself from what it finds on disk, which a real process restored by CRIU need not.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_PROGRAM = r"""#!{python} -S
import ctypes, json, os, pathlib, signal, sys, time

if sys.argv[1] == "check":
    refused = pathlib.Path(__file__).with_suffix(".refuses")
    if refused.exists():
        sys.exit("Error (criu/cr-check.c:1): " + refused.read_text())
    sys.exit(0)
options = dict(zip(sys.argv[2::1], sys.argv[3::1]))
image = pathlib.Path(options["--images-dir"])
fails = pathlib.Path(__file__).with_suffix(".fails")
slow = pathlib.Path(__file__).with_suffix(".slow")
if slow.exists():
    time.sleep(float(slow.read_text()))
if fails.exists() and sys.argv[1] in fails.read_text():
    (image / options["--log-file"]).write_text("(00.1) Error (criu/sk-inet.c:190): inet: Connected TCP socket\n")
    sys.exit(1)
if sys.argv[1] == "dump":
    pid = int(options["--tree"])
    state = pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T", state
    known = {{name: pathlib.Path(f"/proc/{{pid}}/{{name}}").read_bytes().decode().split("\0")[:-1]
             for name in ("cmdline", "environ")}}
    known |= {{"pid": pid, "cwd": os.readlink(f"/proc/{{pid}}/cwd"), "out": os.readlink(f"/proc/{{pid}}/fd/1")}}
    (image / "process.json").write_text(json.dumps(known))
    sys.exit(0)
known = json.loads((image / "process.json").read_text())
assert options["--inherit-fd"] == f"fd[10]:{{known['out']}}"
libc, size = ctypes.CDLL(None, use_errno=True), 88
wanted = (ctypes.c_int * 1)(known["pid"])
args = (ctypes.c_uint64 * 11)(0x8000, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(wanted), 1, 0)  # CLONE_PARENT, set_tid
child = libc.syscall(435, args, size)
if child < 0:
    (image / options["--log-file"]).write_text(f"(00.1) Error (criu/x.c:1): pid {{known['pid']}} is taken\n")
    sys.exit(1)
if child == 0:
    os.setsid()
    os.dup2(10, 1), os.dup2(10, 2)
    os.close(10)
    os.chdir(known["cwd"])
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execve(known["cmdline"][0], known["cmdline"], dict(each.split("=", 1) for each in known["environ"]))
(image / options["--pidfile"]).write_text(str(child))
"""


class CriuStandIn:
    """The program, in a folder that may be put on the path."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.program = folder / "criu"
        self.program.write_text(_PROGRAM.format(python=shutil.which(Path(sys.executable).name) or sys.executable))
        self.program.chmod(0o755)

    def refuse(self, why: str) -> None:
        """Let `criu check` refuse this machine."""
        self.program.with_suffix(".refuses").write_text(why)

    def fail(self, *verbs: str) -> None:
        """Let these verbs fail from now on."""
        self.program.with_suffix(".fails").write_text(" ".join(verbs))

    def slow_down(self, seconds: float) -> None:
        """Let every call take as long."""
        self.program.with_suffix(".slow").write_text(str(seconds))
