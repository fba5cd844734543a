from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.traces import read_trace
from traces.trace_samples import (
    ALIBABA,
    BLOX,
    GAVEL,
    HELIOS,
    PHILLY,
    PHILLY_JSON,
    ROTA_CSV,
    SAMPLES,
    SLURM,
    TIRESIAS,
    write,
)

STATES = "COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL, SUSPENDED"

FORMAT_OF = {sample.text: format for (format, _), sample in SAMPLES.items()}

BAD_LINES = {
    "negative duration": (
        PHILLY.text,
        "30.5,8",
        "-3,8",
        "2: duration is '-3'; expected a number of 0 or more",
    ),
    "no number": (PHILLY.text, "30.5,8", "long,8", "2: duration is 'long'; expected a number of 0 or more"),
    "not a number": (PHILLY.text, "30.5,8", "nan,8", "2: duration is 'nan'; expected a number of 0 or more"),
    "endless": (PHILLY.text, "30.5,8", "inf,8", "2: duration is 'inf'; expected a number of 0 or more"),
    "empty field": (PHILLY.text, "30.5,8", ",8", "2: duration is empty; expected a number of 0 or more"),
    "no GPUs": (PHILLY.text, "10,1,", "10,0,", "3: num_gpus is '0'; expected a whole number of 1 or more"),
    "half a GPU": (
        PHILLY.text,
        "10,1,",
        "10,1.5,",
        "3: num_gpus is '1.5'; expected a whole number of 1 or more",
    ),
    "no time": (
        PHILLY.text,
        "2020-01-01 00:00:00",
        "yesterday",
        "3: timestamp is 'yesterday'; expected a time such as 2017-10-09 07:01:55",
    ),
    "line after a blank one": (
        PHILLY.text,
        "20.0,2,",
        "20.0,two,",
        "5: num_gpus is 'two'; expected a whole number of 1 or more",
    ),
    "short line": (PHILLY.text, ",10,red", "", "3: it has 3 fields; the header has 5"),
    "long line": (BLOX.text, "130,60", "130,60,1", "2: it has 5 fields; the header has 4"),
    "no column": (
        HELIOS.text,
        "node_num",
        "nodes",
        "1: the column 'node_num' is missing; it has job_id, user, vc, "
        "jobname, gpu_num, cpu_num, nodes, state, submit_time, start_time, end_time, duration, queue",
    ),
    "two alike ids": (TIRESIAS.text, "5,1,20", "7,1,20", "3: the job id '7' is already used on line 2"),
    "no id": (BLOX.text, "0,2,130", ",2,130", "2: job_id is empty; expected an id"),
    "gavel width": (
        GAVEL.text,
        "\t7\n",
        "\n",
        "1: it has 9 tab-separated fields; expected 10, or 7 as of old",
    ),
    "gavel steps": (
        GAVEL.text,
        "\t1200\t",
        "\t-1\t",
        "2: total_steps is '-1'; expected a number of 0 or more",
    ),
    "helios state": (HELIOS.text, "NODE_FAIL", "LOST", f"3: state is 'LOST'; expected one of {STATES}"),
    "helios nodes": (
        HELIOS.text,
        "0,4,1,",
        "0,4,0,",
        "3: node_num is '0'; expected a whole number of 1 or more",
    ),
    "alibaba end": (
        ALIBABA.text,
        "1000,1500,1100",
        "1000,1050,1100",
        "2: deletion_time is '1050'; expected a time after the start at 1100",
    ),
    "alibaba share": (ALIBABA.text, ",1,250,", ",1,1250,", "3: gpu_milli is '1250'; expected at most 1000"),
    "alibaba phase": (
        ALIBABA.text,
        "Pending",
        "Lost",
        "4: pod_phase is 'Lost'; expected one of Succeeded, Running, Failed, Pending",
    ),
    "slurm GPUs": (
        SLURM.text,
        "gres/gpu:a100=8",
        "gres/gpu:a100=x",
        "2: TRES is 'gres/gpu:a100=x'; expected gres/gpu=N or gres/gpu:TYPE=N",
    ),
    "slurm limit": (
        SLURM.text,
        "02:00:00",
        "2:0:x",
        "2: Timelimit is '2:0:x'; expected a duration such as 1-02:30:00",
    ),
    "slurm memory": (
        SLURM.text,
        "mem=2G",
        "mem=lots",
        "4: mem is 'lots'; expected an amount of memory such as 64G",
    ),
    "slurm columns": (
        "JobID|Submit|Start|State|Elapsed\n1|x|x|x|x\n",
        "",
        "",
        "1: one of the columns AllocTRES, ReqTRES, AllocGRES, ReqGRES is needed; "
        "it has JobID, Submit, Start, State, Elapsed",
    ),
    "philly status": (
        PHILLY_JSON.text,
        '"Killed"',
        '"Lost"',
        "2: status is 'Lost'; expected one of Pass, Killed, Failed",
    ),
    "philly times": (
        PHILLY_JSON.text,
        "00:00:15",
        "00:00:01",
        "64: end_time is '2020-01-01 00:00:01'; expected a time after start_time 2020-01-01 00:00:05",
    ),
    "philly id": (PHILLY_JSON.text, '"app_1"', "null", "64: jobid is empty; expected a text"),
    "philly ids": (PHILLY_JSON.text, "app_1", "app_2", "64: the job id 'app_2' is already used on line 2"),
    "rota column": (
        ROTA_CSV.text,
        "tenant",
        "tennant",
        "1: unknown column 'tennant'; did you mean 'tenant'?",
    ),
    "rota column of a role": (
        ROTA_CSV.text,
        "tenant",
        "gpu_memory",
        "1: unknown column 'gpu_memory'; did you mean 'device_memory_bytes', a key of roles?",
    ),
    "rota outcome": (
        ROTA_CSV.text,
        "cancelled",
        "lost",
        "2: outcome is 'lost'; expected one of succeeded, failed, cancelled",
    ),
    "rota fraction": (
        ROTA_CSV.text,
        "0.25",
        "1.25",
        "2: ends_at is '1.25'; expected a number between 0 and 1",
    ),
    "rota without id": (ROTA_CSV.text, "\na,", "\n,", "3: id is empty; expected a value"),
    "rota GPUs": (ROTA_CSV.text, "40,4,", "40,4.5,", "3: gpus is 4.5; expected a whole number of 0 or more"),
}


