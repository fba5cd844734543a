"""A task tries to change a data set that is for reading, or to reach one of another tenant."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk.client import Refused
from rota.sdk.snapshot import pack
from strangers import Shared

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below /tmp, which tasks have covered, that all may write to."""
    with tempfile.TemporaryDirectory(prefix="rota-data-", dir="/tmp") as made:
        path = Path(made)
        path.chmod(0o777)
        (path / "part").write_text("as it was\n")
        (path / "part").chmod(0o666)
        yield path


@pytest.mark.attack("changes a data set that is for reading", stopped_by="a read-only mount, whatever the file modes")
@pytest.mark.attack("replaces the place of a data set by a folder of its own", stopped_by="the place is the manager's")
def test_data_set_is_read_where_it_is_mounted_and_not_changed(shared: Shared, folder: Path) -> None:
    tenant = f"tenant-{shared.attacker.name}"
    shared.manager.client.put_data_set("texts", {"path": str(folder), "tenants": [tenant]})
    shared.manager.client.put_data_set("notes", {"path": str(folder), "tenants": [tenant], "read_only": False})
    tries = (
        'cat "$ROTA_DATA_TEXTS/part"',
        'echo x > "$ROTA_DATA_TEXTS/part"',
        'rm "$ROTA_DATA_TEXTS/part"',
        'chmod 600 "$ROTA_DATA_TEXTS/part"',
        'mv "$ROTA_DATA_TEXTS" "$ROTA_DATA_TEXTS.old"',
        'ln -s /etc "$(dirname "$ROTA_DATA_TEXTS")/other"',
        'echo new > "$ROTA_DATA_NOTES/new" && echo written',
    )

    said = shared.run("; ".join(tries), data=["texts", "notes"])

    assert "as it was" in said
    assert said.count("Read-only file system") == 3
    assert said.count("Permission denied") + said.count("busy") >= 2
    assert "written" in said
    assert (folder / "part").read_text() == "as it was\n"
    assert (folder / "new").read_text() == "new\n"


@pytest.mark.attack(
    "names a data set of another tenant", stopped_by="data sets are for the tenants that an admin named"
)
@pytest.mark.attack("names a folder of the machine as a data set", stopped_by="only admins add data sets")
def test_data_sets_are_for_their_tenants_and_added_by_admins(shared: Shared, folder: Path) -> None:
    shared.manager.client.put_data_set("private", {"path": str(folder), "tenants": [f"tenant-{shared.victim.name}"]})

    with pytest.raises(Refused, match=f"job: data: tenant tenant-{shared.attacker.name} has no data set 'private'"):
        shared.attacker.submit("true", data=["private"])
    with pytest.raises(Refused, match="this needs the role admin"):
        shared.attacker.client.put_data_set("root", {"path": "/root"})
    assert "private" not in [each["name"] for each in shared.attacker.client.data_sets()]
    for path in (str(shared.manager.home), str(shared.manager.home / "runs"), "relative", "/none", "/"):
        with pytest.raises(Refused, match="data set wrong: "):
            shared.manager.client.put_data_set("wrong", {"path": path})


def test_code_is_unpacked_by_a_user_who_can_not_read_the_interpreter(shared: Shared, folder: Path) -> None:
    code = folder / "code"
    code.mkdir()
    (code / "run.sh").write_text("#!/bin/sh\nid -un\n")
    (code / "run.sh").chmod(0o755)
    with pack(code) as snapshot:
        shared.attacker.client.send_snapshot(snapshot)
        described = snapshot.described()

    said = shared.run("./run.sh; stat -c %U run.sh", snapshot=described)

    assert said.split() == [shared.attacker.name] * 2
