"""Run the scripts of `reproductions/` and write what they measured into docs/reference/reproductions.md.

Above a table of the page, `<!-- measured: NAME -->` says which script its figures come from. The tables that a script
prints take the places of its marked tables, in the same order; everything else on the page is written by hand. A
script whose data are missing (`ROTA_DATA`) is left out, and its tables stay as they are.
Run: `python tools/reproduce.py [NAME...]`, with the names of scripts for just those.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "reproductions.md"
SCRIPTS = ROOT / "reproductions"
_MARK = re.compile(r"^<!-- measured: (\S+) -->$")


class Misplaced(Exception):
    """A script's tables and the page's places for them are not as many."""


def tables(text: str) -> list[list[str]]:
    """The tables in a text, each as its lines."""
    found: list[list[str]] = []
    is_within = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not is_within:
                found.append([])
            found[-1].append(line)
        is_within = line.startswith("|")
    return found


def places(page: str) -> list[str]:
    """The names of scripts at the marks of a page, from top to bottom."""
    return [found[1] for line in page.splitlines() if (found := _MARK.match(line))]


def filled(page: str, name: str, printed: str) -> str:
    """The page with the tables that a script printed in the places marked with its name."""
    measured = tables(printed)
    wanted = places(page).count(name)
    if len(measured) != wanted:
        raise Misplaced(f"{name} printed {len(measured)} tables; the page has places for {wanted}")
    kept: list[str] = []
    is_old = False
    for line in page.splitlines():
        if is_old and (line.startswith("|") or (not line and kept[-1] == "")):
            continue
        if is_old and line:
            is_old = False
        kept.append(line)
        if (found := _MARK.match(line)) and found[1] == name:
            kept += ["", *measured.pop(0), ""]
            is_old = True
    return "\n".join(kept).rstrip("\n") + "\n"


def main(wanted: list[str]) -> None:
    """Script by script, so that what was measured is kept if a later one fails."""
    names = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        sys.exit(f"there is no {unknown[0]!r}; there are {', '.join(names)}")
    for name in wanted or names:
        script = SCRIPTS / f"{name}.py"
        if "ROTA_DATA" in script.read_text(encoding="utf-8") and "ROTA_DATA" not in os.environ:
            print(f"{name}: left out, ROTA_DATA is not set", file=sys.stderr)
            continue
        print(name, file=sys.stderr)
        done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout)
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), name, done.stdout), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
