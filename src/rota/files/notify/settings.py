"""How notifications are sent: the part `notifications` of a manager's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from rota.core.errors import RotaError
from rota.files.job_shape import JobFile, Name
from rota.files.shape import FileModel

EMAIL = "email"
"""The channel of each user's own address."""
Address = Annotated[str, Field(pattern=r"^[^\s@,<>]{1,64}@[A-Za-z0-9.-]{1,253}$")]


def _address_of_a_server(url: str) -> str:
    """Return a URL to which a request can be written; raises a `ValueError` for any other."""
    if not url.isascii():
        raise ValueError("write the URL in ASCII: names of hosts as xn--..., other characters as %C3%A4")
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("the URL names no host, or the port 0")
    parts.hostname.encode("idna")
    return url


Url = Annotated[
    str,
    Field(pattern=r"^https?://[^\s/?#@]+([/?][^\s#]*)?$", max_length=2000),
    AfterValidator(_address_of_a_server),
]


class SmtpPart(FileModel):
    """The mail server."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] = 25
    from_: Annotated[Address, Field(alias="from")]
    starttls: Annotated[bool, Field(strict=True)] = False
    tls: Annotated[bool, Field(strict=True)] = False
    """TLS from the first byte, as on port 465."""
    ca_file: Path | None = None
    """Certificates that are trusted instead of the machine's."""
    user: str | None = None
    password_file: Path | None = None

    @model_validator(mode="after")
    def _agree(self) -> SmtpPart:
        if self.tls and self.starttls:
            raise ValueError("tls and starttls are two ways to the same; give one of them")
        if self.ca_file is not None and not (self.tls or self.starttls):
            raise ValueError("ca_file is for tls or starttls; give one of them")
        return self


class ChannelPart(FileModel):
    """One receiver: addresses, or a URL in one of three forms."""

    email: tuple[Address, ...] = ()
    webhook: Url | None = None
    slack: Url | None = None
    ntfy: Url | None = None
    for_: Annotated[Literal["jobs", "admins"], Field(alias="for")] = "admins"
    """Whether jobs may name it."""

    @model_validator(mode="after")
    def _agree(self) -> ChannelPart:
        if sum(map(bool, (self.email, self.webhook, self.slack, self.ntfy))) != 1:
            raise ValueError("give one of email, webhook, slack and ntfy")
        return self


class NotificationsPart(FileModel):
    """The mail server, users' addresses, and channels by name."""

    smtp: SmtpPart | None = None
    user_email: Annotated[str, Field(max_length=200)] | None = None
    """The address of a user, as in `{user}@example.org`; without it, names that are addresses are used."""
    channels: dict[Name, ChannelPart] = {}
    budgets: tuple[Name, ...] = ()
    """Channels that are told of budgets."""

    @model_validator(mode="after")
    def _agree(self) -> NotificationsPart:
        if EMAIL in self.channels:
            raise ValueError(f"channels: {EMAIL!r} is the channel of users' own addresses; choose another name")
        for name in self.budgets:
            if name not in self.channels:
                raise ValueError(f"budgets: there is no channel {name!r}")
        return self

    def seen_from(self, folder: Path) -> NotificationsPart:
        """Return it with the names of its files seen from a folder."""
        if self.smtp is None:
            return self
        named = {name: getattr(self.smtp, name) for name in ("password_file", "ca_file")}
        update = {name: folder / value for name, value in named.items() if value is not None}
        return self.model_copy(update={"smtp": self.smtp.model_copy(update=update)})

    def refuse(self, file: JobFile) -> None:
        """Raise a `RotaError` for a job that asks for messages that can't be sent."""
        if not file.notify:
            return
        for name in file.notify_to:
            if name == EMAIL:
                if self.smtp is None:
                    raise RotaError("job: notify: this manager sends no e-mail; an admin can set notifications.smtp")
                continue
            found = self.channels.get(name)
            if found is None or found.for_ != "jobs":
                known = [EMAIL, *(name for name, channel in self.channels.items() if channel.for_ == "jobs")]
                raise RotaError(f"job: notify_to: there is no channel {name[:40]!r} for jobs; use {', '.join(known)}")
