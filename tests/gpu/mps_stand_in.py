"""A stand-in for `nvidia-cuda-mps-control`: a daemon that writes its number and waits, and obeys `quit`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = """#!{python} -S
# nvidia-cuda-mps-control
import os, signal, sys
pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
path = os.path.join(pipe, "nvidia-cuda-mps-control.pid")
if "-d" not in sys.argv:
    if "quit" in sys.stdin.read():
        os.kill(int(open(path).read()), signal.SIGTERM)
    sys.exit(0)
if os.fork():
    sys.exit(0)
os.setsid()
for number in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), number)
with open(os.path.join(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log"), "a") as log:
    log.write(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
with open(path + ".draft", "w") as file:
    file.write(str(os.getpid()))
os.rename(path + ".draft", path)
signal.alarm(120)
signal.pause()
"""


def mps_program(folder: Path) -> str:
    """The path of a program that stands in for the control program."""
    path = folder / "nvidia-cuda-mps-control"
    path.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
    os.chmod(path, 0o755)
    return str(path)
