"""Between whom a policy is fair: tenants or users."""

from __future__ import annotations

from enum import Enum


class FairnessOwner(Enum):
    """Between whom to be fair."""

    TENANT = "tenant"
    USER = "user"
