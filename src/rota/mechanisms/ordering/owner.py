"""The owners that a policy is fair between: tenants or users."""

from __future__ import annotations

from enum import Enum


class FairnessOwner(Enum):
    """What counts as one owner."""

    TENANT = "tenant"
    USER = "user"
