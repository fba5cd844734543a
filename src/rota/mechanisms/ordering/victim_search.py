"""The fewest jobs, the last in order first, that have to leave so that another fits.

Whether it fits is decided by an offer, for which all of them have to be released. For a job of a single task a cheaper
look at the nodes that they leave says first where an offer would be in vain.
"""

from __future__ import annotations

from rota.core.engine.draft import Draft
from rota.core.engine.preemption_guard import FREE_LOSSES, OPEN
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.lanes import Entry, Holders
from rota.mechanisms.ordering.needs import Need
from rota.mechanisms.ordering.node_yields import Key, NodeSum


class RoomCheck:
    """Whether the holders that were named so far would leave room for a task on one of their nodes."""

    __slots__ = ("_holders", "_inventory", "_need", "_sums", "_usable", "nodes")

    def __init__(self, need: Need, holders: Holders, inventory: Inventory) -> None:
        self._need = need
        self._usable = need.nodes(inventory)
        self._holders = holders
        self._inventory = inventory
        self._sums: dict[int, NodeSum] = {}
        self.nodes = 0
        """The nodes with room, as a bit set."""

    def leaving(self, victims: list[Entry], nodes: int) -> dict[LiveJob, None]:
        """The victims that have to leave some nodes with room, with those that share another node with them."""
        return dict.fromkeys(self._holders.on_nodes([victim for _, victim in victims], nodes))

    def add(self, holder: LiveJob) -> bool:
        """Name another holder, which has not been released yet; return whether one of its nodes would have room."""
        found = False
        for node, claim in self._holders.held(holder).claims.items():
            if not self._usable >> node & 1:
                continue
            left = self._sums.get(node)
            if left is None:
                left = self._sums[node] = NodeSum()
            left.add(claim)
            if left.has_room(self._need, self._inventory.nodes[node]):
                self.nodes |= 1 << node
                found = True
        return found


class Candidates:
    """Holders further down the order than a job, the last first, that may be preempted for it."""

    __slots__ = (
        "_behind",
        "_draft",
        "_free_losses",
        "_guarantees",
        "_holders",
        "_is_open",
        "_live",
        "_looks",
        "_nodes",
        "_types",
        "_wanted",
        "spared",
    )

    def __init__(self, draft: Draft, live: LiveJob, holders: Holders, key: Key) -> None:
        self._draft = draft
        self._live = live
        self._holders = holders
        self._behind = holders.behind(key, draft.now_s)
        # Of several types, holders of others than the job can use would only get their devices back.
        self._types = len(draft.inventory.pools) > 1
        self._guarantees = draft.allocator.has_guarantees
        self._wanted = 0
        if not self._guarantees:
            self._wanted = _pools_wanted(live, draft.inventory)
        self._looks = self._types and not self._guarantees and not draft.inventory.locked
        """Whether the nodes on which a holder has devices say whether the job can use some of them."""
        self._nodes = 0
        if self._looks:
            for node, account in enumerate(draft.inventory.nodes):
                if self._wanted >> account.pool & 1:
                    self._nodes |= 1 << node
        self._is_open = draft.guard is OPEN
        self._free_losses = FREE_LOSSES
        self.spared = False
        """Whether a job was passed over because it is protected for now."""

    def take(self) -> Entry | None:
        """The next; None after the last."""
        draft, live = self._draft, self._live
        allocator = draft.allocator
        while True:
            entry = self._behind.take()
            if entry is None:
                return None
            other = entry[1]
            if self._guarantees and not allocator.may_displace(live, other, draft.now_s):
                continue
            if not (self._is_open and other.undone <= self._free_losses) and not draft.may_preempt(other):
                self.spared = True
            elif not self._types or not other.gpu_milli or self._is_useful(other):
                return entry

    def _is_useful(self, holder: LiveJob) -> bool:
        """Whether a holder would free devices that the job can use."""
        if self._looks:
            held = self._holders.held(holder)
            if held.placement is holder.placement:
                return held.with_devices & self._nodes != 0
        return self.freed_by(holder) > 0

    def freed_by(self, holder: LiveJob) -> int:
        """Thousandths of devices that a holder would free and the job can use."""
        inventory = self._draft.inventory
        if self._guarantees or holder.job.exclusive:
            return self._draft.allocator.shortage.freed_by(holder, self._live, inventory)
        devices = 0
        for node, held, _, _, _, _, _ in holder.placement or ():
            if self._wanted >> inventory.nodes[node].pool & 1:
                devices += held.bit_count()
        return devices * WHOLE


def _pools_wanted(live: LiveJob, inventory: Inventory) -> int:
    """The device types that a job's roles name, all if one of them takes any, as a bit set of the inventory's pools."""
    every = (1 << len(inventory.pools)) - 1
    if every == 1:
        return every
    wanted = 0
    for role in live.job.roles:
        if not role.device_milli:
            continue
        if not role.device_types:
            return every
        for kind in role.device_types:
            at = inventory.pool_by_type.get(kind)
            if at is not None:
                wanted |= 1 << at
    return wanted


