"""Jobs that depend on each other as stages of one DAG: its submission time and its remaining work."""

from __future__ import annotations

from rota.core.model.job import JobId
from rota.core.state.job_record import LiveJob


class Dags:
    """Partition of all jobs into DAGs, updated incrementally."""

    def __init__(self) -> None:
        self.attach({})

    def attach(self, jobs: dict[JobId, LiveJob]) -> None:
        """Attach the engine's table of jobs, which is read on every update."""
        self._jobs = jobs
        self._dag_of: dict[JobId, JobId] = {}
        self._stages: dict[JobId, list[LiveJob]] = {}
        self._seen = -1

    def update(self) -> None:
        """Add the jobs that were submitted since the last update."""
        fresh = []
        for live in reversed(self._jobs.values()):
            if live.seq <= self._seen:
                break
            fresh.append(live)
        for live in reversed(fresh):
            self._join(live)
            self._seen = live.seq

    def _join(self, live: LiveJob) -> None:
        dags = {self._dag_of[name] for name in live.job.depends_on if name in self._dag_of}
        dag = min(dags, key=lambda name: self._stages[name][0].seq, default=live.job.id)
        stages = self._stages.setdefault(dag, [])
        for other in sorted(dags - {dag}):
            for stage in self._stages.pop(other):
                self._dag_of[stage.job.id] = dag
                stages.append(stage)
        self._dag_of[live.job.id] = dag
        stages.append(live)
        stages.sort(key=lambda stage: stage.seq)

    def unfinished(self) -> list[LiveJob]:
        """Return all stages that have not ended, in order of submission."""
        return [live for live in self._jobs.values() if not live.state.is_final]

    def since_s(self, live: LiveJob) -> float:
        """Return when the first stage of a job's DAG was submitted."""
        return self._stages[self._dag_of[live.job.id]][0].submitted_s

    def remaining_work(self, live: LiveJob, now_s: float) -> float:
        """Return the remaining GPU-seconds of a DAG at nominal speed; seconds for stages without devices."""
        return sum(
            (stage.job.work - stage.work_done(now_s)) / stage.nominal_rate * max(stage.job.gpus, 1.0)
            for stage in self._stages[self._dag_of[live.job.id]]
            if not stage.state.is_final and stage.job.work is not None
        )

    def forget(self, live: LiveJob) -> None:
        """Handle the end of a stage; drop its DAG if all stages have ended."""
        self.update()
        dag = self._dag_of.get(live.job.id)
        if dag is not None and all(stage.state.is_final for stage in self._stages[dag]):
            for stage in self._stages.pop(dag):
                del self._dag_of[stage.job.id]
