"""What stands before a batch script: Slurm's variables, and functions in place of its commands in shell scripts."""

import shlex
from collections.abc import Sequence

VARIABLES = """\
export SLURM_JOB_ID="$ROTA_JOB_ID" SLURM_JOBID="$ROTA_JOB_ID" SLURM_JOB_NAME="$ROTA_JOB_NAME"
export SLURM_NTASKS="$ROTA_TASKS" SLURM_NPROCS="$ROTA_TASKS" SLURM_PROCID="$ROTA_RANK" SLURM_NODENAME="$ROTA_NODE"
export SLURMD_NODENAME="$ROTA_NODE" SLURM_JOB_ACCOUNT="$ROTA_TENANT" SLURM_SUBMIT_DIR="$PWD"
export SLURM_LOCALID="${LOCAL_RANK:-0}" SLURM_NODEID="$((${ROTA_RANK:-0} / ${SLURM_NTASKS_PER_NODE:-1}))"
export SLURM_JOB_NODELIST="${MASTER_ADDR:-127.0.0.1}" SLURM_NODELIST="${MASTER_ADDR:-127.0.0.1}"
export SLURM_GPUS_ON_NODE="$ROTA_GPUS" SLURM_JOB_GPUS="$CUDA_VISIBLE_DEVICES" SLURM_TMPDIR="${TMPDIR:-/tmp}"
[ -z "${ROTA_ARRAY_INDEX+x}" ] || export SLURM_ARRAY_TASK_ID="$ROTA_ARRAY_INDEX"
"""
SRUN = """\
srun() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --) shift; break ;;
      --*=*) shift ;;
      --label|--unbuffered|--pty|--overlap|--exact|--exclusive|--verbose|--quiet|--no-kill|--overcommit) shift ;;
      --oversubscribe|--preserve-env|--kill-on-bad-exit|--multi-prog|--disable-status|--contiguous) shift ;;
      --spread-job|--use-min-nodes|--quit-on-interrupt|--reboot|--help|--usage|--version) shift ;;
      -[lukvQKEOXsV]) shift ;;
      --*|-?) shift; [ $# -eq 0 ] || shift ;;
      -*) shift ;;
      *) break ;;
    esac
  done
  "$@"
}
"""
"""A stand-in for `srun`: it drops the options, and runs the command in this task."""
SCONTROL = """\
scontrol() {
  case "$1 ${2-}" in
    "show hostname"|"show hostnames") printf '%s\\n' "${3:-$SLURM_JOB_NODELIST}" | tr , '\\n' ;;
    *) command scontrol "$@" ;;
  esac
}
"""
"""A stand-in for `scontrol show hostnames`, by which scripts find the address of their first task."""
EXPORT = '[ -z "${BASH_VERSION-}" ] || export -f srun scontrol\n'
OPENED = """\
script=$(mktemp "${TMPDIR:-/tmp}/script.XXXXXXXX") && printf '%s' "$1" >"$script" && exec 9<"$script" || exit
rm -f "$script"
shift
"""
"""Opens a file of the script that is the first argument, and leaves nothing of it behind."""
STAND_INS = f"{VARIABLES}{SRUN}{SCONTROL}{EXPORT}"


def started(words: Sequence[str], text: str, name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that gives a script Slurm's variables and runs it by an interpreter that is no shell."""
    program = words[0].rpartition("/")[2]
    if program.startswith("python"):  # so it finds modules in the working directory
        return ["/bin/sh", "-c", f'{VARIABLES}exec "$@"', name, *words, "-c", text, *arguments]
    run = f'exec {shlex.join(words)} /dev/fd/9 "$@"'
    return ["/bin/sh", "-c", f"{VARIABLES}{OPENED}{run}", name, text, *arguments]
