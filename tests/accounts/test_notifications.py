"""Messages about jobs and budgets at a real mail server and web server, over kills and while receivers are away."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accounts.receivers import Web, mail_server, web_server
from managers import Manager, eventually
from rota.core.errors import RotaError
from rota.files.notify.settings import NotificationsPart
from rota.files.up_file import settings_from
from rota.live.notify.delivery import TIMEOUT_S, NotDelivered, deliver
from rota.sdk.client import Refused

Json = dict[str, Any]


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as found:
        yield found


def settings(web: Web, smtp_port: int = 1) -> Json:
    at = f"http://127.0.0.1:{web.port}"
    return {
        "smtp": {"host": "127.0.0.1", "port": smtp_port, "from": "rota@example.org"},
        "user_email": "{user}@example.org",
        "channels": {
            "hook": {"webhook": f"{at}/hook?a=1", "for": "jobs"},
            "chat": {"slack": f"{at}/slack", "for": "jobs"},
            "phone": {"ntfy": f"{at}/ntfy", "for": "jobs"},
            "ops": {"webhook": f"{at}/ops"},
        },
        "budgets": ["ops"],
    }


def manager_with(folder: Path, notifications: Json) -> Manager:
    config = folder / "settings.yaml"
    config.write_text(json.dumps({"health": {"checks": []}, "notifications": notifications}))
    return Manager(folder, "--emulate", "gpu=2/2", "--config", str(config))


@pytest.mark.slow
def test_messages_arrive_once_each_over_kills_and_outages(tmp_path: Path, web: Web) -> None:
    with mail_server() as (mails, port):
        manager = manager_with(tmp_path, settings(web, port)).start()
        try:
            told = {"notify": ["start", "end"], "notify_to": ["email", "hook", "chat", "phone"]}
            job_id = manager.submit("echo done", name="bert", **told)
            manager.wait(job_id, "succeeded")
            eventually(lambda: len(mails) == 2 and len(web.posts) == 6)

            assert [mail["Subject"] for mail in mails] == [
                f"[rota] Job {job_id} (bert) started",
                f"[rota] Job {job_id} (bert) succeeded",
            ]
            assert {mail["To"] for mail in mails} == {"local@example.org"}
            hooks = web.bodies("/hook?a=1")
            assert [(each["event"], each["job"], each["state"]) for each in hooks] == [
                ("start", job_id, "running"),
                ("end", job_id, "succeeded"),
            ]
            assert [list(each) for each in web.bodies("/slack")] == [["text"], ["text"]]
            ntfy = [(headers["Title"], body) for path, headers, body in web.posts if path == "/ntfy"]
            assert ntfy[1][0] == f"Job {job_id} (bert) succeeded"

            web.posts.clear()
            web.answer = 503
            failing = manager.submit("exit 3", notify=["fail"], notify_to=["hook"])
            quiet = manager.submit("true", notify=["fail"], notify_to=["hook"])
            manager.wait(failing, "failed")
            manager.wait(quiet, "succeeded")
            eventually(lambda: len(web.posts) >= 1)
            manager.kill()
            web.answer = 200
            web.posts.clear()
            manager.start()
            eventually(lambda: len(web.posts) >= 1)

            assert [each["job"] for each in web.bodies("/hook?a=1")] == [failing]
            assert web.posts[0][1]["Idempotency-Key"] == f"job/{failing}/end/hook"
            manager.client.put_budget("b", {"tenant": "nlp", "gpu_hours": 0})
            eventually(lambda: web.bodies("/ops"))
            assert web.bodies("/ops")[0]["title"] == "Budget b is used up"
            assert len(mails) == 2
        finally:
            manager.clean_up()


@pytest.mark.slow
@pytest.mark.attack(
    "names an address of an internal service, or a channel of the admins, as the receiver of messages",
    stopped_by="jobs name channels of the settings that are for jobs; addresses are refused",
)
def test_jobs_name_channels_and_never_addresses(tmp_path: Path, web: Web) -> None:
    manager = manager_with(tmp_path, settings(web)).start()
    try:
        for receiver in ("http://127.0.0.1:9/", f"http://127.0.0.1:{web.port}/hook", "ada@example.org", "ops", "none"):
            with pytest.raises(Refused, match=r"notify_to"):
                manager.submit("true", notify=["end"], notify_to=[receiver])
        job_id = manager.submit("true")
        manager.wait(job_id, "succeeded")
        assert web.posts == []
    finally:
        manager.clean_up()


@pytest.mark.attack(
    "has a receiver of messages redirect the manager to an internal service",
    stopped_by="redirects are not followed",
)
def test_redirects_are_not_followed(web: Web) -> None:
    part = NotificationsPart.model_validate(settings(web))
    body = {"title": "t", "text": "x", "at_s": 0.0}
    with web_server() as internal:
        web.answer, web.location = 307, f"http://127.0.0.1:{internal.port}/secret"

        with pytest.raises(NotDelivered, match="answered 307"):
            deliver(part, "hook", "ada", "key", body)

        assert internal.posts == []


@pytest.mark.attack(
    "puts line breaks into a name, to write headers of a mail or a request of its own",
    stopped_by="addresses are validated, and titles are one line",
)
def test_headers_can_not_be_written_by_users(web: Web) -> None:
    part = NotificationsPart.model_validate(settings(web))
    body = {"title": "x\r\nX-Evil: 1", "text": "x", "at_s": 0.0}

    deliver(part, "phone", "ada", "key", body)

    assert "X-Evil" not in web.posts[0][1]
    assert web.posts[0][1]["Title"] == "x X-Evil: 1"
    with pytest.raises(NotDelivered, match="has no e-mail address"):
        deliver(part, "email", "ada@x\r\nBcc: eve", "key", body)


def test_what_can_never_be_sent_is_given_up(web: Web) -> None:
    part = NotificationsPart.model_validate(settings(web))
    for key, text in (("k\n", "x"), ("k€", "x"), ("k", "\ud800")):
        channel = "email" if "\ud800" in text else "hook"
        with pytest.raises(NotDelivered) as found:
            deliver(part, channel, "ada", key, {"title": "t", "text": text, "at_s": 0.0})
        assert found.value.is_final, key


@pytest.mark.slow
def test_receiver_that_is_away_delays_no_other(tmp_path: Path, web: Web) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        values = settings(web)
        values["channels"]["dead"] = {"webhook": f"http://127.0.0.1:{silent.getsockname()[1]}/", "for": "jobs"}
        manager = manager_with(tmp_path, values).start()
        try:
            for _ in range(3):
                manager.wait(manager.submit("true", notify=["end"], notify_to=["dead"]), "succeeded")
            begun_s = time.monotonic()
            job_id = manager.submit("true", notify=["end"], notify_to=["hook"])
            eventually(lambda: web.bodies("/hook?a=1"), within_s=60)

            assert web.bodies("/hook?a=1")[0]["job"] == job_id
            assert time.monotonic() - begun_s < TIMEOUT_S
        finally:
            manager.clean_up()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that no one has signed, and its key."""
    path = tmp_path_factory.mktemp("tls") / "mail.pem"
    about = ["-subj", "/CN=mail", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *about]
    subprocess.run(["openssl", *words, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.mark.attack(
    "stands between the manager and the mail server with a certificate of its own",
    stopped_by="the mail server's certificate is verified before a name, a password or a mail is sent",
)
@pytest.mark.parametrize("way", ["starttls", "tls"])
def test_mail_server_is_verified(way: str, certificate: Path) -> None:
    body = {"title": "t", "text": "x", "at_s": 0.0}
    with mail_server(certificate, starts_with_tls=way == "tls") as (mails, port):
        smtp: Json = {"host": "127.0.0.1", "port": port, "from": "rota@example.org", way: True}
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            deliver(NotificationsPart.model_validate({"smtp": smtp}), "email", "ada@example.org", "k", body)
        assert mails == []

        smtp["ca_file"] = str(certificate)
        deliver(NotificationsPart.model_validate({"smtp": smtp}), "email", "ada@example.org", "k", body)
        assert [mail["Subject"] for mail in mails] == ["[rota] t"]


def test_files_are_seen_from_the_settings(tmp_path: Path) -> None:
    smtp = {"host": "x", "from": "a@b", "tls": True, "password_file": "secret", "ca_file": "/etc/ca.pem"}
    found = settings_from({"notifications": {"smtp": smtp}}, tmp_path / "settings.yaml")["notifications"]

    assert isinstance(found, NotificationsPart)
    assert found.smtp is not None
    assert (found.smtp.password_file, found.smtp.ca_file) == (tmp_path / "secret", Path("/etc/ca.pem"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"channels": {"a": {"webhook": "http://localhost:99999/"}}}, "Port out of range"),
        ({"channels": {"a": {"webhook": "http://localhost:x/"}}}, "Port could not be cast"),
        ({"channels": {"a": {"ntfy": "http://[zz]/"}}}, "IPv4 or IPv6"),
        ({"channels": {"a": {"slack": "http://a..example/"}}}, "idna"),
        ({"channels": {"a": {"webhook": "http://host/ä"}}}, "in ASCII"),
        ({"smtp": {"host": "x", "from": "a@b", "tls": True, "starttls": True}}, "give one of them"),
        ({"smtp": {"host": "x", "from": "a@b", "ca_file": "x"}}, "ca_file is for tls or starttls"),
        ({"channels": {"a": {}}}, "give one of email, webhook, slack and ntfy"),
        ({"channels": {"a": {"webhook": "http://x/", "ntfy": "http://x/"}}}, "give one of"),
        ({"channels": {"a": {"webhook": "file:///etc/passwd"}}}, "webhook"),
        ({"channels": {"a": {"webhook": "http://user:pw@host/"}}}, "webhook"),
        ({"channels": {"email": {"email": ["a@b.org"]}}}, "users' own addresses"),
        ({"budgets": ["none"]}, "there is no channel 'none'"),
        ({"smtp": {"host": "x", "from": "a b@c"}}, "from"),
    ],
)
def test_settings_are_checked(values: Json, message: str, tmp_path: Path) -> None:
    with pytest.raises(RotaError, match=message):
        settings_from({"notifications": values}, tmp_path / "settings.yaml")
