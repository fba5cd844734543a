"""How policies introduce themselves, are found by name or in a file, and read their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from builders import World, on, start
from rota.core.errors import RotaError
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn
from rota.mechanisms.parameters import NoParams, describe_type, parse_parameters, read_value, show_value
from rota.placement import style
from rota.policies import BUILT_IN, JobView, find_policy, names
from rota.tenancy import allocator


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    limits: tuple[float, ...] = (1.0, 2.0)
    colour: Colour = Colour.RED
    count: int = 3
    name: str = "x"
    on: bool = False
    round_s: float | None = None


def parse(options: str) -> Params:
    read = parse_parameters(Params, options, "policy 'p'")
    assert isinstance(read, Params)
    return read


def test_parameters_are_read_by_their_types() -> None:
    read = parse("limits=5/7.5, colour=blue,count=4,name=y,on=true,round_s=360")

    assert read == Params(limits=(5.0, 7.5), colour=Colour.BLUE, count=4, name="y", on=True, round_s=360.0)
    assert parse("") == Params()
    assert parse("limits=inf").limits == (float("inf"),)
    assert parse("round_s=none").round_s is None


@pytest.mark.parametrize("word", ["true", "Yes", "on", "1"])
def test_yes(word: str) -> None:
    assert parse(f"on={word}").on


@pytest.mark.parametrize("word", ["false", "NO", "off", "0"])
def test_no(word: str) -> None:
    assert not parse(f"on={word}").on


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("counts=4", "policy 'p' has no parameter 'counts'; did you mean 'count'?"),
        ("zzz=4", "policy 'p' has no parameter 'zzz'; known: colour, count, limits, name, on, round_s"),
        ("count", "policy 'p': 'count' is not KEY=VALUE"),
        ("count=1,count=2", "policy 'p': parameter 'count' is given twice"),
        ("count=1.5", "policy 'p': count is '1.5'; it must be a whole number"),
        ("on=maybe", "policy 'p': on is 'maybe'; it must be true or false"),
        ("colour=green", "policy 'p': colour is 'green'; it must be one of red, blue"),
        ("limits=1/x", "policy 'p': limits is '1/x'; it must be a list such as a/b/c, each a number"),
        ("limits=", "policy 'p': limits is ''; it must be a list such as a/b/c, each a number"),
        ("limits=nan", "policy 'p': limits is 'nan'; it must be a list such as a/b/c, each a number"),
        ("round_s=x", "policy 'p': round_s is 'x'; it must be a number, or none"),
    ],
)
def test_wrong_parameter_is_told(options: str, message: str) -> None:
    with pytest.raises(RotaError) as refused:
        parse(options)
    assert str(refused.value) == message


def test_policy_without_parameters_says_so() -> None:
    with pytest.raises(RotaError, match="policy 'srtf' has no parameter 'x'; it has none"):
        find_policy("srtf")[0].read("x=1")


def test_values_are_shown_as_they_are_written() -> None:
    shown = [show_value(value) for value in (True, False, Colour.BLUE, (1.0, 2.5), 3, 0.5, None, "x")]

    assert shown == ["true", "false", "blue", "1/2.5", "3", "0.5", "none", "x"]


def test_text_is_described() -> None:
    assert describe_type(str) == "text"


def test_type_that_can_not_be_written_is_a_bug() -> None:
    with pytest.raises(TypeError, match="can't be of type"):
        read_value(dict, "x")


# -- names and files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_name_leads_to_a_policy_that_introduces_itself(name: str) -> None:
    declared, options = find_policy(name)

    assert (declared.name, options) == (name, "")
    assert declared.summary
    assert declared.cites
    assert declared.build("", allocator("none", style(declared.placement))).wakeup_s == float("inf")


def test_built_in_policies_come_first() -> None:
    assert names()[: len(BUILT_IN)] == list(BUILT_IN)


def test_unknown_policy_is_refused_with_the_nearest() -> None:
    with pytest.raises(RotaError, match="unknown policy 'lsa'; did you mean 'las'"):
        find_policy("lsa:x=1")


def test_unknown_tenancy_is_refused() -> None:
    with pytest.raises(RotaError, match="unknown tenancy 'cellz'"):
        allocator("cellz", style("any"))


MINE = """
from dataclasses import dataclass
from rota.policies import JobView, Turn, ordering

@dataclass(frozen=True)
class Params:
    sign: int = 1

@ordering("newest")
def newest(job: JobView, now_s: float, params: Params) -> Turn:
    '''The newest first.'''
    return Turn((-job.seq * params.sign, job.seq))

def plain(job, now_s):
    return None
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize(("options", "first"), [("", "b"), (":sign=-1", "a")])
def test_policy_of_ones_own_is_found_in_its_file(mine: Path, options: str, first: str) -> None:
    world = World(gpus=1, policy=f"{mine}:newest{options}").running("x")
    world.submit("a")
    world.submit("b")

    assert world.ended("x") == [start(first, on("n1", 1))]


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("", "name the function, as"),
        (":newst", "it has no 'newst'; did you mean 'newest'?"),
        (":plain", "'plain' is not a policy; put @ordering(...) or another family's decorator above it"),
    ],
)
def test_wrong_function_of_a_file_is_told(mine: Path, tail: str, message: str) -> None:
    with pytest.raises(RotaError) as refused:
        find_policy(f"{mine}{tail}")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "it can't be loaded: ModuleNotFoundError"),
        ("def (", "it can't be loaded: SyntaxError"),
        ("from rota.core.errors import RotaError\nraise RotaError('mine')", r"policy file .*broken.py: mine$"),
        (
            "from rota.policies import ordering\n@ordering('p')\ndef p(job, now_s, params): ...",
            "policy function 'p': its third argument must be annotated with a dataclass",
        ),
    ],
)
def test_file_that_can_not_be_loaded_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)

    with pytest.raises(RotaError, match=message):
        find_policy(f"{path}:p")


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(RotaError, match="there is no such file"):
        find_policy(f"{tmp_path}/none.py:p")


def test_traits_follow_from_what_is_declared() -> None:
    @ordering("p", preempts=True, placement="spread")
    def p(job: JobView, now_s: float) -> Turn:
        """Nothing in particular."""
        return Turn((job.seq,))

    assert p.traits == Traits(preemption="yes", placement="spread")
    assert p.params is NoParams
    assert p.summary == "Nothing in particular."


def test_class_makes_a_policy_too() -> None:
    class Last:
        """The last first."""

        memory = None

        def __init__(self, params: NoParams) -> None:
            self.params = params

        def turn(self, job: JobView, now_s: float) -> Turn:
            return Turn((-job.seq,))

        def ended(self, job: JobView, now_s: float) -> bool:
            return False

    declared = ordering("p")(Last)
    assert declared.build("", allocator("none", style("any"))).memory is None
    assert declared.summary == "The last first."
