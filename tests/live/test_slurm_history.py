"""Accounting records as ended jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.core.state.phases import Phase
from rota.drivers.slurm.printed.accounts import ACCOUNTING_COLUMNS
from rota.live.slurm.slurm_history import accounted

ROW = {
    "JobID": "17",
    "JobName": "train",
    "User": "ann",
    "Account": "vision",
    "Partition": "gpu",
    "QOS": "normal",
    "Submit": "1794980500",
    "Start": "1794980528",
    "End": "1794980628",
    "ElapsedRaw": "100",
    "State": "COMPLETED",
    "Timelimit": "01:00:00",
    "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2",
    "ReqTRES": "",
    "NNodes": "2",
    "NCPUS": "8",
    "ReqMem": "64G",
}


def printed(*rows: dict[str, str]) -> str:
    """What sacct prints of these records."""
    return "\n".join(
        ["|".join(ACCOUNTING_COLUMNS), *("|".join(row[name] for name in ACCOUNTING_COLUMNS) for row in rows)]
    )


def test_a_record_has_what_forecasts_go_by() -> None:
    (found,) = accounted(printed(ROW))

    job = found.job
    assert (job.id, job.name, job.user, job.tenant, job.estimate_s) == ("17", "train", "ann", "vision", 3600.0)
    assert sum(role.count * role.device_milli for role in job.roles) == 4000
    assert (found.submit_s, found.start_s, found.end_s) == (1794980500.0, 1794980528.0, 1794980628.0)
    assert found.phase is Phase.SUCCEEDED


def test_steps_unfinished_and_broken_records_are_left_out() -> None:
    others = [
        {**ROW, "JobID": "17.batch"},
        {**ROW, "JobID": "18+0"},
        {**ROW, "JobID": "19_[3-9]", "State": "PENDING"},
        {**ROW, "State": "RUNNING", "End": "Unknown"},
        {**ROW, "State": "CANCELLED by 0", "Start": "None"},
        {**ROW, "State": "NEW_STATE"},
        {**ROW, "AllocTRES": "gres/gpu:a100=many"},
        {**ROW, "JobName": "a|b"},
        {**ROW, "End": "1794980400"},
    ]
    kept = [{**ROW, "JobID": "20_3", "State": "TIMEOUT"}, {**ROW, "JobID": "21", "State": "CANCELLED by 0"}]

    found = list(accounted(printed(*others, *kept)))

    assert [(each.job.id, each.phase) for each in found] == [("20_3", Phase.FAILED), ("21", Phase.CANCELLED)]


CELLS = st.text(st.characters(exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12)


@given(st.text(max_size=200), st.dictionaries(st.sampled_from(sorted(ROW)), CELLS))
def test_no_record_ends_the_reading(junk: str, changed: dict[str, str]) -> None:
    found = list(accounted(printed({**ROW, **changed}, {**ROW, "JobID": "99"})))

    assert found[-1].job.id == "99"
    assert not list(accounted(junk))
