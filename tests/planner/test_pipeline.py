from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline
from rota.planner.simulate.schedules import PipelineSchedule, device_turns, warm_up_of


def even(count: int, *, devices: int | None = None, **changed: float) -> list[PipelineChunk]:
    values = {"forward_ms": 1.0, "backward_ms": 2.0, "resident_bytes": 10.0, "weight_bytes": 100.0} | changed
    return [PipelineChunk(devices=(f"g{number % (devices or count)}",), **values) for number in range(count)]  # type: ignore[arg-type]


def settings(schedule: str, micro_batches: int, **changed: object) -> PipelineSettings:
    return PipelineSettings(
        micro_batches=micro_batches,
        schedule=PipelineSchedule(schedule),
        **changed,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "dapple"])
@pytest.mark.parametrize(("stages", "batches"), [(1, 4), (2, 4), (4, 8), (4, 2)])
def test_even_stages_have_the_bubble_of_the_formula(schedule: str, stages: int, batches: int) -> None:
    step = simulate_pipeline(even(stages), settings(schedule, batches))

    assert step.step_ms == pytest.approx((batches + stages - 1) * 3.0)
    assert step.bubble == pytest.approx((stages - 1) / (batches + stages - 1))


def test_interleaving_divides_the_bubble_by_the_chunks() -> None:
    whole = simulate_pipeline(even(4), settings("1f1b", 8))
    halves = simulate_pipeline(even(8, devices=4, forward_ms=0.5, backward_ms=1.0), settings("interleaved", 8))

    assert whole.step_ms == pytest.approx(8 * 3 + 3 * 3)
    assert halves.step_ms == pytest.approx(8 * 3 + 3 * 3 / 2)


def test_gpipe_keeps_all_micro_batches_and_1f1b_as_many_as_stages() -> None:
    gpipe = simulate_pipeline(even(4), settings("gpipe", 8))
    alternating = simulate_pipeline(even(4), settings("1f1b", 8))

    assert gpipe.peak_bytes == {f"g{number}": 100 + 80 for number in range(4)}
    assert alternating.peak_bytes == {f"g{number}": 100 + 10 * (4 - number) for number in range(4)}


def test_early_backward_hides_transfers_that_1f1b_waits_for() -> None:
    chunks = even(4, transfer_ms=1.0)

    alternating = simulate_pipeline(chunks, settings("1f1b", 16)).step_ms
    early = simulate_pipeline(chunks, settings("dapple", 16)).step_ms

    assert early < alternating


def test_recomputation_takes_time_and_saves_memory() -> None:
    chunks = even(2, resident_bytes=50.0, input_bytes=5.0)

    kept = simulate_pipeline(chunks, settings("gpipe", 4))
    again = simulate_pipeline(chunks, settings("gpipe", 4, recompute=True))

    assert again.step_ms == pytest.approx(kept.step_ms * 4 / 3)
    assert kept.peak_bytes["g0"] == 100 + 4 * 50
    assert again.peak_bytes["g0"] == 100 + 3 * 5 + 50


def test_swapping_saves_memory_and_costs_time_on_a_slow_link() -> None:
    chunks = even(1, resident_bytes=50.0)

    kept = simulate_pipeline(chunks, settings("gpipe", 6))
    fast = simulate_pipeline(chunks, settings("gpipe", 6, swap_bytes_per_ms=100.0))
    slow = simulate_pipeline(chunks, settings("gpipe", 6, swap_bytes_per_ms=10.0))

    assert fast.peak_bytes["g0"] < kept.peak_bytes["g0"]
    assert fast.step_ms < slow.step_ms
    assert kept.step_ms <= fast.step_ms


def test_links_of_one_medium_take_turns() -> None:
    def chunk(device: str, medium: str) -> PipelineChunk:
        return PipelineChunk(devices=(device,), forward_ms=0.1, backward_ms=0.1, transfer_ms=1.0, medium=medium)

    own = [chunk("a", "x"), chunk("b", "y"), chunk("c", "z")]
    shared = [chunk("a", "x"), chunk("b", "x"), chunk("c", "x")]

    assert (
        simulate_pipeline(own, settings("gpipe", 4)).step_ms < simulate_pipeline(shared, settings("gpipe", 4)).step_ms
    )


def test_gradients_of_the_last_stage_hide_behind_the_first() -> None:
    first, second = even(2)
    late = [PipelineChunk(devices=("a",), forward_ms=1.0, backward_ms=2.0, all_reduce_ms=1.5), second]
    early = [first, PipelineChunk(devices=("b",), forward_ms=1.0, backward_ms=2.0, all_reduce_ms=1.5)]

    plain = simulate_pipeline(even(2), settings("1f1b", 4)).step_ms
    assert simulate_pipeline(late, settings("1f1b", 4)).step_ms == pytest.approx(plain + 1.5)
    assert simulate_pipeline(early, settings("1f1b", 4)).step_ms == pytest.approx(plain)


