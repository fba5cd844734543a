"""One small made-up file per trace format, and what it must become."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.model.job import DeviceType, Job, JobId, Role, TenantId
from rota.traces import Outcome, Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    text: str
    expected: tuple[Submission, ...]
    counts_steps: bool = False
    left_out: int = 0


def sub(
    id: str,
    at: float,
    work: float,
    *,
    gpus: int = 1,
    role: Role | None = None,
    tenant: str = "default",
    user: str = "",
    name: str = "",
    model: str | None = None,
    estimate_s: float | None = None,
    outcome: Outcome = Outcome.SUCCEEDED,
    priority: int = 0,
    **labels: str,
) -> Submission:
    job = Job(
        id=JobId(id),
        roles=(role or Role(count=gpus),),
        tenant=TenantId(tenant),
        user=user,
        name=name,
        work=work,
        model=model,
        estimate_s=estimate_s,
        priority=priority,
        labels=tuple(labels.items()),
    )
    return Submission(job=job, submit_s=at, outcome=outcome)


def labelled(submission: Submission, key: str, value: str) -> Submission:
    return replace(submission, job=replace(submission.job, labels=((key, value),)))


def per_node(nodes: int, gpus: int, *, cpu_milli: int = 0, memory_bytes: int = 0, types: tuple[str, ...] = ()) -> Role:
    return Role(
        count=nodes,
        device_milli=gpus * 1000,
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        device_types=tuple(DeviceType(name) for name in types),
    )


PHILLY = Sample(
    text="""\
timestamp,duration,num_gpus,gpu_time,cluster
2020-01-01 00:01:40,30.5,8,244.0,blue
2020-01-01 00:00:00,10,1,10,red

2020-01-01 00:01:40,20.0,2,40.0,red
""",
    expected=(
        sub("1", 0.0, 10.0, tenant="red"),
        sub("0", 100.0, 30.5, gpus=8, tenant="blue"),
        sub("2", 100.0, 20.0, gpus=2, tenant="red"),
    ),
)


def attempt(start: str | None, end: str | None, *machines: int) -> dict[str, object]:
    detail = [{"ip": f"m{index}", "gpus": [f"gpu{gpu}" for gpu in range(gpus)]} for index, gpus in enumerate(machines)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(id: str, status: str, submitted: str, *attempts: dict[str, object]) -> dict[str, object]:
    return {
        "status": status,
        "vc": "red",
        "jobid": id,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "ann",
    }


PHILLY_JSON = Sample(
    text=json.dumps(
        [
            philly_job(
                "app_2",
                "Killed",
                "2020-01-01 00:00:30",
                attempt("2020-01-01 00:01:00", "2020-01-01 00:02:00", 8, 4),
                attempt("2020-01-01 00:03:00", "2020-01-01 00:03:20", 2),
                attempt("2020-01-01 00:04:00", None, 1),
            ),
            philly_job(
                "app_1",
                "Pass",
                "2020-01-01 00:00:00",
                attempt("2020-01-01 00:00:05", "2020-01-01 00:00:15", 1),
            ),
            philly_job("app_3", "Failed", "2020-01-01 00:00:31"),
            philly_job("app_4", "Failed", "2020-01-01 00:00:32", attempt(None, "2020-01-01 00:01:00", 1)),
        ],
        indent=1,
    ),
    expected=(
        sub("app_1", 0.0, 10.0, tenant="red", user="ann"),
        sub("app_2", 30.0, 80.0, gpus=2, tenant="red", user="ann", outcome=Outcome.CANCELLED),
    ),
    left_out=2,
)

GAVEL = Sample(
    text=(
        "LeNet (batch size 8)\tpython3 t.py --d %s\tvision\t--n\t1\t5000\t2\t1\t-1.000000\t7\n"
        'LSTM\tpython3 "l.py"\tlanguage\t-s\t0\t1200\t1\t2.5\t1.2\t9.5\n'
    ),
    expected=(
        sub("0", 7.0, 5000.0, gpus=2, model="LeNet (batch size 8)", priority_weight="1"),
        sub("1", 9.5, 1200.0, model="LSTM", priority_weight="2.5", slo="1.2"),
    ),
    counts_steps=True,
)

GAVEL_OLD = Sample(
    text="LeNet\tpython3 t.py\t--n\t1\t5000\t70.5\t4\n",
    expected=(sub("0", 70.5, 5000.0, gpus=4, model="LeNet"),),
    counts_steps=True,
)

TIRESIAS = Sample(
    text="""\
