"""Learned placement: against the usual ways on 6 and on 64 servers, with parts of the training left out, curves.

Runs `rota learn` in out/learned-placement; files that are there already are taken as they are, so that what was broken
off goes on, and what took long need not be done again. It takes about 15 minutes of one core.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "out" / "learned-placement"
SEED = 42
LONG, SHORT = 250, 200
LEFT_OUT = {
    "nothing": (),
    "reward model": ("reward-model",),
    "exploration": ("exploration",),
    "replay": ("replay",),
    "vgg16 unknown": ("vgg16",),
    "alexnet unknown": ("alexnet",),
}
POINTS = (25, 50, 100, 150, 200)
BRIEF = ("harmony", "load-balance", "pack", "oracle")


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


def compared(servers: int, weights: str, policies: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    chosen = [part for name in policies for part in ("--policy", name)]
    name = f"eval-{servers}-{weights}.json"
    args = ("learn", "eval", "--servers", str(servers), "--seed", str(SEED), "--weights", f"{weights}.npz")
    return {row["policy"]: row for row in kept(name, *args, *chosen)["results"]}


def print_comparison(servers: int) -> None:
    print(f"{servers} servers\n")
    print("| placement | JCT, s | 95% interval | shorter than the best usual by | 95% interval | of oracle's gain |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, row in compared(servers, "nothing").items():
        print(
            f"| {name} | {row['avg_jct_s']:,.0f} | {row['low_s']:,.0f} to {row['high_s']:,.0f} "
            f"| {row['better_than_best_usual']:.1%} | {row['low']:.1%} to {row['high']:.1%} "
            f"| {row['part_of_oracle']:.0%} |"
        )
    print()


def print_curves() -> None:
    print("curves\n")
    print(
        "| left out | "
        + " | ".join(f"after {point}" for point in POINTS)
        + " | CPU s | jobs placed | of oracle's gain |"
    )
    print("|---|" + "---:|" * (len(POINTS) + 3))
    for name, without in LEFT_OUT.items():
        slug = name.replace(" ", "-")
        curve = {point["interval"]: point for point in trained(slug, without, SHORT if without else LONG)}
        part = compared(6, slug, BRIEF if without else ())["harmony"]["part_of_oracle"]
        jct = " | ".join(f"{curve[point]['jct_s']:,.0f}" for point in POINTS)
        last = curve[POINTS[-1]]
        print(f"| {name} | {jct} | {last['cpu_s']:.0f} | {last['placed']:,} | {part:.0%} |")
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
