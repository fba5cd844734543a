"""Readers of measured times: iterations of plans (vTrain's tables) and all-reduces by size (nccl-tests)."""

from __future__ import annotations

import csv
from pathlib import Path

from rota.core.errors import RotaError
from rota.planner.parallel.collectives import BusRate, fitted_bus_rate
from rota.planner.parallel.fitting import MeasuredIteration
from rota.planner.parallel.plans import ParallelPlan, Recompute, TrainingSetup, objection
from rota.planner.parallel.transformer import TransformerShape

VTRAIN_VOCAB = 51200  # not in the tables; GPT-2's 50,257 words, padded as the training scripts do
VTRAIN_PER_NODE = 8
_COLUMNS = {
    "gpus": "# GPUs",
    "batch": "global batch",
    "micro_batch": "micro batch",
    "hidden": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "seq": "sequence length",
    "tensor": "tensor parallelism",
    "data": "data parallelism",
    "pipeline": "pipeline parallelism",
}
_TIME = "iteration time (ms)"


def read_iterations(file: Path, recompute: Recompute) -> list[MeasuredIteration]:
    """The rows of a table in vTrain's form, whose own tables do not say whether activations were recomputed.

    Columns `recompute` (`none` or `full`), `vocab` and `per node` say row by row what is otherwise the argument, 51,200
    words and 8 devices.
    """
    with file.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.DictReader(text)
        missing = [name for name in (*_COLUMNS.values(), _TIME) if name not in (rows.fieldnames or ())]
        if missing:
            raise RotaError(f"{file}: there is no column {missing[0]!r}; it must be a table of measured iterations")
        return [_iteration(file, number, row, recompute) for number, row in enumerate(rows, start=2)]


def _iteration(file: Path, line: int, row: dict[str, str], recompute: Recompute) -> MeasuredIteration:
    try:
        value = {key: int(row[name]) for key, name in _COLUMNS.items()}
        vocab = int(row.get("vocab") or VTRAIN_VOCAB)
        per_node = int(row.get("per node") or VTRAIN_PER_NODE)
        iteration_s = float(row[_TIME]) / 1e3
    except (TypeError, ValueError) as error:
        raise RotaError(f"{file}, line {line}: {error}; every field must be a number") from error
    if not iteration_s > 0:
        raise RotaError(f"{file}, line {line}: {_TIME} is {row[_TIME]}; a time must be above 0")
    shape = TransformerShape(
        hidden=value["hidden"], layers=value["layers"], heads=value["heads"], seq=value["seq"], vocab=vocab
    )
    setup = TrainingSetup(shape=shape, batch=value["batch"], gpus=value["gpus"], per_node=per_node)
    plan = ParallelPlan(
        tensor=value["tensor"],
        pipeline=value["pipeline"],
        data=value["data"],
        micro_batch=value["micro_batch"],
        recompute=_recompute(file, line, row.get("recompute"), recompute),
    )
    if reason := objection(setup, plan):
        raise RotaError(f"{file}, line {line}: {reason}")
    return MeasuredIteration(setup=setup, plan=plan, iteration_s=iteration_s)


def _recompute(file: Path, line: int, value: str | None, usual: Recompute) -> Recompute:
    if value is None:
        return usual
    if value not in {way.value for way in Recompute}:
        raise RotaError(f"{file}, line {line}: recompute is {value!r}; it must be none or full")
    return Recompute(value)


def read_bus_rate(file: Path, ranks: int) -> tuple[BusRate, float]:
    """The start-up time and bus bandwidth of a table of all-reduce times, and the mean relative error of that fit.

    Sizes are thinned to even steps of their logarithm, so that small messages count as much as large ones.
    """
    with file.open(encoding="utf-8", newline="") as text:
        try:
            rows = [(float(row[0]), float(row[3]) * 1e-9) for row in list(csv.reader(text))[1:]]
        except (IndexError, ValueError) as error:
            raise RotaError(f"{file}: {error}; it must have columns size(B), count, type, time(ns)") from error
    if not rows:
        raise RotaError(f"{file}: it has no rows; it must have columns size(B), count, type, time(ns)")
    chosen = [rows[place] for place in sorted({min(len(rows), round(1.12**step)) - 1 for step in range(64)})]
    rate = fitted_bus_rate(ranks, [size for size, _ in chosen], [seconds for _, seconds in chosen])
    factor = 2 * (ranks - 1) / ranks
    off = [abs((rate.latency_s + factor * size / rate.bytes_per_s) / seconds - 1) for size, seconds in chosen]
    return rate, sum(off) / len(off)
