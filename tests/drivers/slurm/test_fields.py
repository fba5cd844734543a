"""The little languages of Slurm's output."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.drivers.slurm.printed.fields import (
    BadField,
    Gpus,
    gres,
    hosts,
    indexes,
    memory_bytes,
    number,
    tres,
    tres_gpus,
    words,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n[1-3,7],login", ("n1", "n2", "n3", "n7", "login")),
        ("gpu[08-11]", ("gpu08", "gpu09", "gpu10", "gpu11")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
    ],
)
def test_lists_of_hosts_are_expanded(text: str, names: tuple[str, ...]) -> None:
    assert hosts(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]", "n[a-b]", "n]1[", "n[1-99999999]"])
def test_broken_lists_of_hosts_are_refused(text: str) -> None:
    with pytest.raises(BadField):
        hosts(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:a100:4", Gpus(4, "a100")),
        ("gpu:4", Gpus(4)),
        ("gpu", Gpus(1)),
        ("gpu:a100:2(IDX:0-1)", Gpus(2, "a100", 0b11)),
        ("gpu:2(IDX:0,3)", Gpus(2, "", 0b1001)),
        ("gpu:v100:4(S:0-1),nic:1", Gpus(4, "v100")),
        ("craynetwork:4", Gpus(0)),
        ("", Gpus(0)),
    ],
)
def test_gres_tells_gpus_and_their_indexes(text: str, gpus: Gpus) -> None:
    assert gres(text) == gpus


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, 5.0),
        (None, None),
        ({"set": True, "infinite": False, "number": 5}, 5.0),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, None),
        (4294967295, None),
    ],
)
def test_numbers_of_old_and_new_releases(value: object, found: float | None) -> None:
    assert number(value) == found


def test_arrays_resources_and_states() -> None:
    assert indexes("0-2,5") == (0, 1, 2, 5)
    assert indexes("1-9:4%2") == (1, 5, 9)
    assert tres_gpus(tres("cpu=4,mem=4M,gres/gpu=4,gres/gpu:a100=4")) == Gpus(4, "a100")
    assert memory_bytes("1.50G") == 3 * 2**29
    assert memory_bytes("8?") == memory_bytes("16E") == 0
    assert words("IDLE+DRAIN") == words(["IDLE", "DRAIN"]) == ("IDLE", "DRAIN")


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 40)), min_size=1, max_size=4), st.integers(1, 5))
def test_a_range_of_hosts_names_each_of_them(spans: list[tuple[int, int]], digits: int) -> None:
    inside = ",".join(f"{low:0{digits}d}-{low + more:0{digits}d}" for low, more in spans)
    wanted = tuple(f"n{each:0{digits}d}" for low, more in spans for each in range(low, low + more + 1))
    assert hosts(f"n[{inside}]") == wanted


@given(st.text(alphabet="n[]-,0123456789()gpu:a=IDX%*. ", max_size=40))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for read in (hosts, indexes, tres, gres, memory_bytes):
        with contextlib.suppress(BadField):
            read(text)
