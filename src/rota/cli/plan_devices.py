"""The devices that `rota plan` is given by option."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, fully_connected


def named_devices(text: str | None, network: str | None = None) -> DeviceGraph | None:
    """The devices that an option names, linked by a network if one is given."""
    if network is not None and (text is None or "/" not in text):
        raise RotaError("--network needs to know which devices share a node; add --devices TYPE=COUNT/PER_NODE")
    if text is None:
        return None
    device_type, _, counts = text.partition("=")
    count, _, per_node = counts.partition("/")
    if not device_type or not count.isdigit() or int(count) < 1 or (per_node and not per_node.isdigit()):
        raise RotaError(f"--devices {text}: expected TYPE=COUNT or TYPE=COUNT/PER_NODE, as v100=16/8")
    found = fully_connected(device_type, int(count), per_node=int(per_node) if per_node else None)
    if network is None:
        return found
    from rota.files.network.network_file import network_from_spec
    from rota.planner.description.network_links import linked_by

    in_node = int(per_node) or len(found)
    names = [f"n{number + 1}" for number in range(-(-len(found) // in_node))]
    return linked_by(network_from_spec(network, names), found, in_node)
