"""A user's selection rule, with every answer checked before the scheduler sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rota.core.messages.reasons import Reason
from rota.core.state.job_record import LiveJob
from rota.mechanisms.selection.rule import DeviceRequest, Selection, SelectionContext, SelectionRule
from rota.mechanisms.user_code import UserCode, as_count

_SELECTION = "a Selection of DeviceRequest"


class CheckedSelectionRule:
    """Answers as the user's rule does; refuses selections of unknown jobs, types or nodes."""

    def __init__(self, rule: SelectionRule, user: UserCode) -> None:
        self._rule = rule
        self._user = user
        self._name = type(rule).__name__
        user.require(rule, "expired", "select", "placed", "wakeup_s", "recall", base="DefaultSelectionRule")

    def expired(self, context: SelectionContext) -> list[LiveJob]:
        """The holders that lose their devices."""
        function = f"{self._name}.expired"
        answer = self._user.call(function, self._rule.expired, context)
        if not isinstance(answer, Collection) or not all(live in context.holding for live in _hashable(answer)):
            self._user.refuse(function, answer, "a list of jobs that hold devices (of context.holding)")
        return list(dict.fromkeys(answer))

    def select(self, context: SelectionContext) -> Selection:
        """The jobs that get devices, if all of them wait or hold some."""
        function = f"{self._name}.select"
        answer = self._user.call(function, self._rule.select, context)
        if not isinstance(answer, Selection):
            self._user.refuse(function, answer, _SELECTION)
        for requests in (answer.requests, answer.backfill):
            if not isinstance(requests, Collection):
                self._user.refuse(function, requests, f"{_SELECTION}: its requests and backfill are lists")
            for request in requests:
                self._check_request(function, request, context)
        if not isinstance(answer.passed, Mapping):
            self._user.refuse(function, answer.passed, f"{_SELECTION}: passed is a dict of Reason by job")
        for live, reason in answer.passed.items():
            if live not in context.waiting or not isinstance(reason, Reason):
                self._user.refuse(function, {live: reason}, f"{_SELECTION}: passed is a dict of Reason by waiting job")
        return answer

    def _check_request(self, function: str, request: object, context: SelectionContext) -> None:
        if not isinstance(request, DeviceRequest):
            self._user.refuse(function, request, "a DeviceRequest")
        live, kind, node = request
        if not isinstance(live, LiveJob) or (live not in context.waiting and live not in context.holding):
            self._user.refuse(function, live, "requests for jobs of context.waiting or context.holding")
        types = [pool.device_type for pool in context.inventory.pools]
        if kind is not None and kind not in types:
            self._user.refuse(function, kind, f"a device type of the cluster ({', '.join(types)}) or None")
        if node is not None:
            count = as_count(node)
            if count is None or not 0 <= count < len(context.inventory.nodes):
                self._user.refuse(function, node, f"the number of a node, 0 to {len(context.inventory.nodes) - 1}")

    def placed(self, context: SelectionContext) -> None:
        """Pass on that the selected jobs were placed."""
        self._user.call(f"{self._name}.placed", self._rule.placed, context)

    def wakeup_s(self, context: SelectionContext) -> float:
        """When the rule wants to be asked again."""
        function = f"{self._name}.wakeup_s"
        return self._user.moment(function, self._user.call(function, self._rule.wakeup_s, context), context.now_s)

    @property
    def memory(self) -> Any:
        """What the rule remembers."""
        return self._user.memory(self._name, self._user.attribute(self._rule, "memory"))

    def recall(self, memory: Any) -> None:
        """Restore what the rule remembered."""
        self._user.call(f"{self._name}.recall", self._rule.recall, memory)


def _hashable(values: Collection[object]) -> list[Any]:
    """The values, with None for those that can't be a dict's key and so are no jobs."""
    return [value if isinstance(value, LiveJob) else None for value in values]
