"""Settings of Rota on a cluster: `rota.yaml` in the ConfigMap. All of them can change without a restart."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from rota.core.errors import did_you_mean
from rota.core.model.cells import CellPlan
from rota.core.model.cluster import Cluster
from rota.core.model.tenants import TenantPlan
from rota.files.cluster_file import cluster_from_document
from rota.files.durations import Seconds
from rota.files.network.network_file import network_from_document
from rota.files.shape import FileModel, checked
from rota.files.tenants import FairnessEntry, TenantEntry, tenant_plan
from rota.files.yaml_input import parse_yaml

KEY = "rota.yaml"
"""The key of the settings in the ConfigMap."""
MOST_VALUES = 100_000
"""Values in the settings; a HiveD file of a large cluster has some ten thousand."""
MOST_TRIED = 4096
"""Nodes with which a network is tried."""
Name = Annotated[str, Field(min_length=1)]


class NodeLabels(FileModel):
    """Names of the node labels that are read."""

    type: Name = "nvidia.com/gpu.product"
    """The model of its devices."""
    memory: Name = "nvidia.com/gpu.memory"
    """Memory of one device, in MiB."""
    rack: Name = "rota.dev/rack"
    zone: Name = "topology.kubernetes.io/zone"
    sockets: Name = "rota.dev/sockets"
    """How many devices are connected by NVLink, in device order: `4-4`."""


DEFAULTED = frozenset({"class", "locality", "relax-after", "time-limit", "estimate", "checkpoint", "exclusive", "gpu"})
"""Annotations that may have a default."""


def _known_defaults(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if name not in DEFAULTED:
            raise ValueError(f"{name!r} can't have a default; {did_you_mean(name, DEFAULTED)}")
    return value


class AdmissionEntry(FileModel):
    """How the admission webhook behaves."""

    failure: Literal["open", "closed"] = "open"
    """Whether objects are admitted or refused while no replica answers."""


class ProvisioningEntry(FileModel):
    """Whether a node autoscaler is asked for the nodes that waiting jobs lack."""

    request: Annotated[bool, Field(strict=True)] = False
    class_name: Name = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    """The class of the ProvisioningRequests."""


class ClusterSettings(FileModel):
    """All settings with their defaults."""

    policy: Name = "priority"
    placement: Name | None = None
    tenancy: Name = "none"
    tenants: dict[Name, TenantEntry] = {}
    fairness: FairnessEntry = FairnessEntry()
    hived: dict[str, Any] | None = None
    """A HiveD file: cells of named nodes, and their owners."""
    scheduler_name: Name = "rota"
    tenant_label: Name | None = None
    """The label of a pod that names its tenant; without one it is the namespace."""
    devices: tuple[Name, ...] = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu")
    """Extended resources that are devices; a node has those of the first that it offers."""
    labels: NodeLabels = NodeLabels()
    topology: tuple[Name, ...] = ()
    """Node labels from the widest level to the narrowest, as block, rack, NVLink domain, host; empty allows any."""
    gang_timeout: Annotated[Seconds, Field(gt=0)] = 60.0
    """How long a gang may be partly bound."""
    lost_after: Annotated[Seconds, Field(ge=0)] = 30.0
    """How long a node may be NotReady before its jobs are given up."""
    unhealthy_conditions: tuple[Name, ...] = ()
    """Conditions of nodes that, if True, take a node out of use, beside those of common programs."""
    linger: Annotated[Seconds, Field(ge=0)] = 30.0
    """How long a job without pods is kept, because its controller may create new ones."""
    check_every: Annotated[Seconds, Field(gt=0)] = 60.0
    """How often claims are compared with the API server's pods."""
    hived_pods: Annotated[bool, Field(strict=True)] = False
    """Whether pods may give tenant, priority, devices and gang with HiveD's annotation."""
    fractions: Annotated[bool, Field(strict=True)] = False
    """Whether pods may ask for a fraction of a device, by annotation; only where no device plugin assigns devices."""
    settle: Annotated[Seconds, Field(ge=0)] = 1.0
    """How long a controller whose size is not known must have made no pod before its gang counts as whole."""

    defaults: Annotated[dict[Name, Name], AfterValidator(_known_defaults)] = {}
    """Values of annotations for pods without them, set at admission."""
    admission: AdmissionEntry = AdmissionEntry()
    provisioning: ProvisioningEntry = ProvisioningEntry()
    network: dict[str, Any] | None = None
    """A network file: the links between nodes, for the order of ranks, interfaces, turns, placement and forecasts."""
    queues: dict[Name, tuple[Name, ...]] = {}
    """The Queues of each namespace, which its pods may name; made of Queue objects."""

    def network_spec(self) -> str | None:
        """Return the network in the form in which scenarios name it."""
        return None if self.network is None else json.dumps(self.network)

    def check_network(self) -> None:
        """Raise a `RotaError` for a network that can't be read, whatever the nodes are."""
        if self.network is not None:
            shape = self.network.get("shape")
            count = math.prod(shape) if isinstance(shape, list) and all(isinstance(n, int) for n in shape) else 2
            names = [f"node-{number}" for number in range(min(max(count, 2), MOST_TRIED))]
            network_from_document(self.network, Path("network"), names)

    def promises(self) -> tuple[CellPlan | None, TenantPlan | None]:
        """Return the guarantees of tenants."""
        planned = self.planned()
        tenants = tenant_plan(self.tenants, self.fairness) if self.tenants else None
        if planned is None:
            return None, tenants
        return planned.cells, tenants or planned.tenants

    def planned(self) -> Cluster | None:
        """Return the cluster of the HiveD file, if there is one."""
        return None if self.hived is None else cluster_from_document(self.hived, Path("hived"))


def read_settings(text: str, where: str) -> ClusterSettings:
    """Parse settings from YAML; an error names the field."""
    values = parse_yaml(text, where, most_values=MOST_VALUES)
    return checked(ClusterSettings, {} if values is None else values, Path(where))
