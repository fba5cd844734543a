"""Update the generated parts of the documentation: `.venv/bin/python tests/docs/rewrite.py [PAGE...]`.

Writes the generated pages (policies, Python, life of a job, threat model, manual pages), runs the examples of all pages
(or those given), and writes what the commands print now below those whose output differs. Read the difference before
you commit it. An output that was shortened by hand (a line `...`) is printed instead, to be shortened again. The
failure of a command that the page does not mark as meant to fail is never written; the script then ends with status 1.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.lifecycle_page import page as lifecycle_page
from docs.man_pages import FOLDER as MANUAL
from docs.man_pages import man_pages
from docs.pages import ROOT, Command, Data, File, Needs, Start, agrees, all_pages, examples, name_of
from docs.policies_page import page as policies_page
from docs.python_page import page as python_page
from docs.session import Session
from docs.threat_page import PAGE as THREAT_MODEL
from docs.threat_page import collect
from docs.threat_page import page as threat_page

TIMED = ("took",)
"""Columns, always the last, whose values differ from run to run."""


def main(wanted: list[str]) -> None:
    (ROOT / "docs/reference/policies.md").write_text(policies_page(), encoding="utf-8")
    (ROOT / "docs/reference/python.md").write_text(python_page(), encoding="utf-8")
    (ROOT / "docs/reference/job-lifecycle.md").write_text(lifecycle_page(), encoding="utf-8")
    THREAT_MODEL.write_text(threat_page(collect()), encoding="utf-8")
    for name, text in man_pages().items():
        (MANUAL / name).write_text(text, encoding="utf-8")
    failures = [rewrite(page) for page in all_pages() if not wanted or name_of(page) in wanted]
    sys.exit(1 if any(failures) else 0)


def rewrite(page: Path) -> int:
    """Run a page's examples and update their output; return how many failed that were not meant to."""
    failures = 0
    lines = page.read_text(encoding="utf-8").splitlines()
    shift = 0
    with tempfile.TemporaryDirectory() as folder, Session(Path(folder)) as session:
        for example in examples(page):
            match example:
                case File(name=name, text=text):
                    (Path(folder) / name).write_text(text, encoding="utf-8")
                case Data(names=names):
                    if "ROTA_DATA" not in os.environ:
                        print(f"{name_of(page)}: set ROTA_DATA to run the rest")
                        return failures
                    for name in names:
                        shutil.copy(Path(os.environ["ROTA_DATA"]) / name, folder)
                case Needs(module=module):
                    if importlib.util.find_spec(module) is None:
                        print(f"{name_of(page)}: install {module} to run the rest")
                        return failures
                case Start(options=options):
                    session.start(*options)
                case Command(text=text, output=output, line=line) as command:
                    status, printed = session.run(text)
                    if not command.may_fail and (fault := command.fault(status, printed)):
                        print(f"{name_of(page)}:{line}: {text}: {fault}", *printed, sep="\n")
                        failures += 1
                        continue
                    if agrees(output, printed):
                        continue
                    print(f"{name_of(page)}: {text}")
                    if "..." in output:
                        print("\n".join(printed))
                        continue
                    fresh = masked(printed)
                    lines[line + shift : line + shift + len(output)] = fresh
                    shift += len(fresh) - len(output)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return failures


def masked(printed: list[str]) -> list[str]:
    """Return the output with `...` in place of measured times."""
    shown = []
    width: int | None = None
    for line in printed:
        front, _, last = line.rpartition(" ")
        front = front.rstrip()
        if last in TIMED:
            width = len(front)
            shown.append(f"{front}  {last}")
        elif width is not None and len(front) == width:
            shown.append(f"{front}  ...")
        else:
            width = None
            shown.append(line.rstrip())
    return shown


if __name__ == "__main__":
    main(sys.argv[1:])
