"""The largest product of throughputs under limits of devices and time, for many sets of jobs at once.

maximise  sum_k n_k log(T_k . y_k)   with   sum_j y_kj <= 1,   sum_k n_k s_k y_kj <= N_j,   y >= 0

y_k is what one job of class k gets. A primal-dual interior-point method: classes are coupled only by the
few device types, so that a Newton step is a small block per class and one more block that joins them. All of a
strategy-proof policy's questions ("what if this job were not here?") differ in n alone and are solved together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats

_STEPS = 100
_CLOSE = 1e-9
"""The accepted gap to the optimum, relative to the number of jobs."""
_BACK = 0.995
"""How far towards a limit a step may go."""
_RIDGE, _LEAST = 1e-15, 1e-300
"""Added to the equations of a step, relative and absolute: those of a problem that has converged may be singular."""


class _Point:
    """The state of the iteration: shares, slack of time and devices, and the prices of all three."""

    def __init__(self, counts: Floats, may: NDArray[np.bool_], use: Floats, devices: Floats) -> None:
        types = np.maximum(may.sum(axis=1), 1)[None, :, None]
        load = np.maximum((use.sum(axis=1) / np.maximum(devices, 1e-12)[None, :]).max(axis=1), 1.0)
        self.y = np.where(may[None], 0.5 / types / load[:, None, None], 1.0) * np.ones_like(use)
        self.time = 1.0 - np.where(may[None], self.y, 0.0).sum(axis=2)
        self.devices = devices[None] - (use * self.y).sum(axis=1)
        self.z = np.ones_like(use)
        self.v = np.ones_like(counts)
        self.w = np.ones((len(counts), len(devices)))


class _Change(NamedTuple):
    """A step: the change of shares, and of the use of time and devices in units of slack over price.

    The latter are not summed from the shares: near the end the sums would lose them to rounding.
    """

    shares: Floats
    time_price: Floats
    device_price: Floats


def most_welfare(speeds: Floats, scale: Floats, devices: Floats, counts: Floats) -> Floats:
    """Shares of one job of each class, for every row of `counts` (how many jobs each class has)."""
    may: NDArray[np.bool_] = (speeds > 0) & (devices > 0)[None, :]
    use = counts[:, :, None] * scale[None, :, None] * may[None]
    room = np.where(devices > 0, devices, 1.0)
    at = _Point(counts, may, use, room)
    limits = float(may.sum() + len(scale) + len(devices))
    for _ in range(_STEPS):
        if not _step(at, np.where(may, speeds, 0.0), counts, may, use, limits):
            break
    shares: Floats = np.where(may[None], at.y, 0.0)
    used = (use * shares).sum(axis=1) / room
    fitting: Floats = shares / np.maximum(used.max(axis=1, initial=1.0), 1.0)[:, None, None]
    return fitting


def _step(at: _Point, speeds: Floats, counts: Floats, may: NDArray[np.bool_], use: Floats, limits: float) -> bool:
    """One Newton step of all that have not converged, towards a tenth of their gap; return whether there were any."""
    inside = np.where(may[None], at.y, 0.0)
    done = np.maximum((speeds[None] * inside).sum(axis=2), 1e-300)
    spare_time, spare_devices = at.time, at.devices
    gaps = (
        np.where(may[None], at.y * at.z, 0.0).sum(axis=(1, 2))
        + (at.v * spare_time).sum(axis=1)
        + (at.w * spare_devices).sum(axis=1)
    )
    mu = 0.1 * gaps / limits
    slope = counts / done
    wanted = (
        slope[:, :, None] * speeds[None]
        + mu[:, None, None] / at.y
        - (mu[:, None] / spare_time)[:, :, None]
        - use * (mu[:, None] / spare_devices)[:, None, :]
    )
    dy, time_price, device_price = _newton(at, speeds, slope / done, may, use, np.where(may[None], wanted, 0.0))
    less_time, less_devices = spare_time / at.v * time_price, spare_devices / at.w * device_price
    dz = mu[:, None, None] / at.y - at.z - at.z / at.y * dy
    dv = mu[:, None] / spare_time - at.v + time_price
    dw = mu[:, None] / spare_devices - at.w + device_price
    ahead = np.minimum.reduce([_reach(at.y, dy), _reach(spare_time, -less_time), _reach(spare_devices, -less_devices)])
    priced = np.minimum.reduce([_reach(at.z, np.where(may[None], dz, 0.0)), _reach(at.v, dv), _reach(at.w, dw)])
    going = gaps > _CLOSE * np.maximum(counts.sum(axis=1), 1.0)
    ahead = np.where(going, np.minimum(ahead, priced), 0.0)
    at.y = at.y + ahead[:, None, None] * dy
    at.time = at.time - ahead[:, None] * less_time
    at.devices = at.devices - ahead[:, None] * less_devices
    at.z = np.where(may[None], at.z + ahead[:, None, None] * dz, 1.0)
    at.v = at.v + ahead[:, None] * dv
    at.w = at.w + ahead[:, None] * dw
    return bool(going.any())


def _newton(at: _Point, speeds: Floats, bend: Floats, may: NDArray[np.bool_], use: Floats, wanted: Floats) -> _Change:
    """Solve the step's equations: a block per class, joined by the prices of devices (Woodbury's identity)."""
    types = speeds.shape[1]
    ease = np.where(may[None], at.y / at.z, 0.0)
    eased = ease * speeds[None]
    curve = bend / (1.0 + bend * (eased * speeds[None]).sum(axis=2))
    free = -curve[..., None, None] * eased[..., :, None] * eased[..., None, :]
    free[..., np.arange(types), np.arange(types)] += ease
    row = free.sum(axis=3)
    hold = 1.0 / (at.time / at.v + row.sum(axis=2))
    bound = free - hold[..., None, None] * row[..., :, None] * row[..., None, :]
    joint = np.einsum("bki,bkij,bkj->bij", use, bound, use)
    each = np.arange(types)
    joint[:, each, each] += at.devices / at.w + _RIDGE * joint[:, each, each] + _LEAST
    device_price = np.linalg.solve(joint, np.einsum("bki,bkij,bkj->bi", use, bound, wanted)[..., None])[..., 0]
    rest = wanted - use * device_price[:, None, :]
    time_price = hold * (row * rest).sum(axis=2)
    shares = np.einsum("bkij,bkj->bki", free, rest - time_price[..., None])
    return _Change(np.where(may[None], shares, 0.0), time_price, device_price)


def _reach(value: Floats, change: Floats) -> Floats:
    """The largest step, at most 1, that keeps all values above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(change < 0, -value / change, np.inf)
    reach: Floats = np.minimum(1.0, _BACK * ratio.reshape(len(value), -1).min(axis=1))
    return reach
