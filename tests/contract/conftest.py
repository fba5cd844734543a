"""The stages that need a cluster take it from the tests of Kubernetes."""

from __future__ import annotations

from e2e.kubernetes.conftest import _managed_bed, kubelets, launch, managed

__all__ = ["_managed_bed", "kubelets", "launch", "managed"]