job_id,num_gpu,submit_time,iterations,model_name,duration,interval
7,4,40,10,lenet,99.9,3
5,1,20,10,alexnet,15,3
""",
    expected=(
        sub("5", 20.0, 15.0, model="alexnet"),
        sub("7", 40.0, 99.0, gpus=4, model="lenet"),
    ),
)

BLOX = Sample(
    text="job_id,num_gpu,submit_time,duration\r\n0,2,130,60\r\n1,1,131.5,7040.25\r\n",
    expected=(sub("0", 130.0, 60.0, gpus=2), sub("1", 131.5, 7040.25)),
)

MIB = 2**20
ALIBABA = Sample(
    text="""\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-a,8000,1024,8,1000,V100M16|V100M32,LS,Succeeded,1000,1500,1100
pod-b,2000,512,1,250,,BE,Failed,1010,1020,1010
pod-c,2000,512,0,0,nan,BE,Pending,1030,1090,
""",
    expected=(
        sub(
            "pod-a",
            0.0,
            400.0,
            role=per_node(1, 8, cpu_milli=8000, memory_bytes=1024 * MIB, types=("V100M16", "V100M32")),
            qos="LS",
        ),
        sub(
            "pod-b",
            10.0,
            10.0,
            role=Role(device_milli=250, cpu_milli=2000, memory_bytes=512 * MIB),
            outcome=Outcome.FAILED,
            priority=-1,
            qos="BE",
        ),
        sub(
            "pod-c",
            30.0,
            60.0,
            role=per_node(1, 0, cpu_milli=2000, memory_bytes=512 * MIB),
            outcome=Outcome.CANCELLED,
            priority=-1,
            qos="BE",
        ),
    ),
)

HELIOS = Sample(
    text="""\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,uA,vcX,train,16,32,2,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,10
12,uB,vcY,prep,0,4,1,NODE_FAIL,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:05,5,0
13,uB,vcY,odd,3,6,2,CANCELLED,2020-04-01 00:00:30,2020-04-01 00:00:30,2020-04-01 00:00:31,1,0
14,uB,vcY,gone,1,1,1,CANCELLED,2020-04-01 00:00:40,,2020-04-01 00:00:41,0,0
""",
    expected=(
        sub(
            "12",
            0.0,
            5.0,
            role=per_node(1, 0, cpu_milli=4000),
            tenant="vcY",
            user="uB",
            name="prep",
            outcome=Outcome.FAILED,
        ),
        sub("11", 10.0, 60.0, role=per_node(2, 8, cpu_milli=16000), tenant="vcX", user="uA", name="train"),
        sub(
            "13",
            30.0,
            1.0,
            role=per_node(3, 1, cpu_milli=2000),
            tenant="vcY",
            user="uB",
            name="odd",
            outcome=Outcome.CANCELLED,
        ),
    ),
    left_out=1,
)

GIB = 2**30
DAY = "2024-03-01T"
SLURM = Sample(
    text=(
        "JobID|JobName|User|Account|Submit|Start|End|ElapsedRaw|Timelimit|State|NNodes|NCPUS|ReqMem|AllocTRES\n"
        f"100|bert|ann|nlp|{DAY}10:00:00|{DAY}10:05:00|{DAY}11:05:00|3600|02:00:00|COMPLETED|2|16|64G|"
        "billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=64G,node=2\n"
        f"100.batch|batch||nlp|{DAY}10:05:00|{DAY}10:05:00|{DAY}11:05:00|3600||COMPLETED|1|8||cpu=8,mem=32G\n"
        f"101_3|cpu only|bob|vision|{DAY}10:00:10|{DAY}10:00:10|{DAY}10:00:40|30|UNLIMITED|"
        "CANCELLED by 7|1|4|2G|cpu=4,mem=2G,node=1\n"
        f"102|waits|bob|vision|{DAY}10:00:20|Unknown|Unknown|0|1-00:00:00|PENDING|1|4|2G|\n"
        f"103|never|bob|vision|{DAY}10:00:21|None|{DAY}10:00:30|0|1-00:00:00|CANCELLED by 7|1|4|2G|\n"
    ),
    expected=(
        sub(
            "100",
            0.0,
            3600.0,
            role=per_node(2, 4, cpu_milli=8000, memory_bytes=32 * GIB, types=("a100",)),
            tenant="nlp",
            user="ann",
            name="bert",
            estimate_s=7200.0,
        ),
        sub(
            "101_3",
            10.0,
            30.0,
            role=per_node(1, 0, cpu_milli=4000, memory_bytes=2 * GIB),
            tenant="vision",
            user="bob",
            name="cpu only",
            outcome=Outcome.CANCELLED,
        ),
    ),
    left_out=2,
)

ROTA_CSV = Sample(
    text="""\
