"""Learned placement: against the usual ways on 6 and on 64 servers, with parts of the training left out, curves.

Runs `rota learn` in out/learned-placement; files that are there already are taken as they are, so that what was broken
off goes on, and what took long need not be done again. It takes about 12 minutes of one core.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "out" / "learned-placement"
SEED = 42
LONG, SHORT = 250, 100
LEFT_OUT = {
    "nothing": (),
    "reward model": ("reward-model",),
    "exploration": ("exploration",),
    "replay": ("replay",),
    "vgg16 unknown": ("vgg16",),
}
POINTS = (25, 50, 75, 100)


def rota(*args: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", "from rota.cli.main import run; run()", *args],
        cwd=FOLDER,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def kept(name: str, *args: str) -> Any:
    """What a command prints as JSON; run only if that is not known yet."""
    path = FOLDER / name
    if not path.exists():
        path.write_text(rota(*args, "-o", "json"), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def trained(name: str, without: tuple[str, ...], intervals: int) -> list[dict[str, Any]]:
    left_out = [part for what in without for part in ("--without", what)]
    common = ("--experience", "experience.npz", "--intervals", str(intervals), "--seed", "1", "--threads", "1")
    found: list[dict[str, Any]] = kept(f"{name}.json", "learn", "train", f"{name}.npz", *common, *left_out)
    return found


def compared(servers: int) -> list[dict[str, Any]]:
    args = ("learn", "eval", "--servers", str(servers), "--seed", str(SEED), "--weights", "nothing.npz")
    found: list[dict[str, Any]] = kept(f"eval-{servers}.json", *args)["results"]
    return found


def print_comparison(servers: int) -> None:
    print(f"{servers} servers\n")
    print("| placement | JCT, s | 95% interval | shorter than the best usual by | 95% interval | of oracle's gain |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in compared(servers):
        print(
            f"| {row['policy']} | {row['avg_jct_s']:,.0f} | {row['low_s']:,.0f} to {row['high_s']:,.0f} "
            f"| {row['better_than_best_usual']:.1%} | {row['low']:.1%} to {row['high']:.1%} "
            f"| {row['part_of_oracle']:.0%} |"
        )
    print()


def print_curves() -> None:
    print("curves\n")
    print("| left out | " + " | ".join(f"after {point}" for point in POINTS) + " | jobs placed |")
    print("|---|" + "---:|" * (len(POINTS) + 1))
    for name, without in LEFT_OUT.items():
        points = trained(name.replace(" ", "-"), without, SHORT if without else LONG)
        curve = {point["interval"]: point for point in points}
        jct = " | ".join(f"{curve[point]['jct_s']:,.0f}" for point in POINTS)
        print(f"| {name} | {jct} | {curve[POINTS[-1]]['placed']:,} |")
    print()


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "experience.npz").exists():
        rota("learn", "collect", "experience.npz", "--workloads", "200", "--seed", "1")
    trained("nothing", (), LONG)
    print_comparison(6)
    print_comparison(64)
    print_curves()


if __name__ == "__main__":
    main()
