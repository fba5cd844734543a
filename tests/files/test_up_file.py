"""The settings of a manager in a file: the same as the options of `rota up`, each mistake told by field."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from rota.cli.main import status
from rota.cli.manager.up import _merged, up
from rota.core.errors import RotaError
from rota.files.up_file import ContainersPart, UpFile, read_up_file

WHOLE = """
emulate: cluster.yaml
policy: las
placement: spread
tenancy: quota
host: 0.0.0.0
port: 8000
data: here
database: postgresql+psycopg://rota@db/rota
run_as: nobody
keep: 7d
require_token: true
cgroups: "off"
tls_cert: c.pem
tls_key: k.pem
log_format: json
log_level: debug
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rota.yaml"
    path.write_text(text, encoding="utf-8")
    return path


ONLY_IN_FILES = {"limits", "gpu", "health", "containers", "idle_sessions", "notifications", "alerts", "data_cache"}
"""Fields that are mappings, without an option of their own."""


def merged(config: Path | None, *args: str) -> UpFile:
    app = typer.Typer()
    app.command()(up)
    command = typer.main.get_command(app)
    return _merged(command.make_context("up", list(args)), config)  # type: ignore[arg-type]


def test_every_option_of_the_command_is_a_field_and_no_other() -> None:
    command = typer.main.get_command(_app())
    options = {param.name for param in command.params} - {"config", "install_completion", "show_completion"}

    assert options == set(UpFile.model_fields) - ONLY_IN_FILES


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(up)
    return app


def test_every_field_has_the_default_of_its_option() -> None:
    assert merged(None) == UpFile()
    given = {param.name: param.default for param in typer.main.get_command(_app()).params}
    for name, field in UpFile.model_fields.items():
        if name in ONLY_IN_FILES:
            continue
        default = getattr(given[name], "value", given[name])
        assert (default, name) == (
            {"keep": "30d", "min_run": "60s", "task_output": "128Mi"}.get(name, field.default),
            name,
        )


def test_whole_file_is_read_and_names_of_files_are_seen_from_where_it_lies(tmp_path: Path) -> None:
    assert read_up_file(written(tmp_path, WHOLE)) == {
        "emulate": str(tmp_path / "cluster.yaml"),
        "policy": "las",
        "placement": "spread",
        "tenancy": "quota",
        "host": "0.0.0.0",
        "port": 8000,
        "data": tmp_path / "here",
        "database": "postgresql+psycopg://rota@db/rota",
        "run_as": "nobody",
        "keep": 7 * 86400.0,
        "require_token": True,
        "cgroups": "off",
        "tls_cert": tmp_path / "c.pem",
        "tls_key": tmp_path / "k.pem",
        "log_format": "json",
        "log_level": "debug",
    }


def test_command_line_wins_over_the_file_even_with_a_default(tmp_path: Path) -> None:
    path = written(tmp_path, "port: 8000\npolicy: las\nkeep: 1h\n")

    found = merged(path, "--port", "7650", "--keep", "2h", "--log-format", "json")

    assert (found.port, found.policy, found.keep, found.log_format) == (7650, "las", 7200.0, "json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1", "unknown field prot; did you mean 'port'?"),
        ("port: many", "port is 'many'; it must be a whole number"),
        ("port: 70000", "port is 70000"),
        ("keep: soon", "keep: not a duration: 'soon'"),
        ("require_token: maybe", "require_token is 'maybe'"),
        ("log_level: loud", "log_level is 'loud'"),
        ("tls_cert: a.pem", "TLS needs both tls_cert and tls_key"),
        ("- port", "the file is ['port']; it must be a mapping"),
        ("port: 1\nport: 2", "'port' is given twice"),
    ],
)
def test_mistake_names_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RotaError) as refused:
        read_up_file(written(tmp_path, text))

    assert said in str(refused.value)
    assert str(tmp_path / "rota.yaml") in str(refused.value)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("policy: las\nport: 0", 0, "nothing found"),
        ("policy: lsa", 2, "rota.yaml: unknown policy 'lsa'; did you mean 'las'?"),
        ("policy: fifo:nonsense=3", 2, "rota.yaml: policy 'fifo'"),
        ("policy: las:consolidate_s=60\ntenancy: quota", 2, "rota.yaml: consolidate_s moves jobs without regard"),
        ("policy: las\nplacement: wide", 2, "rota.yaml: unknown placement 'wide'"),
        ("policy: las\ntenancy: cell", 2, "rota.yaml: unknown tenancy 'cell'; did you mean 'cells'?"),
        ("emulate: no.yaml", 2, "no.yaml"),
        ("run_as: no-such-user", 2, "rota.yaml: run_as: there is no user 'no-such-user'"),
        ("tls_cert: a.pem\ntls_key: b.pem", 2, "tls_cert: there is no file"),
        ("run: true", 2, "run is True"),
        ("run: python train.py\nworkers: 2", 0, "nothing found"),
    ],
)
def test_check_knows_settings_and_jobs(
    tmp_path: Path, text: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["check", str(written(tmp_path, text))]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "fifo:nonsense=3"], "nonsense"),
        (["--policy", "fifo:consolidate_s=no"], "consolidate_s is 'no'"),
        (["--policy", "fifo:consolidate_s=60", "--tenancy", "quota"], "use --tenancy none"),
        (["--policy", "gavel/max_min_fairness", "--tenancy", "quota"], "can't run with tenancy 'quota'"),
        (["--placement", "consolidate:relax_after=soon"], "relax_after"),
        (["--tenancy", "cell"], "unknown tenancy 'cell'"),
    ],
)
def test_refused_settings_leave_no_folder(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "new"

    code = status(["up", "--emulate", "gpu=4/4", "--port", "0", "--data", str(home), *options])

    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1), error
    assert said in error
    assert not home.exists()


def test_on_and_off_need_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "rota.yaml"
    path.write_text("isolation: off\ncgroups: on\ngpu_suspend: off\n")

    assert read_up_file(path) == {"isolation": "off", "cgroups": "on", "gpu_suspend": "off"}


def test_places_of_images_are_seen_from_where_the_file_lies(tmp_path: Path) -> None:
    text = "containers: {runtime: off, images: [images, /srv/images], volumes: [/data]}\n"
    read = read_up_file(written(tmp_path, text))

    part = ContainersPart(runtime="off", images=(tmp_path / "images", Path("/srv/images")), volumes=("/data",))
    assert read == {"containers": part}


@pytest.mark.parametrize("fault", ["runtime: lxc", "pull: sometimes", "volumes: [data]", "volumes: [/data/]"])
def test_settings_of_containers_are_checked(tmp_path: Path, fault: str) -> None:
    with pytest.raises(RotaError, match="containers"):
        read_up_file(written(tmp_path, f"containers: {{{fault}}}\n"))
