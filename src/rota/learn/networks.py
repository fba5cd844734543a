"""Networks in PyTorch: the actor with its critic, and the reward model, which predicts speeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from rota.learn.network_inputs import ObservationRows, row_inputs
from rota.mechanisms.learned.actor import FREE, OWN, PAIR, ROLES, server_inputs

HIDDEN, NARROW, POOL = 64, 32, 24
REWARD_HIDDEN = 64


class Views(NamedTuple):
    """Inputs of the actor for a batch of decisions."""

    servers: torch.Tensor
    """By decision and server."""
    open: torch.Tensor
    job: torch.Tensor
    free: torch.Tensor
    pairs: torch.Tensor
    """By decision, role and server."""
    mask: torch.Tensor
    """Allowed (role, server) pairs."""


class ActorCritic(nn.Module):
    """Scores of (role, server) and the value of the state. Weights have the names that the NumPy actor uses."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        servers, job = server_inputs(kinds), kinds + 1 + OWN
        self.server = nn.Linear(servers, HIDDEN, bias=False)
        self.job = nn.Linear(job + ROLES, HIDDEN)
        self.cluster = nn.Linear(2 * POOL, HIDDEN, bias=False)
        self.pair = nn.Linear(FREE + PAIR, HIDDEN, bias=False)
        self.pool = nn.Linear(servers, POOL)
        self.second = nn.Linear(HIDDEN, NARROW)
        self.score = nn.Linear(NARROW, 1, bias=False)
        self.critic = nn.Sequential(nn.Linear(job + 2 * POOL + FREE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, views: Views) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits by role and server, flat, and values."""
        pooled = self._pooled(views)
        sides = []
        for side in range(ROLES):
            which = torch.zeros(len(views.job), ROLES, device=views.job.device)
            which[:, side] = 1.0
            common = self.job(torch.cat([views.job, which], 1)) + self.cluster(pooled)
            inputs = torch.cat([views.free, views.pairs[:, side]], -1)
            hidden = torch.relu(self.server(views.servers) + common[:, None] + self.pair(inputs))
            sides.append(self.score(torch.relu(self.second(hidden)))[..., 0])
        logits = torch.stack(sides, 1).masked_fill(~views.mask, -1e9).flatten(1)
        count = views.open.sum(1, keepdim=True).clamp(min=1)
        free = (views.free * views.open[..., None]).sum(1) / count
        values: torch.Tensor = self.critic(torch.cat([views.job, pooled.detach(), free], 1))[:, 0]
        return logits, values

    def _pooled(self, views: Views) -> torch.Tensor:
        encoded = torch.relu(self.pool(views.servers)) * views.open[..., None]
        mean = encoded.sum(1) / views.open.sum(1, keepdim=True).clamp(min=1)
        return torch.cat([mean, encoded.amax(1)], 1)

    def exported(self) -> dict[str, np.ndarray]:
        """Return the actor's weights for NumPy, without the critic's."""
        return {
            name: weight.detach().cpu().numpy().astype(np.float32)
            for name, weight in self.state_dict().items()
            if not name.startswith("critic")
        }


class RewardModel(nn.Module):
    """Predicts the speed of a job from its kind, its tasks and its neighbours' tasks."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        width = row_inputs(kinds)
        self.encode = nn.Sequential(
            nn.Linear(width, REWARD_HIDDEN), nn.ReLU(), nn.Linear(REWARD_HIDDEN, REWARD_HIDDEN), nn.ReLU()
        )
        self.decide = nn.Sequential(nn.Linear(2 * REWARD_HIDDEN, REWARD_HIDDEN), nn.ReLU(), nn.Linear(REWARD_HIDDEN, 1))

    def forward(self, inputs: torch.Tensor, owner: torch.Tensor, jobs: int) -> torch.Tensor:
        """Return the logarithm of the speed of each owner; undefined for owners without rows."""
        encoded = self.encode(inputs)
        index = owner[:, None].expand_as(encoded)
        empty = torch.zeros(jobs, encoded.shape[1], device=encoded.device)
        most = empty.scatter_reduce(0, index, encoded, "amax", include_self=True)
        mean = empty.scatter_reduce(0, index, encoded, "mean", include_self=False)
        return -nn.functional.softplus(self.decide(torch.cat([most, mean], 1))[:, 0])

    def predict(self, rows: ObservationRows, jobs: int) -> np.ndarray:
        """Return the speeds of all owners."""
        with torch.inference_mode():
            device = next(self.parameters()).device
            inputs = torch.from_numpy(rows.inputs).to(device)
            owner = torch.from_numpy(rows.owner).to(device)
            return self(inputs, owner, jobs).exp().cpu().numpy().astype(np.float64)
