"""The records and folders of a manager whose jobs are over."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rota.live.estimates.past_use import MB
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch


class Past:
    """A manager's records and folders, filled with jobs that are over."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.records = Records(open_database(home / "rota.db"))
        self._jobs = 0

    def add(
        self,
        used_mb: float,
        *,
        size: int,
        state: str = "succeeded",
        attempt: int = 1,
        gpus: dict[str, float] | None = None,
        failure: str | None = None,
        submitted_s: float | None = None,
        **asked: object,
    ) -> None:
        """One more job that ended; `asked` are fields of its resources, and what was `estimated`."""
        number = self._jobs
        self._jobs += 1
        estimated = asked.pop("estimated", {})
        resources = {"memory": "1Gi", "cpus": 1, "gpus": 4, **asked}
        run = f"python train.py --size {size}"
        spec = {"name": "train", "run": run, "resources": resources, "estimated": estimated}
        row = {
            "id": str(number),
            "seq": number,
            "name": "train",
            "tenant": "default",
            "owner": "ann",
            "state": state,
            "submitted_s": time.time() if submitted_s is None else submitted_s,
            "started_s": 100.0,
            "ended_s": 110.0,
            "job": "{}",
            "spec": json.dumps(spec),
            "live": "{}",
            "attempt": attempt,
            "failures": attempt - 1,
            "exit_code": 0,
            "message": "",
            "failure": failure,
            "version": 0,
        }
        self.records.write(WriteBatch(new_jobs=[row]))()
        folder = self.home / "runs" / str(number) / str(attempt) / "0"
        folder.mkdir(parents=True)
        (folder / "exit.json").write_text(json.dumps({"cpu_s": 5.0, "memory_bytes": int(used_mb * MB)}))
        if gpus is not None:
            (folder / "gpus.json").write_text(json.dumps(gpus))
