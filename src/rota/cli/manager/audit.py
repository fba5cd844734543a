"""`rota audit`: changes, logins and refused requests, and whether the log was tampered with."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import Unavailable

app = typer.Typer(invoke_without_command=True, help="List changes and the users who made them, or verify the log.")
COLUMNS = (
    Column(key="n", right=True),
    *(Column(key=key) for key in ("at", "who", "what", "thing", "detail")),
    Column(key="hash", wide=True),
)


@app.callback()
def audit(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="How many entries to show.", min=1)] = 100,
    who: Annotated[str | None, typer.Option(help="Only entries of this user.")] = None,
    what: Annotated[str | None, typer.Option(help="Only entries of this kind, e.g. weights-swap.")] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List changes, logins and refused requests, newest first; for admins.

    Examples:

      rota audit --limit 20

      rota audit --what login-refused

      rota audit verify
    """
    if context.invoked_subcommand is not None:
        return
    from rota.sdk.client import Client

    emit(list(Client(server).audit(limit, who=who, what=what)), COLUMNS, output, nothing="no entry matches")


@app.command("verify")
def verify(
    head: Annotated[
        str | None, typer.Option(help="A head that was printed earlier; it must be in the log.", metavar="NUMBER:HASH")
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="Verify a database itself, e.g. a backup.", metavar="FILE|URL")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Verify that no entry of the audit log was changed, removed or reordered; exit 1 if one was.

    The printed head, kept elsewhere, proves later that the log still has all entries up to now.

    Examples:

      rota audit verify

      rota audit verify --head 1024:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

      rota audit verify --database backup.db
    """
    entries, last, fault = _verdict_of_file(database, head) if database is not None else _verdict(server, head)
    if fault is not None:
        raise Unavailable(f"the audit log was tampered with: {fault}; {entries} entries before it hold")
    echo(f"{entries} entries, unbroken; head {last}")


def _verdict(server: str | None, head: str | None) -> tuple[int, str, str | None]:
    from urllib.parse import quote

    from rota.sdk.client import Client

    found = Client(server).get("/audit/verify" + ("" if head is None else f"?head={quote(head, safe=':')}"))
    return found["entries"], found["head"], found["fault"]


def _verdict_of_file(database: str, head: str | None) -> tuple[int, str, str | None]:
    """The verdict on a database; a file is only read."""
    from pathlib import Path

    from sqlalchemy import create_engine
    from sqlalchemy.exc import SQLAlchemyError

    from rota.core.errors import RotaError
    from rota.store.audit import AuditLog, read_head

    known = None if head is None else read_head(head)
    if head is not None and known is None:
        raise RotaError(f"head {head!r} is not NUMBER:HASH, as `rota audit verify` prints it")
    if "://" not in database and not Path(database).is_file():
        raise RotaError(f"--database {database}: there is no such file")
    url = database if "://" in database else f"sqlite:///file:{Path(database).absolute()}?mode=ro&uri=true"
    try:
        engine = create_engine(url)
        found = AuditLog(engine).verify([] if known is None else [known])
        engine.dispose()
    except SQLAlchemyError as error:
        raise RotaError(f"--database {database}: the audit log can't be read: {str(error).splitlines()[0]}") from error
    return found.entries, str(found.head), found.fault