def test_warm_up_of_each_schedule() -> None:
    def warm(schedule: PipelineSchedule) -> list[int]:
        return [warm_up_of(turns) for turns in device_turns(schedule, 4, 4, 16)]

    assert warm(PipelineSchedule.GPIPE) == [16, 16, 16, 16]
    assert warm(PipelineSchedule.ONE_F_ONE_B) == [4, 3, 2, 1]
    assert warm(PipelineSchedule.DAPPLE) == [7, 5, 3, 1]


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_each_pass_is_taken_once(schedule: PipelineSchedule) -> None:
    chunks = 8 if schedule is PipelineSchedule.INTERLEAVED else 4

    turns = [turn for device in device_turns(schedule, 4, chunks, 8) for turn in device]

    assert len(turns) == len(set(turns)) == 2 * chunks * 8


def test_what_no_schedule_can_do_is_told() -> None:
    with pytest.raises(RotaError, match="groups of 4; 6 is no multiple"):
        device_turns(PipelineSchedule.INTERLEAVED, 4, 8, 6)
    with pytest.raises(RotaError, match="one chunk on each device"):
        device_turns(PipelineSchedule.GPIPE, 4, 8, 8)
    with pytest.raises(RotaError, match="in turn"):
        simulate_pipeline(
            [PipelineChunk(devices=(name,), forward_ms=1.0, backward_ms=1.0) for name in "aabb"],
            settings("interleaved", 4),
        )
    with pytest.raises(RotaError, match="0 micro-batches"):
        PipelineSettings(micro_batches=0)


def chunks_of(count: int, transfer_ms: float = 0.0) -> list[PipelineChunk]:
    return [
        PipelineChunk(devices=(f"p{at}",), forward_ms=2.0 + at, backward_ms=4.0, transfer_ms=transfer_ms)
        for at in range(count)
    ]


def test_processes_with_cores_of_their_own_do_not_wait() -> None:
    alone = simulate_pipeline(chunks_of(4, 0.5), PipelineSettings(micro_batches=6))
    cores = simulate_pipeline(chunks_of(4, 0.5), PipelineSettings(micro_batches=6, core_speeds=(1.0,) * 20))

    assert cores.step_ms == pytest.approx(alone.step_ms)


def test_one_core_does_all_the_work_one_after_the_other() -> None:
    chunks = chunks_of(3, 0.5)
    work_ms = 6 * sum(chunk.forward_ms + chunk.backward_ms for chunk in chunks) + 6 * 2 * 2 * 0.5

    found = simulate_pipeline(chunks, PipelineSettings(micro_batches=6, core_speeds=(1.0,)))

    assert found.step_ms == pytest.approx(work_ms)


def test_side_by_side_processes_are_as_fast_as_measured() -> None:
    """Two stages of which one works alone at first and at last, and both in between at 0.8 of their speed."""
    chunks = [PipelineChunk(devices=(f"p{at}",), forward_ms=1.0, backward_ms=1.0) for at in range(2)]

    found = simulate_pipeline(
        chunks, PipelineSettings(micro_batches=2, schedule=PipelineSchedule.GPIPE, core_speeds=(1.0, 0.8))
    )

    # F0 | F1 and F0 | F1 | B0 | B1 and B0 | B1: two of six times are shared.
    assert found.step_ms == pytest.approx(4 + 2 / 0.8)


def test_processes_pinned_to_one_core_share_it_while_another_idles() -> None:
    chunks = [PipelineChunk(devices=(f"p{at}",), forward_ms=1.0, backward_ms=1.0) for at in range(3)]

    def step_ms(*cores: int, speeds: tuple[float, ...] = (1.0, 1.0, 1.0)) -> float:
        settings = PipelineSettings(
            micro_batches=4, schedule=PipelineSchedule.GPIPE, core_speeds=speeds, pinned_to=cores
        )
        return simulate_pipeline(chunks, settings).step_ms

    assert step_ms(0, 1, 2) == pytest.approx(simulate_pipeline(chunks, PipelineSettings(micro_batches=4)).step_ms)
    assert step_ms(1, 1, 1) == pytest.approx(4 * 3 * 2)
    # The core of the first and the third does 16 passes; it waits for the second at the turn of the direction only.
    assert 16 <= step_ms(0, 1, 0) < 24
    assert step_ms(0, 1, 0) == pytest.approx(step_ms(2, 0, 2))
    assert step_ms(1, 1, 1, speeds=(1.0, 0.5)) == pytest.approx(24), "one core alone is not slowed down"


def test_cores_of_pinned_processes_are_checked() -> None:
    chunks = chunks_of(2)

    with pytest.raises(RotaError, match="1 cores for 2 stages"):
        simulate_pipeline(chunks, PipelineSettings(micro_batches=1, core_speeds=(1.0,), pinned_to=(0,)))
    with pytest.raises(RotaError, match="need `core_speeds`"):
        PipelineSettings(micro_batches=1, pinned_to=(0, 1))


@pytest.mark.parametrize("speed", [0.0, 1.5, float("nan")])
def test_speeds_beside_others_are_shares(speed: float) -> None:
    with pytest.raises(RotaError, match="speeds beside others"):
        PipelineSettings(micro_batches=1, core_speeds=(1.0, speed))
