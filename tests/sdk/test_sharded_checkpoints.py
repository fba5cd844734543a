"""Checkpoints by torch.distributed.checkpoint: complete, verified, and readable by another number of ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

TRAIN = """
import os, pathlib, sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
import rota.sdk

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
state = {"weights": distribute_tensor(torch.zeros(8, 4), mesh, [Shard(0)]), "epoch": 0}
saver = rota.sdk.ShardedCheckpoints(sys.argv[1])
if sys.argv[2:]:
    for step in (10, 20):
        fresh = distribute_tensor(torch.full((8, 4), float(step)), mesh, [Shard(0)])
        saver.save(step, {"weights": fresh, "epoch": step})
        fresh.to_local().zero_()  # what was saved is a copy
    saver.close()
else:
    for _ in range(2):
        step = saver.load(state)
        print("loaded", step, state["weights"].full_tensor().sum().item(), state["epoch"], flush=True)
        data = next(pathlib.Path(sys.argv[1], "step-000000000020").glob("*.distcp"))
        data.write_bytes(data.read_bytes()[:-1] + b"x")
dist.barrier()
os._exit(0)  # PyTorch's own threads abort now and then where the group is destroyed
"""


def run(folder: Path, ranks: int, *args: str) -> list[list[str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "train.py").write_text(TRAIN)
    about = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join(each for each in sys.path if each)
    processes = [
        subprocess.Popen(
            [sys.executable, str(folder / "train.py"), str(folder / "ckpt"), *args],
            env={**os.environ, **about, "RANK": str(rank), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks
    return said


def test_gang_of_another_size_goes_on_from_the_last_checkpoint_that_is_intact(tmp_path: Path) -> None:
    run(tmp_path, 2, "save")

    assert run(tmp_path, 1) == [["loaded 20 640.0 20", "loaded 10 320.0 10"]]
