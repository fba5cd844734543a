"""A file of weights is believed only if it can be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rota.cli.main import status
from rota.core.errors import RotaError
from rota.mechanisms.learned.weights import load_learned, save_learned
from rota.policies import find_policy
from rota.policies.published.learned.harmony import SHIPPED, learned


def spoiled(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    with np.load(SHIPPED, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    path = tmp_path / "weights.npz"
    np.savez_compressed(path, **arrays)
    return path


def poison(arrays: dict[str, Any]) -> None:
    arrays["actor.second.weight"] = arrays["actor.second.weight"].copy()
    arrays["actor.second.weight"][3, 4] = np.nan


def empty(arrays: dict[str, Any]) -> None:
    for name in ("job", "second", "pool"):
        arrays[f"actor.{name}.bias"] = arrays[f"actor.{name}.bias"][:0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (poison, "'second.weight' has values that are not finite"),
        (lambda a: a.update({"actor.job.weight": a["actor.job.weight"][:, :-1]}), "'job.weight' has shape"),
        (lambda a: a.pop("actor.pool.weight"), "'pool.weight' is missing"),
        (lambda a: a.pop("actor.job.bias"), "not the weights of a placement network"),
        (lambda a: a.update(kinds=a["kinds"][:-1]), "for 8 kinds it must be"),
        (lambda a: a.update(resources=np.array(["devices", "memory"])), "trained on devices, memory, but jobs request"),
        (lambda a: a.update(version=np.array(99)), "version [99] is not supported, only 1; train them again"),
        (lambda a: a.pop("about"), "'about' is missing"),
        (lambda a: a.update(about=np.array("{")), "can't be read"),
        (lambda a: a.update(linear=a["linear"][:2]), "linear model has the wrong shape"),
        (lambda a: a.update(linear=a["linear"].astype(str)), "or values that are not finite"),
        (lambda a: a.update({"actor.score.weight": a["actor.score.weight"].astype(float) + 1e300}), "or beyond 1000"),
        (lambda a: a.update({"actor.score.weight": a["actor.score.weight"].astype(str)}), "that are not finite"),
        (lambda a: a.update({"actor.score.weight": a["actor.score.weight"] + 1j}), "that are not finite"),
        (lambda a: a.update({"actor.score.weight": a["actor.score.weight"] * 0}), "no server is preferred"),
        (empty, "the weights are empty"),
        (lambda a: a.update(more=np.zeros(7_000_000)), "larger than 50 MB"),
        (lambda a: a.update(about=np.array("[" * 100_000)), "can't be read"),
        (lambda a: a.update(kinds=np.array([a["kinds"][0]] * len(a["kinds"]))), "a kind occurs twice"),
    ],
)
def test_weights_that_can_not_be_right_are_refused(
    change: Callable[[dict[str, Any]], object], why: str, tmp_path: Path
) -> None:
    path = spoiled(tmp_path, change)

    with pytest.raises(RotaError) as refusal:
        load_learned(path)

    assert str(refusal.value).startswith(f"weights {path}: ")
    assert why in str(refusal.value)


def test_file_with_code_in_it_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    np.savez(path, version=np.array([object()], dtype=object), allow_pickle=True)

    with pytest.raises(RotaError, match="can't be read"):
        load_learned(path)


@pytest.mark.parametrize("content", [b"", b"no weights at all", b"PK\x03\x04broken"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    path.write_bytes(content)

    with pytest.raises(RotaError, match=r"weights .*: can't be read"):
        load_learned(path)


def test_array_alone_and_a_file_that_was_changed_are_refused(tmp_path: Path) -> None:
    alone, changed = tmp_path / "alone.npz", tmp_path / "changed.npz"
    with alone.open("wb") as file:
        np.save(file, np.zeros(3))
    whole = bytearray(SHIPPED.read_bytes())
    middle = slice(len(whole) // 3, len(whole) // 3 + 200)
    whole[middle] = bytes(byte ^ 0xFF for byte in whole[middle])
    changed.write_bytes(whole)

    for path in (alone, changed):
        with pytest.raises(RotaError, match=r"weights .*: can't be read"):
            load_learned(path)


def test_saved_weights_are_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "again.npz"

    save_learned(path, learned(""))
    again = load_learned(path)

    assert again.network.kinds == learned("").network.kinds
    assert all(np.array_equal(again.network.of[name], weight) for name, weight in learned("").network.of.items())
    assert again.about == learned("").about


def test_policy_with_bad_weights_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = spoiled(tmp_path, poison)
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,work,gpus\na,0,60,1\n")

    code = status(["sim", "--trace", str(trace), "--cluster", "gpu=4/4", "--policy", f"harmony:weights={path}"])

    said = capsys.readouterr()
    assert code == 2
    assert "'second.weight' has values that are not finite" in said.err
    assert not said.out


def test_interval_must_be_a_number_of_seconds() -> None:
    declared, _ = find_policy("harmony")

    with pytest.raises(RotaError, match="interval_s is -1"):
        declared.read("interval_s=-1")
