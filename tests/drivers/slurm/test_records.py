"""Slurm's JSON as types, of several releases; nonsense gives a message and never an exception of another kind."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.slurm.slurm_values import job_value, jobs, node_value, running_value
from rota.core.errors import RotaError
from rota.drivers.slurm.printed import records
from rota.drivers.slurm.printed.fields import Gpus
from rota.drivers.slurm.printed.json_records import decode_list
from rota.drivers.slurm.printed.records import QueueReader, SlurmUnreadable, read_jobs, read_nodes
from rota.drivers.slurm.rest import newest_version, read_rest_associations
from rota.drivers.slurm.translate import claim_of, job_of

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def test_waiting_array_becomes_a_job_for_each_task() -> None:
    value = job_value(7, array_job_id=7, array_task_string="1-3%2", array_max_tasks=2)

    found = read_jobs(jobs(value)).found

    assert [job.id for job in found] == ["7_1", "7_2", "7_3"]
    assert {job.array_limit for job in found} == {2}


def test_new_releases_say_the_same_in_other_forms() -> None:
    old = read_jobs(jobs(job_value())).found[0]
    unset = {"set": False, "infinite": False, "number": 0}
    new = job_value(
        job_state=["PENDING"],
        array_job_id={"set": True, "infinite": False, "number": 0},
        array_task_id=unset,
        priority={"set": True, "infinite": False, "number": 4294901759},
        time_limit={"set": True, "infinite": False, "number": 10},
        submit_time={"set": True, "infinite": False, "number": 1794980528},
        exit_code={"return_code": 0, "status": ["SUCCESS"]},
        shared=[],
    )

    assert read_jobs(jobs(new)).found == [old]


def test_bad_record_is_left_out_with_a_message_and_the_others_stay() -> None:
    reading = read_jobs(jobs(job_value(1), job_value(2, nodes="n[1-"), 5, {"job_id": 3}, job_value(4)))

    assert [job.id for job in reading.found] == ["1", "4"]
    assert reading.faults == [
        "jobs 2: 'n[1-' is not a list of hosts",
        "jobs 2: a int, not an object",
        "jobs 3: no 'job_state'",
    ]


def test_reading_again_gives_the_same_as_a_first_reading() -> None:
    reader = QueueReader()
    first = jobs(job_value(1), running_value(2), job_value(7, array_job_id=7, array_task_string="1-3"))
    second = jobs(running_value(1), running_value(2), job_value(4, nodes="n[1-"))

    for output in (first, second, second, first):
        reading, fresh = reader.read(output), read_jobs(output)
        assert (reading.found, reading.faults) == (fresh.found, fresh.faults)


@pytest.mark.parametrize("output", ["", "{", "[]", "{}", '{"jobs": [], "errors": [{"error": "no controller"}]}'])
def test_output_without_records_is_one_clear_error(output: str) -> None:
    with pytest.raises(SlurmUnreadable):
        read_jobs(output)


@given(st.dictionaries(st.sampled_from(sorted(job_value())), ANYTHING, max_size=6))
def test_any_value_in_any_field_is_read_or_reported(fields: dict[str, Any]) -> None:
    reading = read_jobs(jobs({**running_value(1), **fields}))

    assert reading.found or reading.faults or fields.get("array_task_string")
    for job in reading.found:
        with contextlib.suppress(RotaError):
            job_of(job)


@given(st.dictionaries(st.sampled_from(sorted(node_value())), ANYTHING, max_size=4))
def test_any_value_in_any_field_of_a_node(fields: dict[str, Any]) -> None:
    reading = read_nodes(json.dumps({"nodes": [{**node_value(), **fields}]}))

    assert len(reading.found) + len(reading.faults) == 1


def test_slurmrestd_is_asked_in_its_newest_version() -> None:
    paths: dict[str, Any] = {f"/slurm/{version}/jobs": {} for version in ("v0.0.9", "v0.0.41", "v0.0.38")}

    assert newest_version(json.dumps({"paths": {**paths, "/slurmdb/v0.0.99/jobs": {}}}).encode()) == "v0.0.41"
    for bad in (b"", b"[]", b"{}", b'{"paths": {"/slurmdb/v1/jobs": 1}}', b'{"paths": null}'):
        with pytest.raises(SlurmUnreadable):
            newest_version(bad)


@given(st.dictionaries(st.sampled_from(["account", "user", "parent_account", "shares_raw", "max", "qos"]), ANYTHING))
def test_any_value_in_an_association_of_slurmrestd_is_read_or_reported(value: dict[str, Any]) -> None:
    reading = read_rest_associations(json.dumps({"associations": [value, {"account": "a"}]}).encode())

    assert len(reading.found) + len(reading.faults) == 2
    assert reading.found[-1].account == "a"


@pytest.mark.parametrize(
    ("states", "word"),
    [
        (["RUNNING"], "RUNNING"),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "CONFIGURING"),
        (["COMPLETED", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
        (["PENDING", "EXPEDITING"], "PENDING"),
        (["CANCELLED", "REVOKED"], "REVOKED"),
        ("CANCELLED", "CANCELLED"),
    ],
)
def test_state_of_newer_releases_is_the_one_word_of_older_ones(states: Any, word: str) -> None:
    (job,) = read_jobs(jobs(job_value(job_state=states))).found

    assert job.state == word


@pytest.mark.parametrize(
    ("fields", "is_exclusive"),
    [
        ({"shared": None}, False),
        ({"shared": "none"}, True),
        ({"shared": 0}, True),
        ({"shared": "user"}, False),
        ({"shared": []}, False),
        ({"shared": ["none"]}, True),
        ({"shared": None, "exclusive": ["true"], "oversubscribe": False}, True),
        ({"shared": None, "exclusive": ["false"], "oversubscribe": True}, False),
    ],
)
def test_exclusive_jobs_of_all_releases(fields: dict[str, Any], is_exclusive: bool) -> None:
    (job,) = read_jobs(jobs(job_value(**fields))).found

    assert job.exclusive == is_exclusive


def test_tasks_of_an_array_that_were_cut_off_are_no_guess() -> None:
    cut = read_jobs(jobs(job_value(7, array_job_id=7, array_task_string="1,4,9,16,...")))
    whole = read_jobs(jobs(job_value(7, array_job_id=7, array_task_string="1,4,9,16,25")))

    assert (cut.found, cut.unread) == ([], {"7"})
    assert "SLURM_BITSTR_LEN=0" in cut.faults[0]
    assert [job.id for job in whole.found] == ["7_1", "7_4", "7_9", "7_16", "7_25"]


def test_powered_down_nodes_take_jobs_and_lost_ones_do_not() -> None:
    states = {
        "cloud": ["IDLE", "CLOUD", "POWERED_DOWN"],
        "off": ["IDLE", "POWERING_DOWN"],
        "gone": ["DOWN", "NOT_RESPONDING"],
        "small": ["IDLE", "INVALID_REG"],
    }
    nodes = read_nodes(json.dumps({"nodes": [node_value(name, state=state) for name, state in states.items()]})).found

    assert [node.name for node in nodes if not node.is_down] == ["cloud"]


class Read(dict[str, Any]):
    """A record that notes which of its fields are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.names.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize("value", [job_value(), running_value(), job_value(array_task_string="1-2", shared=None)])
