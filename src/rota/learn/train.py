"""Training: a reward model is fitted to experience, then an actor-critic is trained against it.

In many clusters at once, each new job is placed in several ways: sampled from the actor, and with probability omega by
packing or load balancing (job-aware exploration). The reward model predicts what each way costs the job and its
neighbours; the advantage is relative to the other ways, or to the critic's value where there is only one. Steps go to a
replay buffer; the actor follows those with an advantage, with an entropy bonus. Sizes of replay buffer and minibatch
are DL2's (Peng et al., the same authors), since Harmony's were not published.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rota.learn.decisions import Bools, Floats, Ints, Situation, balanced, packed
from rota.learn.fast_cluster import Arrival, FastClusters
from rota.learn.network_inputs import on_servers, rows_of
from rota.learn.networks import ActorCritic, RewardModel, Views
from rota.learn.replay import ReplayBuffer
from rota.learn.workloads import KIND_NAMES, WorkloadShape
from rota.mechanisms.learned.actor import servers_seen

WAYS = 12
LEAST_SPREAD = 0.02
SHARPNESS = 0.3
FOLLOWED = 0.05
"""Smallest weight of a step that is stored."""
GREEDY = 0.8
"""How often the actor's best way is carried out."""
NAMELESS = 0.1
"""Fraction of jobs whose kind is hidden, so that the actor learns to place unknown kinds."""
Step = tuple[Ints, tuple[np.ndarray, ...], Ints]
"""Decisions, inputs and actions of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Training parameters. `ways` is the number of placements of a job that the reward model compares."""

    clusters: int = 64
    sizes: tuple[int, ...] = (6, 12)
    ways: int = WAYS
    omega: float = 0.25
    entropy: float = 0.01
    adam: float = 1e-3
    replay: int = 8192
    minibatch: int = 256
    updates: int = 4
    """Minibatches per interval."""
    use_reward_model: bool = True
    use_exploration: bool = True
    use_replay: bool = True


@dataclass(slots=True)
class Progress:
    """One line of a learning curve."""

    interval: int
    placed: int
    cpu_s: float
    loss: float
    entropy: float
    critic: float
    cost: float
    """Cost of the placements carried out, by the reward model or as observed."""


