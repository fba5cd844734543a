"""The stages that need a cluster take it from the tests of Kubernetes and of Slurm."""

from __future__ import annotations

from e2e.kubernetes.conftest import kubelets, launch, managed, pytest_runtest_teardown
from e2e.slurm.conftest import accounting_bed, accounting_slurm, launch_slurm

__all__ = [
    "accounting_bed",
    "accounting_slurm",
    "kubelets",
    "launch",
    "launch_slurm",
    "managed",
    "pytest_runtest_teardown",
]
