"""A scenario in which every field differs from its default."""

from __future__ import annotations

import math

from builders import cluster, node
from rota.core.model.job import DeviceType, Level
from rota.perf.profiles.matrix_completion import Fill
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.speed.model import Costs, SpeedModel
from rota.scenario import ClusterChange, FaultRates, Scenario

TWO = cluster(node("n1"), node("n2"))
FULL = Scenario(
    policies=("las", "tiresias:promote=4"),
    placement="spread",
    tenancy="quota",
    cluster=TWO,
    changes=(ClusterChange(at_s=60.0, cluster="after.yaml"), ClusterChange(at_s=90.0, cluster=TWO)),
    trace="jobs.csv",
    format="rota",
    jobs=3,
    skip_bad_lines=True,
    skip_oversized=True,
    profiles="speeds.json",
    profiles_sha256="ab",
    reference="k80",
    estimate=EstimateSpec(known=0.3, fill=Fill.NEAREST, observes=False, seed=7),
    speed=SpeedModel(
        factor="./heat.py:fn",
        type_speed={DeviceType("k80"): 0.3},
        spread={Level.RACK: 0.9},
        scaling=0.8,
        device_neighbour=0.7,
        node_neighbour=0.9,
        turns=0.98,
        spilled=0.2,
        gaps=1.0,
        network=0.1,
        scattered=True,
        uneven=True,
        contention=True,
    ),
    costs=Costs(
        restart_s=30.0,
        checkpoint_interval_s=math.inf,
        checkpoint_s=5.0,
        checkpoint_write_s=6.0,
        resume_s=1.0,
        move_s=0.0,
        resize_s=4.0,
        load_s=2.0,
        save_s=3.0,
    ),
    network="net.yaml:between=crux",
    faults="faults.csv",
    fault_rates=FaultRates(mean_time_to_failure_s=1000.0, mean_time_to_repair_s=10.0),
    failures="rsc-1:spares=1",
    seed=7,
)
