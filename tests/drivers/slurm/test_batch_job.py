"""Job files as batch jobs, and Slurm's nodes as a cluster file."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drivers.slurm.slurm_values import node_value
from rota.core.errors import RotaError
from rota.drivers.slurm import batch_job as batch_job_module
from rota.drivers.slurm.batch_job import WITHOUT_EFFECT, batch_job
from rota.drivers.slurm.cluster_file import cluster_values
from rota.drivers.slurm.printed.accounts import read_associations
from rota.drivers.slurm.printed.records import read_nodes
from rota.drivers.slurm.reasons import PLAIN, plain_words
from rota.drivers.slurm.submit_script import submit_script
from rota.drivers.slurm.translate import cluster_of
from rota.files.cluster_file import cluster_from_document
from rota.files.job import submitted_job
from rota.files.job_shape import JobFile


def test_job_file_becomes_options_and_a_script() -> None:
    values = {
        "run": "python train.py --name 'a b'",
        "name": "bert",
        "tenant": "vision",
        "workers": 2,
        "resources": {"gpus": 4, "gpu": ["a100"], "cpus": 8, "memory": "16Gi"},
        "time_limit": "90m",
        "env": {"LR": "0.1 # no comment"},
        "depends_on": ["17"],
    }

    made = batch_job(submitted_job(values), held=True)

    assert made.options == (
        *("--ntasks=2", "--cpus-per-task=8", "--gpus-per-task=a100:4", "--mem-per-cpu=2048M", "--job-name=bert"),
        *("--account=vision", "--time=90", "--dependency=afterok:17", "--hold"),
    )
    assert "export LR='0.1 # no comment'" in made.script
    assert "exec srun --kill-on-bad-exit=1" in made.script


def test_script_runs_the_command_as_it_was_written(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(batch_job(submitted_job({"run": ["echo", "a  b", "$HOME", "it's"]})).script)

    printed = subprocess.run(["sh", str(script)], capture_output=True, text=True, timeout=10, check=True).stdout

    assert printed == "a  b $HOME it's\n"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"resources": {"gpus": 0.5}}, "whole GPUs"),
        ({"priority": 3}, "SBATCH_QOS"),
        ({"image": "x"}, "image"),
        ({"elastic": {"min": 1, "max": 2}, "workers": 1}, "elastic"),
        ({"env": {"KEY": {"secret": "x"}}}, "secrets"),
        ({"class": "opportunistic"}, "SBATCH_QOS"),
        ({"resources": {"gpus": 1, "gpu_memory": "40Gi"}}, "gpu_memory"),
        ({"locality": {"level": "rack", "hard": True}}, "locality"),
        ({"interactive": {}}, "srun --pty"),
        ({"data": ["corpus"]}, "data sets"),
        ({"notify": ["end"], "notify_to": ["chat"]}, "mail only"),
    ],
)
def test_what_slurm_has_no_counterpart_for_is_refused_by_name(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(RotaError, match=word):
        batch_job(submitted_job({"run": "true", **fields}))


def test_every_field_of_a_job_file_has_an_effect_or_is_refused_or_says_that_it_has_none() -> None:
    source = inspect.getsource(batch_job_module)
    used = {name for name in JobFile.model_fields if re.search(rf"\bfile\.{name}\b", source)}

    assert used | WITHOUT_EFFECT == set(JobFile.model_fields)
    assert not used & WITHOUT_EFFECT


def test_placement_preemption_and_mail_are_options() -> None:
    near = {"locality": {"level": "node", "hard": True}, "preemptible": True, "notify": ["fail", "preempted"]}

    made = batch_job(submitted_job({"run": "true", **near}))
    assert made.options[1:] == ("--requeue", "--nodes=1", "--mail-type=FAIL,REQUEUE")
    assert batch_job(submitted_job({"run": "true", "max_restarts": 0})).options[1:] == ("--no-requeue",)


def test_cluster_file_of_slurm_can_be_read_again() -> None:
    nodes = read_nodes(json.dumps({"nodes": [node_value("n1"), node_value("n2", state="down")]})).found
    lines = "bed|root|||1|||normal\nbed|lab||root|2|gres/gpu=6||normal\nbed|vision||lab|3||gres/gpu=2|normal"
    accounts = read_associations(lines).found

    read = cluster_from_document(cluster_values(nodes, accounts), Path("slurm"))

    assert [node.id for node in read.nodes] == ["n1"]
    assert read.tenants is not None
    wanted = cluster_of(nodes, accounts).tenants
    assert wanted is not None
    assert {name: (s.parent, dict(s.limit), s.per_user) for name, s in read.tenants.shares.items()} == {
        name: (s.parent, dict(s.limit), s.per_user) for name, s in wanted.shares.items()
    }


def test_reasons_have_plain_words_and_unknown_codes_stand_for_themselves() -> None:
    assert plain_words("Resources") == PLAIN["Resources"]
    assert plain_words("AssocGrpGRES") == (
        "its account, or its user in that account uses as much generic resources such as GPUs as it may"
    )
    assert plain_words("QOSMaxGRESPerUser").startswith("its quality of service (QOS) allows less")
    assert plain_words("QOSMaxJobsPerUserLimit").endswith("runs as many jobs of this user as it may")
    assert plain_words("SomethingNew") == "Slurm says SomethingNew"


def test_submit_script_names_partitions_and_refuses_code() -> None:
    assert 'local PARTITIONS = { "gpu", "big" }' in submit_script(["gpu", "big"])
    with pytest.raises(RotaError):
        submit_script(['x" } os.execute("true") --'])
