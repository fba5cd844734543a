"""Compile the hot modules with mypyc, beside their sources: the same code, two to three times as fast.

Python then imports the compiled module instead of the source, so after an edit run this again (`make` does),
or `--clean` to go back to the plain sources. Without a C compiler, Rota runs from its sources, only slower.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
HOT = (
    "core/state/node_accounts",
    "core/engine/engine",
    "core/engine/transitions",
    "core/state/inventory",
    "core/state/job_record",
    "core/engine/dispatch",
    "core/model/placement",
    "core/engine/draft",
    "core/engine/protocols",
    "core/state/state",
    "core/engine/timers",
    "core/state/vacating",
    "drivers/simulator/failing_world",
    "drivers/simulator/job_run",
    "drivers/simulator/run",
    "drivers/simulator/world",
    "mechanisms/ordering/easy_reservation",
    "mechanisms/ordering/growth_log",
    "mechanisms/ordering/index",
    "mechanisms/ordering/lane_walk",
    "mechanisms/ordering/list_scheduler",
    "mechanisms/ordering/lanes",
    "mechanisms/ordering/named_victims",
    "mechanisms/ordering/needs",
    "mechanisms/ordering/node_plan",
    "mechanisms/ordering/node_yields",
    "mechanisms/ordering/planned_backfill",
    "mechanisms/ordering/planned_walk",
    "mechanisms/ordering/refusals",
    "mechanisms/ordering/service_queues",
    "mechanisms/ordering/turn",
    "mechanisms/ordering/victim_search",
    "placement/apart",
    "placement/patterns",
    "placement/search",
    "placement/styles",
    "policies/own/levels",
    "policies/own/order",
    "policies/own/predictions",
    "policies/own/rota",
    "policies/own/users",
    "tenancy/open",
)


def compiled() -> list[Path]:
    """Return the compiled modules in the source tree."""
    return sorted(SOURCES.rglob("*.so"))


def stale() -> list[str]:
    """Return the compiled modules whose source is newer."""
    found = []
    for name in HOT:
        source = SOURCES / "rota" / f"{name}.py"
        for module in source.parent.glob(f"{source.stem}.*.so"):
            if module.stat().st_mtime < source.stat().st_mtime:
                found.append(f"rota/{name}.py")
    return found


def clean() -> None:
    """Remove the compiled modules."""
    for module in compiled():
        module.unlink()


def build(into: Path = SOURCES) -> None:
    """Compile the modules and put them beside their sources, or into another folder."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    os.chdir(SOURCES)
    target = ROOT / "build" / "mypyc" if into == SOURCES else into / "build"
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--follow-imports=silent"]
    options += ["--cache-dir", str(target / "cache")]  # not among the sources
    files = [f"rota/{name}.py" for name in HOT]
    modules = mypycify([*options, *files], opt_level="2", target_dir=str(target / "c"))
    command = build_ext(Distribution({"name": "rota", "ext_modules": modules}))
    command.build_temp = str(target / "temp")
    command.build_lib = str(into)
    command.ensure_finalized()
    if into == SOURCES:
        clean()
    command.run()
    if into == SOURCES:
        for module in compiled():
            module.touch()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clean", action="store_true", help="remove the compiled modules")
    parser.add_argument("--check", action="store_true", help="fail if a source is newer than its compiled module")
    parser.add_argument(
        "--into", type=Path, default=SOURCES, help="put the modules there instead of beside the sources"
    )
    options = parser.parse_args()
    if options.clean:
        clean()
        return 0
    if options.check:
        for source in stale():
            print(f"{source} is newer than its compiled module; run `make compile` or `make pure`", file=sys.stderr)
        return 1 if stale() else 0
    build(options.into.resolve())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
