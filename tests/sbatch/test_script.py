"""Batch scripts of Slurm as jobs: what is understood, what is named, and scripts that run on a real manager."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forked
from managers import Manager
from rota.cli.jobs.batch_script import numbered
from rota.core.errors import RotaError
from rota.files.job import job_file
from rota.files.sbatch.options import FLAGS, HINTS, SHORT, SILENT, UNDERSTOOD
from rota.files.sbatch.script import BatchScript, is_batch_script, read_batch_script
from rota.files.sbatch.stand_ins import STAND_INS

Json = dict[str, Any]


def read(folder: Path, *lines: str, shell: str = "/bin/bash", body: str = "echo hello") -> BatchScript:
    path = folder / "train.sh"
    path.write_text("\n".join([f"#!{shell}", *(f"#SBATCH {line}" for line in lines), body, ""]))
    script = read_batch_script(path, [])
    job_file(script.job)  # what is read is a valid job
    return script


def test_a_usual_script(tmp_path: Path) -> None:
    script = read(
        tmp_path,
        "--job-name=bert -A nlp   # whose",
        "-N 2 --ntasks-per-node=4",
        "--gres=gpu:A100:4",
        "-c 8",
        "--mem=64G",
        "-t 1-12:30:00",
        "--array=0-9,12%4",
        "--dependency=afterok:17:18",
        "--exclude=n[01-03],bad",
        "--signal=B:USR1@120",
        "--wckey=thesis",
        "--no-requeue",
        "--export=NONE,DATA=/data",
        "--hold",
    )

    run = script.job.pop("run")
    assert script.job == {
        "name": "bert",
        "tenant": "nlp",
        "workers": 8,
        "resources": {"gpus": 1, "gpu": ["A100"], "cpus": 8, "memory": 16 << 30},
        "time_limit": 131400.0,
        "depends_on": ["17", "18"],
        "exclude_nodes": ["n01", "n02", "n03", "bad"],
        "checkpoint": {"signal": "SIGUSR1", "grace": 120},
        "max_restarts": 0,
        "labels": {"project": "thesis"},
        "env": {
            "DATA": "/data",
            "SLURM_CPUS_PER_TASK": "8",
            "SLURM_CPUS_ON_NODE": "8",
            "SLURM_NNODES": "2",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_NTASKS_PER_NODE": "4",
            "SLURM_MEM_PER_NODE": "16384",
        },
    }
    assert run[:2] == ["/bin/bash", "-c"]
    assert (script.array, script.held, script.env_from_shell) == ("0-9,12%4", True, "none")


@pytest.mark.parametrize(
    ("lines", "resources"),
    [
        (["-n1", "--gres=gpu:2"], {"gpus": 2}),
        (["--gpus=8", "-n 4"], {"gpus": 2}),
        (["-G V100:2"], {"gpus": 2, "gpu": ["V100"]}),
        (["--gpus-per-task=3", "-n 2"], {"gpus": 3}),
        (["--gpus-per-node=4", "-N2"], {"gpus": 4}),
        (["--gpus-per-node=4", "-N2", "--ntasks-per-node=2"], {"gpus": 2}),
        (["--mem-per-cpu=2G", "-c4"], {"cpus": 4, "memory": 8 << 30}),
        (["--mem-per-gpu=10G", "--gres=gpu:2"], {"gpus": 2, "memory": 20 << 30}),
        (["--mem 4000"], {"memory": 4000 << 20}),
        (["--cpus-per-gpu=6", "--gres=gpu:2"], {"gpus": 2, "cpus": 12}),
        (["--gres=gpu"], {"gpus": 1}),
    ],
)
def test_resources(tmp_path: Path, lines: list[str], resources: Json) -> None:
    assert read(tmp_path, *lines).job["resources"] == resources


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-0", 86400),
        ("1-2:30", 95400),
        ("1-2:30:15", 95415),
        ("0", None),
    ],
)
def test_times(tmp_path: Path, text: str, seconds: int | None) -> None:
    assert read(tmp_path, f"--time={text}").job.get("time_limit") == seconds


def test_what_has_no_effect_is_named_with_its_line(tmp_path: Path) -> None:
    script = read(tmp_path, "-p gpu", "--qos=high", "--output=out-%j.txt", "--frobnicate=1", "--comment=x", "-n2")

    assert [note.removeprefix(f"{tmp_path}/train.sh:").split(";")[0] for note in script.notes[:4]] == [
        "2: -p gpu has no effect here",
        "3: --qos=high has no effect here",
        "4: --output=out-%j.txt has no effect here",
        "5: --frobnicate=1 has no effect here",
    ]
    assert "the script runs in each task" in script.notes[4]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--dependency=afterany:5", "must be afterok:ID:ID"),
        ("--dependency=afterok:5?afterok:6", "must be afterok:ID:ID"),
        ("--gres=gpu:3 -n 2", "a multiple of 2"),
        ("--mem=lots", "must be megabytes"),
        ("--time=soon", "must be minutes"),
        ("--ntasks=0", "a number above 0"),
        ("-Y 3", "sbatch has no option -Y"),
        ("train.py", "is not an option"),
        ("--signal=KILL@10", "one of TERM"),
        ("--job-name='x", "No closing quotation"),
        ("--array=0-9:0", "numbers and spans like"),
        ("--array=a-b", "numbers and spans like"),
        ("--array=0-9%", "numbers and spans like"),
        ("--array=0-9%0", "numbers and spans like"),
        ("-n", "-n has no value"),
    ],
)
def test_what_would_become_another_job_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(RotaError, match=message) as refused:
        read(tmp_path, "-J first", line)

    assert str(refused.value).startswith(f"{tmp_path}/train.sh:3: ")


def test_names_are_made_ones_that_jobs_may_have(tmp_path: Path) -> None:
    script = read(tmp_path, '--job-name="my job/ä"')

    assert script.job["name"] == "my-job-"
    assert script.notes == (f"{tmp_path}/train.sh:2: --job-name=my job/ä: the job is named my-job-",)


def test_a_script_that_is_only_to_be_tested_is_not_submitted(tmp_path: Path) -> None:
    assert read(tmp_path, "--test-only").dry_run
    assert not read(tmp_path, "-n 2").dry_run


@pytest.mark.parametrize(
    ("text", "numbers", "limit"),
    [
        ("0-15:4", [0, 4, 8, 12], None),
        ("1,3,5-7", [1, 3, 5, 6, 7], None),
        ("2-2:9", [2], None),
        ("0-5:2%2", [0, 2, 4], 2),
    ],
)
def test_arrays(tmp_path: Path, text: str, numbers: list[int], limit: int | None) -> None:
    script = read(tmp_path, f"--array={text}")
    assert script.array is not None

    jobs = numbered([script.job], script.array, script)

    assert [job["array"] for job in jobs] == numbers
    assert {job.get("array_limit") for job in jobs} == {limit}
    assert {job["env"]["SLURM_ARRAY_TASK_COUNT"] for job in jobs} == {str(len(numbers))}
    assert len({job["env"]["SLURM_ARRAY_JOB_ID"] for job in jobs}) == 1


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_stand_ins_end_and_hand_on_the_command(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    for options in ("--version", "--mpi", "-n", "--mpi pmix -n 2 -l --", "--ntasks=2 -N1 --cpu-bind none", "-V --help"):
        lines = f"{STAND_INS}srun {options}\necho after\nsrun {options} true\nsrun {options} -- echo there\n"
        done = subprocess.run([program, "-c", lines], capture_output=True, text=True, timeout=20, check=False)
        assert done.stdout.splitlines()[0] == "after", (options, done.stderr)
    lines = f'{STAND_INS}scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1; scontrol show hostnames a,b\n'
    done = subprocess.run(
        [program, "-c", lines], capture_output=True, text=True, env={"MASTER_ADDR": "10.0.0.7", "PATH": "/bin:/usr/bin"}
    )
    assert done.stdout.split() == ["10.0.0.7", "a", "b"]


def test_options_end_at_the_first_command_and_other_scripts_are_none(tmp_path: Path) -> None:
    script = read(tmp_path, "-J one", body="echo\n#SBATCH -J two")
    (tmp_path / "plain.sh").write_text("#!/bin/sh\necho\n")
    (tmp_path / "none.sh").write_text("#!\n#SBATCH -n1\n")

    assert script.job["name"] == "one"
    assert not is_batch_script(tmp_path / "plain.sh")
    with pytest.raises(RotaError, match="names no program that runs it"):
        read_batch_script(tmp_path / "none.sh", [])


INTERPRETED = {
    "python3": """
