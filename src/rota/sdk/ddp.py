"""Communication hooks for PyTorch's DistributedDataParallel: Prophet's order of gradients, and partial all-reduce.

    model = DistributedDataParallel(net, bucket_cap_mb=2)
    prophet = ProphetHook(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    for batch in loader:
        loss(model(batch)).backward()
        prophet.step()
    prophet.finish()

PyTorch is imported by the script; this module only uses it.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from rota.sdk.iteration_shift import IterationShift as IterationShift

GAP = 2.0
"""A gap of so many times the mean between ready times ends a block of gradients."""


def planned_order(ready_s: Sequence[float], sizes: Sequence[int], bytes_per_s: float) -> list[int]:
    """Return the order in which buckets are sent, the same on all ranks; a higher bucket is of an earlier layer.

    Between two blocks that become ready, those of highest priority go that fit into the time until the next block. When
    the last bucket is ready, the rest goes by priority.
    """
    moments = sorted(ready_s)
    gaps = [moments[at] - moments[at - 1] for at in range(1, len(moments))]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    starts = [moments[at] for at in range(1, len(moments)) if gaps[at - 1] > GAP * mean]
    left, order, now_s = set(range(len(ready_s))), [], 0.0
    last_s = max(ready_s, default=0.0)
    while left:
        ready = sorted((b for b in left if ready_s[b] <= now_s), reverse=True)
        if not ready:
            now_s = min(ready_s[b] for b in left)
            continue
        until_s = next((start for start in starts if start > now_s), last_s)
        fitting = [b for b in ready if now_s + sizes[b] / bytes_per_s <= until_s]
        chosen = (fitting or ready)[0] if now_s < last_s else ready[0]
        order.append(chosen)
        left.remove(chosen)
        now_s += sizes[chosen] / bytes_per_s
    return order


class ProphetHook:
    """Sends gradients in Prophet's order and lets the next forward pass begin before all of them have arrived.

    The first steps are plain and profile when each bucket is ready and how fast it is sent. Afterwards backward returns
    at once; a thread reduces the buckets in the planned order, and each module updates its own parameters just before
    its forward pass. `make_optimizer` makes the optimiser of some parameters; schedulers of rates apply to each of them
    (`optimizers`). Call `step` after backward, and `finish` before parameters are read outside of the model.
    """

    def __init__(self, model: Any, make_optimizer: Callable[[list[Any]], Any], *, profiled_steps: int = 3) -> None:
        self._model = model
        self._make = make_optimizer
        self._profiled_steps = profiled_steps
        self._step = 0
        self._began_s = 0.0
        self._ready_s: dict[int, float] = {}
        self._sizes: dict[int, int] = {}
        self._sent_s: list[tuple[int, float]] = []
        self._order: list[int] | None = None
        self._parameters: dict[int, list[Any]] = {}
        self._buckets: dict[int, Any] = {}
        self._arrived: dict[int, Any] = {}
        self._pending: set[int] = set()
        self.optimizers: dict[int, Any] = {}
        self._plain = make_optimizer(list(model.parameters()))
        self._inbox: queue.Queue[tuple[int, Any] | None] = queue.Queue()
        self._news = threading.Condition()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._group = dist.new_group()
        """A process group of its own: what DDP itself sends keeps its order."""
        model.register_comm_hook(None, lambda state, bucket: self._hook(bucket))
        model.register_forward_pre_hook(self._before_forward)

    @property
    def order(self) -> list[int] | None:
        """The planned order of buckets; None while it profiles."""
        return self._order

    def step(self) -> None:
        """End an iteration: updates happen now while it profiles, and otherwise before each module's next forward."""
        self._step += 1
        if self._order is None:
            self._plain.step()
            self._plain.zero_grad()
            if self._step == self._profiled_steps:
                self._plan()

    def finish(self) -> None:
        """Apply all updates that have not been applied."""
        for bucket in sorted(self._pending, reverse=True):
            self._apply(bucket)

    def close(self) -> None:
        """Apply all updates and end the thread."""
        self.finish()
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    def _before_forward(self, module: Any, inputs: Any) -> None:
        self._began_s = 0.0

    def _hook(self, bucket: Any) -> Any:
        now_s = time.perf_counter()
        index, buffer = bucket.index(), bucket.buffer()
        self._began_s = self._began_s or now_s
        if self._order is None:
            self._ready_s[index] = now_s - self._began_s
            self._sizes[index] = buffer.numel() * buffer.element_size()
            self._parameters[index] = list(bucket.parameters())
            size = self._sizes[index]
            work = dist.all_reduce(buffer, group=self._group, async_op=True)

            def averaged(future: Any) -> Any:
                self._sent_s.append((size, time.perf_counter()))
                return buffer.div_(dist.get_world_size())

            return work.get_future().then(averaged)
        self._pending.add(index)
        self._inbox.put((index, buffer.detach().clone()))
        done: Any = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _plan(self) -> None:
        """Plan the order on rank 0 and tell the others; from now on the thread sends."""
        ends = [at_s for _, at_s in self._sent_s[-len(self._sizes) :]]
        spent_s = max(ends) - min(ends) if len(ends) > 1 else 0.0
        total = sum(size for size, _ in self._sent_s[-len(self._sizes) :])
        count = len(self._sizes)
        plan = [
            planned_order(
                [self._ready_s[b] for b in range(count)],
                [self._sizes[b] for b in range(count)],
                total / spent_s if spent_s else 1e12,
            )
        ]
        dist.broadcast_object_list(plan, src=0, group=self._group)
        self._order = plan[0]
        for index, parameters in self._parameters.items():
            self.optimizers[index] = self._make(parameters)
            for parameter in parameters:  # momentum and the like go on
                if parameter in self._plain.state:
                    self.optimizers[index].state[parameter] = self._plain.state[parameter]
        owner = {id(p): index for index, some in self._parameters.items() for p in some}
        for module in self._model.modules():
            own = sorted({owner[id(p)] for p in module.parameters(recurse=False) if id(p) in owner})
            if own:
                module.register_forward_pre_hook(self._waiting_for(own))
        self._thread = threading.Thread(target=self._send, daemon=True, name="rota-prophet")
        self._thread.start()

    def _waiting_for(self, buckets: list[int]) -> Callable[[Any, Any], None]:
        def before(module: Any, inputs: Any) -> None:
            for bucket in buckets:
                if bucket in self._pending:
                    self._apply(bucket)

        return before

    def _apply(self, bucket: int) -> None:
        """Wait for the gradients of a bucket and update its parameters."""
        with self._news:
            self._news.wait_for(lambda: bucket in self._arrived or self._error is not None)
            if self._error is not None:
                raise RuntimeError("the exchange of gradients failed") from self._error
            reduced = self._arrived.pop(bucket)
        self._pending.discard(bucket)
        offset = 0
        for parameter in self._parameters[bucket]:
            size = parameter.numel()
            parameter.grad = reduced[offset : offset + size].view_as(parameter)
            offset += size
        self.optimizers[bucket].step()
        self.optimizers[bucket].zero_grad()

    def _send(self) -> None:
        """Reduce buckets in the planned order, whenever the next one of it is ready."""
        waiting: dict[int, Any] = {}
        try:
            for index in itertools.cycle(self._order or ()):
                while index not in waiting:
                    item = self._inbox.get()
                    if item is None:
                        return
                    waiting[item[0]] = item[1]
                buffer = waiting.pop(index)
                dist.all_reduce(buffer, group=self._group)
                buffer.div_(dist.get_world_size())
                with self._news:
                    self._arrived[index] = buffer
                    self._news.notify_all()
        except BaseException as error:
            with self._news:
                self._error = error
                self._news.notify_all()


