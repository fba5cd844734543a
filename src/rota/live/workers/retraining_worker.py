"""Worker process of retraining: learns from the journal and compares the new weights with the old."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.core.codec.values import decode_cluster
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.drivers.simulator.study import Setting, simulate
from rota.learn.from_journal import experience_of
from rota.learn.undisturbed import undisturbed
from rota.live.workers.retraining import weights_file
from rota.live.workers.worker_process import Json, answer_all
from rota.mechanisms.learned.weights import load_learned, save_learned
from rota.perf.speed.model import SpeedModel
from rota.scenario import Scenario
from rota.store import clock
from rota.store.database import open_database
from rota.store.journal import JournalHeader, encode_header
from rota.store.records import Records
from rota.store.run_folder import curve
from rota.traces.formats import read_trace
from rota.traces.workload import Workload

DAYS = 7.0
LEAST_GAIN = 0.005
"""By how much completion times must be shorter with new weights."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The jobs on which weights of a policy are compared, and the manager's folder."""

    journal: Path
    cluster: Cluster
    placement: str | None
    policy: str
    home: Path


def main() -> None:
    """Answer questions until there are no more."""
    answer_all(_answer)


def _answer(question: Json) -> Json:
    records = Records(open_database(question["database"]))
    cluster = decode_cluster(question["cluster"])
    try:
        with tempfile.TemporaryDirectory(prefix="rota-tutor-") as folder:
            journal = Path(folder) / "journal.jsonl"
            _write(journal, cluster, question["policy"], records)
            weights, home = Path(question["weights"]), Path(question["home"])
            effort = {"fewest": question["fewest"], "part": question["part"]}
            trial = Trial(journal, cluster, question["placement"], question["policy"], home)
            return teach(trial, weights, **effort)
    finally:
        records.close()


def _write(path: Path, cluster: Cluster, policy: str, records: Records) -> None:
    """Write the journal of the last days."""
    header = JournalHeader(scenario=Scenario(policies=(policy,), placement="any", cluster=cluster))
    steps = records.steps(records.first_step_since(clock.now_s() - DAYS * 86400.0))
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(encode_header(header), separators=(",", ":")) + "\n")
        file.writelines(f"{body}\n" for body in steps)


def teach(trial: Trial, weights: Path, *, fewest: int, part: float = 1.0) -> Json:
    """Learn from a journal; new weights are kept in the manager's folder only if its jobs end sooner with them."""
    now = load_learned(weights)
    with trial.journal.open(encoding="utf-8") as lines:
        seen = experience_of(lines, now.network.kinds, StepRates(trial.home).speed)
    counts = {"seen": seen.samples, "of_unknown_kinds": seen.nameless}
    if seen.samples < fewest:
        return {"better": False, "why": f"{seen.samples} speeds were seen; {fewest} are needed", **counts}
    from rota.learn.retrain import retrain

    draft = weights_file(trial.home, trial.policy).with_suffix(".npz.new")
    save_learned(draft, retrain(seen, now, seen.samples, part))
    return {**counts, **judge(trial, weights, draft)}


def judge(trial: Trial, weights: Path, draft: Path) -> Json:
    """Run the journal's jobs with the weights in use and with new ones; keep the new ones if the jobs end sooner."""
    with trial.journal.open(encoding="utf-8") as lines:
        work = undisturbed(read_trace(trial.journal), lines, trial.cluster)
    setting = Setting(cluster=trial.cluster, placement=trial.placement, speed=SpeedModel(contention=True))
    old_s, new_s = (_jct_s(work, f"{trial.policy}:weights={path}", setting) for path in (weights, draft))
    better = new_s < old_s * (1.0 - LEAST_GAIN)
    if better:
        draft.replace(weights_file(trial.home, trial.policy))
    else:
        draft.unlink()
    why = "jobs of the journal end sooner" if better else "jobs of the journal do not end sooner"
    return {"better": better, "why": why, "old_s": old_s, "new_s": new_s}


def _jct_s(work: Workload, policy: str, setting: Setting) -> float:
    rows = simulate(work, policy, setting).history.jobs
    times = [row.end_s - row.submit_s for row in rows if row.end_s is not None]
    if not times:
        raise RotaError("no job of the journal has ended, so that weights can't be compared")
    return sum(times) / len(times)


class StepRates:
    """Speeds of jobs in steps, from their reports; for jobs without reports, the journal's rate."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._steps: dict[JobId, list[tuple[float, int]]] = {}

    def speed(self, job_id: JobId, from_s: float, to_s: float, rate: float) -> float | None:
        """Return steps per second in a period; None if the job reported fewer than two times in it."""
        if job_id not in self._steps:
            self._steps[job_id] = [(at_s, step) for at_s, step, _ in curve(self._home, job_id)]
        known = self._steps[job_id]
        if not known:
            return rate if rate not in (0.0, 1.0) else None
        return _slope([(at_s, step) for at_s, step in known if from_s <= at_s <= to_s])


def _slope(points: Sequence[tuple[float, int]]) -> float | None:
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]) or None
