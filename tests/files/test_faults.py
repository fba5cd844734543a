from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import NodeId
from rota.files import Fault, read_faults

CLUSTER = Cluster.uniform(("gpu", 24, 8))


def written(folder: Path, text: str) -> Path:
    path = folder / "faults.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_faults_come_in_order_of_time(tmp_path: Path) -> None:
    path = written(tmp_path, "time_s,node,event\n60.5,n1,up\n\n0,n1,down\n 60.5 , n2 , down \n")

    assert read_faults(path, CLUSTER) == (
        Fault(at_s=0.0, node=NodeId("n1"), up=False),
        Fault(at_s=60.5, node=NodeId("n1"), up=True),
        Fault(at_s=60.5, node=NodeId("n2"), up=False),
    )


def test_header_alone_is_no_fault(tmp_path: Path) -> None:
    assert read_faults(written(tmp_path, "\ufefftime_s,node,event\r\n")) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the header is ''; it must be 'time_s,node,event'"),
        ("0,n1,down\n", "1: the header is '0,n1,down'; it must be 'time_s,node,event'"),
        ("time_s,node,event\n0,n1\n", "2: 2 fields; a line has 3: time_s,node,event"),
        ("time_s,node,event\n0,n1,dwn\n", "2: unknown event 'dwn'; did you mean 'down'?"),
        ("time_s,node,event\n\n-1,n1,up\n", "3: time_s is '-1'; it must be a number of seconds, 0 or more"),
        ("time_s,node,event\nnan,n1,up\n", "2: time_s is 'nan'; it must be a number of seconds, 0 or more"),
        ("time_s,node,event\nsoon,n1,up\n", "2: time_s is 'soon'; it must be a number of seconds, 0 or more"),
        ("time_s,node,event\n0,,up\n", "2: the node has no name; give it one"),
        ("time_s,node,event\n0,n11,up\n", "2: unknown node 'n11'; did you mean 'n1'?"),
        ("time_s,node,event\n0,xyz,up\n", "2: unknown node 'xyz'; the cluster's nodes are 'n1' to 'n3'"),
        ('time_s,node,event\n0,"n1,up\n', "2: not CSV: unexpected end of data"),
    ],
)
def test_broken_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(RotaError) as refusal:
        read_faults(path, CLUSTER)

    assert str(refusal.value) == f"{path}:{message}"


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.csv"

    with pytest.raises(RotaError) as refusal:
        read_faults(path)

    assert str(refusal.value) == f"{path}: No such file or directory; check the name and whether you may read it"
