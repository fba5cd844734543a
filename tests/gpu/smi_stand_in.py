"""A stand-in of `nvidia-smi` that partitions the GPUs of a `GpuMachine`, as far as Rota asks for it."""

from __future__ import annotations

import sys
from pathlib import Path

from gpu.machines import GpuMachine

PROFILES = [["1g.18gb", 7, 16384], ["3g.71gb", 2, 70656]]

_PROGRAM = """#!{python} -S
import json, os, sys, time

path = {state!r}
with open(path) as file:
    state = json.load(file)
with open(path + ".asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
args = sys.argv[1:]
gpu = state["gpus"][int(args[args.index("-i") + 1])]
if gpu["processes"]:
    sys.exit("In use by another client")
if state.get("smi_fails", "never") in " ".join(args):
    sys.exit("Unable to do it: Insufficient Permissions")
if "-mig" in args:
    if not state.get("smi_needs_reset"):
        gpu["mig_mode"] = int(args[args.index("-mig") + 1])
elif "-dgi" in args:
    if not gpu["mig"]:
        sys.exit("No GPU instances found")
    gpu["mig"] = []
elif "-cgi" in args:
    sizes = {{name: mib << 20 for name, count, mib in gpu["mig_profiles"]}}
    gpu["mig"] = [
        {{"name": f"NVIDIA H200 MIG {{name}}", "uuid": f"MIG-{{name}}-{{number}}", "used": 0, "total": sizes[name]}}
        for number, name in enumerate(args[args.index("-cgi") + 1].split(","))
    ]
with open(path + ".new", "w") as file:
    json.dump(state, file)
os.replace(path + ".new", path)
"""


def smi_program(folder: Path, machine: GpuMachine) -> Path:
    """Write the program into a folder that is to come first on the path; the GPUs can be partitioned from then on."""
    for index in range(len(machine.state["gpus"])):
        machine.change(index, mig=[], mig_mode=0, mig_profiles=PROFILES)
    program = folder / "nvidia-smi"
    state = machine.folder / "state.json"
    program.write_text(_PROGRAM.format(python=sys.executable, state=str(state)))
    program.chmod(0o755)
    return program
