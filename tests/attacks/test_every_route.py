"""Every route of the API, as its document lists them, asked by strangers: with no token, and for others' jobs."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from attacks.lab import Lab
from managers import eventually

attack = pytest.mark.attack
Route = tuple[str, str, dict[str, Any]]
MARK = "marked-as-private"
NO_JOB = "987654"
OPEN = frozenset({"/healthz", "/readyz", "/api/v1/login", "/api/docs"})
"""What answers without a token: probes, the documentation, and what a login needs."""
STREAMS = frozenset({"/api/v1/events"})
ACTIONS = ("cancel", "hold", "release", "requeue")


def ask(lab: Lab, method: str, path: str, token: str = "", body: object = None) -> tuple[int, str]:
    place = urlsplit(lab.manager.client.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=20)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def routes(lab: Lab) -> list[Route]:
    """Return the method, the path and the description of every route."""
    document = json.loads(ask(lab, "GET", "/api/openapi.json")[1])
    return [
        (method.upper(), path, about)
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if path not in STREAMS
    ]


def filled(path: str, **values: str) -> str:
    """Return a path with values for its parameters; those that are not given are a word that names nothing."""
    return re.sub(r"\{(\w+)\}", lambda found: quote(values.get(found[1], "nothing")), path)


def queries(about: dict[str, Any]) -> list[str]:
    """Return queries for a route: none, and one for each parameter with what belongs to another tenant."""
    names = [each["name"] for each in about.get("parameters", ()) if each["in"] == "query"]
    values = {"tenant": "nlp", "name": MARK, "all": "true", "what": "submit", "who": "ada"}
    return ["", *(f"?{name}={values[name]}" for name in names if name in values)]


@attack("asks every route without a token", stopped_by="a token is required wherever jobs are told of")
def test_no_route_answers_without_a_token(lab: Lab) -> None:
    lab.submit("ada", name=MARK)
    for method, path, _ in routes(lab):
        status, text = ask(lab, method, filled(path, job_id="1", action="cancel"), body={})
        assert status in (401, 403) or path in OPEN or path.startswith("/api/v1/login"), (method, path, status, text)
        assert MARK not in text, (method, path)


@attack("compares answers about others' jobs with those about none", stopped_by="both are answered in the same words")
@attack("changes others' jobs by every route there is", stopped_by="rights are checked by every route with a job")
def test_jobs_of_other_tenants_are_as_if_they_were_not(lab: Lab) -> None:
    job_id = lab.running("ada", name=MARK)
    before = lab.job(job_id)
    told = {"name": "x", "priority": 0, "action": "cancel", "ids": [job_id], "run": "true"}
    with_job = [route for route in routes(lab) if "{job_id}" in route[1]]
    assert len(with_job) > 5
    for method, path, _ in with_job:
        for action in ACTIONS if "{action}" in path else ("",):
            for body in (None, {}, {"name": "x"}, told):
                found, none = (
                    ask(lab, method, filled(path, job_id=each, action=action), lab.secrets["eve"], body)
                    for each in (job_id, NO_JOB)
                )
                assert found == (none[0], none[1].replace(NO_JOB, job_id)), (method, path, body)
    after = lab.job(job_id)
    assert (after["state"], after["version"], after["name"]) == ("running", before["version"], MARK)


@attack("reads every list for what others' jobs are called", stopped_by="lists hold what the caller may see")
def test_no_list_tells_of_other_tenants(lab: Lab) -> None:
    job_id = lab.running("ada", name=MARK, env={"WORD": MARK})
    eventually(lambda: MARK in ask(lab, "GET", "/api/v1/jobs", lab.secrets["bob"])[1])
    for method, path, about in routes(lab):
        if method != "GET":
            continue
        for query in queries(about):
            status, text = ask(lab, method, filled(path, job_id=job_id) + query, lab.secrets["eve"])
            assert status < 500, (path, query, text)
            assert MARK not in text.replace(f"'{MARK}'", "") or status >= 400, (path, query, text)
            assert '"ada"' not in text, (path, query, text)


def test_dry_run_is_for_one_job(lab: Lab) -> None:
    job = {"run": "true", "tenant": "nlp"}
    status, text = ask(lab, "POST", "/api/v1/jobs?dry_run=true", lab.secrets["ada"], [job, {**job, "run": "false"}])

    assert (status, json.loads(text)) == (422, {"error": "dry_run: it tries one job; these are 2"})
    assert ask(lab, "POST", "/api/v1/jobs?dry_run=true", lab.secrets["ada"], [job])[0] == 200
