"""Jobs that serve one page: the shell scripts that they run, and the wait until the page answers."""

from __future__ import annotations

import time
from typing import Any

from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.sdk.client import Client

Json = dict[str, Any]
FINAL = frozenset({"succeeded", "failed", "cancelled"})
POLL_S = 0.3
TAIL = 4096

NOTEBOOK = r"""
set -u
if ! command -v jupyter-lab >/dev/null 2>&1; then
  echo "rota: JupyterLab is not installed in this job's environment; install it there: pip install jupyterlab" >&2
  exit 127
fi
umask 077
services="$ROTA_RUN_DIR/.services"
mkdir -p "$services" || exit 1
rm -f "$services/notebook"
socket="$services/notebook"
if [ "${#socket}" -gt 100 ]; then  # longer than the name of a socket can be
  short=$(mktemp -d /tmp/rota-notebook.XXXXXX) || exit 1
  ln -s "$short/socket" "$services/notebook"
  socket="$short/socket"
fi
mkdir -p "$services/config" || exit 1
printf '%s\n' "$2" > "$services/config/jupyter_server_config.py"
export JUPYTER_CONFIG_PATH="$services/config${JUPYTER_CONFIG_PATH:+:$JUPYTER_CONFIG_PATH}"
export ROTA_NOTEBOOK_IDLE_S="$1"
root=
[ "$(id -u)" = 0 ] && root=--allow-root
exec jupyter-lab --no-browser $root --ServerApp.sock="$socket" --ServerApp.sock_mode=0600 --IdentityProvider.token= \
  --ServerApp.allow_remote_access=True --ServerApp.open_browser=False
"""
"""Its arguments: the idle time in seconds, and the configuration that watches for it."""

WATCH_IDLE = r'''
"""Ends the server when no kernel and no terminal has done anything for long; a busy kernel is never idle."""

import os
import signal
import threading
import time
from datetime import timezone

_idle_s = float(os.environ.get("ROTA_NOTEBOOK_IDLE_S") or 0)


def _last_s(app, begun_s):
    latest = begun_s
    manager = app.kernel_manager
    for name in list(manager.list_kernel_ids()):
        kernel = manager.get_kernel(name)
        if getattr(kernel, "execution_state", "idle") == "busy":  # one that no page has opened yet is "starting"
            return time.time()
        found = getattr(kernel, "last_activity", None)
        if found is not None:
            latest = max(latest, found.timestamp())
    terminals = getattr(app.web_app.settings.get("terminal_manager"), "terminals", {})
    for terminal in list(terminals.values()):
        found = getattr(terminal, "last_activity", None)
        if found is not None:
            latest = max(latest, found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp())
    return latest


def _watch():
    from jupyter_server.serverapp import ServerApp

    begun_s, warned = time.time(), False
    warning_s = min(300.0, _idle_s / 4)
    while True:
        time.sleep(min(15.0, max(_idle_s / 20, 0.2)))
        try:
            idle_s = time.time() - _last_s(ServerApp.instance(), begun_s)
        except Exception:  # it has not started yet, or a kernel has just gone
            continue
        if idle_s >= _idle_s:
            print(f"rota: the notebook was idle for {idle_s:.0f} s and ends", flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if idle_s >= _idle_s - warning_s and not warned:
            print(f"rota: warning: the notebook is idle and ends in {_idle_s - idle_s:.0f} s", flush=True)
        warned = idle_s >= _idle_s - warning_s


if _idle_s > 0:
    threading.Thread(target=_watch, daemon=True).start()
'''

TENSORBOARD = r"""
set -u
if ! command -v tensorboard >/dev/null 2>&1; then
  echo "rota: TensorBoard is not installed in this job's environment; install it there: pip install tensorboard" >&2
  exit 127
fi
folders=
for job in "$@"; do
  folder="$ROTA_RUN_DIR/../../$job/shared"
  if ! [ -d "$folder" ] || ! [ -r "$folder" ]; then
    echo "rota: the folder of job $job can't be read from this job" >&2
    exit 1
  fi
  folders="$folders${folders:+,}job-$job:$folder"
done
services="$ROTA_RUN_DIR/.services"
mkdir -p "$services" || exit 1
rm -f "$services/tensorboard"
tensorboard --logdir_spec "$folders" --host 127.0.0.1 --port 0 2>&1 | while IFS= read -r line; do
  printf '%s\n' "$line"
  case "$line" in
    *" at http://"*)
      port=${line##*:}
      port=${port%%/*}
      printf '%s\n' "$port" > "$services/.new" && mv "$services/.new" "$services/tensorboard";;
  esac
done
"""
"""Its arguments: the jobs whose folders are shown."""


def await_page(client: Client, job_id: str, service: str, below: str = "") -> int:
    """Wait until a job serves a page; print its address, or what the job said where it ended before."""
    told = ""
    while True:
        job = client.job(job_id)
        if job["state"] in FINAL:
            said = b"".join(client.logs(job_id))[-TAIL:].decode(errors="replace").strip()
            raise RotaError(_last_line(said) or f"job {job_id} {job['state']}: {job['message']}")
        if job["state"] == "running" and client.page_status(f"/proxy/{job_id}/{service}/{below}") < 400:
            echo(f"{client.url}/proxy/{job_id}/{service}/{below}")
            return 0
        if job["state"] not in ("running", "starting", told):
            told = job["state"]
            reason = client.why(job_id).get("reason") or {}
            why = f": {reason['sentence']}" if reason.get("sentence") else ""
            echo(f"rota: job {job_id} is {told}{why}", err=True)
        time.sleep(POLL_S)


def _last_line(said: str) -> str:
    """Return the last line of the job's output that is Rota's own, or the last one."""
    lines = said.splitlines()
    own = [line.removeprefix("rota: ") for line in lines if line.startswith("rota: ")]
    return own[-1] if own else (lines[-1] if lines else "")
