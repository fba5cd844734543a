"""Policies that users write: of each family one that works, and many that answer nonsense and are named for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.user_policies import (
    COLOCATION,
    FAMILIES,
    HEAD,
    LEARNED,
    ODD,
    ORDERING,
    SELECTION,
    refused,
)
from rota.core.errors import RotaError
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator

NONSENSE_FOR_ALL = ["math.nan", "5", "'x'", "(1,)*3+('a',)", "[]", "{1: 2}", "object()", "1/0", "len(5)", "lambda: 1"]
NONSENSE_FOR_ALL += ["Hidden()", "10**400", "fail(Mute())", "sys.exit(3)", "fail(RotaError('boo'))"]
"""An empty list is no answer of any family; neither is None, except where it means that there is none."""
NONSENSE = {
    "ordering": [
        "None",
        "Turn(5)",
        "Turn(())",
        "Turn((math.nan, job.seq))",
        "Turn(('a', job.seq))",
        "Turn([1, job.seq])",
        "Turn((1.0,))",
        "Turn((10**400, job.seq))",
        "Turn((1.0, job.seq), slope=math.nan)",
        "Turn((1.0, job.seq), slope=math.inf)",
        "Turn((math.inf, job.seq), slope=1.0)",
        "Turn((1.0, job.seq), until_s=now_s)",
        "Turn((1.0, job.seq), until_s=math.nan)",
        "Turn((1.0, job.seq), until_s=None)",
        "Turn((1.0, job.seq), memo=object())",
        "Turn((Fraction(10**400), job.seq))",
        "Turn((1.0, job.seq), until_s=Fraction(10**400))",
        "Turn((1.0, job.seq), memo=knot())",
        "Turn((1.0, job.seq), memo={'x': knot()})",
    ],
    "rounds": [
        "None",
        "{seq: [1.0]}",
        "{(seq,): 1.0}",
        "{(seq,): [math.nan]}",
        "{(seq,): [1.5]}",
        "{(seq,): [-0.5]}",
        "{(seq,): [0.5, 0.5]}",
        "{(seq,): ['a']}",
        "{(seq, seq + 1): [1.0]}",
        "{(999,): [1.0]}",
        "{(seq, -1, 0): [1.0]}",
        "{(seq, -1, 2): [1.0]}",
        "{(seq,): [Fraction(10**400)]}",
        "{(): [1.0]}",
        "{(float(seq),): [1.0]}",
    ],
    "selection": [
        "None",
        "Selection(requests=5)",
        "Selection(requests=[live])",
        "Selection(requests=[DeviceRequest(5)])",
        "Selection(requests=[DeviceRequest(None)])",
        "Selection(requests=[DeviceRequest(live, 'no-such-type')])",
        "Selection(requests=[DeviceRequest(live, None, 99)])",
        "Selection(requests=[DeviceRequest(live, None, 0.5)])",
        "Selection(backfill=[None])",
        "Selection(passed={live: 'busy'})",
        "Selection(passed=[live])",
    ],
    "elastic": [
        "None",
        "SizePlan(5)",
        "SizePlan({seq: 5})",
        "SizePlan({seq: Target(0)})",
        "SizePlan({seq: Target(99)})",
        "SizePlan({seq: Target(1.0)})",
        "SizePlan({seq: Target(math.nan)})",
        "SizePlan({seq: Target(1, 'no-such-type')})",
        "SizePlan({999: Target(1)})",
        "SizePlan({}, until_s=math.nan)",
        "SizePlan({}, until_s=question.now_s)",
        "SizePlan({}, until_s=-1)",
        "SizePlan({}, until_s=Fraction(10**400))",
    ],
    "colocation": ["()", "(math.nan,)", "('a',)", "True", "(None,)"],
    "learned": [
        "{(0, 0): 99}",
        "{(0, 99): live.job.tasks}",
        "{(9, 0): live.job.tasks}",
        "{(0, -1): live.job.tasks}",
        "{(0, 0): 0.5}",
        "{(0, 0): live.job.tasks}",
        "{0: 1}",
        "{(0, 0, 0): 1}",
        "{}",
        "room.take(0, live.job.roles[0])",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "answer"),
    [(family, answer) for family in FAMILIES for answer in [*NONSENSE_FOR_ALL, *NONSENSE[family]]],
)
def test_nonsense_is_named(run: Callable[[str], tuple[int, list[str]]], family: str, answer: str) -> None:
    template, function = FAMILIES[family]

    error = refused(run, ODD + template.format(answer=answer))

    if "boo" in answer:
        assert error == f"error: policy ./mine.py:p: {function}: boo"
        return
    assert error.startswith(f"error: policy ./mine.py:p: {function} ")
    assert ("returned" in error and "; expected " in error) or "raised" in error
    if answer == "Hidden()":
        assert "returned a value of type Hidden; expected" in error
    if answer == "fail(Mute())":
        assert "raised Mute (mine.py, line " in error
    if answer == "sys.exit(3)":
        assert "raised SystemExit: 3 (mine.py, line " in error
    if answer in ("1/0", "len(5)"):
        assert "raised " in error
        assert "(mine.py, line " in error


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.tuples(st.floats(), st.integers()),
    st.lists(st.floats(), max_size=3),
    st.dictionaries(st.integers(0, 6), st.floats(), max_size=3),
    st.dictionaries(st.tuples(st.integers(0, 6)), st.lists(st.floats(), min_size=1, max_size=1), max_size=3),
)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=ANYTHING)
def test_any_value_is_refused_by_name_or_leads_to_a_run(
    run: Callable[[str], tuple[int, list[str]]], family: str, value: object
) -> None:
    template, function = FAMILIES[family]
    answer = repr(value).replace("nan", "math.nan").replace("inf", "math.inf")

    code, printed = run(template.format(answer=answer))

    assert not any("Traceback" in line for line in printed)
    if code:
        assert code == 2
        assert f"policy ./mine.py:p: {function} returned" in printed[-1] or "again and again" in printed[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "@elastic('p')\nclass p(DefaultSizeRule):\n    interval_s = 0\n    plan = len",
            "p.interval_s is 0",
        ),
        ("@elastic('p')\nclass p(DefaultSizeRule):\n    pass", "p has no function plan()"),
        ("@rounds('p')\nclass p(DefaultShareRule):\n    shares = 5", "p has no function shares()"),
        ("@selection('p')\nclass p:\n    def select(self, c): ...", "derive the class from DefaultSelectionRule"),
        ("@learned('p')\nclass p(DefaultChooser):\n    kinds = 5\n    def choose(self, r, l, n): ...", "p.kinds is 5"),
        ("@colocation('p')\nclass p(DefaultColocationRule):\n    regroup_s = math.nan\n    admit = len", "p.regroup_s"),
        (
            "@colocation('p')\nclass p(DefaultColocationRule):\n    def __init__(self): 1/0",
            "p() raised Zero",
        ),
        ("@ordering('p')\nclass p:\n    pass", "policy class 'p' has no function turn(job, now_s)"),
        ("@ordering('p')\ndef p(job): ...", "takes 1 arguments; it must take (job, now_s)"),
        (
            "@ordering('p', backfill=lambda params: 5)\ndef p(job, now_s): return Turn((job.seq,))",
            "backfill() returned 5; expected a Backfill",
        ),
        (
            "@ordering('p')\nclass p:\n    memory = {1, 2}\n    def turn(self, job, now_s): return Turn((job.seq,))\n"
            "    def ended(self, job, now_s): return 'yes'",
            "p.ended() returned 'yes'; expected True or False",
        ),
        (
            "@dataclass\nclass Params:\n    x: int = 1\n    def __post_init__(self): 1/0\n"
            "@ordering('p')\ndef p(job, now_s, params: Params): ...",
            "Params() raised ZeroDivisionError",
        ),
        ("@rounds('p')\nclass p(DefaultShareRule):\n    def __init__(self, x: int): ...", "annotate argument 'x' with"),
        (
            "@dataclass\nclass Params:\n    x: int = 1\n@rounds('p')\nclass p(DefaultShareRule):\n"
            "    def __init__(self, params: Params): ...\n    def shares(self, q): ...",
            "its parameters Params must extend RoundParams",
        ),
        (
            "@dataclass\nclass Params:\n    x: int = 1\n    def __post_init__(self): raise RotaError('x is 1')\n"
            "@ordering('p')\ndef p(job, now_s, params: Params): ...",
            "error: policy ./mine.py:p: Params(): x is 1",
        ),
        (
            "@dataclass(frozen=True, kw_only=True)\nclass Params(RoundParams):\n    round_s: float = -1.0\n"
            "@rounds('p')\nclass p(DefaultShareRule):\n    def __init__(self, params: Params): ...",
            "error: round_s is -1; it must be a finite number above 0, or adaptive",
        ),
        (
            "@rounds('p')\nclass p(DefaultShareRule):\n    @property\n    def backfills(self): raise RotaError('boo')\n"
            "    def shares(self, q): ...",
            "policy ./mine.py:p: p.backfills can't be read: RotaError: boo (mine.py, line ",
        ),
        (
            "@rounds('p')\nclass p(DefaultShareRule):\n    @property\n    def backfills(self): exit(3)\n"
            "    def shares(self, q): ...",
            "policy ./mine.py:p: p.backfills can't be read: SystemExit: 3",
        ),
        ("p = ordering('p')", "'p' is not a policy; put @ordering(...) or another family's decorator above it"),
        ("{}['x']", "it can't be loaded: KeyError: 'x' (mine.py, line 5)"),
        ("import sys; sys.exit(3)", "it can't be loaded: SystemExit: 3"),
    ],
)
def test_declaration_that_can_not_work_is_named(
    run: Callable[[str], tuple[int, list[str]]], text: str, told: str
) -> None:
    assert told in refused(run, text)


SELECTION_RULE = """
@selection("p")
class p(DefaultSelectionRule):
    def select(self, context):
        return Selection(backfill=[DeviceRequest(live) for live in context.waiting])
    {member}