@pytest.mark.parametrize(("text", "old", "new", "reason"), BAD_LINES.values(), ids=BAD_LINES)
def test_bad_line_is_named_with_field_value_and_expectation(
    tmp_path: Path, text: str, old: str, new: str, reason: str
) -> None:
    assert old in text
    path = write(tmp_path, text.replace(old, new, 1))

    with pytest.raises(RotaError) as caught:
        read_trace(path, format=FORMAT_OF.get(text))

    assert str(caught.value) == f"{path}:{reason}"


ROTA_JSON = {
    "not JSON": (
        '{"id": "a", "submit_s": 1,}',
        "it is not JSON: Illegal trailing comma before end of object at column 27",
    ),
    "unknown field": ('{"id": "a", "submit_s": 1, "gpu": 1}', "unknown field 'gpu'; did you mean 'gpus'?"),
    "field of a role": (
        '{"id": "a", "submit_s": 1, "device_memory_bytes": 1}',
        "unknown field 'device_memory_bytes'; it is a key of roles",
    ),
    "nearly a role key": (
        '{"id": "a", "submit_s": 0, "roles": [{"gpu_mem": 1}]}',
        "roles has an unknown key 'gpu_mem'; did you mean 'device_memory_bytes'?",
    ),
    "text for a number": (
        '{"id": "a", "submit_s": "soon"}',
        "submit_s is 'soon'; expected a number of 0 or more",
    ),
    "truth for a number": (
        '{"id": "a", "submit_s": true}',
        "submit_s is True; expected a number of 0 or more",
    ),
    "list for a text": ('{"id": "a", "submit_s": 0, "name": [1]}', "name is [1]; expected a text"),
    "an operator that is none": (
        '{"id": "a", "submit_s": 0, "roles": [{"requires": [[["zone", "=", ["a"]]]]}]}',
        "roles.requires is [[['zone', '=', ['a']]]]; expected a JSON list of lists of "
        '[label, operator, [value, ...]], e.g. [[["zone", "In", ["a"]]]]',
    ),
    "a text for a list of values": (
        '{"id": "a", "submit_s": 0, "roles": [{"requires": [[["zone", "In", "ab"]]]}]}',
        "roles.requires is [[['zone', 'In', 'ab']]]; expected a JSON list of lists of "
        '[label, operator, [value, ...]], e.g. [[["zone", "In", ["a"]]]]',
    ),
    "a toleration that is none": (
        '{"id": "a", "submit_s": 0, "roles": [{"tolerates": 3}]}',
        'roles.tolerates is 3; expected a JSON list of [taint, value], e.g. [["spot", null]]',
    ),
    "no roles": (
        '{"id": "a", "submit_s": 0, "roles": []}',
        "roles is []; expected a JSON list of objects, one per role",
    ),
    "unknown role key": (
        '{"id": "a", "submit_s": 0, "roles": [{"cpus": 1}]}',
        "roles has an unknown key 'cpus'; known: count, cpu_milli, "
        "device_memory_bytes, device_milli, device_types, disk_bps, memory_bytes, name, network_bps, requires, "
        "tolerates",
    ),
    "role without tasks": (
        '{"id": "a", "submit_s": 0, "roles": [{"count": 0}]}',
        "role 'worker': count is 0; it must be at least 1",
    ),
    "two roles of a name": (
        '{"id": "a", "submit_s": 0, "work": 1, "roles": [{}, {}]}',
        "job a: two roles share a name; names are worker, worker",
    ),
    "GPUs against roles": (
        '{"id": "a", "submit_s": 0, "gpus": 3, "roles": [{"count": 2}]}',
        "gpus is 3, but the roles hold 2; leave one of the two out",
    ),
    "half of elastic": (
        '{"id": "a", "submit_s": 0, "elastic_min": 1}',
        "elastic_max is empty; expected a value, as elastic_min has one",
    ),
    "grace alone": (
        '{"id": "a", "submit_s": 0, "checkpoint_grace_s": 1}',
        "checkpoint_interval_s is empty; expected a value, as checkpoint_grace_s has one",
    ),
    "level": (
        '{"id": "a", "submit_s": 0, "locality": "room"}',
        "locality is 'room'; expected one of device, socket, node, rack, domain, cluster",
    ),
    "no list": (
        '{"id": "a", "submit_s": 0, "depends_on": "b"}',
        "depends_on is 'b'; expected JSON (Expecting value)",
    ),
    "apart": (
        '{"id": "a", "submit_s": 0, "labels": {"apart": "row"}}',
        "job a: labels.apart is 'row'; it must be rack or domain",
    ),
    "labels": (
        '{"id": "a", "submit_s": 0, "labels": {"a": 1}}',
        "labels is {'a': 1}; expected a JSON object of texts, or a list of pairs",
    ),
    "priority": (
        '{"id": "a", "submit_s": 0, "priority": -2}',
        "priority is -2; expected a whole number of -1 or more",
    ),
    "unknown job": (
        '{"id": "a", "submit_s": 0, "depends_on": ["b"]}',
        "job 'a' depends on 'b', which is not in the trace",
    ),
}


