"""Run a pickled call inside a job: `python -m rota.sdk.call FOLDER`."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path


def main(folder: Path) -> int:
    """Make the call and write its result to the folder atomically."""
    import cloudpickle

    function, args, kwargs = cloudpickle.loads((folder / "call.pickle").read_bytes())
    try:
        worked, value = True, function(*args, **kwargs)
    except Exception as error:  # any exception is passed on to the caller
        traceback.print_exc()
        worked, value = False, error
    draft = folder / f".answer.{os.getpid()}"
    draft.write_bytes(cloudpickle.dumps((worked, value)))
    draft.replace(folder / "answer.pickle")
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
