"""Opens everything about access for a manager: tokens, logins, the audit log, and the first token."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from rota.api.access import Access, AccessRole
from rota.api.guard.audit_anchor import AuditAnchor
from rota.api.guard.refusals import RefusalLog
from rota.api.guard.stream_watch import StreamWatch
from rota.api.identity.logins import Logins
from rota.api.identity.provider_protocol import LoginProvider
from rota.core.errors import RotaError
from rota.files.oidc_file import OidcFile
from rota.store.audit import AuditLog
from rota.store.tokens import Identities, Tokens
from rota.store.user_file import UserFile

log = logging.getLogger("rota.api")
FIRST_TOKEN = "first-token"
USERS = "users.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessParts:
    """Access to one manager."""

    access: Access
    audit: AuditLog
    watch: StreamWatch
    refusals: RefusalLog
    logins: Logins
    anchor: AuditAnchor

    def upkeep(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs while the manager does."""
        return [self.watch.run(), self.refusals.run(), self.logins.run(), self.anchor.run()]


def open_access(
    database: Engine,
    home: Path,
    *,
    required: bool,
    users: Path | None = None,
    oidc: OidcFile | None = None,
    public_url: str = "",
) -> AccessParts:
    """Open access for a manager whose data is in `home`."""
    access = Access(Tokens(database), required=required)
    audit = AuditLog(database)
    provider = None if oidc is None else _provider(oidc)
    return AccessParts(
        access=access,
        audit=audit,
        watch=StreamWatch(),
        refusals=RefusalLog(audit.append),
        logins=Logins(access, Identities(database), UserFile(users or home / USERS), provider, public_url),
        anchor=AuditAnchor(audit, home),
    )


def _provider(settings: OidcFile) -> LoginProvider:
    need_oidc()
    from rota.api.identity.provider import OidcProvider

    return OidcProvider(settings, read_secret(settings.client_secret_file))


def need_oidc() -> None:
    """Refuse single sign-on without its libraries, naming the way to have them."""
    for name in ("authlib", "httpx"):
        if importlib.util.find_spec(name) is None:
            raise RotaError(f"{name} is missing; install Rota with its extra: pip install 'rota[oidc]'")


def read_secret(path: Path | None) -> str | None:
    """Return the secret in a file that only its owner can read; None without a file."""
    if path is None:
        return None
    try:
        if path.stat().st_mode & 0o077:
            raise RotaError(f"client_secret_file {path} can be read by other users; chmod 600 {path}")
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise RotaError(f"client_secret_file {path}: can't be read: {error}") from error
    if not found:
        raise RotaError(f"client_secret_file {path} is empty")
    return found


def write_first_token(access: Access, home: Path) -> Path:
    """Create the first admin token in a file that only its owner can read; return the file."""
    path = home / FIRST_TOKEN
    draft = path.with_name(f".{FIRST_TOKEN}.{os.getpid()}")
    try:
        handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            _, secret = access.create("first", AccessRole.ADMIN, (), None, "local")
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise RotaError(f"the first admin token can't be written to {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    log.info("first-token", extra={"file": str(path)})
    return path
