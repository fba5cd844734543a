"""The annotations and labels that Rota reads from and writes to pods."""

from __future__ import annotations

PREFIX = "rota.dev/"
DEVICES = PREFIX + "devices"
"""The devices of the pod, as `0,1`."""
PLACEMENT = PREFIX + "placement"
"""The placement of the whole gang, for recovery after a restart."""
RANK = PREFIX + "seat"
"""The index of the pod's slot in that placement."""
JOB_ID = PREFIX + "id"
"""The id of the job."""
SIZE = PREFIX + "size"
"""The number of tasks of the job when the pod was bound."""
LATE = PREFIX + "late"
"""Marks a surplus pod of a complete gang: it is a job of its own."""
LEADS = PREFIX + "leads"
"""The label of the leading replica's pod, which its Service selects."""
HELD = PREFIX + "held-tasks"
"""On a held Job: its parallelism once it is released."""
RESOURCE = PREFIX + "resource"
"""A label and a taint, internal to Rota, of nodes whose devices are not of the first configured kind."""
KEEPS_OUT = RESOURCE + ":NoSchedule"
NODE_NAME = PREFIX + "node-name"
"""A label, internal to Rota, that matches pods to the node they name; its hostname may differ."""
PLACE = PREFIX + "place"
"""A label, internal to Rota, that keeps a waiting job to the nodes that the filters leave it."""
GPU_MEMORY = PREFIX + "gpu-memory"
"""The minimum device memory of a pod."""
GPU = PREFIX + "gpu"
"""The acceptable device types of a pod, best first."""
GPU_FRACTIONS = (PREFIX + "gpu-fraction", "gpu-fraction")
"""The fraction of one device that a pod asks for, in Rota's words or KAI's."""
PLAN = PREFIX + "plan"
"""The plan of the job as JSON: its own, or the one for the devices of the gang."""
PLAN_ARGUMENTS = PREFIX + "plan-arguments"
"""The plan as arguments of Megatron-LM's scripts."""
TORCHRUN = PREFIX + "torchrun"
"""Arguments of torchrun for the pod."""
PLAN_VARIABLES = {"ROTA_PLAN": PLAN, "ROTA_PLAN_ARGUMENTS": PLAN_ARGUMENTS, "ROTA_TORCHRUN": TORCHRUN}
"""The environment variables of a planned job, and the annotations that they come from."""
LINK_VARIABLES = {
    "GLOO_SOCKET_IFNAME": PREFIX + "interface",
    "NCCL_SOCKET_IFNAME": PREFIX + "interface",
    "NCCL_IB_HCA": PREFIX + "adapters",
    "NCCL_CROSS_NIC": PREFIX + "cross-nic",
    "ROTA_SHIFT_S": PREFIX + "shift",
    "ROTA_PERIOD_S": PREFIX + "period",
}
"""The environment variables of a job on a known network, and the annotations that they come from."""
PROGRESS = PREFIX + "progress"
"""The fraction of its steps that a running job has done, as `0.4` or `400/1000`; written by the job."""
QUEUE = PREFIX + "queue"
"""The label of a pod that names a Queue of its namespace."""
KNOWN = tuple(
    PREFIX + name
    for name in (
        *("job", "tasks", "min-tasks", "max-tasks", "role", "gpu", "gpu-memory", "class", "locality", "relax-after"),
        *("exclusive", "time-limit", "estimate", "checkpoint", "model", "pinned-cell", "lazy-preemption", "pod-group"),
        *("queue", "name", "user", "devices", "seat", "size", "placement", "id", "late", "held-tasks", "submitted"),
        *("plan", "plan-arguments", "torchrun", "gpu-fraction", "topology-required", "topology-preferred"),
        *("interface", "adapters", "cross-nic", "shift", "period", "progress"),
    )
)
"""Annotations and labels of pods that have a meaning; others with Rota's prefix are misspelt or of a later version."""
WRITTEN = (DEVICES, PLACEMENT, RANK, SIZE, JOB_ID, LATE, *GPU_FRACTIONS)
"""Annotations of a bound pod that say what it holds: those that Rota writes, and the fraction of a device."""
