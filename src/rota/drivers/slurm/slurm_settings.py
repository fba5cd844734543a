"""What Slurm's configuration and partitions say about what a job holds: memory, CPUs, or its nodes whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.drivers.slurm.printed.records import SlurmJob


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """How a cluster counts; by default as most do."""

    name: str = ""
    """The cluster's name; empty if it is not known."""
    counts_cpus: bool = True
    counts_memory: bool = True
    """Whether memory is given out. Where it is not, every job is said to want all memory of its nodes."""
    gives_whole_nodes: bool = False
    whole_node_partitions: frozenset[str] = frozenset()
    """Partitions whose jobs have their nodes for themselves."""

    def adjust(self, job: SlurmJob) -> SlurmJob:
        """Return a job with what the cluster counts, and nothing else."""
        whole = self.gives_whole_nodes or (
            bool(self.whole_node_partitions) and self.whole_node_partitions.issuperset(job.partitions)
        )
        if self.counts_cpus and self.counts_memory and whole <= job.exclusive:
            return job
        return replace(
            job,
            cpus=job.cpus if self.counts_cpus else 0,
            memory_bytes=job.memory_bytes if self.counts_memory else 0,
            exclusive=job.exclusive or whole,
            shares=tuple(
                replace(
                    share,
                    cpus=share.cpus if self.counts_cpus else 0,
                    memory_bytes=share.memory_bytes if self.counts_memory else 0,
                )
                for share in job.shares
            ),
        )


def settings_of(config: Mapping[str, str], partitions: str) -> SlurmSettings:
    """Read a configuration (as `read_config` returns it), and what `scontrol show partition --oneliner` prints."""
    kind = config.get("selecttype", "")
    counted = config.get("selecttypeparameters", "").upper()
    is_linear = kind == "select/linear"
    return SlurmSettings(
        name=config.get("clustername", ""),
        counts_cpus=is_linear or not counted or any(word in counted for word in ("CR_CPU", "CR_CORE", "CR_SOCKET")),
        counts_memory="MEMORY" in counted,
        gives_whole_nodes=is_linear,
        whole_node_partitions=frozenset(
            values["PartitionName"]
            for line in partitions.splitlines()
            if (values := dict(word.split("=", 1) for word in line.split() if "=" in word)).get("PartitionName")
            and values.get("OverSubscribe", "").startswith("EXCLUSIVE")
        ),
    )
