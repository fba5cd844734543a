"""Unknown profiles: average completion time when policies know only a fraction of Gavel's throughput table.

Set A of the Gavel reproduction (`max_min_fairness.trace` on 8 V100s, 16 P100s and 24 K80s). The known
entries are sampled five times. Jobs always run at their true speed; only the speeds known to the policy differ.
Run: `ROTA_DATA=... python reproductions/unknown_profiles.py [SAMPLES]`.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

from rota.drivers.simulator.device_types import typed_by_speed
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profiles.matrix_completion import Fill
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.model import SpeedModel
from rota.report.metrics import measure
from rota.traces.formats import read_trace
from rota.traces.workload import Workload

POLICIES = ("gavel/max_min_fairness_perf", "gavel/max_min_fairness_packed")
FRACTIONS = (0.5, 0.2)


def completion_s(workload: Workload, policy: str, setting: Setting) -> float:
    return measure(simulate(workload, policy, setting).history).avg_jct_s or 0.0


def main(samples: int) -> None:
    folder = Path(os.environ["ROTA_DATA"]) / "gavel"
    truth = read_profiles(folder / "simulation_throughputs.json")
    cluster = read_cluster("v100=8/4,p100=16/4,k80=24/4")
    workload = read_trace(folder / "max_min_fairness.trace", format="gavel")
    typed = typed_by_speed(workload.submissions, cluster, truth)
    workload = Workload(submissions=typed, source=workload.source, format="gavel", counts_steps=True)
    base = Setting(cluster=cluster, speed=SpeedModel(profiles=truth))
    exact = {policy: completion_s(workload, policy, base) for policy in POLICIES}
    blind = completion_s(workload, "gavel/max_min_fairness", base)
    print("| known | filled in by | observed | held-out error | " + " | ".join(f"`{name}`" for name in POLICIES) + " |")
    print("|---|---|---|---|" + "---|" * len(POLICIES))
    print(f"| all | | | | {' | '.join(f'{exact[name]:.0f} s' for name in POLICIES)} |")
    for fraction in FRACTIONS:
        for fill in Fill:
            for observes in (False, True):
                specs = [
                    EstimateSpec(known=fraction, fill=fill, observes=observes, seed=seed) for seed in range(samples)
                ]
                known = [spec.estimate(truth) for spec in specs]
                errors = [each.speeds.error.median for each in known if each.speeds.error is not None]
                row = [f"{fraction:.0%}", fill.value, "yes" if observes else "no", f"{statistics.mean(errors):.0%}"]
                for policy in POLICIES:
                    settings = [
                        Setting(cluster=cluster, speed=base.speed, estimate=each, observes=observes) for each in known
                    ]
                    ratios = [completion_s(workload, policy, each) / exact[policy] for each in settings]
                    row.append(f"{statistics.mean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
                print(f"| {' | '.join(row)} |", flush=True)
    print(f"\nWithout any knowledge of types, `gavel/max_min_fairness`: {blind / exact[POLICIES[0]]:.3f}.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
