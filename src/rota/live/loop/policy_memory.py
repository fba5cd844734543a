"""The memory of a policy across restarts. A policy only gets back what it stored itself."""

from __future__ import annotations

from typing import Any

from rota.store.records import Records

Json = dict[str, Any]


class PolicyMemory:
    """The stored memory of one policy."""

    def __init__(self, records: Records, policy: str) -> None:
        last = records.last_policy()
        self._is_own = last is not None and last.partition(":")[0] == policy.partition(":")[0]
        self._records = records

    def memory(self) -> Any:
        """Return what the policy stored."""
        return self._records.memory() if self._is_own else None

    def standing(self, value: Json) -> Json:
        """Return the state of a job with the policy's memo, if the policy is the one that wrote it."""
        return value if self._is_own else {name: each for name, each in value.items() if name != "memo"}
