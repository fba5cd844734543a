"""Docker: containers of a daemon, which are not the task's own processes and have limits of their own.

The client is the task's first process; when the task is ended, the container is removed by its name.
"""

from __future__ import annotations

from rota.drivers.local.containers.plan import ContainerCommand, ContainerPlan
from rota.drivers.local.containers.settings import DOCKER_SOCKET, SEARCHED


def docker_command(plan: ContainerPlan) -> ContainerCommand:
    """Return how Docker runs a task."""
    program = (plan.containers.program, "--host", f"unix://{DOCKER_SOCKET}")
    home = plan.folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    return ContainerCommand(
        run=(*program, "run", *_options(plan)),
        image=plan.image,
        enter=(*program, "exec"),
        env={"PATH": SEARCHED, "LANG": "C.UTF-8", "HOME": str(home)},
        remove=(*program, "rm", "--force", plan.name),
        kill=(*program, "kill"),
    )


def _options(plan: ContainerPlan) -> list[str]:
    words = ["--rm", "--name", plan.name, f"--pull={plan.containers.pull.value}", "--init", "--log-driver=none"]
    words += ["--network=host", "--uts=host", "--ipc=private", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    words += ["--entrypoint=", "--workdir", plan.workdir]
    words += [f"--ulimit={name}={soft}:{hard}" for name, soft, hard in plan.limits]
    words += [f"--memory={plan.memory_bytes}", f"--memory-swap={plan.memory_bytes}"] if plan.memory_bytes else []
    words += [f"--shm-size={plan.memory_bytes // 2}"] if plan.memory_bytes else []
    words += [f"--cpus={plan.cpu_milli / 1000:g}"] if plan.cpu_milli else []
    words += [f"--pids-limit={plan.processes}"] if plan.processes else []
    words += ["--gpus", f'"device={",".join(plan.gpus)}"'] if plan.gpus else []
    user = plan.user
    if user is not None:
        words += [f"--user={user.uid}:{user.gid}"]
        words += [f"--group-add={group}" for group in user.groups if group != user.gid]
    else:
        words += [f"--user={plan.manager_uid}"]
    words += ["--interactive"] if plan.interactive else []
    words += ["--tty"] if plan.tty else []
    return words
