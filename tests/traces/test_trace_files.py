"""Files that are no traces, not whole, not there or cannot be written: one line says so."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.traces import read_alibaba_nodes, read_trace, write_trace
from traces.trace_samples import (
    BLOX,
    PHILLY,
    PHILLY_JSON,
    ROTA_CSV,
    SAMPLES,
    Sample,
    write,
)

ALL = (
    "rota, philly, philly-json, gavel, pai2020, pai2020-raw, tiresias, blox, alibaba2023, helios, slurm, journal, "
    "or its columns: --columns submit=...,duration=...,gpus=..."
)


def parquet_of(tmp_path: Path) -> bytes:
    path = tmp_path / "whole.parquet"
    write_trace(read_trace(write(tmp_path, ROTA_CSV.text)), path)
    return path.read_bytes()


NO_FILES = {
    "empty": (b"", "the file is empty"),
    "blank": (b" \n\n", "the file is empty"),
    "header only": (b"id,submit_s\n", "there are no jobs in it"),
    "foreign": (
        b"apples,pears\n1,2\n",
        f"the trace format is not recognised; name it with --format, one of {ALL}",
    ),
    "binary": (
        bytes(range(256)) * 8,
        f"the trace format is not recognised; name it with --format, one of {ALL}",
    ),
    "half a gzip": (
        gzip.compress(PHILLY.text.encode() * 99)[:60],
        "the compressed file ends too early; copy it again",
    ),
    "odd bytes": (b"job_id,num_gpu,submit_time,duration\n\xff,1,1,1\n", "it is not UTF-8 text (byte 0xff)"),
}


@pytest.mark.parametrize(("content", "reason"), NO_FILES.values(), ids=NO_FILES)
def test_file_that_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(content)

    with pytest.raises(RotaError) as caught:
        read_trace(path)

    assert str(caught.value) == f"{path}: {reason}"


def test_truncated_parquet_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    path.write_bytes(parquet_of(tmp_path)[:200])

    with pytest.raises(RotaError) as caught:
        read_trace(path)

    told = str(caught.value)
    assert told.startswith(f"{path}: it is not a whole Parquet file: ")
    assert "\n" not in told


def test_parquet_of_other_columns_is_refused(tmp_path: Path) -> None:
    import polars

    path = tmp_path / "jobs.parquet"
    polars.DataFrame({"id": ["a"], "when": [1.0]}).write_parquet(path)

    with pytest.raises(RotaError) as caught:
        read_trace(path)

    assert str(caught.value).startswith(f"{path}: unknown column 'when'; known: array, array_limit, ")


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(RotaError) as missing:
        read_trace(tmp_path / "none.csv")
    with pytest.raises(RotaError) as folder:
        read_trace(tmp_path)

    assert str(missing.value) == f"{tmp_path / 'none.csv'}: there is no such file"
    assert str(folder.value) == f"{tmp_path}: it is a directory; a trace is a file"


def test_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RotaError) as caught:
        read_trace(write(tmp_path, PHILLY.text), format="filly")

    assert str(caught.value) == "unknown trace format 'filly'; did you mean 'philly'?"


def test_named_format_is_read_as_such(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY.text)

    with pytest.raises(RotaError) as caught:
        read_trace(path, format="blox")

    assert str(caught.value) == (
        f"{path}:1: the column 'job_id' is missing; it has timestamp, duration, num_gpus, gpu_time, cluster"
    )


def test_trace_of_bad_lines_only_says_how_many(tmp_path: Path) -> None:
    path = write(tmp_path, "job_id,num_gpu,submit_time,duration\na,0,0,0\nb,0,0,0\n")

    with pytest.raises(RotaError) as caught:
        read_trace(path, skip_bad_lines=True)

    assert str(caught.value) == f"{path}: there are no jobs in it (2 bad lines skipped)"


def test_broken_philly_json_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY_JSON.text.replace('"vc": "red",', '"vc" "red",', 1))

    with pytest.raises(RotaError) as caught:
        read_trace(path)

    assert str(caught.value) == f"{path}:4: it is not JSON: Expecting ':' delimiter"


def test_bad_node_list_is_named(tmp_path: Path) -> None:
    header = "sn,cpu_milli,memory_mib,gpu,model\n"
    cases = {
        "n,1,1,2,\n": ":2: model is empty; expected the type of the 2 GPUs",
        "n,1,1,x,T4\n": ":2: gpu is 'x'; expected a whole number of 0 or more",
        "n,1,1,1,T4\nn,1,1,1,T4\n": ": two nodes are named 'n'; names must differ",
        "": ": there are no nodes in it",
    }
    for rows, reason in cases.items():
        path = write(tmp_path, header + rows)
        with pytest.raises(RotaError) as caught:
            read_alibaba_nodes(path)
        assert str(caught.value) == f"{path}{reason}"


def test_unknown_extension_and_missing_folder_on_writing(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path, BLOX.text))

    for name, reason in (
        ("jobs.xlsx", "the extension '.xlsx' is unknown; use .parquet, .csv or .jsonl"),
        ("jobs", "the extension '' is unknown; use .parquet, .csv or .jsonl"),
        ("jobs.parquet.gz", "the extension '.gz' is unknown; use .parquet, .csv or .jsonl"),
        ("none/jobs.csv", "it cannot be written: No such file or directory"),
    ):
        with pytest.raises(RotaError) as caught:
            write_trace(workload, tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {reason}"


def compressed(text: str) -> bytes:
    return gzip.compress(text.encode())


damage = st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=4)), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    sample=st.sampled_from(list(SAMPLES.values())),
    encode=st.sampled_from([str.encode, compressed]),
    damage=damage,
    skip=st.booleans(),
)
def test_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory,
    sample: Sample,
    encode: Callable[[str], bytes],
    damage: list[tuple[int, bytes]],
    skip: bool,
) -> None:
    content = encode(sample.text)
    for place, wrong in damage:
        content = content[: place % len(content)] + wrong + content[place % len(content) + 1 :]
        content = content or b"x"
    path = tmp_path_factory.mktemp("damaged") / "jobs"
    path.write_bytes(content)

    told = str(path)
    try:
        read_trace(path, skip_bad_lines=skip)
    except RotaError as error:
        told = str(error)
    assert str(path) in told
    assert "\n" not in told


def test_columns_of_any_csv_are_its_format(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,run_time,n\n0,100,1\n5,50,2\n")

    workload = read_trace(path, format="submit=ts,duration=run_time,gpus=n")

    assert [(each.submit_s, each.job.work, each.job.gpu_milli) for each in workload.submissions] == [
        (0.0, 100.0, 1000),
        (5.0, 50.0, 2000),
    ]
