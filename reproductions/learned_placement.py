"""Learned placement against the usual heuristics, with parts of the training left out, and with unseen models.

Runs `rota learn` in out/learned-placement: three trainings of each kind, one after the other, in about 40 minutes on
one core. Results are kept there, so an interrupted run can resume; remove the folder to start from scratch. The
learning curves are drawn into docs/images/learning. Needs PyTorch (extra `learn`) and Matplotlib (extra
`figures`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from scipy import stats

from rota.core.state.job_record import LiveJob
from rota.learn.evaluation.play import mean_jct_s, play
from rota.learn.workloads import WorkloadShape, workload
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.interval_placement import by_arrival
from rota.mechanisms.learned.weights import load_learned

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "out" / "learned-placement"
FIGURES = ROOT / "docs" / "images" / "learning"
SEED = 42
"""Seed of the workloads on which weights are evaluated."""
TRAININGS = (1, 2, 3)
LONG, MIDDLE, SHORT, EVERY, VALIDATE = 250, 150, 100, 10, 8
POINTS = (30, 60, 100)
NEAR = 1.05
"""A training within 5% of the result of complete trainings has reached their level."""
COLOURS = {
    "nothing": "C0",
    "exploration": "C1",
    "replay": "C2",
    "reward model": "C3",
    "never vgg16": "C4",
    "never vgg16 or alexnet": "C5",
}
USUAL = ("harmony", "load-balance", "pack", "standalone", "lif-linear", "liquid")
WITHOUT_SEARCH = tuple(part for way in USUAL for part in ("--policy", way))
"""All but the oracle, whose search takes minutes on many servers."""
ORDERED = ((6, 30), (64, 6))
"""Servers and workloads on which orders are compared."""
ORDERS: dict[str, Callable[[LiveJob], float]] = {
    "last arrival": lambda live: -live.seq,
    "most tasks": lambda live: -live.job.tasks,
    "fewest tasks": lambda live: live.job.tasks,
    "longest": lambda live: -(live.job.work or 0.0),
    "shortest": lambda live: live.job.work or 0.0,
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of training."""

    name: str
    options: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    intervals: int = SHORT

    @property
    def experience(self) -> str:
        return "-".join(("experience", *self.unseen)) + ".npz"

    def file(self, seed: int) -> str:
        return f"{self.name.replace(', ', '-').replace(' ', '-')}-{seed}"


WHOLE = Kind(name="nothing", intervals=LONG)
NO_MODEL = Kind(name="reward model", options=("--without", "reward-model"))
COMPARING = (
    WHOLE,
    NO_MODEL,
    Kind(name="exploration", options=("--without", "exploration")),
    Kind(name="replay", options=("--without", "replay")),
)
ONE_WAY = (
    Kind(name="one way, nothing", options=("--ways", "1")),
    Kind(name="one way, exploration", options=("--ways", "1", "--without", "exploration")),
    Kind(name="one way, replay", options=("--ways", "1", "--without", "replay")),
)
UNSEEN = (
    Kind(name="never vgg16", unseen=("vgg16",), intervals=MIDDLE),
    Kind(name="never vgg16 or alexnet", unseen=("vgg16", "alexnet"), intervals=MIDDLE),
)
KINDS = (*COMPARING, *ONE_WAY, *UNSEEN)


