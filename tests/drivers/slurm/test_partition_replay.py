"""Accounting of a cluster with partitions, replayed: each job runs on the nodes of its own."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

import forked
from drivers.slurm.slurm_values import node_value
from rota.drivers.slurm.cluster_file import cluster_values
from rota.drivers.slurm.printed.records import read_nodes

DAY = "2026-11-02T"
HEADER = (
    "JobID|JobName|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|State|Timelimit|AllocTRES|ReqTRES|NNodes|"
    "NCPUS|ReqMem"
)


def accounted(number: int, partition: str, gpus: int) -> str:
    resources = f"billing=1,cpu=1,gres/gpu={gpus},mem=1G,node=1"
    moments = f"{DAY}10:00:00|{DAY}10:00:00|{DAY}10:01:40|100|COMPLETED|00:10:00"
    return f"{number}|train|ann|nlp|{partition}|normal|{moments}|{resources}|{resources}|1|1|1G"


@pytest.mark.parametrize(
    ("partitions", "starts"),
    [
        ({"n1": ["gpu"], "n2": ["debug"]}, [0.0, 100.0, 0.0]),
        ({"n1": ["gpu", "debug"], "n2": ["gpu", "debug"]}, [0.0, 0.0, 100.0]),
        ({"n1": [], "n2": []}, [0.0, 0.0, 100.0]),
    ],
    ids=["apart", "same nodes", "none"],
)
def test_jobs_are_replayed_on_the_nodes_of_their_partition(
    partitions: dict[str, list[str]], starts: list[float], tmp_path: Path
) -> None:
    lines = [HEADER, accounted(1, "gpu", 4), accounted(2, "gpu", 4), accounted(3, "debug", 4)]
    (tmp_path / "weeks.txt").write_text("\n".join(lines) + "\n")
    nodes = [node_value(name, partitions=known) for name, known in partitions.items()]
    values = cluster_values(read_nodes(json.dumps({"nodes": nodes})).found)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(values))

    command = ("sim", "--trace", "weeks.txt", "--cluster", "cluster.yaml", "--policy", "easy", "--out", "out")
    made = forked.run(command, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    with (tmp_path / "out" / "jobs.csv").open() as file:
        begun = {row["id"]: float(row["start_s"]) for row in csv.DictReader(file)}
    assert [begun[number] for number in ("1", "2", "3")] == starts
