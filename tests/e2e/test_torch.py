"""PyTorch under the manager, by the scripts of the how-to: a gang over env://, torchrun, checkpoints of a DDP loop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.pages import ROOT, File, examples
from managers import Manager, eventually

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs/howto/train-with-pytorch.md"
REDUCE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1,), float(dist.get_rank() + 1))
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item()}", flush=True)
dist.destroy_process_group()
"""


@cache
def _torch() -> tuple[Path, Path] | None:
    """The folders of a Python that has PyTorch, the one named by ROTA_TORCH_PYTHON or this one, and of torchrun."""
    python = os.environ.get("ROTA_TORCH_PYTHON", sys.executable)
    asked = [python, "-c", "import torch.distributed; print(torch.__file__)"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    if found.returncode:
        return None
    return Path(python).parent, Path(found.stdout.strip()).parent.parent / "bin"


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Manager]:
    """A manager whose folder holds the how-to's files, with a Python that has PyTorch first in the path."""
    folders = _torch()
    if folders is None:
        pytest.skip("there is no PyTorch here; name a Python that has it with ROTA_TORCH_PYTHON")
    for part in examples(PAGE):
        if isinstance(part, File):
            (tmp_path / part.name).write_text(part.text)
    (tmp_path / "reduce.py").write_text(REDUCE)
    made = Manager(tmp_path, "--emulate", "gpu=4/2")
    made.env["PATH"] = ":".join([*map(str, folders), made.env["PATH"]])
    made.start()
    yield made
    made.clean_up()


def submitted(manager: Manager, *args: str) -> str:
    paths = ":".join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = manager.rota("submit", "--env", f"PYTHONPATH={paths}", *args)
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def last_words(manager: Manager, job_id: str, attempt: int) -> list[str]:
    """What each of two trainings said last in an attempt; PyTorch may still complain as it ends."""
    said = [b"".join(manager.client.logs(job_id, task=task, attempt=attempt)).decode() for task in (0, 1)]
    own = [[line for line in lines.splitlines() if line.startswith("rank ")] for lines in said]
    return [lines[-1] if lines else "" for lines in own]


def test_gang_meets_over_the_environment(trainer: Manager) -> None:
    job_id = submitted(trainer, "--workers", "2", "--gpus", "1", "--", "python", "reduce.py")

    assert trainer.wait(job_id, within_s=120)["state"] == "succeeded"
    assert [trainer.said(job_id, task) for task in (0, 1)] == ["rank 0 of 2: 3.0\n", "rank 1 of 2: 3.0\n"]


def test_torchrun_starts_its_processes_over_two_nodes(trainer: Manager) -> None:
    text = (trainer.folder / "torchrun.yaml").read_text().replace("train.py", "reduce.py")
    (trainer.folder / "torchrun.yaml").write_text(text)
    job_id = submitted(trainer, "torchrun.yaml")

    assert trainer.wait(job_id, within_s=180)["state"] == "succeeded"
    said = trainer.said(job_id, 0) + trainer.said(job_id, 1)
    assert [f"rank {rank} of 4: 10.0" in said for rank in range(4)] == [True] * 4


def test_training_is_preempted_at_one_step_and_goes_on_from_there(trainer: Manager) -> None:
    job_id = submitted(trainer, "train.yaml", "--priority", "-1", "--gpus", "2")
    eventually(lambda: (trainer.client.job(job_id)["progress"] or {}).get("step", 0) > 5, within_s=120)
    urgent = trainer.submit("true", workers=2, priority=5, resources={"gpus": 2})
    trainer.wait(urgent, within_s=120)

    done = trainer.wait(job_id, within_s=180)

    first = last_words(trainer, job_id, 1)
    step = first[0].rpartition(" ")[2]
    assert first == [f"rank {rank} stopped at step {step}" for rank in (0, 1)]
    assert 5 < int(step) < 60
    assert trainer.said(job_id).splitlines()[0] == f"rank 0 of 2 from step {step}"
    assert last_words(trainer, job_id, 2) == ["rank 0 finished at step 60", "rank 1 finished at step 60"]
    assert (done["state"], done["attempt"]) == ("succeeded", 2)
