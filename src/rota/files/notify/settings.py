"""How notifications are sent: the part `notifications` of a manager's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rota.core.errors import RotaError
from rota.files.job_shape import JobFile, Name
from rota.files.shape import FileModel

EMAIL = "email"
"""The channel of each user's own address."""
Address = Annotated[str, Field(pattern=r"^[^\s@,<>]{1,64}@[A-Za-z0-9.-]{1,253}$")]
Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+([/?][^\s#]*)?$", max_length=2000)]


class SmtpPart(FileModel):
    """The mail server."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] = 25
    from_: Annotated[Address, Field(alias="from")]
    starttls: Annotated[bool, Field(strict=True)] = False
    user: str | None = None
    password_file: Path | None = None


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
