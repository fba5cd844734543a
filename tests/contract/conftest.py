"""The stages that need a cluster take it from the tests of Kubernetes."""

from __future__ import annotations

from e2e.kubernetes.conftest import kubelets, launch, managed, pytest_runtest_teardown

__all__ = ["kubelets", "launch", "managed", "pytest_runtest_teardown"]
