"""The architecture page names modules that exist, and explains every package once."""

from __future__ import annotations

import re
import tomllib

import pytest

from docs.pages import ROOT

PAGE = (ROOT / "docs/explain/architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "rota"
PACKAGES = sorted(
    str(folder.relative_to(SOURCE))
    for folder in SOURCE.rglob("*")
    if folder.is_dir() and any(folder.glob("*.py")) and "versions" not in folder.parts
)
FLOWS = ("A submitted job", "A trace job", "A pod")


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.split(f"\n### {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def modules(text: str) -> list[str]:
    return re.findall(r"`([a-z0-9_/]+\.py)`", text)


def test_every_module_that_the_page_names_exists() -> None:
    named = [name for name in modules(PAGE) if not name.startswith("tests/")]

    assert len(named) > 50
    assert [name for name in named if not (SOURCE / name).is_file()] == []


def test_every_package_that_the_page_names_exists() -> None:
    named = {
        name
        for row in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)
        for name in re.findall(r"`([a-z0-9_]+/[a-z0-9_/]+)`", row)
    }

    assert [name for name in sorted(named) if not (SOURCE / name).is_dir()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_explained(package: str) -> None:
    assert re.search(rf"^\|.*`{package}`.*\|$", PAGE, re.MULTILINE), f"docs/explain/architecture.md lacks {package}"


@pytest.mark.parametrize("flow", FLOWS)
def test_flow_is_a_numbered_list_that_passes_the_engine(flow: str) -> None:
    steps = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section(flow), re.MULTILINE | re.DOTALL)

    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert [number for number, text in steps if not modules(text) and "informer" not in text] == []
    assert "core/engine/engine.py" in modules(section(flow))


def layers() -> list[set[str]]:
    """Return the layers of the import contract, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["id"] == "layers")
    return [set(row.split(" | ")) for row in contract["layers"]]


def test_layers_are_those_of_the_import_contract() -> None:
    rows = re.findall(r"^\| (\d+) \| `([a-z]+)` \|", PAGE, re.MULTILINE)

    assert [
        {name for number, name in rows if int(number) == layer} for layer in range(1, len(layers()) + 1)
    ] == layers()


def test_contributing_lists_the_layers_of_the_import_contract() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Packages", 1)[1]

    assert [set(line.split(", ")) for line in text.split("```\n")[1].splitlines()] == layers()
