"""Functions of users: found in files and packages, and named where they fail or return nonsense."""

from __future__ import annotations

import json
import os
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from rota import plugins
from rota.cli.main import status
from rota.core.errors import RotaError
from rota.core.state.history import History
from rota.placement import style
from rota.placement.ranked import PLACEMENTS
from rota.plugins import find_plugin, load_from_file
from rota.report.user_metrics import measure_by, user_metrics
from rota.traces.formats import read_trace

CODE = """
def last_first(choice, job):
    return -int(str(choice.node.id)[1:])

def half(job, nodes):
    return 0.5

def answer(history):
    return 42

def nothing(history):
    return None

def rows(lines):
    for line in lines:
        name, gpus = line.split()
        yield {"id": name, "submit_s": 0, "gpus": gpus, "work": 10}

def returns(value):
    return lambda *args: value

none, nan, text, pair = returns(None), returns(float("nan")), returns("1"), returns((1, 2))
true, zero = returns(True), returns(0)

huge = returns(10**400)

class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")

class Hidden:
    def __repr__(self):
        raise Mute

def huge_fraction(*args):
    from fractions import Fraction
    return Fraction(10**400)

def leaves(*args):
    raise SystemExit(3)

def mumbles(*args):
    raise Mute

hidden = returns(Hidden())

def refuses(*args):
    from rota.core.errors import RotaError

    raise RotaError("not on my watch")


def fails(*args):
    return 1 / 0

def yields_five(lines):
    yield 5

def yields_other_columns(lines):
    yield {"id": "a", "submit_s": 0, "gpu": 1}

def breaks_off(lines):
    yield {"id": "a", "submit_s": 0, "gpus": 1, "work": 10}
    raise KeyError("gpus")

number = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    (tmp_path / "jobs.csv").write_text("id,submit_s,gpus,work\na,0,1,300\nb,0,2,300\n")
    (tmp_path / "jobs.log").write_text("a 1\nb 2\n")
    monkeypatch.chdir(tmp_path)
    plugins.find_plugin.cache_clear()
    return tmp_path


def sim(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = status(["sim", "--trace", "jobs.csv", "--cluster", "gpu=4/2", "--policy", "fifo", "-o", "json", *args])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_placement_ranks_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = sim(capsys, "--placement", "./mine.py:last_first", "--out", "out")
    starts = [json.loads(line) for line in Path("out/journal.jsonl").read_text().splitlines()[1:]]
    placed = {order["job_id"]: [slot[0] for slot in order["on"]] for step in starts for order in step.get("out", ())}

    assert code == 0
    assert placed == {"a": ["n2"], "b": ["n2", "n1"]}
    assert status(["sim", "--replay", "out/journal.jsonl"]) == 0


@pytest.mark.usefixtures("folder")
def test_speed_factor_slows_jobs_down(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = sim(capsys)
    _, slow, _ = sim(capsys, "--speed-factor", "./mine.py:half")

    assert json.loads(slow)[0]["avg_jct_s"] == 2 * json.loads(plain)[0]["avg_jct_s"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_metrics_are_in_rows_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--metric", "./mine.py:answer", "--metric", "./mine.py:nothing")
    _, out, _ = sim(capsys, *given, "--out", "out")
    (row,) = json.loads(out)

    assert (row["answer"], row["nothing"]) == (42.0, None)
    assert '<th class="n">answer</th>' in Path("out/report.html").read_text()
    assert status(["report", "out/journal.jsonl", *given]) == 0
    assert "answer" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.usefixtures("folder")
def test_reader_reads_a_trace() -> None:
    workload = read_trace(Path("jobs.log"), format="./mine.py:rows")

    assert [(str(each.job.id), each.job.gpus) for each in workload.submissions] == [("a", 1), ("b", 2)]
    assert workload.format == "rows"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--placement ./mine.py:none", "placement ./mine.py:none: for node n1 and job a it returned None"),
        ("--placement ./mine.py:nan", "it returned nan; it must return a finite number"),
        ("--placement ./mine.py:text", "it returned '1'; it must return a finite number"),
        ("--placement ./mine.py:true", "it returned True; it must return a finite number"),
        ("--placement ./mine.py:fails", "./mine.py:fails: it failed: ZeroDivisionError: division by zero"),
        ("--placement ./mine.py:huge", "placement ./mine.py:huge: for node n1 and job a it returned 1000"),
        ("--metric ./mine.py:huge_fraction", "metric ./mine.py:huge_fraction: for the run it returned Fraction(1000"),
        ("--placement ./mine.py:hidden", "it returned a value of type Hidden; it must return a finite number"),
        ("--placement ./mine.py:refuses", "placement ./mine.py:refuses: it failed: RotaError: not on my watch"),
        ("--placement ./mine.py:leaves", "placement ./mine.py:leaves: it failed: SystemExit: 3"),
        ("--metric ./mine.py:leaves", "metric ./mine.py:leaves: it failed: SystemExit: 3"),
        ("--placement ./mine.py:mumbles", "placement ./mine.py:mumbles: it failed: Mute"),
        ("--placement ./mine.py:number", "placement file ./mine.py: 'number' is 5; it must be a function"),
        ("--placement ./mine.py:last_frist", "it has no 'last_frist'; did you mean 'last_first'?"),
        ("--placement ./mine.py:", "placement file ./mine.py: name the function, as ./mine.py:FUNCTION"),
        ("--placement ./gone.py:fn", "placement file ./gone.py: there is no such file"),
        ("--placement ./broken.py:fn", "it can't be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("--placement spred", "unknown placement 'spred'; did you mean 'spread'?"),
        ("--speed-factor ./mine.py:pair", "speed factor ./mine.py:pair: for job a on n1 it returned (1, 2)"),
        ("--speed-factor ./mine.py:zero", "for job a on n1 it returned 0; it must return a number above 0"),
        ("--speed-factor half", "unknown speed factor 'half'; there are none, or FILE.py:FUNCTION"),
        ("--metric ./mine.py:nan", "metric ./mine.py:nan: for the run it returned nan"),
        ("--metric ./mine.py:pair", "metric ./mine.py:pair: for the run it returned (1, 2)"),
        ("--metric ./mine.py:answer --metric ./mine.py:answer", "there is another metric 'answer'"),
        ("--format ./mine.py:none", "trace reader ./mine.py:none: it returned NoneType"),
        ("--format ./mine.py:pair", "jobs.csv:1: ./mine.py:pair yielded 1; expected a mapping"),
        ("--format ./mine.py:yields_five", "jobs.csv:1: ./mine.py:yields_five yielded 5; expected a mapping"),
        ("--format ./mine.py:yields_other_columns", "./mine.py:yields_other_columns: unknown field 'gpu'"),
        ("--format ./mine.py:breaks_off", "trace reader ./mine.py:breaks_off: it failed: KeyError: 'gpus'"),
        ("--format rotta", "unknown trace format 'rotta'; did you mean 'rota'?"),
    ],
)
def test_mistake_is_named(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = sim(capsys, *option.split())

    assert (code, out) == (2, "")
    assert message in err
    assert err.count("error:") == 1


@pytest.mark.usefixtures("folder")
def test_packages_add_names_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name="by-name", value="builtins:len", group=PLACEMENTS.group)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])

    found = find_plugin(PLACEMENTS, "by-name")

    assert found is not None
    assert (found.function, found.name) == (len, "by-name")
    assert style("by-name").ranking == found
    with pytest.raises(RotaError, match="unknown placement 'by-nam'; did you mean 'by-name'"):
        style("by-nam")


def test_package_that_can_not_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="lost", value="no_such_module:fn", group=PLACEMENTS.group)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    plugins.find_plugin.cache_clear()

    with pytest.raises(RotaError, match=r"placement lost \(no_such_module:fn\): it can't be loaded: ModuleNotFound"):
        find_plugin(PLACEMENTS, "lost")


def test_metric_may_not_take_a_name_of_rotas(folder: Path) -> None:
    (folder / "taken.py").write_text("def preemptions(history):\n    return 0\n")

    with pytest.raises(RotaError, match="there is another metric 'preemptions'"):
        user_metrics(["./taken.py:preemptions"])


@pytest.mark.usefixtures("folder")
def test_files_of_one_name_in_two_folders_are_two() -> None:
    Path("other").mkdir()
    Path("other/mine.py").write_text("def answer(history):\n    return 43\n")
    empty = History(jobs=(), devices=1, free_device_s=0.0, fragmented_device_s=0.0)

    assert measure_by(user_metrics(["./mine.py:answer"]), empty) == {"answer": 42.0}
    assert measure_by(user_metrics(["./other/mine.py:answer"]), empty) == {"answer": 43.0}


def test_file_edited_within_a_second_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    found = []
    for number in (1, 2):
        path.write_text(f"def f():\n    return {number}\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        loaded: Any = load_from_file(str(path), "f", "mine.py", lambda value, module: callable(value))
        found.append(loaded())

    assert found == [1, 2]
