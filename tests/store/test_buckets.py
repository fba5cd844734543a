from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError, Unavailable
from rota.store.data.buckets.cache import BucketCache, CacheEntry
from rota.store.data.buckets.fetch import BucketFetch, Fetched
from rota.store.data.buckets.url import check_url
from rota.store.data.data_sets import DataSet, DataSets

URL = "memory://data/set"


@pytest.fixture
def bucket() -> Iterator[Any]:
    """A bucket of this process."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def put(bucket: Any, **files: bytes) -> None:
    for name, content in files.items():
        bucket.pipe_file(f"/data/set/{name.replace('__', '/')}", content)


def fetch(home: Path, *, url: str = URL, user: str = "1.1", limit: int = 1 << 20) -> Fetched:
    cache = BucketCache(home, limit)
    return BucketFetch(url, {}).run(cache, cache.entry(url, ""), user)


def content(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_objects_are_files_below_one_folder(tmp_path: Path, bucket: Any) -> None:
    put(bucket, a=b"1", deep__er__b=b"22")

    found = fetch(tmp_path)

    assert content(found.path) == {"a": b"1", "deep/er/b": b"22"}
    assert (found.files, found.size, found.fetched) == (2, 3, 3)
    assert not (found.path / "a").stat().st_mode & 0o222
    assert not any(each.stat().st_mode & 0o222 for each in (found.path, found.path / "deep" / "er")), "nor be added to"


def test_only_what_changed_is_fetched_and_what_runs_keeps_its_version(tmp_path: Path, bucket: Any) -> None:
    put(bucket, a=b"1", b=b"22")
    first = fetch(tmp_path)
    assert fetch(tmp_path, user="2.1").fetched == 0

    put(bucket, b=b"333")
    bucket.rm_file("/data/set/a")
    put(bucket, c=b"4444")
    second = fetch(tmp_path, user="3.1")

    assert content(second.path) == {"b": b"333", "c": b"4444"}
    assert second.fetched == 7
    assert content(first.path) == {"a": b"1", "b": b"22"}


def test_one_object_is_a_folder_with_it(tmp_path: Path, bucket: Any) -> None:
    put(bucket, a=b"1")

    assert content(fetch(tmp_path, url=f"{URL}/a").path) == {"a": b"1"}


def test_nothing_there_is_said(tmp_path: Path, bucket: Any) -> None:
    with pytest.raises(RotaError, match="memory://data/set"):
        fetch(tmp_path)


def test_versions_without_a_job_make_room_the_longest_unused_first(tmp_path: Path, bucket: Any) -> None:
    cache = BucketCache(tmp_path, 1000)
    paths: dict[str, Path] = {}
    for number, name in enumerate(("one", "two", "three")):
        bucket.pipe_file(f"/{name}/x", bytes(400))
        if name == "three":
            cache.unpin(keep=())
            _used(tmp_path, paths["one"], 2000.0)
            _used(tmp_path, paths["two"], 1000.0)
        paths[name] = fetch(tmp_path, url=f"memory://{name}", user=f"{number}.1", limit=1000).path

    assert {name: path.exists() for name, path in paths.items()} == {"one": True, "two": False, "three": True}
    assert sum(CacheEntry(each).held_bytes for each in (tmp_path / "buckets").iterdir() if each.is_dir()) == 800


def test_objects_that_are_completed_meanwhile_do_not_fail_the_count(tmp_path: Path) -> None:
    entry = CacheEntry(tmp_path / "entry")
    entry.make()
    objects = tmp_path / "entry" / "objects"
    (objects / "kept").write_bytes(b"x" * 7)
    over = threading.Event()

    def complete() -> None:
        while not over.is_set():
            for name in map(str, range(20)):
                (objects / f"{name}.part").write_bytes(b"x")
                (objects / f"{name}.part").replace(objects / name)
                (objects / name).unlink()

    thread = threading.Thread(target=complete)
    thread.start()
    try:
        counted = [entry.held_bytes for _ in range(3000)]
    finally:
        over.set()
        thread.join()

    assert min(counted) >= 7
    assert max(counted) > 7, "no other object was ever there"


def _used(home: Path, version: Path, at_s: float) -> None:
    pins = version.parent.parent / "pins" / version.name
    os.utime(pins, (at_s, at_s))


def test_what_jobs_use_is_never_evicted(tmp_path: Path, bucket: Any) -> None:
    put(bucket, a=bytes(800))
    held = fetch(tmp_path, limit=1000)
    bucket.pipe_file("/other/x", bytes(400))

    with pytest.raises(RotaError, match=r"the cache may hold .* of which running jobs use"):
        fetch(tmp_path, url="memory://other", user="2.1", limit=1000)
    assert content(held.path) == {"a": bytes(800)}

    BucketCache(tmp_path, 1000).unpin(user="1.1")
    assert content(fetch(tmp_path, url="memory://other", user="2.1", limit=1000).path) == {"x": bytes(400)}
    assert not held.path.exists()


@pytest.mark.parametrize("name", ["../up", "a//b", "./a", "x" * 256])
def test_names_that_are_no_files_are_refused(tmp_path: Path, bucket: Any, name: str) -> None:
    bucket.store[f"/data/set/{name}"] = _memory_file(bucket, f"/data/set/{name}")

    with pytest.raises(RotaError, match="can't be a file"):
        fetch(tmp_path)
    assert not (tmp_path / "up").exists()


def test_object_that_is_a_folder_too_is_refused(tmp_path: Path, bucket: Any) -> None:
    for name in ("a", "a/b"):
        bucket.store[f"/data/set/{name}"] = _memory_file(bucket, f"/data/set/{name}")

    with pytest.raises(RotaError, match="an object and the folder of others"):
        fetch(tmp_path)


def _memory_file(bucket: Any, path: str) -> Any:
    from fsspec.implementations.memory import MemoryFile

    return MemoryFile(bucket, path, b"content")


def test_object_that_changes_meanwhile_is_fetched_again(
    tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, a=b"old")
    usual, changes = type(bucket).get_file, [b"newer"]

    def get_file(self: Any, *args: Any, **more: Any) -> None:
        usual(self, *args, **more)
        if changes:
            put(bucket, a=changes.pop())

    monkeypatch.setattr(type(bucket), "get_file", get_file)

    assert content(fetch(tmp_path).path) == {"a": b"newer"}


def test_object_that_always_changes_is_given_up(tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket, a=b"0")
    usual = type(bucket).get_file

    def get_file(self: Any, *args: Any, **more: Any) -> None:
        usual(self, *args, **more)
        put(bucket, a=str(time.monotonic_ns()).encode())

    monkeypatch.setattr(type(bucket), "get_file", get_file)

    with pytest.raises(Unavailable, match="changes while it is fetched"):
        fetch(tmp_path)
    assert not list((tmp_path / "buckets").glob("*/versions/*"))


def _fetch_files(home: Path, source: Path, user: str) -> None:
    fetch(home, url=f"file://{source}", user=user, limit=1 << 30)


def test_killed_fetches_leave_nothing_half_and_the_next_goes_on(tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    source.mkdir()
    home.mkdir()
    for number in range(40):
        (source / str(number)).write_bytes(os.urandom(200_000))
    context = multiprocessing.get_context("spawn")
    for round_ in range(3):
        working = [context.Process(target=_fetch_files, args=(home, source, f"{round_}.{each}")) for each in (1, 2)]
        for each in working:
            each.start()
        deadline = time.monotonic() + 60
        while len(list(home.glob("buckets/*/objects/*"))) < 5 * (round_ + 1) and time.monotonic() < deadline:
            time.sleep(0.001)
        for each in working:
            assert each.pid is not None
            os.kill(each.pid, signal.SIGKILL)
            each.join()
        for version in home.glob("buckets/*/versions/*"):
            if "." not in version.name:
                assert content(version) == content(source)

    found = fetch(home, url=f"file://{source}", limit=1 << 30)

    assert content(found.path) == content(source)
    assert found.fetched <= found.size
    assert not list(home.glob("buckets/*/objects/*.part"))


def test_two_fetches_at_once_fetch_once(tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    source.mkdir()
    home.mkdir()
    for number in range(20):
        (source / str(number)).write_bytes(bytes(100_000))
    context = multiprocessing.get_context("spawn")
    working = [context.Process(target=_fetch_files, args=(home, source, f"1.{each}")) for each in range(3)]
    for each in working:
        each.start()
    for each in working:
        each.join()

    assert [each.exitcode for each in working] == [0, 0, 0]
    (version,) = home.glob("buckets/*/versions/*")
    assert len(list(version.parent.parent.glob("pins/*/*"))) == 3
    assert content(version) == content(source)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "fetch", "end"]), st.integers(0, 3), st.integers(1, 5)), max_size=25
    )
)
def test_cache_stays_within_its_limit_and_shows_what_is_there(
    steps: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home, limit = tmp_path_factory.mktemp("cache"), 1000
    system = fsspec.filesystem("memory")
    cache = BucketCache(home, limit)
    used: dict[str, tuple[Path, dict[str, bytes]]] = {}
    (home / "buckets").mkdir()
    for number, (what, which, size) in enumerate(steps):
        url = f"memory://b{which}"
        if what == "put":
            system.pipe_file(f"/b{which}/{size}", os.urandom(size * 60))
        elif what == "end":
            cache.unpin(user=str(which))
            used.pop(str(which), None)
        else:
            try:
                found = fetch(home, url=url, user=str(which), limit=limit)
            except RotaError:
                continue
            wanted = {name.rpartition("/")[2]: bytes(system.cat_file(name)) for name in system.find(f"/b{which}")}
            assert content(found.path) == wanted
            used[str(which)] = (found.path, wanted)
        assert sum(CacheEntry(each).held_bytes for each in (home / "buckets").iterdir() if each.is_dir()) <= limit
        for path, held in used.values():
            assert content(path) == held, number
    system.store.clear()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3:///", None),
        ("zip://x::s3://y", "no URL"),
        ("s3://key:word@bucket/x", "give credentials as secrets"),
        ("memory://x", "of one process only"),
        ("gopher://x", "gopher:// is not known"),
        ("s3://a b", "no URL"),
        ("s3://bucket/folder", None),
    ],
)
def test_urls_are_checked(url: str, why: str | None) -> None:
    if why is None:
        check_url("x", url)
        return
    with pytest.raises(RotaError, match=why):
        check_url("x", url)


def test_missing_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "s3fs" else object())

    with pytest.raises(RotaError, match=r"s3:// needs s3fs, which is not installed; pip install 'rota\[s3\]'"):
        check_url("x", "s3://bucket")


def test_secrets_are_sealed_on_disk_and_open_for_their_own_place_only(tmp_path: Path) -> None:
    kept = DataSets(tmp_path)
    kept.put(
        DataSet(
            name="corpus",
            path="s3://bucket/x",
            options={"client_kwargs.region_name": "eu"},
            secrets={"secret": "sesame"},
        )
    )

    assert b"sesame" not in (tmp_path / "data-sets.json").read_bytes()
    found = kept.find("corpus", "any")
    assert found.values()["secrets"] == ["secret"]
    opened = kept.unsealed(found).file_system_options()
    assert opened == {"client_kwargs": {"region_name": "eu"}, "secret": "sesame"}
    text = (tmp_path / "data-sets.json").read_text().replace("s3://bucket/x", "s3://others/x")
    (tmp_path / "data-sets.json").write_text(text)
    with pytest.raises(RotaError, match="secrets can't be decrypted"):
        kept.unsealed(kept.find("corpus", "any"))


def test_secrets_do_not_stand_in_errors(tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("key sesame-open is wrong")

    put(bucket, a=b"1")
    monkeypatch.setattr(type(bucket), "find", refused)
    cache = BucketCache(tmp_path, 1 << 20)

    with pytest.raises(RotaError) as caught:
        BucketFetch(URL, {"client_kwargs": {"token": "sesame-open"}}).run(cache, cache.entry(URL, ""), "1.1")
    assert "sesame" not in str(caught.value)
    assert "access is refused" in str(caught.value)
