"""Take screenshots of every page of the dashboard from a seeded state: `.venv/bin/python tests/web/screenshots.py`.

It generates a day of history, then runs a manager with a few real jobs on emulated devices.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import Page

from managers import Manager, eventually
from rota.files.cluster import read_cluster
from web.browsers import Window, browser, window
from web.past import make_past

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "images" / "dashboard"
JOBS = 640
LAB = """
nodes:
  - {name: "h[1-4]", type: H100, gpus: 8, sockets: [4, 4], rack: r1}
  - {name: "h[5-8]", type: H100, gpus: 8, sockets: [4, 4], rack: r2}
  - {name: "a[1-6]", type: A100, gpus: 4, rack: r3}
racks: {r1: hall-1, r2: hall-1, r3: hall-2}
tenants:
  vision: {gpus: {H100: 24, A100: 8}}
  nlp: {gpus: {H100: 24, A100: 8}}
  speech: {gpus: {H100: 8, A100: 8}}
  robotics: {gpus: {H100: 8}}
"""
TRAINING = f"""#!{sys.executable}
import math
import random
import time
import rota.sdk
run = rota.sdk.steps(range(100000))
for batch in run:
    time.sleep(0.01)
    loss = 2.3 * math.exp(-run.step / 700) + 0.3 + random.random() * 0.08
    run.report(loss=loss, accuracy=1 - loss / 3)
    if run.step % 50 == 0:
        print("step %6d  loss %.4f  lr 3.0e-04" % (run.step, loss), flush=True)
"""


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rota-pictures-") as folder:
        lab = Path(folder, "lab.yaml")
        lab.write_text(LAB, encoding="utf-8")
        manager = Manager(Path(folder), "--emulate", str(lab), "--tenancy", "quota")
        make_past(manager.home, read_cluster(str(lab)), policy="priority", tenancy="quota", jobs=JOBS)
        put_on_path(manager, "train", TRAINING)
        manager.start()
        try:
            training, waiting = submit(manager)
            with browser() as opened:
                take(window(opened, manager), training, waiting)
                dark = window(opened, manager, scheme="dark")
                shoot(dark.go("/"), "overview-dark", settle_s=2)
                shoot(dark.go(f"/jobs/{training}"), "job-dark", settle_s=4)
                phone = window(opened, manager, phone=True)
                shoot(phone.go("/"), "overview-phone", settle_s=2)
                phone.go(f"/jobs/{waiting}").get_by_test_id("expected").wait_for()
                shoot(phone.page, "job-phone", settle_s=1)
        finally:
            manager.clean_up()


def put_on_path(manager: Manager, name: str, text: str) -> None:
    """Add a program to the path of the manager's tasks."""
    program = manager.folder / "bin" / name
    program.parent.mkdir()
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    manager.env["PATH"] = f"{program.parent}:{manager.env['PATH']}"


def submit(manager: Manager) -> tuple[str, str]:
    """Submit jobs that run and wait; return one that trains and one that waits."""
    needs = {"gpus": 8, "gpu": "H100", "cpus": 0.25, "memory": "256Mi"}
    training = manager.client.submit(
        {"name": "llama-ft-8b", "tenant": "nlp", "run": "train --model llama-8b", "workers": 2, "resources": needs}
    )[0]
    for number, (tenant, gpus) in enumerate(
        (("vision", 4), ("vision", 8), ("speech", 4), ("nlp", 2), ("vision", 2)) * 3
    ):
        manager.submit("sleep 600", name=f"{tenant}-sweep-{number:02d}", tenant=tenant, resources={"gpus": gpus})
    for number in range(4):
        manager.submit(
            "sleep 600", name=f"robotics-sim-{number}", tenant="robotics", priority=-1, resources={"gpus": 4}
        )
    manager.submit("sleep 600", name="tokenizer-shared", tenant="nlp", resources={"gpus": 0.5, "gpu": "A100"})
    manager.client.drain("a6")
    waiting = manager.submit(
        "sleep 5", name="gpt2-medium-eval", tenant="nlp", workers=3, resources={"gpus": 8, "gpu": "H100"}
    )
    manager.submit("sleep 5", name="vit-base-rerun", tenant="vision", resources={"gpus": 8, "gpu": "H100"})
    eventually(lambda: (manager.client.job(training)["progress"] or {}).get("step", 0) > 900, within_s=120)
    return training, waiting


def take(desk: Window, training: str, waiting: str) -> None:
    shoot(desk.go("/"), "overview", settle_s=2)
    shoot(desk.go("/jobs"), "jobs", settle_s=1)
    shoot(desk.go(f"/jobs/{training}"), "job", settle_s=4, full=True)
    desk.go(f"/jobs/{waiting}").get_by_test_id("expected").wait_for()
    shoot(desk.page, "job-waiting", settle_s=1)
    shoot(desk.go("/cluster"), "cluster", settle_s=1)
    shoot(desk.go("/tenants"), "tenants", settle_s=2)
    shoot(desk.go("/submit"), "submit", settle_s=1)
    shoot(desk.go("/audit-log"), "audit", settle_s=1)
    page = desk.go("/what-if")
    page.get_by_label("Policy").fill("las")
    page.get_by_label("Additional H100 nodes").fill("2")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("table", name="Comparison").wait_for(timeout=120_000)
    shoot(page, "what-if", settle_s=1)


def shoot(page: Page, name: str, *, settle_s: float, full: bool = False) -> None:
    """Save a screenshot of a page after a delay, with few colours to keep it small."""
    page.wait_for_timeout(settle_s * 1000)
    image = Image.open(io.BytesIO(page.screenshot(full_page=full)))
    path = OUT / f"{name}.png"
    image.convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