@pytest.mark.parametrize(("line", "reason"), ROTA_JSON.values(), ids=ROTA_JSON)
def test_bad_json_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path, '{"id": "fine", "submit_s": 0}\n' + line + "\n")

    with pytest.raises(RotaError) as caught:
        read_trace(path)

    told = str(caught.value)
    if "not JSON" in reason:  # the words are Python's and change between versions
        assert told.startswith(f"{path}:2: it is not JSON: ")
    else:
        assert told == f"{path}:2: {reason}"


def test_ring_of_dependencies_names_its_jobs(tmp_path: Path) -> None:
    lines = [("a", "c"), ("b", "a"), ("c", "b")]
    text = "".join(f'{{"id": "{job}", "submit_s": 0, "depends_on": ["{on}"]}}\n' for job, on in lines)
    path = write(tmp_path, text)

    with pytest.raises(RotaError, match="jobs depend on each other in a ring") as caught:
        read_trace(path)

    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert "\n" not in told
    assert all(f"'{job}'" in told for job in "abc")


def test_job_that_waits_for_itself_is_a_ring(tmp_path: Path) -> None:
    path = write(tmp_path, '{"id": "a", "submit_s": 0, "depends_on": ["a"]}')

    with pytest.raises(RotaError, match=r"ring: 'a' -> 'a'$"):
        read_trace(path)


def test_one_unit_of_work_per_trace(tmp_path: Path) -> None:
    path = write(tmp_path, "id,submit_s,work,work_unit\na,0,1,steps\nb,0,1,seconds\n")

    with pytest.raises(RotaError) as caught:
        read_trace(path)

    assert str(caught.value) == (f"{path}: work_unit is seconds in some rows and steps in others; a trace has one unit")
