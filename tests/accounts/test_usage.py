"""Usage on a real manager: reports, prices, shares and rights; nothing is lost or counted twice by a kill."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest

from managers import Manager, eventually
from rota.sdk.client import Client, Refused

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("accounts"), "--emulate", "A100=4/4,V100=4/4", "--require-token")
    made.start_guarded()
    yield made
    made.clean_up()


def client_of(manager: Manager, name: str, role: str, *tenants: str) -> Client:
    made = manager.client.post("/tokens", {"name": name, "role": role, "tenants": list(tenants)})
    return Client(manager.client.url, made["token"])


def hours(client: Client, **only: str) -> float:
    return float(client.usage(**only)["total"]["gpu_hours"])


def test_usage_survives_kills_and_agrees_with_how_long_jobs_ran(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=4/4").start()
    try:
        asked = {"resources": {"gpus": 2}, "labels": {"project": "survey"}}
        job_id = manager.submit("sleep 600", **asked)
        manager.wait(job_id, "running")
        eventually(lambda: hours(manager.client, project="survey") > 0.5 / 3600)
        for _ in range(2):
            manager.kill()
            manager.start()
        manager.wait(job_id, "running")
        manager.client.act(job_id, "cancel")
        manager.wait(job_id, "cancelled")

        row = manager.client.usage("tenant,user,project,type")["rows"][0]
        timeline = manager.client.job(job_id)
        ran_s = _seconds(timeline["ended"]) - _seconds(timeline["started"])

        assert (row["project"], row["type"], row["jobs"]) == ("survey", "gpu", 1)
        assert row["gpu_hours"] * 3600 == pytest.approx(2 * ran_s, abs=1.0)
    finally:
        manager.clean_up()


def _seconds(moment: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()


def test_reports_prices_and_rights(guarded: Manager, tmp_path: Path) -> None:
    ada, eve = client_of(guarded, "ada", "member", "nlp"), client_of(guarded, "eve", "member", "vision")
    run = {"run": "sleep 2", "workdir": "/"}
    mine = ada.submit({**run, "tenant": "nlp", "resources": {"gpus": 2, "gpu": ["A100"]}, "labels": {"project": "lm"}})[
        0
    ]
    other = eve.submit({**run, "tenant": "vision", "resources": {"gpus": 1, "gpu": ["V100"]}})[0]
    for job_id in (mine, other):
        guarded.wait(job_id, "succeeded")

    with pytest.raises(Refused, match="admin"):
        ada.set_prices({"A100": 1})
    with pytest.raises(Refused, match="no node has the type 'H100'"):
        guarded.client.set_prices({"H100": 1})
    assert ada.usage()["rows"][0]["cost"] is None
    guarded.client.set_prices({"A100": 7200.0, "*": 3600.0}, currency="EUR")

    rows = {(row["tenant"], row["type"]): row for row in guarded.client.usage("tenant,type")["rows"]}
    assert set(rows) == {("nlp", "A100"), ("vision", "V100")}
    assert rows["nlp", "A100"]["cost"] == pytest.approx(rows["nlp", "A100"]["gpu_hours"] * 7200)
    assert rows["vision", "V100"]["cost"] == pytest.approx(rows["vision", "V100"]["gpu_hours"] * 3600)
    assert [row["tenant"] for row in ada.usage("tenant")["rows"]] == ["nlp"]
    with pytest.raises(Refused, match="not valid for tenant 'vision'"):
        ada.usage(tenant="vision")
    with pytest.raises(Refused, match="unknown 'mont'; did you mean 'month'"):
        ada.usage("mont")
    with pytest.raises(Refused, match="is not a date"):
        ada.usage(since="yesterday")
    assert hours(ada, since="2020-01", until="2020-02") == 0.0
    assert hours(ada, project="lm") == pytest.approx(rows["nlp", "A100"]["gpu_hours"])
    assert {each["tenant"] for each in ada.shares()} == {"nlp"}
    standing = {(each["tenant"], each["user"]): each for each in guarded.client.shares()}
    assert standing["nlp", ""]["factor"] < standing["vision", ""]["factor"] < standing["default", ""]["factor"] == 1.0
    assert "prices" in [entry["what"] for entry in guarded.client.audit(5)]


def test_usage_command_prints_and_saves(guarded: Manager) -> None:
    guarded.env |= {"ROTA_TOKEN": guarded.token, "ROTA_SERVER": guarded.client.url}
    job_id = guarded.submit("true", tenant="robotics", resources={"gpus": 1})
    guarded.wait(job_id, "succeeded")

    told = guarded.rota("usage", "--by", "month,tenant", "--tenant", "robotics", "-o", "csv")
    saved = guarded.rota("usage", "--by", "user,type", "--save", "used.parquet")
    wrong = guarded.rota("usage", "--save", "used.txt")
    shares = guarded.rota("shares")

    assert told.returncode == saved.returncode == shares.returncode == 0, (told.stderr, saved.stderr, shares.stderr)
    assert [row["tenant"] for row in csv.DictReader(io.StringIO(told.stdout))] == ["robotics"]
    frame = polars.read_parquet(guarded.folder / "used.parquet")
    assert {"user", "type", "gpu_hours", "jobs"} <= set(frame.columns)
    assert frame.height >= 1
    empty = guarded.rota("usage", "--by", "user,type", "--month", "2020-01", "--save", "empty.parquet")
    none = guarded.rota("usage", "--by", "user,type", "--month", "2020-01", "--save", "empty.csv")
    assert empty.returncode == none.returncode == 0, (empty.stderr, none.stderr)
    assert polars.read_parquet(guarded.folder / "empty.parquet").schema == frame.schema
    assert (guarded.folder / "empty.csv").read_text().split() == ["user,type,gpu_hours,cost,energy_kwh,jobs"]
    assert polars.concat([frame, polars.read_parquet(guarded.folder / "empty.parquet")]).height == frame.height
    assert (wrong.returncode, wrong.stderr.strip()) == (
        2,
        "error: --save used.txt: the name must end in .parquet or .csv",
    )
    assert "robotics" in shares.stdout