def test_changes_of_all_fields_that_are_read_are_seen(value: dict[str, Any]) -> None:
    record = Read({**value, "tres_per_node": "", "tres_req_str": ""})
    records._jobs_of(record)

    assert record.names <= set(records._READ)


@given(ANYTHING, st.sampled_from(["jobs", "other"]), st.sampled_from([None, 1, 3]))
def test_decoding_one_by_one_is_decoding(value: Any, key: str, indent: int | None) -> None:
    whole = {"meta": value, key: [value, {"jobs": [value]}, value], "jobs": [value], "last": {}}
    taken: list[Any] = []

    found = decode_list(json.dumps(whole, indent=indent).encode(), "jobs", taken.append)
    assert {**found, "jobs": taken} == whole if key == "other" else taken[-1:] == [value]


@given(st.text(st.sampled_from('{}[]":,1 ajobs'), max_size=20))
def test_nonsense_is_refused_as_by_the_usual_decoder(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = decode_list(text, "jobs", lambda value: None)
    except (ValueError, TypeError):
        assert not isinstance(expected, dict)
    else:
        assert isinstance(expected, dict)
        assert found.keys() == expected.keys()


def test_name_that_is_not_utf8_does_not_hide_the_queue() -> None:
    output = jobs(job_value(1, name="train"), job_value(2)).encode().replace(b"train", b"tra\xefn", 1)

    assert [job.name for job in read_jobs(output).found] == ["tra\ufffdn", "train"]


def test_recorded_queue_of_a_real_slurm() -> None:
    output = (Path(__file__).parent / "squeue-22.05.json").read_bytes()

    reading = read_jobs(output)
    assert (reading.faults, [job.state for job in reading.found]) == ([], ["RUNNING", "PENDING"])
    assert [(share.node, share.gpus) for share in reading.found[0].shares] == [
        ("n1", Gpus(4, "a100", 0b1111)),
        ("n2", Gpus(4, "a100", 0b1111)),
    ]
    assert [(job_of(job).gpus, job_of(job).estimate_s) for job in reading.found] == [(8, 600.0), (1, 600.0)]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a value, its inner ones included."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += leaves(value[key], (*path, key))
    return found


NEWEST = {
    "job_id": 5,
    "job_state": ["RUNNING"],
    "name": "train",
    "user_name": "ann",
    "partition": "gpu",
    "array_job_id": {"set": True, "infinite": False, "number": 0},
    "array_task_id": {"set": False, "infinite": False, "number": 0},
    "exclusive": ["false"],
    "oversubscribe": True,
    "tres_per_node": "gres/gpu:a100:2",
    "nodes": "n1",
    "tres_req_str": "cpu=2,mem=2M,node=1,gres/gpu=2",
    "gres_detail": ["gpu:a100:2(IDX:0-1)"],
    "time_limit": {"set": True, "infinite": False, "number": 10},
    "exit_code": {"status": ["SUCCESS"], "return_code": {"set": True, "infinite": False, "number": 0}},
    "job_resources": {
        "nodes": {
            "count": 1,
            "list": "n1",
            "whole": False,
            "allocation": [
                {
                    "index": 0,
                    "name": "n1",
                    "cpus": {"count": 2, "used": 0},
                    "memory": {"used": 0, "allocated": 2},
                    "sockets": [{"index": 0, "cores": [{"index": 0, "status": ["ALLOCATED"]}]}],
                }
            ],
        }
    },
}
"""A job in the form of release 26.05, by its sources."""
FORMS = [NEWEST, *json.loads((Path(__file__).parent / "squeue-22.05.json").read_text())["jobs"]]


def test_newest_form_says_the_same() -> None:
    (job,) = read_jobs(jobs(NEWEST)).found

    assert (job.gpus, job.exclusive, job.time_limit_s, job.state) == (Gpus(2, "a100"), False, 600.0, "RUNNING")
    assert [(share.node, share.gpus.mask, share.cpus, share.memory_bytes) for share in job.shares] == [
        ("n1", 0b11, 2, 2 * 2**20)
    ]


@given(st.data())
def test_any_value_at_any_place_of_a_record_is_read_or_reported(data: st.DataObject) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(FORMS)))
    for _ in range(data.draw(st.integers(1, 3))):
        places = leaves(value)
        *above, last = data.draw(st.sampled_from(places))
        inner = value
        for key in above:
            inner = inner[key]
        inner[last] = data.draw(ANYTHING)

    reading = read_jobs(jobs(value))
    assert reading.found or reading.faults or value.get("array_task_string")
    for job in reading.found:
        with contextlib.suppress(RotaError):
            claim_of(job, job_of(job), {"n1": 0, "n2": 1}, {})