class PartialAllReduce:
    """Prague's partial all-reduce: after a local step, a worker averages its parameters with the next ones ready.

    Groups are formed in the order in which workers ask, so that a slow one delays only the group that it joins last.
    Call `step` after the optimiser's, and `close` at the end, after which waiting workers go on alone.
    """

    def __init__(self, model: Any, store: Any, *, group_size: int = 2, wait_s: float = 60.0) -> None:
        world = dist.get_world_size()
        if not 2 <= group_size <= world:
            raise ValueError(f"group_size is {group_size}; it must be from 2 to {world}")
        self._model = model
        self._store = store
        self._size = group_size
        self._wait_s = wait_s
        self._groups = {
            members: dist.new_group(list(members)) for members in itertools.combinations(range(world), group_size)
        }
        self.averaged = 0
        """Steps after which parameters were averaged."""
        if hasattr(model, "register_comm_hook"):
            model.register_comm_hook(None, lambda state, bucket: _local_gradients(bucket))

    def step(self) -> bool:
        """Average parameters with the next workers that ask; return whether a group was formed."""
        rank = dist.get_rank()
        ticket = self._store.add("rota/partial/tickets", 1) - 1
        number = ticket // self._size
        self._store.set(f"rota/partial/{number}/{ticket % self._size}", str(rank))
        members = self._members(number)
        if members is None or len(set(members)) < self._size:
            return False
        group = self._groups[tuple(sorted(members))]
        flat = torch.nn.utils.parameters_to_vector(self._model.parameters()).detach()
        dist.all_reduce(flat, group=group)
        torch.nn.utils.vector_to_parameters(flat.div_(self._size), self._model.parameters())
        self.averaged += 1
        return True

    def _members(self, number: int) -> list[int] | None:
        """Return the ranks of a group when it is full; None when training ends first.

        One word in the store decides, so that no member goes on while another waits for it.
        """
        state = f"rota/partial/{number}/state"
        keys = [f"rota/partial/{number}/{place}" for place in range(self._size)]
        until_s = time.monotonic() + self._wait_s
        word = b""
        while not word:
            if self._store.check(keys):
                word = self._store.compare_set(state, "", "go")
            elif self._store.check(["rota/partial/closed"]) or time.monotonic() > until_s:
                word = self._store.compare_set(state, "", "void")
            else:
                time.sleep(0.001)
        return [int(self._store.get(key)) for key in keys] if word == b"go" else None

    def close(self) -> None:
        """Let workers that wait for a group go on."""
        self._store.set("rota/partial/closed", "1")


def _local_gradients(bucket: Any) -> Any:
    """Keep gradients as they are: parameters are averaged instead."""
    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
