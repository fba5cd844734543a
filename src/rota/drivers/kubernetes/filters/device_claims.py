"""Dynamic resource allocation: the devices that drivers offer, the claims for them, and what was promised to claims."""

from __future__ import annotations

from rota.drivers.kubernetes.filters.facts import PodFacts


class ClaimBook:
    """Everything known about ResourceClaims."""

    def promise(self, pod: PodFacts, node: str) -> None:
        """Reserve what the claims of a pod get on a node."""

    def forget(self, uid: str) -> None:
        """Give up the promises to a pod's claims."""
