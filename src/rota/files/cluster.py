"""Reads a cluster as users name one: the short form `v100=8/4,k80=24/4`, or the path of a cluster file."""

from __future__ import annotations

import re
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster

MOST_NODES = 1_000_000
"""More is a typing error; refused before it fills the memory."""

_POOL = re.compile(r"\s*([^\s=/,]+)\s*=\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", re.ASCII)
_FILE_ENDINGS = frozenset({".yaml", ".yml", ".json"})


def read_cluster(spec: str) -> Cluster:
    """The cluster that `TYPE=GPUS/PER_NODE,...` or a cluster file describes."""
    if "=" in spec and Path(spec).suffix not in _FILE_ENDINGS:
        return _from_pools(spec)
    if Path(spec).suffix not in _FILE_ENDINGS and not Path(spec).exists():
        raise RotaError(
            f"cluster {spec!r} is neither a file nor of the form TYPE=GPUS/PER_NODE,...; "
            "write for example v100=8/4,k80=24/4"
        )
    from rota.files.cluster_file import read_cluster_file

    return read_cluster_file(Path(spec))


def _from_pools(spec: str) -> Cluster:
    pools: list[tuple[str, int, int]] = []
    nodes = 0
    for part in spec.split(","):
        found = _POOL.fullmatch(part)
        if found is None or not int(found[2]) or not int(found[3]):
            raise RotaError(
                f"cluster {spec!r}: {part.strip()!r} is not TYPE=GPUS/PER_NODE with numbers above 0; "
                "write for example v100=8/4"
            )
        pools.append((found[1], int(found[2]), int(found[3])))
        nodes += -(-int(found[2]) // int(found[3]))
    if nodes > MOST_NODES:
        raise RotaError(f"cluster {spec!r} has {nodes} nodes; the most is {MOST_NODES}")
    return Cluster.uniform(*pools)
