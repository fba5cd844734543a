"""What users declare about their policies: kinds of decisions, knowledge, memory, intervals, exported names."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policies.user_policies import (
    ELASTIC,
    ORDERING,
    found,
    refused,
)
from rota.core.errors import RotaError
from rota.core.messages.decisions import DecisionKind
from rota.mechanisms.declare import LEASES
from rota.placement import style
from rota.policies import Knowledge
from rota.policies import __all__ as exported
from rota.tenancy import allocator


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        ORDERING.format(answer="Turn((job.seq,), until_s=now_s + 1e-12)"),
        ELASTIC.format(answer="SizePlan({}, until_s=question.now_s + 1e-12)"),
    ],
    ids=["ordering", "elastic"],
)
def test_policy_that_hardly_lets_time_pass_is_named(run: Callable[[str], tuple[int, list[str]]], text: str) -> None:
    error = refused(run, text)

    assert error == "error: policy ./mine.py:p keeps asking to be woken within 0.001 s of 1e-12 s; time can't pass"


def test_policy_that_keeps_changing_its_decisions_is_named(run: Callable[[str], tuple[int, list[str]]]) -> None:
    swaps = ORDERING.format(answer="Turn((float(job.holds), job.seq))")

    told = r"error: policy \./mine\.py:p keeps changing its decisions at 60 s about jobs \w, \w.*; time can't pass"
    assert re.fullmatch(told, refused(run, swaps))


PACKING = """
@rounds("p"{about})
class p(DefaultShareRule):
    {member}
    def shares(self, question):
        return {{}}
"""


def test_rounds_that_pack_emit_shares(tmp_path: Path) -> None:
    packing = found(tmp_path, PACKING.format(about="", member="packs = True"))
    plain = found(tmp_path, PACKING.format(about="", member=""))

    assert packing.packs
    assert packing.kinds("") == LEASES | {DecisionKind.SHARE}
    assert not plain.packs
    assert plain.kinds("") == LEASES
    packing.build("", allocator("none", style("any")))
    plain.build("", allocator("none", style("any")))


@pytest.mark.parametrize(
    ("about", "member"), [("", "def __init__(self): self.packs = True"), (", packs=False", "packs = True")]
)
def test_rounds_that_pack_undeclared_are_refused(tmp_path: Path, about: str, member: str) -> None:
    declared = found(tmp_path, PACKING.format(about=about, member=member))

    with pytest.raises(RotaError, match=r"policy .*mine\.py:p: p\.packs is True, but .* declare it with packs=True$"):
        declared.build("", allocator("none", style("any")))


def test_rounds_whose_instances_pack_are_declared_so(tmp_path: Path) -> None:
    text = PACKING.format(about=", packs=True", member="def __init__(self): self.packs = True")
    declared = found(tmp_path, text)

    declared.build("", allocator("none", style("any")))
    assert DecisionKind.SHARE in declared.kinds("")


@pytest.mark.parametrize(
    ("emits", "told"),
    [
        ("5", "emits is 5; expected a set of DecisionKind, such as {DecisionKind.START}, or a function"),
        ("'start'", "emits is 'start'; expected a set of DecisionKind"),
        ("frozenset({'nonsense'})", "emits is frozenset({'nonsense'}); expected a set of DecisionKind"),
        ("lambda values: 1 / 0", "emits() raised ZeroDivisionError: division by zero (mine.py, line "),
        ("lambda: None", "emits() raised TypeError"),
        ("lambda values: None", "emits() returned None; expected a set of DecisionKind"),
        ("lambda values: [DecisionKind.START]", "expected a set of DecisionKind"),
    ],
)
def test_kinds_that_are_none_are_named(run: Callable[[str], tuple[int, list[str]]], emits: str, told: str) -> None:
    text = f"@elastic('p', emits={emits})\nclass p(DefaultSizeRule):\n    def plan(self, q): return SizePlan({{}})"
    error = refused(run, text)

    assert error.startswith("error: policy ./mine.py:p: emits")
    assert told in error


def test_kinds_of_a_user_are_used(tmp_path: Path) -> None:
    text = "@elastic('p', emits=lambda values: {DecisionKind.MOVE})\nclass p(DefaultSizeRule): ..."

    assert found(tmp_path, text).kinds("") == {DecisionKind.MOVE}


KNOWING = """
asked = []
@ordering("p")
class p:
    def __init__(self, knowledge: Knowledge): asked.append(knowledge)
    def turn(self, job, now_s): return Turn((job.seq,))
"""


@pytest.mark.parametrize("checked", [True, False])
def test_orderings_know_what_they_are_given(tmp_path: Path, checked: bool) -> None:
    declared = found(tmp_path, KNOWING)
    given = Knowledge(seed=7, restart_s=30.0)

    made = declared if checked else replace(declared, user=None)
    made.build("", allocator("none", style("any")), given)

    (module,) = (
        module
        for name, module in sys.modules.items()
        if name.startswith("rota_plugin_mine_")
        and hasattr(module, "asked")
        and module.__file__ == str(tmp_path / "mine.py")
    )
    assert module.asked == [given]


LEARNING = """
@ordering("p")
class p:
    def turn(self, job, now_s): return Turn((job.seq,))
    {member}
"""


def test_ordering_that_is_told_of_ends_must_keep_a_memory(tmp_path: Path) -> None:
    silent = found(tmp_path, LEARNING.format(member="ended = None"))
    assert silent.build("", allocator("none", style("any"))).memory is None

    learner = found(tmp_path, LEARNING.format(member="def ended(self, job, now_s): return False"))
    with pytest.raises(RotaError, match=r"p\.memory can't be read: AttributeError"):
        _ = learner.build("", allocator("none", style("any"))).memory


BATCHES = """
@dataclass(frozen=True)
class Params:
    interval_s: {kind} = {seconds}

@learned("p")
class p(DefaultChooser):
    def __init__(self, params: Params): ...
    def choose(self, room, live, now_s): return None
"""


@pytest.mark.parametrize(
    ("kind", "seconds"), [("float", "-1.0"), ("float", "math.inf"), ("float", "math.nan"), ("str", "'x'")]
)
def test_interval_that_is_none_is_named(tmp_path: Path, kind: str, seconds: str) -> None:
    declared = found(tmp_path, BATCHES.format(kind=kind, seconds=seconds))

    with pytest.raises(RotaError, match=r"^policy 'p': interval_s is .*; it must be a finite number of seconds, 0"):
        declared.build("", allocator("none", style("any")))


@pytest.mark.parametrize(("kind", "seconds"), [("float", "0.0"), ("int", "60"), ("float | None", "None")])
def test_interval_of_a_learned_policy_is_used(tmp_path: Path, kind: str, seconds: str) -> None:
    declared = found(tmp_path, BATCHES.format(kind=kind, seconds=seconds))

    assert declared.build("", allocator("none", style("any"))).wakeup_s == math.inf


def test_all_that_is_exported_is_there() -> None:
    import rota.policies

    assert all(getattr(rota.policies, name) is not None for name in exported)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rota.policies.nonsense


@pytest.mark.slow
def test_table_of_policies_is_light() -> None:
    """`import rota.policies` loads no family: the command line does it for every help text."""
    code = "import sys, rota.policies; print([m for m in sys.modules if 'mechanisms' in m or m == 'numpy'])"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