"""
COLOCATION_RULE = """
@colocation("p")
class p(DefaultColocationRule):
    def admit(self, live, hosts, kind, now_s):
        return None if live.job.model == "vgg16" else (len(hosts),)
    {member}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "member", "function"),
    [
        (SELECTION_RULE, "def expired(self, context): return [5]", "p.expired()"),
        (SELECTION_RULE, "def expired(self, context): return list(context.waiting) or 5", "p.expired()"),
        (SELECTION_RULE, "def wakeup_s(self, context): return context.now_s", "p.wakeup_s()"),
        (SELECTION_RULE, "def wakeup_s(self, context): return None", "p.wakeup_s()"),
        (SELECTION_RULE, "def placed(self, context): 1/0", "p.placed()"),
        (COLOCATION_RULE, "def order(self, live, now_s): return 5", "p.order()"),
        (COLOCATION_RULE, "def order(self, live, now_s): return (math.nan,)", "p.order()"),
        (COLOCATION_RULE, "def is_shareable(self, job): return 'yes'", "p.is_shareable()"),
        (COLOCATION_RULE, "def fractions(self, jobs, now_s, room, groups): return 5", "p.fractions()"),
        (COLOCATION_RULE, "def fractions(self, jobs, now_s, room, groups): return [900] * len(jobs)", "p.fractions()"),
        (COLOCATION_RULE, "def fractions(self, jobs, now_s, room, groups): return [0] * len(jobs)", "p.fractions()"),
        (COLOCATION_RULE, "def fractions(self, jobs, now_s, room, groups): return [500]", "p.fractions()"),
        (
            COLOCATION_RULE,
            "def memory_fractions(self, jobs, room): return [math.nan] * len(jobs)",
            "memory_fractions()",
        ),
        (COLOCATION_RULE, "def fits_memory(self, live, hosts, memory_bytes): return None", "p.fits_memory()"),
        (COLOCATION_RULE, "def find_free(self, live, draft, groups): return 5", "p.find_free()"),
        (COLOCATION_RULE, "def placement_key(self, job): return []", "p.placement_key()"),
        (COLOCATION_RULE, "def select_to_move(self, jobs, *, jobs_wait): return 5", "p.select_to_move()"),
        (COLOCATION_RULE, "def observe(self, live, groups): return [5]", "p.observe()"),
        (COLOCATION_RULE, "def victims(self, live, holders): return [live]", "p.victims()"),
        (COLOCATION_RULE, "def next_admission_s(self, waiting, now_s): return now_s", "p.next_admission_s()"),
        (
            COLOCATION_RULE,
            "regroup_s = 60.0\n    def form_groups(self, jobs, devices, together): return [[5]]",
            "p.form_groups()",
        ),
    ],
)
def test_nonsense_of_other_functions_is_named(
    run: Callable[[str], tuple[int, list[str]]], template: str, member: str, function: str
) -> None:
    error = refused(run, template.format(member=member))

    assert error.startswith("error: policy ./mine.py:p: ")
    assert function in error


