"""Run the scripts of `reproductions/` and write what they measured into docs/reference/reproductions.md.

Above a table of the page, `<!-- measured: NAME -->` says which script its figures come from. The tables that a script
prints take the places of its marked tables, in the same order; everything else on the page is written by hand. A
script whose data (`ROTA_DATA`) or PyTorch (extra `learn`) are missing is left out, and its tables stay as they are.
Run: `python tools/reproduce.py [--resume] [NAME...]`, with the names of scripts for just those. What each script
printed is kept under `build/reproductions/`; `--resume` takes it from there instead of running the script once more,
and is handed on to scripts that keep their parts.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "reproductions.md"
SCRIPTS = ROOT / "reproductions"
KEPT = ROOT / "build" / "reproductions"
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


def chosen(wanted: list[str]) -> list[str]:
    """The scripts that are named, or all; one that does not exist ends it."""
    names = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        sys.exit(f"there is no {unknown[0]!r}; there are {', '.join(names)}")
    return wanted or names


def lacking(script: str) -> str | None:
    """What a script says that it needs and that is not here."""
    if "ROTA_DATA" in script and "ROTA_DATA" not in os.environ:
        return "ROTA_DATA is not set"
    if "extra `learn`" in script and find_spec("torch") is None:
        return "it needs PyTorch: pip install 'rota[learn]'"
    return None


def printed(name: str, *, resume: bool) -> str | None:
    """What a script prints, now or, to resume, when it last came to its end; None if what it needs is missing."""
    script, kept = SCRIPTS / f"{name}.py", KEPT / f"{name}.txt"
    if resume and kept.exists():
        print(f"  measured before, see {kept.relative_to(ROOT)}", file=sys.stderr)
        return kept.read_text(encoding="utf-8")
    if lacks := lacking(script.read_text(encoding="utf-8")):
        print(f"  left out, {lacks}", file=sys.stderr)
        return None
    kept.unlink(missing_ok=True)
    goes_on = ["--resume"] if resume and "--resume" in script.read_text(encoding="utf-8") else []
    done = subprocess.run([sys.executable, script, *goes_on], stdout=subprocess.PIPE, text=True, check=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(done.stdout, encoding="utf-8")
    return done.stdout


def main(wanted: list[str], *, resume: bool = False) -> None:
    """Script by script, so that what was measured is kept if a later one fails."""
    names = chosen(wanted)
    for number, name in enumerate(names, start=1):
        print(f"{number} of {len(names)}: {name}", file=sys.stderr, flush=True)
        began_s = time.monotonic()
        found = printed(name, resume=resume)
        if found is None:
            continue
        print(found)
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), name, found), encoding="utf-8")
        print(f"  {name} took {time.monotonic() - began_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Measure what papers claim, and write the tables of the page.")
    options.add_argument("names", nargs="*", help="scripts of reproductions/, all if none is named")
    options.add_argument("--resume", action="store_true", help="keep what an earlier run measured to the end")
    given = options.parse_args()
    main(given.names, resume=given.resume)
