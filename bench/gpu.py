"""Jobs on a real GPU: suspended, swapped, limited, packed and measured, by a real manager with unmodified PyTorch.

    python bench/gpu.py [ROW ...]

Prints a table in Markdown, a line for each claim. Rows that are joined by `+` run at the same time: use it for those
whose speed is not measured. Without rows, all are measured, in about 20 minutes. Needs one NVIDIA GPU with 140 GB.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src"), str(ROOT / "bench")]

from gpu_rows import journal, limits, suspend
from gpu_rows.lab import Lab
from gpu_rows.table import rows, said

from rota.drivers.local.machine import nvml_folder


def with_lab(row: Callable[[Lab], None]) -> Callable[[Path], None]:
    """Run a row under a manager with no settings of its own."""

    def run(folder: Path) -> None:
        lab = Lab(folder)
        try:
            row(lab)
        finally:
            lab.end()

    return run


ROWS: dict[str, Callable[[Path], None]] = {
    "identical": with_lab(suspend.identical),
    "rates": with_lab(suspend.rates),
    "large": with_lab(suspend.large),
    "killed": with_lab(suspend.killed),
    "mps-killed": suspend.killed_under_mps,
    "swap": suspend.turns,
    "resident": suspend.resident,
    "waits": suspend.waits,
    "limit": limits.limit,
    "mps": lambda folder: limits.limit(folder, mps=True),
    "turns": limits.turns,
    "mps-shares": limits.mps_shares,
    "bound": limits.bound,
    "unbound": limits.unbound,
    "pairs": limits.pairs,
    "overhead": limits.overhead,
    "journal": journal.journal,
}
ALL = (
    *("identical+killed+mps-killed", "rates", "large", "swap", "resident", "waits", "limit", "mps", "turns"),
    *("mps-shares", "bound", "unbound", "pairs", "overhead", "journal"),
)


def measure(name: str, folder: Path) -> None:
    """Measure one row; what goes wrong is a line of the table as well."""
    begun = time.monotonic()
    try:
        ROWS[name](folder / name)
    except Exception as error:  # one row must not cost the others
        traceback.print_exc()
        said(name, " ".join(f"{type(error).__name__}: {error}".split())[:300], "", holds=False)
    print(f"<!-- {name}: {time.monotonic() - begun:.0f} s -->", flush=True)


def main() -> None:
    """Measure the rows that are named, or all."""
    wanted = sys.argv[1:] or list(ALL)
    unknown = [name for group in wanted for name in group.split("+") if name not in ROWS]
    if unknown:
        sys.exit(f"unknown rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if nvml_folder() is None:
        print("there is no NVIDIA GPU here; nothing is measured")
        return
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    print(f"CUDA {version.value // 1000}.{version.value % 1000 // 10}\n\n| claim | seen | wanted | holds |\n|-|-|-|-|")
    with tempfile.TemporaryDirectory(prefix="rota-gpu-") as folder:
        for group in wanted:
            threads = [threading.Thread(target=measure, args=(name, Path(folder))) for name in group.split("+")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    sys.exit(any(row[3] != "yes" for row in rows))


if __name__ == "__main__":
    main()
