"""Real processes over shaped links, compared with the model: Prophet's hook, partial all-reduce, and time shifts.

`python bench/network_real.py [--quick]` (root, `tc`, `ip`, PyTorch) puts two to eight gloo processes into network
namespaces whose links are shaped, and prints each measurement beside the model's prediction. Computing is a timed wait,
as on an accelerator. It says why and ends with 0 where it can't run.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from typing import Any

from network_rows.shaped_links import launch, namespaces, reason_to_skip, results, run
from network_rows.worker import BUCKET, LAYERS, WAITED

MB = 1_000_000


def row(what: str, measured: float, model: float, unit: str = "s") -> dict[str, Any]:
    error = measured / model - 1
    print(f"{what:52} measured {measured:8.3f} {unit:5} model {model:8.3f}  {error:+7.1%}", flush=True)
    return {"what": what, "measured": measured, "model": model, "error": error}


def link_of(names: list[str]) -> tuple[float, float, float]:
    """Bytes per second of an all-reduce between these namespaces, the overhead of one, and the rate of several."""
    found = run(names, "link")[0]
    points = [(float(size), float(seconds)) for size, seconds in found["points"]]
    (_, small_s), (half, half_s), (size, size_s) = points
    return (size - half) / (size_s - half_s), max(small_s, 1e-5), found["together_bytes_per_s"]


def prophet_rows(mbit: float, forward_s: float, backward_s: float, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Plain DDP and Prophet's hook at one bandwidth."""
    from rota.network.gradients import GradientLink, LayerGradient, fifo, prophet

    size = BUCKET
    with namespaces(ranks, mbit) as names:
        rate, message_s, together = link_of(names)
        options = {"layer_bytes": size, "forward_s": forward_s, "backward_s": backward_s, "steps": steps}
        runs: dict[str, list[dict[str, Any]]] = {"plain": [], "prophet": []}
        for hook in ("plain", "prophet", "prophet", "plain"):  # what else the machine does falls on both
            runs[hook] += run(names, "train", hook=hook, **options)
    plain, ordered = runs["plain"], runs["prophet"]
    assert abs(plain[0]["sum"] - ordered[0]["sum"]) < 1e-3 * abs(plain[0]["sum"]), "the hooks trained differently"
    took = {name: statistics.median(each[f"{name}_s"] for each in (*plain, *ordered)) for name in WAITED}
    layers = [
        LayerGradient(size=size, forward_s=took["forward"], ready_s=(LAYERS - number) * took["backward"])
        for number in range(LAYERS)
    ]
    link = GradientLink(bytes_per_s=rate, message_s=message_s)
    several = GradientLink(bytes_per_s=together)  # DDP does not wait for one bucket before it sends the next
    arrived_s = max(fifo(layers, several).arrival_s)
    where = f"{mbit:g} Mbit/s, {ranks} ranks"
    plain_s, ordered_s = (statistics.median(each["iteration_s"] for each in some) for some in (plain, ordered))
    rows = [
        row(f"plain DDP, {where}", plain_s, max(arrived_s, LAYERS * took["backward"]) + LAYERS * took["forward"]),
        row(f"Prophet's hook, {where}", ordered_s, prophet(layers, link, credit_bytes=size).iteration_s),
    ]
    print(f"  Prophet's hook takes {ordered_s / plain_s:.3f} of plain DDP's iteration", flush=True)
    return [{**each, "ratio": ordered_s / plain_s} for each in rows]


def partial_rows(ranks: int, seconds: float) -> list[dict[str, Any]]:
    """All-reduce and partial all-reduce beside one worker that is four times as slow."""
    from rota.network.sync_schemes import SoftmaxTask, SyncScheme, SyncSetting, train

    compute_s, slow, size = 0.08, 4.0, MB // 4
    with namespaces(ranks, 200) as names:
        rate, message_s, _ = link_of(names)
        with_all = run(names, "average", scheme="all", size=size, compute_s=compute_s, slow=slow, seconds=seconds)
        pair_rate, pair_s, _ = link_of(names[:2])
        partial = run(names, "average", scheme="partial", size=size, compute_s=compute_s, slow=slow, seconds=seconds)
    all_s = with_all[1]["seconds"] / with_all[1]["steps"]
    part_s = sum(each["seconds"] for each in partial) / sum(each["steps"] for each in partial)
    setting = SyncSetting(
        compute_s=(slow * compute_s, *(compute_s,) * (ranks - 1)),
        transfer_s=size / pair_rate + pair_s,
        jitter=0.03,
        group=2,
    )
    model_s = train(SyncScheme.PRAGUE, SoftmaxTask.make(samples=100), setting, 200).step_s
    rows = [
        row(f"all-reduce, one of {ranks} slow", all_s, slow * compute_s + size / rate + message_s),
        row(f"partial all-reduce, one of {ranks} slow", part_s, model_s),
    ]
    print(f"  partial all-reduce is {all_s / part_s:.2f} times as fast", flush=True)
    return rows


def shift_rows(share: float, steps: int) -> list[dict[str, Any]]:
    """Two jobs over the same shaped links, with and without Cassini's shift."""
    size = MB
    with namespaces(2, 100) as names:
        rate, message_s, _ = link_of(names)
        comm_s = size / rate + message_s
        compute_s = comm_s * (1 - share) / share
        period_s = comm_s + compute_s
        rows = []
        for shift_s, text, model in ((0.0, "at the same time", 1 + share), (period_s / 2, "shifted", 1.0)):
            start_s = time.time() + 8.0
            jobs = [
                launch(
                    names,
                    "shared",
                    29600 + job + os.getpid() % 1000,
                    size=size,
                    compute_s=compute_s,
                    shift_s=job * shift_s,
                    period_s=1.06 * model * period_s,
                    steps=steps,
                    start_s=start_s,
                )
                for job in range(2)
            ]
            found = [each["iteration_s"] for job in jobs for each in results(job)]
            rows.append(row(f"two jobs, c = {share:g}, {text}", statistics.mean(found), model * period_s))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer bandwidths and steps")
    parser.add_argument("--only", choices=("prophet", "partial", "shift"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that namespaces are removed
    reason = reason_to_skip()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    steps = 6 if options.quick else 12
    rows: list[dict[str, Any]] = []
    if options.only in (None, "prophet"):
        rows += prophet_rows(150, 0.03, 0.03, 2, steps)
        rows += prophet_rows(2000, 0.03, 0.03, 2, steps)
        if not options.quick:
            rows += prophet_rows(200, 0.03, 0.04, 4, steps)
    if options.only in (None, "partial"):
        rows += partial_rows(4, 5.0 if options.quick else 10.0)
    if options.only in (None, "shift"):
        rows += shift_rows(0.4, 10 if options.quick else 20)
    worst = max(abs(each["error"]) for each in rows)
    print(f"largest difference from the model: {worst:.1%}")
    return int(worst > 0.15)


if __name__ == "__main__":
    sys.exit(main())
