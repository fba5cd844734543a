"""A manager's placement learns from its journal, and uses new weights only where they prove better."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import status
from rota.core.model.job import JobId
from rota.drivers.local.driver import LocalDriver
from rota.drivers.simulator.study import Setting, simulate
from rota.learn.experience import Experience
from rota.learn.from_journal import experience_of
from rota.learn.undisturbed import mean_speeds, undisturbed
from rota.learn.workloads import KIND_NAMES, WorkloadShape, cluster_of, workload
from rota.live.loop.boot import Scheduling, boot
from rota.live.workers.retraining import Retraining, part_of, with_learned
from rota.live.workers.retraining_worker import StepRates, Trial, judge, teach
from rota.mechanisms.learned.weights import Learned, load_learned, save_learned
from rota.perf.speed.model import SpeedModel
from rota.policies.published.learned.harmony import SHIPPED
from rota.scenario import Scenario
from rota.store.database import open_database
from rota.store.journal import JournalHeader, JournalWriter
from rota.store.records import Records
from rota.traces.formats import read_trace

SERVERS = 4


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of jobs that slowed each other down."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    cluster = cluster_of(SERVERS)
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="spread", cluster=cluster))
    with JournalWriter(path, header) as writer:
        setting = Setting(cluster=cluster, placement="spread", speed=SpeedModel(contention=True))
        simulate(workload(WorkloadShape(servers=SERVERS), 1), "fifo:backfill=true", setting, journal=writer)
    return path


@pytest.fixture
def backwards(tmp_path: Path) -> Path:
    """Weights that want the opposite of what was learned."""
    now = load_learned(SHIPPED)
    turned = dict(now.network.of) | {"score.weight": -now.network.of["score.weight"]}
    path = tmp_path / "backwards.npz"
    save_learned(path, Learned(type(now.network)(now.network.kinds, turned), now.linear))
    return path


def test_journal_tells_speeds_of_jobs_beside_each_other(journal: Path) -> None:
    with journal.open(encoding="utf-8") as lines:
        seen = experience_of(lines, KIND_NAMES)

    assert seen.samples > 100
    assert seen.workers.shape[2] == SERVERS
    assert 0 < seen.speed[seen.speed > 0].min() < 0.9
    assert seen.speed.max() == pytest.approx(1.0)


def test_experience_is_collected_from_a_journal(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "experience.npz"

    assert status(["learn", "collect", str(out), "--journal", str(journal)]) == 0
    assert Experience.load(out).samples > 100
    assert status(["learn", "collect", str(out), "--journal", str(out)]) == 2
    assert "can't be read" in capsys.readouterr().err


@pytest.mark.slow
def test_better_weights_are_kept_and_worse_ones_are_not(journal: Path, backwards: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    draft = home / "draft.npz"

    draft.write_bytes(SHIPPED.read_bytes())
    better = judge(Trial(journal, cluster_of(SERVERS), None, "harmony", home), backwards, draft)
    assert better["better"]
    assert better["new_s"] < better["old_s"]
    assert (home / "harmony.npz").read_bytes() == SHIPPED.read_bytes()

    draft.write_bytes(backwards.read_bytes())
    worse = judge(Trial(journal, cluster_of(SERVERS), None, "harmony", home), SHIPPED, draft)
    assert not worse["better"]
    assert (home / "harmony.npz").read_bytes() == SHIPPED.read_bytes()
    assert not draft.exists()


def test_jobs_are_judged_without_what_neighbours_cost_them(journal: Path) -> None:
    true = {each.job.id: each.job.work for each in workload(WorkloadShape(servers=SERVERS), 1).submissions}
    slowed = read_trace(journal)

    with journal.open(encoding="utf-8") as lines:
        found = undisturbed(slowed, lines, cluster_of(SERVERS))

    assert max((each.job.work or 0.0) / (true[each.job.id] or 1.0) for each in slowed.submissions) > 1.2
    for each in found.submissions:
        assert each.job.work == pytest.approx(true[each.job.id], rel=1e-6), each.job.id


def test_node_that_has_left_is_like_any_other(journal: Path) -> None:
    with journal.open(encoding="utf-8") as lines:
        whole = mean_speeds(lines, cluster_of(SERVERS))
    with journal.open(encoding="utf-8") as lines:
        later = mean_speeds(lines, cluster_of(SERVERS - 1))

    assert later.keys() == whole.keys()


def test_nothing_is_learned_from_a_few_speeds(tmp_path: Path, journal: Path) -> None:
    short = tmp_path / "short.jsonl"
    short.write_text("".join(journal.read_text().splitlines(keepends=True)[:5]))

    said = teach(Trial(short, cluster_of(SERVERS), None, "harmony", tmp_path), SHIPPED, fewest=100)

    assert not said["better"]
    assert "100 are needed" in said["why"]


def test_speed_of_a_live_job_is_that_of_the_steps_it_tells(tmp_path: Path, told: Callable[..., None]) -> None:
    told("a", [(100.0, 0), (110.0, 20), (120.0, 40), (130.0, 45)])
    curves = StepRates(tmp_path)

    assert curves.speed(JobId("a"), 100.0, 120.0, 1.0) == pytest.approx(2.0)
    assert curves.speed(JobId("a"), 120.0, 130.0, 1.0) == pytest.approx(0.5)
    assert curves.speed(JobId("a"), 121.0, 129.0, 1.0) is None
    assert curves.speed(JobId("silent"), 100.0, 120.0, 1.0) is None


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., None]:
    """Writes what a job says of its steps, as its first task does."""

    def write(name: str, points: list[tuple[float, int]]) -> None:
        folder = tmp_path / "runs" / name / "shared"
        folder.mkdir(parents=True)
        said: list[list[Any]] = [[at_s, step, {}] for at_s, step in points]
        (folder / "curve-0.json").write_text(json.dumps({"points": said}))

    return write


def scheduling(policy: str = "harmony") -> Scheduling:
    return Scheduling(cluster=cluster_of(SERVERS), policy=policy, placement=None, tenancy="none")


@pytest.mark.parametrize(("learn_s", "part"), [(3600.0, 1.0), (600.0, 1.0), (450.0, 0.75), (300.0, 0.5), (6.0, 0.5)])
def test_who_learns_often_takes_less_trouble(learn_s: float, part: float) -> None:
    assert part_of(learn_s) == part


@pytest.fixture
def retraining(tmp_path: Path) -> Iterator[Retraining]:
    records = Records(open_database(tmp_path / "rota.db"))
    yield Retraining(boot(records, scheduling(), LocalDriver.contract), scheduling(), records.url, tmp_path)
    records.close()


def test_manager_uses_its_own_weights_once_it_has_some(tmp_path: Path) -> None:
    given = scheduling("harmony:interval_s=5,weights=other.npz,learn_s=7")
    assert with_learned(given, tmp_path) == given
    (tmp_path / "harmony.npz").write_bytes(SHIPPED.read_bytes())

    policy = with_learned(given, tmp_path).policy

    name, _, options = policy.partition(":")
    kept = tmp_path / "weights" / options.split(",")[0].removeprefix("weights=").rpartition("/")[2]
    assert (name, options) == ("harmony", f"weights={kept},interval_s=5,learn_s=7")
    assert kept.read_bytes() == SHIPPED.read_bytes()
    assert with_learned(scheduling("fifo"), tmp_path) == scheduling("fifo")


def test_spoiled_weights_in_the_managers_folder_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "harmony.npz").write_bytes(b"spoiled")

    assert with_learned(scheduling(), tmp_path) == scheduling()

    assert [record.message for record in caplog.records if record.name == "rota.live.workers.retraining"] == [
        "weights refused"
    ]


@pytest.mark.slow
def test_process_that_learns_answers_a_manager(retraining: Retraining) -> None:
    said = asyncio.run(retraining.learn())

    assert said == {"better": False, "why": "0 speeds were seen; 100 are needed", "seen": 0, "of_unknown_kinds": 0}
