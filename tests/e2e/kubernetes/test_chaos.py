"""A mix of faults for minutes: claims equal truth at the end, and nothing that ran was stopped without a decision."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.kubernetes.bad_weather import BadWeather
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.chaos_mix import ChaosMix, held_by_pods, set_clock
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, configure
from e2e.test_machine import FAKETIME
from managers import eventually
from rota.core.errors import Unavailable
from rota.sdk.client import Client

MINUTES = float(os.environ.get("ROTA_CHAOS_MINUTES", "10"))
SEED = int(os.environ.get("ROTA_CHAOS_SEED", "1"))
NODES, GPUS = 6, 8
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("ROTA_CHAOS") != "full", reason=f"it takes {MINUTES:g} minutes; `make chaos` runs it"
    ),
]


@pytest.fixture
def replicas(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Replica, BadWeather]]]:
    made = []
    for name in ("first", "second"):
        weather = BadWeather(bed.kubeconfig(), seed=SEED).start()
        options = ["--port", "0", "--identity", name]
        made.append((Replica(bed, tmp_path / name, options=options, kubeconfig=weather.kubeconfig), weather))
    yield made
    for replica, weather in made:
        if replica.process is not None and replica.process.poll() is None:
            replica.kill()
        weather.stop()


def test_nothing_is_lost_in_a_mix_of_faults(
    bed: Bed,
    view: View,
    tmp_path: Path,
    replicas: list[tuple[Replica, BadWeather]],
    kubelets: Callable[..., Hollow],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kubelets(bed, nodes=NODES, gpus=GPUS)
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    bed.admin.make(urgent)
    configure(bed, gang_timeout="10s", check_every="5s")
    clock = tmp_path / "clock" if FAKETIME else None
    replicas[0][0].launch()
    if clock is not None:
        set_clock(clock, 0)
        monkeypatch.setenv("LD_PRELOAD", str(FAKETIME[-1]))
        monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
        monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
        monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    replicas[1][0].launch()
    mix = ChaosMix(bed, replicas, clock, SEED)
    mix.run(MINUTES * 60)

    def claims() -> dict[str, int]:
        """Devices by node that the leading replica counts as taken."""
        for replica, _ in replicas:
            said = replica.log.read_text().rpartition("answers at ")[2].split(";")[0]
            try:
                return {each["id"]: each["gpus"] - int(each["free_gpus"]) for each in Client(said).nodes()}
            except Unavailable:
                continue
        return {}

    def agree() -> bool:
        mix.mend()
        return bool(claims()) and claims() == held_by_pods(bed, view)

    eventually(agree, within_s=180, every_s=1.0)
    assert view.promised_twice() == []
    assert mix.undecided() == []
    with capsys.disabled():
        print(f"\n{len(mix.seen)} pods, {mix.deletions} stopped by Rota, {len(mix.forced)} deleted by force;", end=" ")
        print(", ".join(f"{name}: {count}" for name, count in sorted(mix.faults.items())))
    bed.admin.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")