@dataclass(eq=False)
class Trainer:
    """State of training, all of which can be saved."""

    kinds: tuple[str, ...]
    recipe: Recipe
    reward: RewardModel | None
    seed: int
    shape: WorkloadShape = field(default_factory=WorkloadShape)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    net: ActorCritic = field(init=False)
    adam: torch.optim.Adam = field(init=False)

    def __post_init__(self) -> None:
        recipe = self.recipe
        torch.manual_seed(self.seed)
        self._rng = np.random.default_rng(self.seed)
        self.net = ActorCritic(len(self.kinds)).to(self.device)
        self.adam = torch.optim.Adam(self.net.parameters(), recipe.adam)
        if self.reward is not None:
            self.reward.to(self.device)
        sizes = [recipe.sizes[index % len(recipe.sizes)] for index in range(recipe.clusters)]
        self._begin(sizes, f"train {self.seed}")
        self.replay = ReplayBuffer(recipe.replay if recipe.use_replay else recipe.minibatch * recipe.updates)
        known = {kind: number for number, kind in enumerate(self.kinds)}
        self._number = np.array([known.get(kind, len(self.kinds)) for kind in KIND_NAMES])
        self._scale = 1.0
        self.interval = 0
        self._costs: list[float] = []
        self._losses: list[tuple[float, float, float]] = []
        self._cpu_s = 0.0

    def run(self, intervals: int, tell: Callable[[Progress], None], every: int = 50) -> None:
        """Train for that many intervals of all clusters."""
        began = time.process_time() - self._cpu_s
        for _ in range(intervals):
            self.world.advance()
            self._place_all()
            self._learn()
            self.interval += 1
            self._cpu_s = time.process_time() - began
            if self.interval % every == 0:
                tell(self._progress())

    def state(self) -> dict[str, Any]:
        """Return what is needed to resume."""
        return {
            "kinds": list(self.kinds),
            "net": self.net.state_dict(),
            "adam": self.adam.state_dict(),
            "interval": self.interval,
            "placed": self.world.placed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a state, in empty clusters with other jobs."""
        self.net.load_state_dict(state["net"])
        self.adam.load_state_dict(state["adam"])
        self.interval = state["interval"]
        self._begin(self.world.sizes.tolist(), f"train {self.seed} from {self.interval}")
        self.world.placed = state["placed"]
        self._rng = np.random.default_rng((self.seed, self.interval))

    def _begin(self, sizes: list[int], seed: str) -> None:
        """Begin with empty clusters."""
        self.world = FastClusters(self.shape, sizes, seed)
        self._nameless = np.zeros(self.world.kind.shape, np.bool_)

    def _progress(self) -> Progress:
        losses = np.array(self._losses or [(0.0, 0.0, 0.0)]).mean(0)
        progress = Progress(
            self.interval,
            self.world.placed,
            self._cpu_s,
            float(losses[0]),
            float(losses[1]),
            float(losses[2]),
            float(np.mean(self._costs or [0.0])),
        )
        self._costs, self._losses = [], []
        return progress

    def _place_all(self) -> None:
        """Place the waiting jobs of all clusters in order; jobs that do not fit keep waiting."""
        world = self.world
        tried = [0] * len(world.waiting)
        while True:
            free = world.free().clip(0.0).sum(1)
            for index, queue in enumerate(world.waiting):
                while tried[index] < len(queue) and (queue[tried[index]].wanted > free[index] + 1e-9).any():
                    tried[index] += 1
            at = [index for index, queue in enumerate(world.waiting) if tried[index] < len(queue)]
            if not at:
                return
            placed = self._place(np.array(at), [world.waiting[index][tried[index]] for index in at])
            for index, was_placed in zip(at, placed, strict=True):
                if was_placed:
                    del world.waiting[index][tried[index]]
                else:
                    tried[index] += 1

    def _place(self, at: Ints, arrivals: list[Arrival]) -> list[bool]:
        world, recipe = self.world, self.recipe
        unknown = len(self.kinds)
        kind = np.where(self._nameless[at], unknown, self._number[world.kind[at]])
        tasks, talking = on_servers(kind, unknown, world.workers[at], world.parameter_servers[at])
        nameless = self._rng.random(len(at)) < NAMELESS
        own = np.where(nameless, unknown, self._number[[arrival.kind for arrival in arrivals]])
        situation = Situation.of(arrivals, own, unknown, servers_seen(tasks, talking), world.open[at], world.free()[at])
        ways = recipe.ways if self.reward is not None else 1
        many = situation.repeated(ways)
        steps = self._act(many, ways)
        ok = ~many.stuck
        if self.reward is not None:
            costs = self._predicted(at, kind, own, many, ways, ok)
            self._remember(steps, costs, ok, ways)
            picked = self._pick(costs, ok, ways)
        else:
            picked = np.where(ok, np.arange(len(at)), -1)
        slots = np.full(len(at), -1)
        for number, (index, way) in enumerate(zip(at, picked, strict=True)):
            if way >= 0:
                slots[number] = slot = world.place(int(index), arrivals[number], *many.mine[way].T)
                if slot >= 0:
                    self._nameless[index, slot] = nameless[number]
        if self.reward is None:
            self._observe(at, slots, steps)
        return [bool(slot >= 0) for slot in slots]

    def _pick(self, costs: Floats, ok: Bools, ways: int) -> Ints:
        """Return the way to carry out: the actor's best, sometimes another; -1 where none fits."""
        rows = np.arange(len(costs) // ways) * ways
        fine = ok.reshape(-1, ways)
        by_chance = self._rng.random(fine.shape)
        by_chance[:, 0] += np.where(self._rng.random(len(fine)) < GREEDY, 2.0, 0.0)
        way = np.where(fine, by_chance, -1.0).argmax(1)
        chosen = rows + way
        done = costs[chosen][fine.any(1)]
        self._costs.extend(done[np.isfinite(done)].tolist())
        return np.where(fine.any(1), chosen, -1)

    def _views(self, situation: Situation, mask: Bools, rows: Ints) -> tuple[np.ndarray, ...]:
        return (
            situation.servers[rows],
            situation.open[rows],
            situation.job_seen()[rows],
            situation.free_seen()[rows],
            situation.pairs_seen()[rows],
            mask[rows],
        )

    def _act(self, many: Situation, ways: int) -> list[Step]:
        """Place all tasks of all decisions; return inputs and actions of each step."""
        way = np.arange(len(many.kind)) % ways
        guided = self._guided(way, ways)
        steps = []
        while (going := many.unfinished).any():
            mask = many.mask()
            dead = going & (((many.left > 0) & ~mask.any(-1)).any(1))
            many.stuck |= dead
            rows = np.flatnonzero(going & ~dead)
            if not len(rows):
                break
            seen = self._views(many, mask, rows)
            actions = np.zeros(len(way), np.int64)
            actions[rows] = self._actions(seen, way[rows] == 0 if ways > 1 else np.zeros(len(rows), np.bool_))
            if guided.any():
                scores = np.where((guided == 1)[:, None, None], balanced(many), packed(many))
                best = np.where(mask, scores, -np.inf).reshape(len(way), -1).argmax(1)
                actions = np.where(guided > 0, best, actions)
            chosen = np.zeros(len(way), np.bool_)
            chosen[rows] = True
            many.take(actions, chosen)
            steps.append((rows, seen, actions[rows]))
        return steps

    def _guided(self, way: Ints, ways: int) -> Ints:
        """Job-aware exploration: return 1 where load balancing decides, 2 for packing, 0 for the actor."""
        if not self.recipe.use_exploration:
            return np.zeros(len(way), np.int64)
        by = np.where(self._rng.random(len(way)) < self.recipe.omega, self._rng.integers(1, 3, len(way)), 0)
        return np.where((way > 0) | (ways == 1), by, 0)

    def _actions(self, seen: tuple[np.ndarray, ...], greedy: Bools) -> Ints:
        with torch.inference_mode():
            views = Views(*(torch.from_numpy(part).to(self.device) for part in seen))
            logits = self.net(views)[0].cpu().numpy().astype(np.float64)
        noise = self._rng.gumbel(size=logits.shape)
        noise[greedy] = 0.0
        found: Ints = (logits + noise).argmax(1)
        return found

    def _predicted(self, at: Ints, kind: Ints, own: Ints, many: Situation, ways: int, ok: Bools) -> Floats:
        """Return the cost of each way by the reward model."""
        world = self.world
        assert self.reward is not None
        jobs = kind.shape[1]
        active = world.active[at]
        old = self.reward.predict(
            rows_of(kind, len(self.kinds), world.workers[at], world.parameter_servers[at]), len(at) * jobs
        ).reshape(len(at), jobs)
        rows = np.flatnonzero(ok)
        source = rows // ways
        deep = int(active.sum(1).max(initial=0))
        order = np.argsort(~active, axis=1, kind="stable")[:, :deep]
        pick = (np.arange(len(at))[:, None], order)
        short_kind = np.concatenate([kind[pick][source], own[source][:, None]], axis=1)
        workers = np.concatenate([world.workers[at][pick][source], many.mine[rows, None, :, 0]], axis=1)
        servers = np.concatenate([world.parameter_servers[at][pick][source], many.mine[rows, None, :, 1]], axis=1)
        new = self.reward.predict(rows_of(short_kind, len(self.kinds), workers, servers), short_kind.size).reshape(
            len(rows), deep + 1
        )
        left_s = np.where(active, world.left_s[at], 0.0)[pick][source]
        costs = np.full(len(many.kind), np.inf)
        costs[rows] = cost_of(new[:, -1], new[:, :-1], old[pick][source], left_s, many.work_s[rows])
        return costs

    def _remember(self, steps: list[Step], costs: Floats, ok: Bools, ways: int) -> None:
        """Store steps of ways that cost less than the others, or than the critic expects, by the difference."""
        if not steps:
            return
        gains = -np.log(np.where(ok, costs, 1.0))
        weights = self._compared(gains, ok, ways) if ways > 1 else self._expected(gains, ok, steps[0])
        for step_rows, step_seen, actions in steps:
            keep = ok[step_rows] & (weights[step_rows] > FOLLOWED)
            if keep.any():
                kept = step_rows[keep]
                self.replay.add(
                    (
                        *(part[keep] for part in step_seen),
                        actions[keep],
                        weights[kept].astype(np.float32),
                        gains[kept].astype(np.float32),
                    )
                )

    def _compared(self, gains: Floats, ok: Bools, ways: int) -> Floats:
        """Return how much the actor follows each way, relative to the best of the same decision."""
        grouped = np.where(ok, gains, -np.inf).reshape(-1, ways)
        best = grouped.max(1, keepdims=True)
        worked = np.isfinite(grouped)
        below = np.where(
            worked, np.where(worked.any(1, keepdims=True), best, 0.0) - np.where(worked, grouped, 0.0), 0.0
        )
        scale = np.maximum(np.sqrt((below**2).mean(1, keepdims=True)), LEAST_SPREAD)
        weights: Floats = np.exp(np.where(worked, -below / (SHARPNESS * scale), -np.inf)).reshape(-1)
        return weights

    def _expected(self, gains: Floats, ok: Bools, first: Step) -> Floats:
        """Return how much the actor follows its action, by the advantage over the critic's value."""
        rows, seen, _ = first
        with torch.inference_mode():
            views = Views(*(torch.from_numpy(part).to(self.device) for part in seen))
            expected = np.zeros(len(gains))
            expected[rows] = self.net(views)[1].cpu().numpy()
        advantage = np.where(ok, gains - expected, -np.inf)
        if ok.any():
            self._scale += 0.01 * (float(np.abs(advantage[ok]).mean()) - self._scale)
        weights: Floats = np.exp(np.clip(advantage / max(self._scale, LEAST_SPREAD), -10.0, 3.0))
        return weights

    def _observe(self, at: Ints, slots: Ints, steps: list[Step]) -> None:
        """Without a reward model: store the observed cost of the way that was carried out."""
        world = self.world
        placed, jobs = slots >= 0, np.arange(len(at))
        old = world.speed[at]
        world.observe()
        new, left_s = world.speed[at], world.left_s[at]
        left_s[jobs[placed], slots[placed]] = 0.0
        left_s[old <= 0] = 0.0
        own = np.where(placed, new[jobs, slots], 1.0)
        costs = cost_of(own, new, old, left_s, world.work_s[at, slots])
        self._costs.extend(costs[placed].tolist())
        self._remember(steps, np.where(placed, costs, np.inf), placed, 1)

    def _learn(self) -> None:
        recipe = self.recipe
        if self.replay.filled < recipe.minibatch:
            return
        for _ in range(recipe.updates):
            views, actions, weights, gains = self.replay.draw(recipe.minibatch, self._rng, self.device)
            logits, values = self.net(views)
            logs = torch.log_softmax(logits, 1)
            taken = logs.gather(1, actions[:, None])[:, 0]
            entropy = -(logs.exp() * logs).sum(1).mean()
            actor = -(weights * taken).sum() / weights.sum().clamp(min=1e-6)
            critic = (values - gains).pow(2).mean()
            loss = actor - recipe.entropy * entropy + 0.5 * critic
            self.adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.adam.step()
            self._losses.append((float(actor.detach()), float(entropy.detach()), float(critic.detach())))
        if not recipe.use_replay:
            self.replay.clear()


def cost_of(own: Floats, others: Floats, before: Floats, left_s: Floats, work_s: Floats) -> Floats:
    """Return the cost of a placement over the job's length: its own time, and what its neighbours lose meanwhile."""
    own_s = work_s / np.maximum(own, 1e-3)
    slower = 1.0 / np.maximum(others, 1e-3) - 1.0 / np.maximum(before, 1e-3)
    lost_s = (np.minimum(left_s, own_s[:, None] * before) * slower).sum(1)
    return np.maximum((own_s + lost_s) / work_s, 0.1)
