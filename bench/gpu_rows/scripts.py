"""The jobs: trainings and programs in PyTorch that know nothing of Rota, apart from an optional report of steps."""

from __future__ import annotations

TRAIN = """
import hashlib, sys
import torch

steps, path = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(7)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)]
model = torch.nn.Sequential(*layers).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(steps):
    data = torch.randn(16, 128, 512, device="cuda")
    loss = (model(data) - data).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 50 == 0:
        print(step, loss.item(), flush=True)
digest = hashlib.sha256()
for value in model.state_dict().values():
    digest.update(value.cpu().numpy().tobytes())
open(path, "w").write(digest.hexdigest())
"""
"""A training with dropout, an optimiser with state and no checkpoint; its weights depend on every step."""
FILL = """
import sys, time
import torch

gib, seconds, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
blocks = [torch.full((1 << 28,), float(n), device="cuda") for n in range(gib)]
print("filled", flush=True)
worked = 0.0
while worked < seconds:
    begun = time.monotonic()
    blocks[0].add_(1).sub_(1)
    torch.cuda.synchronize()
    time.sleep(0.02)
    worked += min(time.monotonic() - begun, 0.2)
right = all(bool((block == float(n)).all()) for n, block in enumerate(blocks))
open(path, "w").write("right" if right else "wrong")
"""
"""Holds so much GPU memory while it works for a time, then looks whether all of it is as it was."""
FOULS = """
import time
import torch

table = torch.nn.Embedding(8, 8).cuda()
torch.cuda.synchronize()
time.sleep(3)
table(torch.full((4096,), 1 << 40, device="cuda")).sum().item()
"""
"""Looks up a row that a table does not have: an assertion of PyTorch fails on the GPU."""
WORK = """
import os, sys, time
import torch
from torch import nn

kind, seconds, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
reports, peer = sys.argv[4:] == ["sdk"], sys.argv[4] if sys.argv[4:] not in ([], ["sdk"]) else None
torch.manual_seed(1)


class Loss(nn.Module):
    # Of a model that knows its own loss.
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, data):
        return self.inner(input_ids=data, labels=data).loss


def language(name):
    import transformers
    if name == "gpt2":
        size = dict(n_layer=12, n_head=12, n_embd=768)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size))
        shape = (8, 512)
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig())
        shape = (32, 128)
    return Loss(model), lambda: torch.randint(0, 30000, shape, device="cuda")


def vision(name):
    import torchvision.models as models
    batch = {"resnet50": 64, "mobilenet_v3_large": 128, "vit_b_16": 32}[name]
    data = torch.randn(batch, 3, 224, 224, device="cuda")
    return getattr(models, name)(weights=None), lambda: data


def made():
    if kind == "wide":
        sizes = [nn.Linear(2048, 2048) if n % 2 == 0 else nn.ReLU() for n in range(9)]
        batch = torch.randn(8192, 2048, device="cuda")
        return nn.Sequential(*sizes), lambda: batch
    if kind == "convolutions":
        layers = []
        for into, out in ((3, 64), (64, 128), (128, 256), (256, 256)):
            layers += [nn.Conv2d(into, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), lambda: torch.randn(
            512, 3, 96, 96, device="cuda"
        )
    torch.set_float32_matmul_precision("high")
    return language(kind) if kind in ("gpt2", "bert") else vision(kind)


model, batch = made()
model = model.cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)


def step():
    found = model(batch())
    loss = found if found.dim() == 0 else found.square().mean()
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


for _ in range(10):
    step()
torch.cuda.synchronize()
run = None
if reports:
    import rota.sdk

    run = iter(rota.sdk.steps(range(10**9)))
done, begun, noted = 0, time.monotonic(), 0.0
with open(path, "w") as out:
    while time.monotonic() - begun < seconds:
        if peer is not None and not os.path.exists(peer):
            begun = time.monotonic()
        for _ in range(5):
            step()
            if run is not None:
                next(run)
        done += 5
        torch.cuda.synchronize()
        now = time.monotonic()
        if now - noted >= 0.1:
            noted = now
            print(now, done, file=out, flush=True)
"""
"""Trains a model for a time, from when its peer trains as well, and notes how many steps it has done by when."""
