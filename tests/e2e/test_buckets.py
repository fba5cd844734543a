"""Data sets in a bucket of a real S3 server on loopback: fetched for jobs of a manager, over kills and faults."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from managers import Manager, eventually
from ports import free_port
from rota.core.errors import RotaError

pytestmark = pytest.mark.slow
KEY, SECRET = "AKIAEXAMPLE", "sesame-open-the-door"


class Bucket:
    """A bucket and its server."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "s3.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            words = [sys.executable, "-m", "moto.server", "-p", str(self.port)]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        options = Config(retries={"max_attempts": 0}, connect_timeout=1)
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            config=options,
        )
        eventually(self._made)

    def _made(self) -> bool:
        try:
            self.client.create_bucket(Bucket="corpora")
        except OSError:
            return False
        except Exception as error:
            if "Could not connect" in str(error):
                return False
            raise
        return True

    def put(self, **files: bytes) -> None:
        for name, content in files.items():
            self.client.put_object(Bucket="corpora", Key=f"en/{name}", Body=content)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def added(self, manager: Manager, name: str = "corpus", **more: Any) -> None:
        values = {"path": "s3://corpora/en", "options": {"endpoint_url": self.url}}
        values["secrets"] = {"key": KEY, "secret": SECRET}
        manager.client.put_data_set(name, {**values, **more})


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    made = Bucket(tmp_path)
    yield made
    made.stop()


def submitted(manager: Manager, command: str, **more: Any) -> str:
    file = {"run": ["sh", "-c", command], "data": ["corpus"], "resources": {"gpus": 1}, **more}
    return manager.client.submit(file)[0]


def ends(manager: Manager, job_id: str) -> Any:
    def ended() -> Any:
        job = manager.client.job(job_id)
        return job if job["state"] in ("succeeded", "failed", "cancelled") else None

    return eventually(ended)


def output(manager: Manager, job_id: str) -> str:
    return b"".join(manager.client.logs(job_id)).decode()


def test_job_reads_what_is_in_the_bucket_at_its_start(shared: Manager, bucket: Bucket) -> None:
    bucket.put(a=b"one\n", b=b"two\n")
    bucket.added(shared)

    first = submitted(shared, 'cd "$ROTA_DATA_CORPUS"; cat a b; ls')
    assert ends(shared, first)["state"] == "succeeded"
    assert output(shared, first) == "one\ntwo\na\nb\n"

    bucket.put(b=b"new\n")
    bucket.client.delete_object(Bucket="corpora", Key="en/a")
    second = submitted(shared, 'cd "$ROTA_DATA_CORPUS"; cat b; ls; touch x || echo read-only')
    assert ends(shared, second)["state"] == "succeeded"
    assert output(shared, second).startswith("new\nb\n")

    listed = next(each for each in shared.client.data_sets() if each["name"] == "corpus")
    assert listed["secrets"] == ["key", "secret"]
    assert SECRET not in str(listed)
    assert SECRET.encode() not in b"".join(each.read_bytes() for each in shared.home.glob("*.json"))


def test_two_jobs_at_once_share_one_fetch(shared: Manager, bucket: Bucket) -> None:
    bucket.put(big=bytes(3_000_000))
    bucket.added(shared)

    jobs = [submitted(shared, 'wc -c < "$ROTA_DATA_CORPUS/big"') for _ in range(2)]

    assert [ends(shared, each)["state"] for each in jobs] == ["succeeded"] * 2
    assert [output(shared, each).strip() for each in jobs] == ["3000000"] * 2
    requests = (bucket._log).read_text().count('"GET /corpora/en/big')
    assert requests == 1


def test_wrong_credentials_and_missing_objects_end_the_job_with_the_reason(shared: Manager, bucket: Bucket) -> None:
    bucket.added(shared, path="s3://corpora/nothing")
    missing = ends(shared, submitted(shared, "true"))
    assert missing["state"] == "failed"
    assert "data set corpus" in missing["message"]
    assert "s3://corpora/nothing" in missing["message"]

    bucket.added(shared, path="s3://no-such-bucket/x")
    assert "no-such-bucket" in ends(shared, submitted(shared, "true"))["message"]

    with pytest.raises(RotaError, match="can't write to a bucket"):
        bucket.added(shared, read_only=False)
    with pytest.raises(RotaError, match="give credentials as secrets"):
        bucket.added(shared, path=f"s3://{KEY}:{SECRET}@corpora/en")
    with pytest.raises(RotaError, match="gopher:// is not known"):
        bucket.added(shared, path="gopher://corpora/en")


def test_fetch_is_shown_goes_on_after_a_kill_and_ends_with_its_job(manager: Manager, bucket: Bucket) -> None:
    bucket.put(**{f"part{number}": bytes(200_000) for number in range(5)})
    bucket.added(manager)
    bucket.stop()  # nobody answers, and the fetch tries again
    first, second = (submitted(manager, 'ls "$ROTA_DATA_CORPUS" | wc -l') for _ in range(2))

    def said(job_id: str) -> str:
        reason = manager.client.why(job_id)["reason"]
        return reason["sentence"] if reason is not None and reason["code"] == "preparing" else ""

    assert "data set corpus is being looked at" in eventually(lambda: said(first))
    manager.kill()
    bucket.start()
    bucket.put(**{f"part{number}": bytes(200_000) for number in range(5)})
    manager.start()
    assert ends(manager, first)["state"] == "succeeded"
    assert output(manager, first).strip() == "5"
    assert ends(manager, second)["state"] == "succeeded"

    bucket.stop()
    third = submitted(manager, "true")
    eventually(lambda: said(third))
    manager.client.act(third, "cancel")
    assert ends(manager, third)["state"] == "cancelled"


def test_data_set_larger_than_the_cache_is_refused(tmp_path: Path, bucket: Bucket) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("health: {checks: []}\ncontainers: {runtime: off}\ndata_cache: 2Mi\n")
    manager = Manager(tmp_path, "--emulate", "gpu=1/4", "--config", str(file)).start()
    try:
        bucket.put(big=bytes(3_000_000))
        bucket.added(manager)
        job = ends(manager, submitted(manager, "true"))
        assert job["state"] == "failed"
        assert "the cache may hold 2.0 MiB (data_cache)" in job["message"]
    finally:
        manager.stop()


def test_tenants_without_the_right_can_not_use_it(shared: Manager, bucket: Bucket) -> None:
    bucket.added(shared, tenants=["nlp"])

    with pytest.raises(RotaError, match="has no data set 'corpus'"):
        shared.client.submit({"run": ["true"], "data": ["corpus"], "tenant": "vision"})