def rota(*args: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", "from rota.cli.main import run; run()", "learn", *args],
        cwd=FOLDER,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def kept(name: str, *args: str) -> Any:
    """Return the JSON output of a command, which is run only if its output is not kept yet."""
    path = FOLDER / name
    if not path.exists():
        draft = path.with_suffix(".part")
        draft.write_text(rota(*args, "-o", "json"), encoding="utf-8")
        draft.replace(path)
    return json.loads(path.read_text(encoding="utf-8"))


def collected(kind: Kind) -> None:
    if (FOLDER / kind.experience).exists():
        return
    left_out = [part for model in kind.unseen for part in ("--without", model)]
    rota("collect", "part.npz", "--workloads", "200", "--seed", "1", *left_out)
    (FOLDER / "part.npz").replace(FOLDER / kind.experience)


def trained(kind: Kind, seed: int) -> Rows:
    """Train, unless done before, and return the learning curve."""
    common = ("--experience", kind.experience, "--intervals", str(kind.intervals), "--seed", str(seed))
    often = ("--threads", "1", "--every", str(EVERY), "--validate", str(VALIDATE))
    model = ("--reward", kind.experience.replace("experience", "reward").replace(".npz", f"-{seed}.pt"))
    name = kind.file(seed)
    found: Rows = kept(f"{name}.json", "train", f"{name}.npz", *common, *often, *model, *kind.options)
    return found


def evaluated(kind: Kind, seed: int, servers: int, *options: str) -> Rows:
    """Evaluate the weights of a training against the usual placements."""
    name = kind.file(seed)
    args = ("eval", "--servers", str(servers), "--seed", str(SEED), "--weights", f"{name}.npz", *options)
    found: Rows = kept(f"eval-{servers}-{name}{''.join(options)}.json", *args)["results"]
    return found


def run_all() -> None:
    """Run all trainings and evaluations, and print the progress."""
    trainings = [(kind, seed) for seed in TRAININGS for kind in KINDS]
    evaluations: list[tuple[Kind, int, int, tuple[str, ...]]] = [
        (kind, seed, 6, ()) for kind in (WHOLE, *UNSEEN) for seed in TRAININGS
    ]
    evaluations += [
        (WHOLE, 1, 6, ("--no-length",)),
        *((kind, 1, 64, WITHOUT_SEARCH) for kind in UNSEEN),
        (WHOLE, 1, 64, ()),
    ]
    count, began_s = len(trainings) + len(evaluations), time.monotonic()

    def report(number: int, what: str) -> None:
        print(f"{number} of {count}, {time.monotonic() - began_s:.0f} s: {what}", file=sys.stderr, flush=True)

    for number, (kind, seed) in enumerate(trainings, start=1):
        report(number, f"training {kind.name}, seed {seed}")
        collected(kind)
        trained(kind, seed)
    for number, (kind, seed, servers, options) in enumerate(evaluations, start=len(trainings) + 1):
        report(number, f"evaluating {kind.name}, seed {seed}, on {servers} servers")
        evaluated(kind, seed, servers, *options)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95% confidence interval (Student's t)."""
    mean, count = float(np.mean(values)), len(values)
    half = float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return mean, mean - half, mean + half


def at(kind: Kind, intervals: int) -> list[float]:
    """Return the completion time of each training on the validation workloads after that many intervals."""
    return [
        next(point["jct_s"] for point in trained(kind, seed) if point["interval"] == intervals) for seed in TRAININGS
    ]


def print_comparison(servers: int) -> None:
    print(f"{servers} servers\n")
    print(
        "| placement | JCT, s | 95% interval | shorter than the best usual by | 95% interval "
        "| of oracle's gain | 95% interval | best in |"
    )
    print("|---|" + "---:|" * 7)
    for row in evaluated(WHOLE, 1, servers):
        print(
            f"| {row['policy']} | {row['avg_jct_s']:,.0f} | {row['low_s']:,.0f} to {row['high_s']:,.0f} "
            f"| {row['better_than_best_usual']:.1%} | {row['low']:.1%} to {row['high']:.1%} "
            f"| {row['part_of_oracle']:.0%} | {row['part_low']:.0%} to {row['part_high']:.0%} | {row['best_in']} |"
        )
    print()


def print_parts(kinds: Sequence[Kind]) -> None:
    """Print the result of each training against the first, and the number of jobs placed to reach the level."""
    whole = kinds[0]
    print("parts left out\n")
    print(
        "| left out | "
        + " | ".join(f"JCT after {point}" for point in POINTS)
        + f" | 95% interval | longer than with all, after {POINTS[0]} | after {POINTS[-1]} "
        + "| jobs placed to reach the level |"
    )
    print("|---|" + "---:|" * (len(POINTS) + 4))
    for kind in kinds:
        jct = " | ".join(f"{np.mean(at(kind, point)):,.0f}" for point in POINTS)
        _, low, high = interval(at(kind, POINTS[-1]))
        more = " | ".join("" if kind is whole else longer(kind, whole, point) for point in (POINTS[0], POINTS[-1]))
        print(f"| {kind.name} | {jct} | {low:,.0f} to {high:,.0f} | {more} | {samples(kind)} |")
    print()


def longer(kind: Kind, whole: Kind, intervals: int) -> str:
    """Return by how much completion times are longer, paired by training seed."""
    pairs = zip(at(kind, intervals), at(whole, intervals), strict=True)
    return "{:.1%} ({:.1%} to {:.1%})".format(*interval([one / other - 1 for one, other in pairs]))


def samples(kind: Kind) -> str:
    """Return the number of jobs each training placed until it reached the level of complete trainings."""
    level = NEAR * float(np.mean(at(WHOLE, LONG)))
    curves = [[point for point in trained(kind, seed) if point["interval"] <= SHORT] for seed in TRAININGS]
    found = [next((point["placed"] for point in curve if point["jct_s"] <= level), None) for curve in curves]
    return ", ".join("never" if count is None else f"{count:,}" for count in found)


def print_unseen() -> None:
    print("unseen models, unknown lengths\n")
    print("| unknown | servers | trainings | shorter than the best usual by | 95% interval | of oracle's gain |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in (WHOLE, *UNSEEN):
        rows = [evaluated(kind, seed, 6)[0] for seed in TRAININGS]
        mean, low, high = interval([row["better_than_best_usual"] for row in rows])
        part = np.mean([row["part_of_oracle"] for row in rows])
        print(f"| {what(kind)} | 6 | {len(rows)} | {mean:.1%} | {low:.1%} to {high:.1%} | {part:.0%} |")
    print(one_row("job lengths", 6, evaluated(WHOLE, 1, 6, "--no-length")[0]))
    print(one_row(what(WHOLE), 64, evaluated(WHOLE, 1, 64)[0]))
    for kind in UNSEEN:
        print(one_row(what(kind), 64, evaluated(kind, 1, 64, *WITHOUT_SEARCH)[0]))
    print()


def print_orders() -> None:
    """Print how the order within a batch changes completion times."""
    print("orders within a batch\n")
    print(
        "| placed first | " + " | ".join(f"longer than by arrival, {servers} servers" for servers, _ in ORDERED) + " |"
    )
    print("|---|" + "---:|" * len(ORDERED))
    actor = Actor(load_learned(FOLDER / f"{WHOLE.file(1)}.npz").network)
    arrival = {servers: ordered(actor, servers, count, by_arrival) for servers, count in ORDERED}
    for name, first in ORDERS.items():
        cells = []
        for servers, count in ORDERED:
            longer = ordered(actor, servers, count, first) / arrival[servers] - 1.0
            cells.append("{:.1%} ({:.1%} to {:.1%})".format(*interval(longer.tolist())))
        print(f"| {name} | {' | '.join(cells)} |")
    print()


def ordered(actor: Actor, servers: int, count: int, first: Callable[[LiveJob], float]) -> np.ndarray:
    """Return mean completion times by workload with the jobs of a batch in another order."""
    works = [workload(WorkloadShape(servers=servers), f"order {number}") for number in range(count)]
    played = [play(work, servers, actor, placement="consolidate", first=first) for work in works]
    return np.array([mean_jct_s(history) for history in played])


def what(kind: Kind) -> str:
    return " and ".join(kind.unseen) or "nothing"


def one_row(name: str, servers: int, row: dict[str, Any]) -> str:
    """Return the row of one training; the interval is over workloads."""
    part = "" if row["part_of_oracle"] is None else f"{row['part_of_oracle']:.0%}"
    gain = f"{row['better_than_best_usual']:.1%} | {row['low']:.1%} to {row['high']:.1%}"
    return f"| {name} | {servers} | 1 | {gain} | {part} |"


def draw(name: str, title: str, kinds: Sequence[Kind]) -> None:
    """Draw learning curves: the mean of the trainings, and a band from the best to the worst."""
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rota", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
        for kind in kinds:
            curves = [[point for point in trained(kind, seed) if point["interval"] <= SHORT] for seed in TRAININGS]
            placed = np.mean([[point["placed"] for point in curve] for curve in curves], axis=0)
            times = np.array([[point["jct_s"] for point in curve] for curve in curves])
            label = kind.name.removeprefix("one way, ")
            colour = COLOURS[label]
            axes.plot(placed, times.mean(0), color=colour, linewidth=1.6, label=label)
            axes.fill_between(placed, times.min(0), times.max(0), color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel="jobs placed in training", ylabel="mean completion time, s", title=title)
        axes.set_ylim(2200, 3700)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(title="left out", alignment="left", frameon=False)
        figure.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    FIGURES.mkdir(parents=True, exist_ok=True)
    run_all()
    print_comparison(6)
    print_comparison(64)
    print_parts(COMPARING)
    print_parts(ONE_WAY)
    print_unseen()
    print_orders()
    draw("twelve-ways", "Twelve placements of each job are compared", COMPARING)
    draw("one-way", "One placement of each job, against the critic", (*ONE_WAY, NO_MODEL))
    draw("never-seen", "Models that are left out of all training", (WHOLE, *UNSEEN))


if __name__ == "__main__":
    main()