class VictimSearch:
    """One search. What fits on free devices must also fit on more of them."""

    __slots__ = (
        "_behind",
        "_draft",
        "_live",
        "_may_name",
        "_nodes",
        "_released",
        "_room",
        "_uncounted",
        "named",
        "placement",
        "victims",
    )

    def __init__(
        self, draft: Draft, live: LiveJob, behind: Candidates, room: RoomCheck | None, *, may_name: bool
    ) -> None:
        self._draft = draft
        self._live = live
        self._behind = behind
        """The jobs that may have to leave, the last in order first."""
        self._room = room
        self._may_name = may_name
        """Whether victims need not be released whose nodes have no room for the job."""
        self._nodes = 0
        """The nodes that had room first."""
        self._released = 0
        """How many of the victims have been released."""
        self._uncounted: list[Entry] = []
        """Those whose nodes were not looked at yet, since the job seemed to fit without them."""
        self.victims: list[Entry] = []
        """The jobs that have to leave."""
        self.named: list[Entry] = []
        """Those of them that were not released."""
        self.placement: Placement = ()

    def run(self, missing: int) -> bool:
        """Release jobs until the job fits, which lacks so many thousandths; change nothing if it never does."""
        if not self._name(missing):
            return False
        trial = self._draft.trial()
        is_found = (self._leave_room(self.victims) and self._fits_now()) or self._find_more()
        if not is_found:
            self._draft.take_back(trial)
        return is_found

    def _name(self, missing: int) -> bool:
        """Name as many victims as give back the devices that are missing; return whether there are as many."""
        while missing > 0:
            victim = self._behind.take()
            if victim is None:
                return False
            self.victims.append(victim)
            missing -= self._behind.freed_by(victim[1])
        return True

    def _leave_room(self, entries: list[Entry]) -> bool:
        """Whether jobs may leave room for the task, as far as the nodes tell; they count as named from now on."""
        room = self._room
        if room is None:
            return True
        found = False
        for entry in entries:
            found = room.add(entry[1]) or found
        self._nodes = room.nodes
        return found

    def _find_more(self) -> bool:
        """Release further jobs, the last first, until the job fits.

        Twice as many jobs are named at each attempt, or one by one where tenants have guarantees; of the last attempt
        as few as needed are found by halving: the same jobs as one by one.
        """
        doubles = not self._draft.allocator.has_guarantees
        step = 1
        while True:
            taken: list[Entry] = []
            while len(taken) < step:
                victim = self._behind.take()
                if victim is None:
                    break
                taken.append(victim)
            if not taken:
                return False
            too_few = self._certainly_too_few(taken)
            if too_few < len(taken) and self._fits_among(taken, too_few):
                return True
            self.victims += taken
            if doubles:
                step *= 2

    def _certainly_too_few(self, taken: list[Entry]) -> int:
        """How many further victims leave no room: the job can fit only after one of its nodes got room for it."""
        room = self._room
        if room is not None:
            for entry in self._uncounted:
                room.add(entry[1])
            self._uncounted = []
            for count, entry in enumerate(taken):
                if room.add(entry[1]):
                    self._nodes = room.nodes
                    self._uncounted = taken[count + 1 :]
                    return count
            return len(taken)
        return 0

    def _fits_among(self, taken: list[Entry], too_few: int) -> bool:
        """Find the fewest further victims, more than `too_few`, so that the job fits; release all if it never does."""
        draft = self._draft
        if self._fits_beside_named([*self.victims, *taken[: too_few + 1]]):
            for _, other in taken[too_few + 1 :]:
                draft.touch(other)
            self.victims += taken[: too_few + 1]
            return True
        self._release_named()
        mark = draft.mark()
        enough = len(taken)
        if self._room is not None:
            if self._fits_after(taken, too_few + 1, mark):
                for _, other in taken[too_few + 1 :]:
                    draft.touch(other)  # decisions come in the order in which jobs were named
                self.victims += taken[: too_few + 1]
                return True
            too_few += 1
        if too_few == enough or not self._fits_after(taken, enough, mark):
            self._released += enough
            return False
        placement = self.placement
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if self._fits_after(taken, middle, mark):
                enough, placement = middle, self.placement
            else:
                too_few = middle
        self._release_only(taken, enough, mark)
        self.placement = placement
        self.victims += taken[:enough]
        return True

    def _fits_after(self, taken: list[Entry], count: int, mark: int) -> bool:
        """Release only the first of some jobs; return whether the job fits then."""
        self._release_only(taken, count, mark)
        return self._is_offered()

    def _release_only(self, taken: list[Entry], count: int, mark: int) -> None:
        draft = self._draft
        draft.undo(mark)
        for _, yielding in taken[:count]:
            draft.release(yielding)

    def _fits_now(self) -> bool:
        """Whether the job fits once all victims are released."""
        if self._fits_beside_named(self.victims):
            return True
        self._release_named()
        return self._is_offered()

    def _fits_beside_named(self, victims: list[Entry]) -> bool:
        """Release only those victims whose nodes have room; return whether the job fits, as it would without all."""
        room, draft = self._room, self._draft
        if room is None or not self._may_name:
            return False
        self._may_name = False
        mark = draft.mark()
        leaving = room.leaving(victims, self._nodes)
        for entry in victims:
            if entry[1] in leaving:
                draft.release(entry[1])
            else:
                draft.touch(entry[1])
                self.named.append(entry)
        if self._is_offered():
            return True
        draft.undo(mark)
        self.named = []
        return False

    def _release_named(self) -> None:
        """Release the victims that have not been released yet."""
        for _, yielding in self.victims[self._released :]:
            self._draft.release(yielding)
        self._released = len(self.victims)

    def _is_offered(self) -> bool:
        """Whether the job fits on what is free now."""
        answer = self._draft.offer(self._live)
        if isinstance(answer, Reason):
            return False
        self.placement = answer
        return True
