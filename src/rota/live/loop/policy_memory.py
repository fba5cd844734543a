"""What a policy finds again after a restart: only what it left there itself. To another one it would mean nothing."""

from __future__ import annotations

from typing import Any

from rota.store.records import Records

Json = dict[str, Any]


class PolicyMemory:
    """The memory in the records, as far as it is this policy's."""

    def __init__(self, records: Records, policy: str) -> None:
        last = records.last_policy()
        self._is_own = last is not None and last.partition(":")[0] == policy.partition(":")[0]
        self._records = records

    def memory(self) -> Any:
        """What the policy has learned."""
        return self._records.memory() if self._is_own else None

    def standing(self, value: Json) -> Json:
        """Where a job stands, with the policy's note on it."""
        return value if self._is_own else {name: each for name, each in value.items() if name != "memo"}