import os, sys
print(os.environ["SLURM_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"], sys.argv[1])
""",
    "perl -w": """
use strict; print "$ENV{SLURM_JOB_ID} $ENV{SLURM_ARRAY_TASK_ID} $ARGV[0]\\n";
""",
    "awk -f": """
BEGIN { print ENVIRON["SLURM_JOB_ID"], ENVIRON["SLURM_ARRAY_TASK_ID"], ARGV[1] }
""",
}


@pytest.mark.parametrize("interpreter", INTERPRETED)
def test_scripts_of_any_interpreter_find_slurms_variables(interpreter: str, tmp_path: Path) -> None:
    if shutil.which(interpreter.split()[0]) is None:
        pytest.skip(f"{interpreter.split()[0]} is not installed")
    path = tmp_path / "train"
    path.write_text(f"#!/usr/bin/env -S {interpreter}\n#SBATCH -J any{INTERPRETED[interpreter]}")
    variables = {"ROTA_JOB_ID": "17", "ROTA_ARRAY_INDEX": "3", "TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}

    run = read_batch_script(path, ["an argument"]).job["run"]
    done = subprocess.run(run, capture_output=True, text=True, env=variables, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("17 3 an argument\n", "")
    assert list(tmp_path.iterdir()) == [path]


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\r"), max_size=30), max_size=5))
def test_any_lines_are_read_or_refused_by_line(lines: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.sh"
        path.write_text("\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), "true", ""]))
        refused = None
        try:
            read_batch_script(path, [])
        except RotaError as error:
            refused = str(error)
        assert refused is None or refused.startswith(f"{path}:")


def test_every_short_option_leads_to_one_that_is_judged() -> None:
    known = UNDERSTOOD | SILENT | HINTS.keys() | FLAGS
    assert {"account", "gpus", "nodes", "ntasks", "time"} <= known & set(SHORT.values())
    assert not UNDERSTOOD & SILENT
    assert not UNDERSTOOD & HINTS.keys()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path, "--emulate", "gpu=4/4").start()
    yield made
    made.clean_up()


@pytest.mark.slow
def test_scripts_run(manager: Manager) -> None:
    (manager.folder / "two.sh").write_text(
        "#!/bin/bash\n#SBATCH -n 2 --gpus-per-task=1\n#SBATCH --partition=gpu\n#SBATCH -c 2\nset -eu\n"
        'srun -n 2 --cpu-bind=none --mpi none python3 -c \'import os, sys; print("rank", os.environ["SLURM_PROCID"], '
        '"of", os.environ["SLURM_NTASKS"], os.environ["SLURM_CPUS_PER_TASK"], sys.argv[1])\' "$1"\n'
    )
    (manager.folder / "array.py").write_text(
        "#!/usr/bin/env python3\n#SBATCH --array=3-4\n#SBATCH -J arr\nimport os, sys\n"
        'print("member", os.environ["SLURM_ARRAY_TASK_ID"], "of", os.environ["SLURM_ARRAY_TASK_COUNT"], sys.argv[1:])\n'
    )

    told = manager.rota("submit", "two.sh", "an argument")
    arrays = manager.rota("submit", "array.py", "x")
    bad = manager.rota("submit", "two.sh", "--gpus", "none")

    assert told.returncode == arrays.returncode == 0, (told.stderr, arrays.stderr)
    assert "note: two.sh:3: --partition=gpu has no effect here; name device types with --gpu" in told.stderr
    job_id = told.stdout.split()[-1]
    manager.wait(job_id, "succeeded")
    assert [manager.said(job_id, task).strip() for task in (0, 1)] == [
        "rank 0 of 2 2 an argument",
        "rank 1 of 2 2 an argument",
    ]
    for member, job in zip((3, 4), arrays.stdout.split()[-2:], strict=True):
        manager.wait(job, "succeeded")
        assert manager.said(job).strip() == f"member {member} of 2 ['x']"
    assert bad.returncode == 2


@pytest.mark.slow
def test_scripts_come_from_the_input_and_without_options(manager: Manager) -> None:
    text = (
        "#!/bin/bash\r\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --mem=1G\r\n"
        "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\r\n"
        "say='echo $MASTER_ADDR $SLURM_NNODES $SLURM_NODEID $SLURM_GPUS_ON_NODE $SLURM_MEM_PER_NODE; srun true'\r\n"
        'srun bash -c "$say"\r\n'
    )
    (manager.folder / "plain.sh").write_text('#!/usr/bin/env -S bash -eu\necho "plain $SLURM_JOB_NAME $1"\n')
    before = len(list(manager.client.jobs(all=True)))

    tested = forked.run(
        ("submit",), input="#!/bin/sh\n#SBATCH --test-only\ntrue\n", env=manager.env, cwd=manager.folder
    )
    assert "expected start" in tested.stdout
    assert len(list(manager.client.jobs(all=True))) == before, "nothing was submitted"
    piped = forked.run(("submit", "-"), input=text, env=manager.env, cwd=manager.folder)
    plain = manager.rota("submit", "plain.sh", "an argument")

    assert piped.returncode == plain.returncode == 0, (piped.stderr, plain.stderr)
    job_id = piped.stdout.split()[-1]
    assert manager.wait(job_id, "succeeded")["name"] == "sbatch"
    assert [manager.said(job_id, task).strip() for task in (0, 1)] == [f"127.0.0.1 2 {node} 1 1024" for node in (0, 1)]
    manager.wait(plain.stdout.strip(), "succeeded")
    assert manager.said(plain.stdout.strip()).strip() == "plain plain.sh an argument"
