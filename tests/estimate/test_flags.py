"""What is read from a command line."""

from __future__ import annotations

import pytest

from rota.estimate.flags import attributes_of


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("python train.py --batch=64 --lr 1e-3", {"program": "train.py", "batch": 64.0, "lr": 0.001}),
        (["torchrun", "/opt/x/run.py", "--Model-Name", "bert"], {"program": "run.py", "model_name": "bert"}),
        ("FOO=1 python3.11 a.py --fast --n -3", {"program": "a.py", "fast": 1.0, "n": -3.0}),
        ("echo 'unclosed --x 2", {"program": "echo", "x": 2.0}),
        ("", {}),
    ],
    ids=["both forms", "launcher and path", "switch and negative", "not for a shell", "nothing"],
)
def test_flags_become_attributes(command: str | list[str], told: dict[str, object]) -> None:
    assert attributes_of(command) == told
