"""Values of a submitted job file that could only be taken by a guess are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.files.job import job_file, submitted_job
from rota.files.job_shape import JobFile

Json = dict[str, Any]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10),
    st.floats(-10, 10, allow_nan=False),
    st.sampled_from(["", " ", "0", "1", "yes", "no", "true", "false", "on", "1.0", "0.5", "1e3", "x", "²"]),
    st.just([]),
    st.just({}),
)
FLAGS = (("gang",), ("exclusive",), ("preemptible",), ("locality", "hard"))
WHOLE = (
    ("workers",),
    ("priority",),
    ("max_restarts",),
    ("array",),
    ("elastic", "min"),
    ("roles", "ps", "count"),
    ("completion", "min_failed"),
)
AMOUNTS = (("resources", "memory"), ("resources", "gpu_memory"), ("roles", "ps", "memory"))


def with_value(place: tuple[str, ...], value: object) -> Json:
    made: Json = {} if place[0] == "roles" else {"run": "true"}
    if place[0] == "elastic":
        made["elastic"] = {"min": 1, "max": 4}
    if place[0] == "roles":
        made["roles"] = {"ps": {"run": "true"}}
    part = made
    for name in place[:-1]:
        part = part.setdefault(name, {})
    part[place[-1]] = value
    return made


def taken(place: tuple[str, ...], value: object) -> object:
    """What a file has at a place once it is accepted; raises a `RotaError` if it is refused."""
    found: Any = submitted_job(with_value(place, value))
    for name in place:
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def is_refused(place: tuple[str, ...], value: object) -> bool:
    said = ""
    try:
        taken(place, value)
    except RotaError as error:
        said = str(error)
    assert not said or place[-1] in said
    assert "\n" not in said
    return bool(said)


@given(st.sampled_from(FLAGS), SCALARS)
def test_only_true_and_false_are_flags(place: tuple[str, ...], value: object) -> None:
    assert is_refused(place, value) is not isinstance(value, bool)


@given(st.sampled_from(WHOLE), SCALARS)
def test_numbers_are_whole_numbers_and_stay_what_they_are(place: tuple[str, ...], value: object) -> None:
    if not is_refused(place, value):
        assert value is None or (type(value) is int and taken(place, value) == value)


@given(st.sampled_from(AMOUNTS), SCALARS)
def test_no_amount_of_memory_is_nothing_or_lacks_its_unit(place: tuple[str, ...], value: object) -> None:
    assert is_refused(place, value)


@given(st.sampled_from([("run",), ("roles", "ps", "run")]), SCALARS)
def test_command_is_a_text_or_a_list_with_something_in_it(place: tuple[str, ...], value: object) -> None:
    accepted = isinstance(value, str) and bool(value.strip())
    if value is None and place[0] == "roles":
        return  # the run of all roles, which is missing here
    assert is_refused(place, value) is not accepted


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"run": ""}, "run is ''; say what to run"),
        ({"run": ["", "x"]}, "run is ['', 'x']; say what to run"),
        ({"run": "true", "resources": {"memory": "0"}}, "resources.memory is '0'; leave it out if there is no limit"),
        ({"run": "true", "resources": {"memory": 64}}, "resources.memory is 64, which is 64 bytes; add the unit"),
        ({"run": "true", "preemptible": "yes"}, "preemptible is 'yes'; it must be true or false"),
    ],
)
def test_refusal_names_the_field_the_value_and_the_way_out(values: Json, words: str) -> None:
    with pytest.raises(RotaError) as caught:
        submitted_job(values)
    assert words in str(caught.value)


def test_stored_file_of_an_older_version_is_still_read() -> None:
    old = {"run": "", "gang": "yes", "preemptible": 1, "resources": {"memory": "0"}}

    found = job_file(old)

    assert isinstance(found, JobFile)
    assert (found.gang, found.preemptible, found.resources.memory) == (True, True, 0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({f"k{number}": 1 for number in range(3000)}, r"unknown field k0; .* \(and at least 499 more\)"),
        ({"run": "x", "env": {f"k{number}": [1] for number in range(3000)}}, r"env.k0 is \[1\]; .*at least 249 more"),
        ({"k1": 1, "k2": 1, "run": "x"}, r"unknown field k1; .* \(and 1 more\)"),
    ],
    ids=["fields", "env", "few"],
)
def test_of_very_many_problems_one_is_named_and_few_are_counted(values: Json, said: str) -> None:
    """To look at each of 90,000 took a second, in which other users waited."""
    with pytest.raises(RotaError, match=said):
        job_file(values)
