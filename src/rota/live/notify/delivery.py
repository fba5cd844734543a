"""Delivery of one message: by e-mail, or as a request in the form of a webhook, Slack or ntfy.

Addresses come from the manager's settings alone: a user names a channel, never an address, so that no job makes the
manager send requests to hosts of the user's choice. Redirects are not followed.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.core.errors import RotaError
from rota.files.notify.settings import EMAIL, ChannelPart, NotificationsPart, SmtpPart

Json = dict[str, Any]
TIMEOUT_S = 15.0
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


class NotDelivered(RotaError):
    """A message was not delivered; `is_final` if no other attempt can succeed.

    `is_away`: its receiver could not be reached at all, so that other messages to it would fare no better now.
    """

    def __init__(self, why: str, *, is_final: bool = False, is_away: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final
        self.is_away = is_away


def deliver(settings: NotificationsPart, channel: str, owner: str, key: str, body: Json) -> None:
    """Deliver a message; raise `NotDelivered` if its receiver did not take it."""
    try:
        if channel == EMAIL:
            _mail(settings, (_address_of(settings, owner),), key, body)
            return
        found = settings.channels.get(channel)
        if found is None:
            raise NotDelivered(f"the settings have no channel {channel!r}", is_final=True)
        if found.email:
            _mail(settings, found.email, key, body)
        else:
            _post(found, key, body)
    except smtplib.SMTPException as error:  # an OSError too, but mostly an answer
        is_away = isinstance(error, smtplib.SMTPServerDisconnected | smtplib.SMTPConnectError)
        raise NotDelivered(_words(error), is_away=is_away) from error
    except (OSError, http.client.HTTPException) as error:
        raise NotDelivered(_words(error), is_away=isinstance(error, OSError)) from error
    except ValueError as error:  # what can't be written into a request or a mail, now or later
        raise NotDelivered(_words(error), is_final=True) from error


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _address_of(settings: NotificationsPart, owner: str) -> str:
    address = (settings.user_email or "{user}").replace("{user}", owner)
    if not _ADDRESS.fullmatch(address):
        raise NotDelivered(f"user {owner[:64]!r} has no e-mail address; set notifications.user_email", is_final=True)
    return address


def _mail(settings: NotificationsPart, to: tuple[str, ...], key: str, body: Json) -> None:
    smtp = settings.smtp
    if smtp is None:
        raise NotDelivered("the settings have no mail server: notifications.smtp", is_final=True)
    mail = EmailMessage()
    mail["Subject"] = f"[rota] {' '.join(str(body['title']).split())}"[:200]
    mail["From"], mail["To"], mail["Date"] = smtp.from_, ", ".join(to), formatdate(float(body["at_s"]))
    mail["Message-ID"] = f"<{hashlib.sha256(key.encode()).hexdigest()[:40]}@rota>"
    mail.set_content(str(body["text"]))
    trusted = ssl.create_default_context(cafile=smtp.ca_file) if smtp.starttls or smtp.tls else None
    with _connected(smtp, trusted) as server:
        if smtp.starttls:
            server.starttls(context=trusted)
        if smtp.user is not None:
            server.login(smtp.user, "" if smtp.password_file is None else _secret(smtp.password_file))
        server.send_message(mail)


def _connected(smtp: SmtpPart, trusted: ssl.SSLContext | None) -> smtplib.SMTP:
    """Connect to the mail server; its certificate is verified where there is one."""
    if smtp.tls:
        return smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=TIMEOUT_S, context=trusted)
    return smtplib.SMTP(smtp.host, smtp.port, timeout=TIMEOUT_S)


def _secret(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _post(channel: ChannelPart, key: str, body: Json) -> None:
    url = channel.webhook or channel.slack or channel.ntfy
    assert url is not None, "a channel has one address"
    headers = {"User-Agent": "rota", "Idempotency-Key": key}
    if channel.ntfy is not None:
        headers |= {"Title": _plain(str(body["title"])), "Content-Type": "text/plain; charset=utf-8"}
        content = str(body["text"]).encode()
    else:
        sent = {"text": _escaped(str(body["text"]))} if channel.slack is not None else {**body, "key": key}
        headers["Content-Type"] = "application/json"
        content = json.dumps(sent).encode()
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=content, headers=headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotDelivered(f"the receiver answered {status}", is_final=status in (400, 401, 403, 404, 410))


def _plain(text: str) -> str:
    """A text as a header can hold it."""
    return " ".join(text.encode("ascii", "replace").decode().split())[:200]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
