"""A newcomer's first minutes without a clone, by the clock: `python tools/first_minutes.py dist`.

Installs the wheel of `rota` from a folder into a new environment, runs the demo and a simulation, starts a manager,
and submits a training script from a second environment that has only `rota-sdk`. Prints how long each step took; ends
with status 1 if a step fails or all of them take longer than three minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_S = 180.0
SUBMIT = """
import sys, time
from rota.sdk import Client
client = Client(sys.argv[1])
job_id = client.submit({"run": [sys.executable, sys.argv[2]], "resources": {"gpus": 1}})[0]
while (state := client.job(job_id)["state"]) not in ("succeeded", "failed", "cancelled"):
    time.sleep(0.2)
print(state, b"".join(client.logs(job_id)).decode())
sys.exit(state != "succeeded")
"""
TRAIN = """
import rota.sdk
for step in (run := rota.sdk.steps(range(20))):
    run.report(loss=1.0 / (step + 1))
print("trained", run.step, "steps")
"""


def main() -> int:
    dist = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "dist"
    whole, sdk = wheel(dist, "rota-*-cp3*.whl", "rota-*-none-any.whl"), wheel(dist, "rota_sdk-*.whl")
    with tempfile.TemporaryDirectory(prefix="rota-first-") as folder:
        here = Path(folder)
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ROTA_SERVER")}
        names = {"HOME": "home", "XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state"}
        env |= {name: str(here / each) for name, each in names.items()}
        pip = ("-m", "pip", "install", "-q", "--disable-pip-version-check")
        constraints = ("-c", str(ROOT / "constraints.txt"))
        begun = time.monotonic()
        rota = str(here / "all/bin/rota")
        step(f"install {whole.name}", here, env, python(here, "all"), *pip, *constraints, str(whole))
        step("rota demo --short", here, env, rota, "demo", "--short", "--out", "demo")
        step("rota trace generate", here, env, rota, "trace", "generate", "mixed", "jobs.csv", "--jobs", "2000")
        step(
            "rota sim",
            here,
            env,
            rota,
            *["sim", "--trace", "jobs.csv", "--cluster", "gpu=64/8", "--policy", "las", "--out", "study"],
        )
        step(f"install {sdk.name}", here, env, python(here, "training"), *pip, str(sdk))
        submit_from_the_other(here, env, rota)
        whole_s = time.monotonic() - begun
    print(f"| in all | {whole_s:.0f} s |")
    return 0 if whole_s < MOST_S else 1


def wheel(dist: Path, *patterns: str) -> Path:
    """The first wheel that a pattern finds for this Python."""
    tag = f"cp3{sys.version_info[1]}"
    for pattern in patterns:
        for path in sorted(dist.glob(pattern)):
            if "none-any" in path.name or f"-{tag}-" in path.name:
                return path
    raise SystemExit(f"{dist} has no {' or '.join(patterns)}; `make release` builds them")


def python(folder: Path, name: str) -> str:
    """Make an environment, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
    return str(folder / name / "bin" / "python")


def step(title: str, folder: Path, env: dict[str, str], *command: str) -> None:
    """Run a command, and print how long it took; end with its output if it fails."""
    begun = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    print(f"| {title} | {time.monotonic() - begun:.1f} s |", flush=True)
    if done.returncode != 0:
        raise SystemExit(f"{title} failed:\n{done.stdout}{done.stderr}")


def submit_from_the_other(folder: Path, env: dict[str, str], rota: str) -> None:
    """Start a manager, and run a job of the environment that has only the SDK."""
    begun = time.monotonic()
    (folder / "submit.py").write_text(SUBMIT, encoding="utf-8")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    with (folder / "up.log").open("w+") as log:
        command = [rota, "up", "--emulate", "gpu=4/4", "--port", "0"]
        manager = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            url = ""
            while not url and manager.poll() is None and time.monotonic() - begun < MOST_S:
                said = (folder / "up.log").read_text(encoding="utf-8")
                url = said.partition("machine at ")[2].partition(";")[0] if "ready" in said else ""
                time.sleep(0.1)
            print(f"| rota up | {time.monotonic() - begun:.1f} s |", flush=True)
            other = str(folder / "training/bin/python")
            step("submit with rota-sdk alone", folder, env, other, "submit.py", url, str(folder / "train.py"))
        finally:
            manager.terminate()
            manager.wait(timeout=30)


if __name__ == "__main__":
    raise SystemExit(main())
