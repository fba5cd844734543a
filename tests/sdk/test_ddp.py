"""Hooks for DistributedDataParallel: the planned order, and trainings of two real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the hooks need PyTorch")

from rota.sdk.ddp import planned_order  # noqa: E402

TRAIN = """
import os, sys, torch, torch.distributed as dist
from rota.sdk.ddp import PartialAllReduce, ProphetHook
kind = sys.argv[1]
dist.init_process_group("gloo")
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0005)
make = lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
hook = ProphetHook(model, make) if kind == "prophet" else None
plain = make(list(model.parameters())) if hook is None else None
torch.manual_seed(10 + dist.get_rank())
for _ in range(12):
    points = torch.randn(16, 8)
    loss = (model(points) - points.sum(dim=1, keepdim=True)).pow(2).mean()
    loss.backward()
    if hook is not None:
        hook.step()
    else:
        plain.step(); plain.zero_grad()
if hook is not None:
    hook.close()
    assert sorted(hook.order) == list(range(len(hook.order)))
if kind == "partial":
    partial = PartialAllReduce(net, dist.distributed_c10d._get_default_store())
    with torch.no_grad():
        net[0].weight.fill_(float(dist.get_rank()))
    assert partial.step()
    assert float(net[0].weight.mean()) == 0.5
    partial.close()
print("sum", round(float(sum(p.detach().double().sum() for p in model.parameters())), 4))
sys.stdout.flush()
dist.barrier()
os._exit(0)  # PyTorch's own threads abort now and then where the group is destroyed or the interpreter ends
"""


def trained(kind: str) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    source = str(Path(__file__).parents[2] / "src")
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, kind],
            env={**os.environ, **common, "PYTHONPATH": path, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return printed


@pytest.mark.slow
def test_prophets_hook_trains_what_plain_ddp_trains() -> None:
    assert trained("prophet") == trained("plain")


@pytest.mark.slow
def test_partial_all_reduce_averages_parameters() -> None:
    assert len(trained("partial")) == 2


def test_what_fits_before_the_next_block_goes_first() -> None:
    # Buckets 0 and 1 are ready at once, 2 much later: both fit before it; then nothing waits behind it.
    assert planned_order([0.0, 0.0, 1.0], [10, 10, 10], 100.0) == [1, 0, 2]
    assert planned_order([0.0, 0.0, 0.1], [10, 90, 10], 100.0) == [0, 2, 1]
    assert planned_order([], [], 1.0) == []
