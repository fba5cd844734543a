"""Write `man/*.1`, a manual page for `rota` and each of its commands, from the help of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer import Context
from typer.core import TyperCommand, TyperGroup

from docs.pages import ROOT
from rota import __version__
from rota.cli.command_entry import CommandGroup
from rota.cli.commands import COMMANDS
from rota.cli.lazy_group import load

FOLDER = ROOT / "man"
_STATUS = re.compile(r"^\| (\d[\d, ]*) \| (.+) \|$", re.MULTILINE)
"""A row of the table of exit statuses in docs/reference/cli.md."""
VARIABLES = (
    ("ROTA_SERVER", "The address of the manager; by default the one on this machine."),
    ("ROTA_TOKEN", "The token to log in with; by default that of `rota login`."),
    ("ROTA_CONTEXT", "A Kubernetes cluster, by its context in the kubeconfig, in place of a manager."),
    ("ROTA_CACERT", "Certificates to trust, where the manager's is not public."),
    ("NO_COLOR", "Print without colour."),
)


def man_pages() -> dict[str, str]:
    """Return every page by the name of its file."""
    pages = {"rota.1": "".join(_main())}
    for entry in COMMANDS:
        pages[f"rota-{entry.name}.1"] = "".join(_command(entry.name, entry.summary, load(entry)))
    return pages


def _main() -> Iterator[str]:
    yield _head("rota", "schedule deep-learning jobs: in a simulator, on one machine, on Kubernetes")
    yield ".SH SYNOPSIS\n.B rota\n[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]\n"
    for group in CommandGroup:
        yield f'.SH "{group.value.upper()}"\n'
        for entry in COMMANDS:
            if entry.group is group:
                yield f".TP\n.BR rota-{_text(entry.name)} (1)\n{_text(entry.summary)}\n"
    statuses = _STATUS.findall((ROOT / "docs/reference/cli.md").read_text(encoding="utf-8"))
    yield '.SH "EXIT STATUS"\n' + _terms((status, said.replace("\\|", "|")) for status, said in statuses)
    yield ".SH ENVIRONMENT\n" + _terms(VARIABLES)


def _command(name: str, summary: str, command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield _head(f"rota-{name}", summary.rstrip("."))
    yield from _body(f"rota {name}", command, "SH")
    yield '.SH "SEE ALSO"\n.BR rota (1)\n'


def _body(path: str, command: TyperCommand | TyperGroup, heading: str) -> Iterator[str]:
    ctx = Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(ctx))
    yield f".{heading} {'SYNOPSIS' if heading == 'SH' else _quoted(path)}\n.B {_text(path)}\n{_text(usage)}\n"
    if heading == "SH":
        yield ".SH DESCRIPTION\n"
    else:
        yield ".PP\n"
    yield _prose(command.help or "")
    records = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx))]
    if records:
        yield (".SH OPTIONS\n" if heading == "SH" else ".PP\n") + _terms(records)
    if isinstance(command, TyperGroup):
        if heading == "SH":
            yield ".SH COMMANDS\n"
        for name in sorted(command.commands):
            below: Any = command.commands[name]
            yield from _body(f"{path} {name}", below, "SS")


def _head(name: str, summary: str) -> str:
    title = f'.TH {_text(name).upper()} 1 "" "rota {__version__}" "Rota"\n.nh\n.ad l\n'
    return f"{title}.SH NAME\n{_text(name)} \\- {_text(summary)}\n"


def _prose(text: str) -> str:
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.replace("\b", "")) if part.strip()]
    return "".join(
        f".PP\n.RS 4\n{_text(part)}\n.RE\n" if part.startswith("rota ") else f".PP\n{_text(part)}\n"
        for part in paragraphs
    )


def _terms(rows: Any) -> str:
    return "".join(f".TP\n.B {_text(' '.join(term.split()))}\n{_text(' '.join(said.split()))}\n" for term, said in rows)


def _quoted(text: str) -> str:
    return f'"{_text(text)}"'


def _text(text: str) -> str:
    """Text that roff prints as it is."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace('"', "\\(dq")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