@pytest.mark.parametrize(
    "text",
    [
        LEARNED.format(answer="None"),
        SELECTION.format(
            answer="Selection(requests=[DeviceRequest(live, None, 0)] * 3, backfill=[DeviceRequest(live)])"
        ),
        COLOCATION.format(answer="None"),
        ORDERING.format(answer="Turn((-math.inf if job.holds else 0, job.seq))"),
    ],
    ids=["no choice", "twice", "refused", "infinite"],
)
def test_what_is_odd_but_usable_is_used(run: Callable[[str], tuple[int, list[str]]], text: str) -> None:
    code, printed = run(text)

    assert code == 0, printed
    assert printed[1].split()[:3] == ["./mine.py:p", "5", "5"], "all five jobs end"


def test_numpy_numbers_are_numbers(run: Callable[[str], tuple[int, list[str]]]) -> None:
    code, printed = run(ORDERING.format(answer="Turn((np.float32(1.5), np.int64(2), job.seq), until_s=np.inf)"))

    assert code == 0, printed


def test_memory_that_json_can_not_hold_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(HEAD + SELECTION_RULE.format(member="memory = {1, 2}"))
    policy = find_policy(f"{path}:p")[0].build("", allocator("none", style("any")))

    with pytest.raises(RotaError, match=r"p\.memory is \{1, 2\}; expected None, numbers, text"):
        _ = policy.memory
