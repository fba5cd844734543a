"""The process that fetches a data set for one attempt of a job; it ends with its manager.

It reads its order from the standard input, credentials included, so that no list of processes shows them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.store.data.buckets.cache import BucketCache
from rota.store.data.buckets.fetch import BucketFetch
from rota.store.run_folder import write_json

TELL_S = 0.5
TRIES, PAUSE_S = 4, 1.0
_PR_SET_PDEATHSIG = 1


class FetchProgress:
    """Writes to a file how far a fetch is, now and then."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._told_s = 0.0

    def tell(self, phase: str, done: int, total: int) -> None:
        """Note how far it is."""
        if time.monotonic() - self._told_s > TELL_S or not done:
            self._told_s = time.monotonic()
            write_json(self._file, {"phase": phase, "done": done, "total": total})


def fetch(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; return the answer."""
    progress = FetchProgress(Path(order["progress"]))
    cache = BucketCache(Path(order["home"]), order["limit"])
    public = json.dumps(order["public"], sort_keys=True)
    for attempt in range(1, TRIES + 1):
        try:
            progress.tell("waiting", 0, 0)
            entry = cache.entry(order["url"], public)
            found = BucketFetch(order["url"], order["options"], progress.tell).run(cache, entry, order["user"])
            return {"path": str(found.path), "files": found.files, "size": found.size, "fetched": found.fetched}
        except RotaError as error:
            return {"error": str(error), "passing": False}
        except Unavailable as error:
            if attempt == TRIES:
                return {"error": str(error), "passing": True}
            time.sleep(PAUSE_S * attempt)
        except OSError as error:
            return {"error": f"the cache can't be written: {error.strerror}", "passing": True}
    raise AssertionError("unreachable")


def main() -> None:
    """Read an order, carry it out and write the answer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    order = json.loads(sys.stdin.readline())
    if os.getppid() != order["manager"]:  # it had ended before that was asked for
        return
    os.umask(0o022)
    sys.stdout.write(json.dumps(fetch(order)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of a connection that hangs are not waited for


if __name__ == "__main__":
    main()
