"""Replay of a journal: the same events in a new engine must give the same decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rota.core.codec.snapshot import restore
from rota.core.codec.values import encode_decision
from rota.core.engine.engine import Engine, Journal
from rota.core.messages.decisions import Decision
from rota.core.state.history import History, history_of
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler, setting_of
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.options import refuse_other_file
from rota.store.journal import JournalHeader, JournalReader, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first step whose decisions differ from those in the journal."""

    step: int
    now_s: float
    recorded: tuple[str, ...]
    decided: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay."""

    policy: str
    placement: str
    steps: int
    decisions: int
    mismatch: Mismatch | None
    history: History


def replay(
    path: Path, *, journal: Journal | None = None, progress: Callable[[int], None] | None = None
) -> ReplayResult:
    """Feed a journal's events to the policy that it names, and stop at the first decision that differs."""
    reader = JournalReader(path)
    header = reader.header
    setting = _setting(header, path.parent)
    policy, alloc, placement = scheduler(header.scenario.policy, setting)
    state = State(header.cluster) if header.snapshot is None else restore(header.cluster, header.snapshot)
    engine = Engine(state, policy, alloc, journal=journal)
    steps = decisions = 0
    mismatch = None
    for step in reader.steps():
        decided = engine.step(step.now_s, step.events)
        steps += 1
        decisions += len(decided)
        if tuple(decided) != step.decisions:
            mismatch = _mismatch(step, decided, engine)
            break
        if progress is not None and steps % 4096 == 0:
            progress(steps)
    return ReplayResult(
        policy=header.scenario.policy,
        placement=placement,
        steps=steps,
        decisions=decisions,
        mismatch=mismatch,
        history=history_of(engine.state),
    )


def _setting(header: JournalHeader, folder: Path) -> Setting:
    """Return the setting as far as decisions depend on it; profiles may lie in the journal's folder."""
    scenario = header.scenario
    profiles = estimate = None
    if scenario.profiles is not None:
        path = Path(scenario.profiles)
        if scenario.profiles_sha256 is None and (folder / path).exists():
            path = folder / path
        refuse_other_file(path, scenario.profiles_sha256)
        profiles = read_profiles(path)
    if profiles is not None and scenario.estimate is not None:
        estimate = scenario.estimate.estimate(profiles)
    return setting_of(scenario, cluster=header.cluster, profiles=profiles, estimate=estimate)


def _mismatch(step: Step, decided: list[Decision], engine: Engine) -> Mismatch:
    names = [str(books.node.id) for books in engine.state.inventory.nodes]
    return Mismatch(
        step=step.number,
        now_s=step.now_s,
        recorded=tuple(str(encode_decision(decision, names)) for decision in step.decisions),
        decided=tuple(str(encode_decision(decision, names)) for decision in decided),
    )