id,submit_s,work,gpus,tenant,outcome,ends_at
b,60,100,0.5,nlp,cancelled,0.25
a,5.5,40,4,,,
""",
    expected=(
        sub("a", 5.5, 40.0, gpus=4),
        replace(
            sub("b", 60.0, 100.0, role=Role(device_milli=500), tenant="nlp", outcome=Outcome.CANCELLED),
            ends_at=0.25,
        ),
    ),
)

ROTA_JSONL = Sample(
    text=(
        '{"id": "a", "submit_s": 0, "work": 10, "work_unit": "steps", "model": "lenet"}\n'
        '\n{"id": 7, "submit_s": 0, "work": 1, "work_unit": "steps", "model": "lenet",'
        ' "labels": {"team": "x"}, "roles": [{"name": "ps", "count": 2,'
        ' "device_milli": 0, "cpu_milli": 500}]}\n'
    ),
    expected=(
        sub("a", 0.0, 10.0, model="lenet"),
        sub(
            "7",
            0.0,
            1.0,
            role=Role(name="ps", count=2, device_milli=0, cpu_milli=500),
            model="lenet",
            team="x",
        ),
    ),
    counts_steps=True,
)

JOURNAL = Sample(
    text="\n".join(
        json.dumps(line)
        for line in (
            {"rota_journal": 1, "cluster": [{"id": "n1", "devices": 4}]},
            {"n": 0, "t": 50.0, "in": [{"event": "arrived", "job": {"id": "a", "roles": [{"count": 2}]}}]},
            {"n": 1, "t": 51.0, "in": [{"event": "started", "job_id": "a", "rate": 1.0, "work_from_s": 51.0}]},
            {"n": 2, "t": 61.0, "in": [{"event": "ended", "job_id": "a", "end": "succeeded", "work": 0.0}]},
        )
    ),
    expected=(sub("a", 0.0, 10.0, gpus=2),),
)

PAI = Sample(
    text="""\
job_id,user,gpu_type,num_inst,num_gpu,num_cpu,submit_time,duration,group_gpu_dur
1,u1,T4,2,0.5,6.0,100,60,50.5
2,u2,MISC,1,2.0,12.0,40,30,
""",
    expected=(
        sub("2", 0.0, 30.0, role=per_node(1, 2, cpu_milli=12000), tenant="u2", user="u2"),
        sub(
            "1",
            60.0,
            60.0,
            role=Role(count=2, device_milli=500, cpu_milli=6000, device_types=(DeviceType("T4"),)),
            tenant="u1",
            user="u1",
            estimate_s=50.5,
        ),
    ),
)

PAI_RAW = Sample(
    text=(
        "j1,worker,1,Terminated,100.0,160.0,600.0,2.0,50.0,T4\n"
        "j2,worker,1,Running,50.0,,600.0,10.0,100.0,V100\n"
        "j3,worker,1,Failed,20.0,30.0,600.0,0,200.0,MISC\n"
    ),
    expected=(
        sub("j3", 0.0, 10.0, role=per_node(1, 2, cpu_milli=6000), name="worker", outcome=Outcome.FAILED),
        sub(
            "j1",
            80.0,
            60.0,
            role=Role(device_milli=500, cpu_milli=6000, memory_bytes=2 * 2**30, device_types=(DeviceType("T4"),)),
            name="worker",
        ),
    ),
    left_out=1,
)

SAMPLES: dict[tuple[str, str], Sample] = {
    ("pai2020", "pai2020"): PAI,
    ("pai2020-raw", "pai2020-raw"): PAI_RAW,
    ("journal", "journal"): JOURNAL,
    ("philly", "philly"): PHILLY,
    ("philly-json", "philly-json"): PHILLY_JSON,
    ("gavel", "gavel, ten columns"): GAVEL,
    ("gavel", "gavel, seven columns"): GAVEL_OLD,
    ("tiresias", "tiresias"): TIRESIAS,
    ("blox", "blox"): BLOX,
    ("alibaba2023", "alibaba2023"): ALIBABA,
    ("helios", "helios"): HELIOS,
    ("slurm", "slurm"): SLURM,
    ("rota", "rota, CSV"): ROTA_CSV,
    ("rota", "rota, JSON lines"): ROTA_JSONL,
}


def write(folder: Path, text: str, name: str = "jobs.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path
