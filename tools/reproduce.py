"""Run the scripts of `reproductions/` and write their tables into docs/reference/reproductions.md.

Above a table of the page, `<!-- measured: NAME -->` names the script that measures its figures. The tables that a
script prints replace its marked tables, in the same order; everything else on the page is written by hand. A script
whose data (`ROTA_DATA`) or PyTorch (extra `learn`) is missing is skipped, and its tables stay unchanged.
Run: `python tools/reproduce.py [--resume] [NAME...]`; without names, all scripts. The output of each script is kept
under `build/reproductions/`; `--resume` reuses it instead of running the script again, and is passed to scripts that
keep partial results.
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
    """The number of a script's tables differs from the number of its marks on the page."""


def tables(text: str) -> list[list[str]]:
    """Return the tables in a text, each as its lines."""
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
    """Return the names of scripts at the marks of a page, from top to bottom."""
    return [found[1] for line in page.splitlines() if (found := _MARK.match(line))]


def filled(page: str, name: str, printed: str) -> str:
    """Return the page with the tables that a script printed below the marks with its name."""
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
    """Return the named scripts, or all; exit if one does not exist."""
    names = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        sys.exit(f"unknown script {unknown[0]!r}; choose from {', '.join(names)}")
    return wanted or names


def lacking(script: str) -> str | None:
    """Return the reason why a script cannot run here, if any."""
    if "ROTA_DATA" in script and "ROTA_DATA" not in os.environ:
        return "ROTA_DATA is not set"
    if "extra `learn`" in script and find_spec("torch") is None:
        return "it needs PyTorch: pip install 'rota[learn]'"
    return None


def printed(name: str, *, resume: bool) -> str | None:
    """Return the output of a script, kept from an earlier run if `resume` is set; None if a requirement is missing."""
    script, kept = SCRIPTS / f"{name}.py", KEPT / f"{name}.txt"
    if resume and kept.exists():
        print(f"  reused from {kept.relative_to(ROOT)}", file=sys.stderr)
        return kept.read_text(encoding="utf-8")
    if lacks := lacking(script.read_text(encoding="utf-8")):
        print(f"  skipped: {lacks}", file=sys.stderr)
        return None
    kept.unlink(missing_ok=True)
    options = ["--resume"] if resume and "--resume" in script.read_text(encoding="utf-8") else []
    done = subprocess.run([sys.executable, script, *options], stdout=subprocess.PIPE, text=True, check=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(done.stdout, encoding="utf-8")
    return done.stdout


def main(wanted: list[str], *, resume: bool = False) -> None:
    """Run the scripts and update the page after each, so that results are kept if a later one fails."""
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
    options = argparse.ArgumentParser(description="Measure published claims and write the tables of the page.")
    options.add_argument("names", nargs="*", help="scripts of reproductions/; all by default")
    options.add_argument("--resume", action="store_true", help="reuse the output of scripts that have finished")
    given = options.parse_args()
    main(given.names, resume=given.resume)
