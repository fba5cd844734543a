"""Data sets from buckets: fetched by processes beside the manager before the tasks of an attempt are started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.sliced_work import Steps
from rota.store.data.buckets.cache import BucketCache, pin_of
from rota.store.data.data_sets import VERSIONS, DataSet, DataSets
from rota.store.data.preparing import progress_file
from rota.store.run_folder import Json, attempt_folder, write_json

LOOK_S = 0.1
"""Between two looks at data sets that are being fetched."""
PROGRAM = "rota.store.data.buckets.process"


class DataFetches:
    """The fetches of a manager."""

    def __init__(self, home: Path, limit_bytes: int) -> None:
        self._home = home
        self._limit_bytes = limit_bytes
        self._cache = BucketCache(home, limit_bytes)

    def needed(self, order: LaunchOrder) -> DataFetch | None:
        """Return what an attempt has to wait for; None if that is nothing, or was fetched before a restart.

        Raises a `RotaError` if a data set is gone, or its secrets can't be read.
        """
        known = DataSets(self._home)
        found = [known.find(name, order.job.tenant) for name in order.launch.data]
        wanted = [known.unsealed(each) for each in found if each.is_bucket]
        folder = attempt_folder(self._home, order.job.id, order.attempt)
        if not wanted or (folder / VERSIONS).exists():
            return None
        return DataFetch(wanted, folder, self._home, self._limit_bytes, pin_of(order.job.id, order.attempt))

    def before(
        self,
        attempt: Attempt,
        order: LaunchOrder,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[Attempt, LaunchOrder], None],
    ) -> Steps[None]:
        """Start an attempt once its data sets are in the cache, or with the reason why they can't be."""
        try:
            attempt_folder(self._home, order.job.id, order.attempt).mkdir(parents=True, exist_ok=True)
            fetch = self.needed(order)
        except (RotaError, OSError) as error:
            attempt.given_up, fetch = str(error), None
        if fetch is not None:
            work = loop.create_task(fetch.run())
            while not work.done() and not attempt.ending:
                yield LOOK_S
            if work.done():
                attempt.given_up, attempt.is_hopeless = fetch.error, fetch.is_hopeless
            work.cancel()
        start(attempt, order)

    def keep_only(self, attempts: Collection[tuple[JobId, int]]) -> None:
        """Let all versions be evicted but those of these attempts."""
        self._cache.unpin(keep={pin_of(*each) for each in attempts})


class DataFetch:
    """The fetches for one attempt."""

    def __init__(self, wanted: Sequence[DataSet], folder: Path, home: Path, limit_bytes: int, pin: str) -> None:
        self._wanted = wanted
        self._folder = folder
        self._home = home
        self._limit_bytes = limit_bytes
        self._pin = pin
        self.error = ""
        """Why a data set could not be fetched."""
        self.is_hopeless = False
        """Whether another try would fail as well."""

    async def run(self) -> None:
        """Fetch all of them; processes end with this call, whatever ends it."""
        answers = await asyncio.gather(*(self._fetch(each) for each in self._wanted))
        failed = [(each, answer) for each, answer in zip(self._wanted, answers, strict=True) if "error" in answer]
        if failed:
            self.error = "; ".join(f"data set {each.name}: {answer['error']}" for each, answer in failed)
            self.is_hopeless = not any(answer.get("passing", True) for _, answer in failed)
            return
        versions = {each.name: answer["path"] for each, answer in zip(self._wanted, answers, strict=True)}
        write_json(self._folder / VERSIONS, versions)

    async def _fetch(self, data_set: DataSet) -> Json:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        order = {
            "home": str(self._home),
            "limit": self._limit_bytes,
            "manager": os.getpid(),
            "url": data_set.path,
            "options": data_set.file_system_options(),
            "public": dict(data_set.options),
            "user": self._pin,
            "progress": str(progress_file(self._folder, data_set.name)),
        }
        try:
            said, _ = await process.communicate(json.dumps(order).encode() + b"\n")
            answer: Json = json.loads(said) if said else {"error": "its fetch was ended", "passing": True}
            return answer
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            progress_file(self._folder, data_set.name).unlink(missing_ok=True)
