"""Jobs that depend on each other as stages of one whole: since when it is there, and how much of it is left."""

from __future__ import annotations

from rota.core.model.job import JobId
from rota.core.state.job_record import LiveJob


class Dags:
    """Which jobs belong together. Jobs are taken in as they are met; each is looked at once."""

    def __init__(self) -> None:
        self.meet({})

    def meet(self, jobs: dict[JobId, LiveJob]) -> None:
        """All jobs that there are, now and later."""
        self._jobs = jobs
        self._whole: dict[JobId, JobId] = {}
        self._stages: dict[JobId, list[LiveJob]] = {}
        self._seen = -1

    def look(self) -> None:
        """Take in jobs that have come since."""
        fresh = []
        for live in reversed(self._jobs.values()):
            if live.seq <= self._seen:
                break
            fresh.append(live)
        for live in reversed(fresh):
            self._join(live)
            self._seen = live.seq

    def _join(self, live: LiveJob) -> None:
        wholes = {self._whole[name] for name in live.job.depends_on if name in self._whole}
        whole = min(wholes, key=lambda name: self._stages[name][0].seq, default=live.job.id)
        stages = self._stages.setdefault(whole, [])
        for other in sorted(wholes - {whole}):
            for stage in self._stages.pop(other):
                self._whole[stage.job.id] = whole
                stages.append(stage)
        self._whole[live.job.id] = whole
        stages.append(live)
        stages.sort(key=lambda stage: stage.seq)

    def unfinished(self) -> list[LiveJob]:
        """All stages that are still to be done, in order of submission."""
        return [live for live in self._jobs.values() if not live.state.is_final]

    def since_s(self, live: LiveJob) -> float:
        """When the first stage of the whole was submitted."""
        return self._stages[self._whole[live.job.id]][0].submitted_s

    def left(self, live: LiveJob, now_s: float) -> float:
        """Device-seconds (or seconds, for stages without devices) that the whole still takes at nominal speed."""
        return sum(
            (stage.job.work - stage.work_done(now_s)) / stage.nominal_rate * max(stage.job.gpus, 1.0)
            for stage in self._stages[self._whole[live.job.id]]
            if not stage.state.is_final and stage.job.work is not None
        )

    def forget(self, live: LiveJob) -> None:
        """A stage has ended; a whole that has ended is dropped."""
        self.look()
        whole = self._whole.get(live.job.id)
        if whole is not None and all(stage.state.is_final for stage in self._stages[whole]):
            for stage in self._stages.pop(whole):
                del self._whole[stage.job.id]
