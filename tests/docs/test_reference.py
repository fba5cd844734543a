"""The reference documents every command, policy, placement, format, reason and state."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from docs.lifecycle_page import page as lifecycle_page
from docs.man_pages import FOLDER as MANUAL
from docs.man_pages import man_pages
from docs.pages import ROOT, headings, section
from docs.policies_page import label_table
from docs.policies_page import page as policies_page
from rota.cli.commands import COMMANDS
from rota.cli.lazy_group import load
from rota.cli.main import app
from rota.core.codec.values import _EVENT_NAMES
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobState
from rota.files.cluster_file import ClusterFile, NodeEntry
from rota.files.faults import HEADER
from rota.mechanisms.ordering.rule import Backfill, Turn
from rota.perf.speed.sharing_labels import SHARING_LABELS
from rota.placement import SUMMARIES
from rota.policies import BUILT_IN, JobView
from rota.store.journal import JournalHeader, encode_header
from rota.tenancy import TENANCIES
from scenario.full import FULL

REFERENCE = ROOT / "docs/reference"
CLI = REFERENCE / "cli.md"
RUN = JournalHeader(scenario=FULL.under("las"))


def _tree(command: TyperCommand | TyperGroup, path: str) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    yield path, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            assert isinstance(inner, TyperCommand | TyperGroup)
            yield from _tree(inner, f"{path} {name}")


def _commands() -> dict[str, TyperCommand | TyperGroup]:
    found: dict[str, TyperCommand | TyperGroup] = {"rota": typing.cast(TyperGroup, get_command(app))}
    for entry in COMMANDS:
        found |= dict(_tree(load(entry), f"rota {entry.name}"))
    return found


COMMANDS_BY_PATH = _commands()


def _options(command: TyperCommand | TyperGroup) -> set[str]:
    """Return the options by all of their names, and arguments as they are shown."""
    names = {"--help", "-h"}
    for param in command.params:
        if param.param_type_name == "argument":
            names.add((param.metavar or param.name or "").strip("[]{}").removesuffix("..."))
        else:
            names |= {*param.opts, *param.secondary_opts}
    return names


def test_every_command_has_a_heading_and_no_other() -> None:
    told = {text.strip("`") for level, text in headings(CLI) if text.startswith("`rota")}

    assert told == set(COMMANDS_BY_PATH)


@pytest.mark.parametrize("path", COMMANDS_BY_PATH)
def test_every_option_is_explained_under_its_command(path: str) -> None:
    text = section(CLI, f"`{path}`").split("\n### ")[0].split("\n## ")[0]
    first_cells = " ".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))
    told = {word.split(" ")[0].removesuffix("...") for word in re.findall(r"`([^`]+)`", first_cells)}

    common = {"--help", "-h"}
    assert told == _options(COMMANDS_BY_PATH[path]) - common


def test_page_of_policies_is_what_they_declare() -> None:
    committed = (REFERENCE / "policies.md").read_text(encoding="utf-8")

    assert committed == policies_page(), "run .venv/bin/python tests/docs/rewrite.py"
    assert [text for level, text in headings(REFERENCE / "policies.md") if level == 2][:-1] == list(BUILT_IN)


def test_page_of_the_life_of_a_job_is_what_the_engine_does() -> None:
    committed = (REFERENCE / "job-lifecycle.md").read_text(encoding="utf-8")

    assert committed == lifecycle_page(), "run .venv/bin/python tests/docs/rewrite.py"


def test_job_files_page_has_the_labels_of_sharing() -> None:
    assert label_table() in (REFERENCE / "job-file.md").read_text(encoding="utf-8")
    assert {name for label in SHARING_LABELS for name in label.read_by} <= set(BUILT_IN)


def test_every_placement_has_a_heading_and_no_other() -> None:
    assert [text for level, text in headings(REFERENCE / "placement.md") if level == 3] == list(SUMMARIES)


def test_every_reason_has_a_heading_and_no_other() -> None:
    told = [text.strip("`") for level, text in headings(REFERENCE / "reasons.md") if level == 3]

    assert told == [code.value for code in ReasonCode]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        pytest.param("cluster-file.md", [*NodeEntry.model_fields, *ClusterFile.model_fields], id="cluster file"),
        pytest.param("cluster-file.md", [",".join(HEADER), "up", "down"], id="faults file"),
        pytest.param("cli.md", list(TENANCIES), id="tenancies"),
        pytest.param("journal.md", [*encode_header(RUN), "snapshot"], id="journal header"),
        pytest.param("journal.md", list(_EVENT_NAMES.values()), id="events"),
        pytest.param(
            "journal.md",
            [field.name for kind in _EVENT_NAMES for field in dataclasses.fields(kind)],
            id="fields of events",
        ),
        pytest.param("journal.md", [end.value for end in End], id="ends"),
        pytest.param("journal.md", ["start", "stop", "resize", *(cause.value for cause in Cause)], id="decisions"),
        pytest.param("reasons.md", [field.name for field in dataclasses.fields(Reason)], id="fields of reasons"),
        pytest.param("glossary.md", [state.value for state in JobState], id="states"),
        pytest.param(
            "../howto/write-a-policy.md",
            [name for name in vars(Turn) if not name.startswith("_")],
            id="fields of turns",
        ),
        pytest.param("../howto/write-a-policy.md", [f"Backfill.{way.name}" for way in Backfill], id="backfill"),
    ],
)
def test_every_name_is_on_its_page(page: str, names: list[str]) -> None:
    text = (REFERENCE / page).read_text(encoding="utf-8")

    assert [name for name in names if f"`{name}`" not in text] == []


def test_everything_a_policy_may_read_is_in_the_howto() -> None:
    text = (ROOT / "docs/howto/write-a-policy.md").read_text(encoding="utf-8")
    names = [name for name in vars(JobView) if not name.startswith("_")]

    assert [name for name in names if not re.search(rf"`{name}(\(now_s\))?`", text)] == []


def test_glossary_is_in_order_and_defines_each_term_once() -> None:
    words = re.findall(r"^\| ([^|]+?) \| ", (REFERENCE / "glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    words = [word for word in words if word not in ("term", "state", "---")]

    assert len(set(words)) == len(words)
    entries = [word for word in words if not word.startswith("`")]
    assert entries == sorted(entries, key=str.casefold)


def test_manual_pages_are_those_of_the_commands() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in MANUAL.iterdir()}

    assert committed == man_pages(), "run .venv/bin/python tests/docs/rewrite.py"
