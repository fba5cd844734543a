"""The search on a real manager: what jobs are called, what they run and what they write, within rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from managers import Manager, eventually
from rota.core.errors import RotaError
from rota.sdk.client import Client, Refused

pytestmark = pytest.mark.slow
Json = dict[str, Any]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    found = Manager(tmp_path_factory.mktemp("search"), "--emulate", "gpu=4/4").start()
    yield found
    found.stop()


def ids(manager: Manager, text: str, **options: Any) -> list[str]:
    return [each["job"]["id"] for each in manager.client.search(text, **options)]


def test_jobs_are_found_by_all_that_is_known_of_them(manager: Manager) -> None:
    run = "echo loss is nan at step 40; exec sleep 600"
    first = manager.submit(run, name="bert-large", labels={"project": "translation"}, tenant="nlp")
    second = manager.submit("echo quick; exit 3", name="resnet")

    eventually(lambda: ids(manager, "quick") == [second])
    eventually(lambda: ids(manager, "loss nan") == [first])  # while it runs
    assert ids(manager, "bert") == [first]
    assert ids(manager, "transl") == [first]
    assert ids(manager, "project=translation resnet") == []
    assert ids(manager, "sleep", tenant="nlp") == [first]
    assert ids(manager, "sleep", tenant="vision") == []
    (match,) = manager.client.search("nan step 40")
    assert match["field"] in ("command", "output")
    assert "nan" in match["excerpt"]
    manager.client.act(first, "cancel")
    assert "bert-large" in manager.rota("search", "nan", "translation").stdout
    assert "no job has all of these words" in manager.rota("search", "nowhere").stderr


def test_index_is_made_again_after_it_was_lost_or_damaged(manager: Manager) -> None:
    job_id = manager.submit("echo unmistakable", name="lost")
    eventually(lambda: ids(manager, "unmistakable") == [job_id])
    manager.kill()
    for path in manager.home.glob("search.db*"):
        path.unlink()
    (manager.home / "search.db").write_bytes(b"no database at all" * 1000)

    manager.start()

    eventually(lambda: ids(manager, "unmistakable") == [job_id])


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_no_text_is_taken_for_a_query_language(manager: Manager, text: str) -> None:
    with contextlib.suppress(Refused):
        manager.client.search(text)
    for operator in ('"', "NOT", "a OR b", "name:x", "a* AND (", "NEAR(a b)", "{name}: x", "-x", "x^2"):
        with contextlib.suppress(RotaError):
            assert isinstance(manager.client.search(operator), list)


def test_text_without_a_word_is_refused(manager: Manager) -> None:
    with pytest.raises(Refused, match="q: '---' has no word to search for"):
        manager.client.search("---")


def test_users_find_jobs_of_their_tenants_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    guarded = Manager(tmp_path_factory.mktemp("guarded"), "--emulate", "gpu=2/2", "--require-token").start_guarded()
    try:
        job_id = guarded.client.submit({"run": "echo confidential", "tenant": "nlp"})[0]
        clients = {}
        for name, tenant in (("ada", "nlp"), ("eve", "vision")):
            made = guarded.client.post("/tokens", {"name": name, "role": "member", "tenants": [tenant]})
            clients[name] = Client(guarded.client.url, made["token"])
        eventually(lambda: clients["ada"].search("confidential"))

        assert clients["eve"].search("confidential") == []
        assert [each["job"]["id"] for each in clients["ada"].search("confidential")] == [job_id]
        with pytest.raises(Refused, match="is not valid for tenant 'nlp'"):
            clients["eve"].search("confidential", tenant="nlp")
    finally:
        guarded.clean_up()
