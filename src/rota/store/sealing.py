"""Secrets of jobs are encrypted in the database (AES-GCM), with a key in a file beside it that only its owner can read.

A copy of the database alone, such as a backup, shows no secrets. A sealed value is bound to its job: moved into the row
of another one, it can't be opened.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, bindparam, insert, select, update

from rota.core.errors import RotaError
from rota.store.schema import jobs, settings

Json = dict[str, Any]
SEALED = "sealed:v1:"
"""How a sealed value begins."""
KEY_FILE = "secrets.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_DONE = "secrets-sealed"


class Sealer:
    """Encrypts and decrypts the secrets in job files."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    def seal(self, spec: str, job_id: str) -> str:
        """Return a job file, as JSON, with every secret encrypted."""
        return _changed(spec, lambda value: self._seal(value, job_id))

    def unseal(self, spec: str, job_id: str) -> str:
        """Return a job file with every secret decrypted; one that can't be stays sealed."""
        return _changed(spec, lambda value: self._unseal(value, job_id))

    def seal_text(self, value: str, owner: str) -> str:
        """Return a text encrypted, bound to what owns it."""
        return self._seal(value, owner)

    def unseal_text(self, value: str, owner: str) -> str:
        """Return a text decrypted; one that can't be stays sealed."""
        return self._unseal(value, owner)

    def _seal(self, value: str, job_id: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, value.encode(), job_id.encode())
        return SEALED + base64.b64encode(nonce + sealed).decode()

    def _unseal(self, value: str, job_id: str) -> str:
        from cryptography.exceptions import InvalidTag

        if not value.startswith(SEALED):
            return value
        try:
            whole = base64.b64decode(value.removeprefix(SEALED), validate=True)
            return self._cipher.decrypt(whole[:_NONCE_BYTES], whole[_NONCE_BYTES:], job_id.encode()).decode()
        except (InvalidTag, binascii.Error, UnicodeError, ValueError):
            return value


def load_sealer(home: Path) -> Sealer:
    """Return the sealer of a manager's folder; its key is made at the first start."""
    path = home / KEY_FILE
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return Sealer(_read_key(path))
    key = os.urandom(_KEY_BYTES)
    with os.fdopen(made, "wb") as file:
        file.write(base64.b64encode(key) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return Sealer(key)


def _read_key(path: Path) -> bytes:
    found = path.stat()
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise RotaError(f"{path} can be read by other users; make it yours alone: chmod 600 {path}")
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise RotaError(f"{path} holds no key of {_KEY_BYTES} bytes; restore it from a backup")
    return key


def seal_stored(engine: Engine, sealer: Sealer) -> int:
    """Encrypt the secrets that an older Rota stored as they were, once; return how many jobs had any."""
    with engine.begin() as connection:
        if connection.execute(select(settings.c.key).where(settings.c.key == _DONE)).first() is not None:
            return 0
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA secure_delete=ON")  # what is overwritten is not left in the file
        with_secrets = select(jobs.c.id, jobs.c.spec).where(jobs.c.spec.contains('"secret"'))
        rows = connection.execute(with_secrets).all()
        plain = [(row.id, row.spec) for row in rows if f'"{SEALED}' not in row.spec]
        changes = [{"key": job_id, "new_spec": sealer.seal(spec, job_id)} for job_id, spec in plain]
        if changes:
            change = update(jobs).where(jobs.c.id == bindparam("key")).values(spec=bindparam("new_spec"))
            connection.execute(change, changes)
        connection.execute(insert(settings), {"key": _DONE, "value": "true"})
    if changes and engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
    return len(changes)


def is_sealed(value: str) -> bool:
    """Whether a variable still holds a secret that could not be decrypted."""
    return value.startswith(SEALED)


def _changed(spec: str, change: Callable[[str], str]) -> str:
    """Return a job file with every secret changed; without secrets, as it is."""
    if '"secret"' not in spec:
        return spec
    values: Json = json.loads(spec)
    for part in (values, *_parts(values.get("roles"))):
        env = part.get("env")
        if isinstance(env, dict):
            part["env"] = {name: _secret(value, change) for name, value in env.items()}
    return json.dumps(values, separators=(",", ":"))


def _parts(roles: object) -> list[Json]:
    return [role for role in roles.values() if isinstance(role, dict)] if isinstance(roles, dict) else []


def _secret(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, dict) and isinstance(value.get("secret"), str):
        return {**value, "secret": change(value["secret"])}
    return value
