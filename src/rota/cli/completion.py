"""What the shell completes: ids of jobs of the running manager, and names of policies."""

from __future__ import annotations

import contextlib

from rota.core.errors import RotaError, Unavailable

MOST_SHOWN = 100


def job_ids(incomplete: str) -> list[tuple[str, str]]:
    """Return unfinished jobs and their names, newest first; none where no manager answers, since a shell waits."""
    from rota.cli.manager.connect import client_for

    with contextlib.suppress(RotaError, Unavailable, OSError):
        jobs = client_for(None).jobs(limit=MOST_SHOWN)
        return [(job["id"], f"{job['name']}, {job['state']}") for job in jobs if job["id"].startswith(incomplete)]
    return []


def policy_names(incomplete: str) -> list[str]:
    """Return the policies by name."""
    from rota.policies import names

    return [name for name in names() if name.startswith(incomplete)]
