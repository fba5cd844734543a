"""Slurm's scheduler as a policy: what its parameters become, and what is named as left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rota.cli.main import app
from rota.core.errors import RotaError
from rota.drivers.slurm.scheduler_config import SlurmPolicy, policy_of, read_config
from rota.placement import style
from rota.policies import find_policy

SHOWN = """Configuration data as of 2026-01-19T13:23:32
AccountingStorageBackupHost = (null)
ClusterName             = bed
OverTimeLimit           = 0 min
PreemptType             = preempt/none
PriorityType            = priority/multifactor
PriorityWeightAge       = 0
PriorityWeightFairShare = 0
SchedulerParameters     = {parameters}
SchedulerType           = sched/backfill
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CPU_MEMORY
SlurmctldHost[0]        = vm(127.0.0.1)

Slurmctld(primary) at vm is UP
"""


def shown(parameters: str = "(null)", **more: str) -> SlurmPolicy:
    """The policy of a configuration as scontrol prints it, with some values replaced."""
    config = read_config(SHOWN.format(parameters=parameters), "test")
    return policy_of({**config, **{name.lower(): value for name, value in more.items()}})


def test_defaults_are_those_of_slurm() -> None:
    found = shown()

    assert (
        found.policy == "easy:reserve=0,window_s=86400,resolution_s=60,interval_s=30,group_s=30,depth=500,limits=true"
    )
    assert found.placement == "consecutive"
    assert found.left_out == ()


def test_policy_and_placement_can_be_run() -> None:
    found = shown("bf_window=20160,bf_resolution=300,bf_interval=60,bf_max_job_test=50,bf_job_part_count_reserve=1")

    assert (
        found.policy == "easy:reserve=1,window_s=1209600,resolution_s=300,interval_s=60,group_s=30,depth=50,limits=true"
    )
    declared, options = find_policy(found.policy)
    assert declared.read(options).window_s == 14 * 86400.0
    assert style(found.placement).name == "consecutive"


def test_what_only_limits_the_work_of_slurm_is_not_named() -> None:
    assert shown("defer,bf_max_time=3600,max_rpc_cnt=150,nohold_on_prolog_fail,bf_continue").left_out == ()


def test_what_has_no_counterpart_is_named() -> None:
    found = shown("bf_max_job_user=10,bf_window_linear=60", PriorityWeightQOS="10", TopologyPlugin="topology/tree")

    assert [(line.name, line.value) for line in found.left_out] == [
        ("bf_max_job_user", "10"),
        ("bf_window_linear", "60"),
        ("PriorityWeightQOS", "10"),
        ("TopologyPlugin", "topology/tree"),
    ]


def test_priority_weights_do_not_count_under_basic_priorities() -> None:
    assert shown(PriorityType="priority/basic", PriorityWeightFairShare="1000").left_out == ()


def test_value_out_of_bounds_is_slurms_default_and_named() -> None:
    found = shown("bf_window=0,bf_max_job_test=40")

    assert "window_s=86400" in found.policy
    assert "depth=40" in found.policy
    assert [line.name for line in found.left_out] == ["bf_window"]


def test_without_backfill_the_queue_is_strict() -> None:
    assert shown(SchedulerType="sched/builtin").policy == "fifo"
    assert shown("bf_interval=-1").policy == "fifo"


def test_least_loaded_nodes_are_a_placement() -> None:
    assert shown(SelectTypeParameters="CR_CORE,CR_LLN").placement == "spread"


@pytest.mark.parametrize("parameters", ["bf_window=1d", "bf_interval=", "bf_max_job_test=1.5"])
def test_value_that_is_no_number_is_refused_by_name(parameters: str) -> None:
    name = parameters.partition("=")[0]
    with pytest.raises(RotaError, match=f"SchedulerParameters: {name} is .* whole number"):
        shown(parameters)


def test_unknown_scheduler_is_refused() -> None:
    with pytest.raises(RotaError, match="SchedulerType is 'sched/wiki'"):
        shown(SchedulerType="sched/wiki")


def test_slurm_conf_is_read_with_comments_and_long_lines() -> None:
    lines = (
        "clustername=a # old: b",
        "SchedulerParameters=bf_window=2880,\\",
        "bf_interval=60",
        "#SchedulerType=x",
        "",
    )

    config = read_config("\n".join(lines), "slurm.conf")

    assert config == {"clustername": "a", "schedulerparameters": "bf_window=2880,bf_interval=60"}


def test_file_that_is_no_configuration_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("window = 3\n")

    made = CliRunner().invoke(app, ["slurm", "policy", "--from", str(path)])
    assert isinstance(made.exception, RotaError)
    assert f"{path} says nothing of Slurm's scheduler" in str(made.exception)


def test_command_prints_the_policy_alone_on_stdout(tmp_path: Path) -> None:
    path = tmp_path / "config.txt"
    path.write_text(SHOWN.format(parameters="bf_min_prio_reserve=5,bf_window=60"))

    made = CliRunner().invoke(app, ["slurm", "policy", "--from", str(path)])
    options = "reserve=0,window_s=3600,resolution_s=60,interval_s=30,group_s=30,depth=500,limits=true"
    assert made.stdout == f"--policy easy:{options} --placement consecutive\n"
    assert "bf_window = 60: window_s=3600" in made.stderr
    assert "left out: bf_min_prio_reserve = 5" in made.stderr

    told = json.loads(CliRunner().invoke(app, ["slurm", "policy", "--from", str(path), "--json"]).stdout)
    assert (told["policy"], told["placement"]) == (f"easy:{options}", "consecutive")
    assert [line["name"] for line in told["left_out"]] == ["bf_min_prio_reserve"]
