"""Jobs and nodes as `squeue --json` and `sinfo --json` of Slurm 22.05 print them."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def jobs(*values: Any) -> str:
    """A queue as `squeue --json` prints it."""
    return json.dumps({"jobs": list(values), "errors": []})


def job_value(number: int = 1, **fields: Any) -> Json:
    """A job that waits for two GPUs of one node."""
    return {
        "account": "vision",
        "admin_comment": "",
        "array_job_id": 0,
        "array_task_id": None,
        "array_max_tasks": 0,
        "array_task_string": "",
        "dependency": "",
        "eligible_time": 1794980528,
        "end_time": 0,
        "excluded_nodes": "",
        "exit_code": 0,
        "features": "",
        "gres_detail": [],
        "het_job_id": 0,
        "job_id": number,
        "job_resources": {},
        "job_state": "PENDING",
        "name": "train",
        "nodes": "",
        "node_count": 1,
        "partition": "main",
        "priority": 4294901759,
        "qos": "normal",
        "required_nodes": "",
        "requeue": True,
        "restart_cnt": 0,
        "resv_name": "",
        "shared": None,
        "start_time": 0,
        "state_reason": "Resources",
        "submit_time": 1794980528,
        "time_limit": 10,
        "tres_per_node": "gres:gpu:2",
        "tres_req_str": "cpu=2,mem=2M,node=1,billing=2,gres/gpu=2",
        "tres_alloc_str": "",
        "user_id": 1000,
        "user_name": "ann",
        **fields,
    }


def running_value(number: int = 1, node: str = "n1", gpus: str = "gpu:a100:2(IDX:0-1)", **fields: Any) -> Json:
    """A job that runs on one node."""
    held = {
        "nodes": node,
        "allocated_nodes": [
            {
                "sockets": {"0": {"cores": {"0": "allocated", "1": "allocated"}}},
                "nodename": node,
                "cpus_used": 0,
                "memory_used": 0,
                "memory_allocated": 2,
            }
        ],
    }
    values: Json = {
        "job_state": "RUNNING",
        "state_reason": "None",
        "nodes": node,
        "job_resources": held,
        "gres_detail": [gpus] if gpus else [],
        "start_time": 1794980530,
        **fields,
    }
    return job_value(number, **values)


def node_value(name: str = "n1", **fields: Any) -> Json:
    """A node of four GPUs."""
    return {
        "name": name,
        "cpus": 16,
        "real_memory": 4000,
        "gres": "gpu:a100:4",
        "features": "fast",
        "active_features": "fast",
        "partitions": ["main"],
        "state": "idle",
        "state_flags": [],
        "reason": "",
        **fields,
    }
