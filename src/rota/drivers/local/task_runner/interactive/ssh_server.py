"""A server of SSH beside a task, for one connection: the `sshd -i` of the task's machine or image, as the task's user.

It needs no rights: its keys, its settings and the task's variables are in files that only its own processes can reach,
and but for the key of the host they have no name any more when it begins.
"""

from __future__ import annotations

import re

HELLO = "rota-ssh 1"
"""The line before the protocol begins with this; the user's name and the key of the host follow."""
MOST_KEYS = 16
KEY = re.compile(r"[a-z0-9][a-z0-9@.-]{2,79} [A-Za-z0-9+/]{16,16384}={0,3}")
"""A public key: kind and content, without options and comment."""

_ENTER = """
set -- "$SHELL" "${SSH_ORIGINAL_COMMAND-}" "${SSH_ORIGINAL_COMMAND+given}"
. /proc/@PID@/fd/3
[ -n "$3" ] || [ -z "$rota_why" ] || echo "$rota_why" >&2
unset SSH_ORIGINAL_COMMAND rota_why
cd -P /proc/@PID@/cwd || exit
[ -z "$3" ] && exec "$1"
exec "$1" -c "$2"
"""
"""What each session begins with: the task's variables and folder, then the user's shell or command."""

_SETTINGS = """
AuthorizedKeysFile /proc/@PID@/fd/4
ForceCommand exec /bin/sh /proc/@PID@/fd/5
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
PermitUserEnvironment no
PermitUserRC no
StrictModes no
UsePAM no
UseDNS no
PidFile none
PermitTunnel no
GatewayPorts no
X11Forwarding no
PrintMotd no
PrintLastLog no
LoginGraceTime 60
LogLevel ERROR
"""

SCRIPT = f"""
fail() {{ printf 'no SSH: %s' "$*" >&2; exit 1; }}
find_in() {{ for each in "$@"; do [ -x "$each" ] && printf %s "$each" && return; done; }}
umask 077
sshd=$(PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin; command -v sshd) || sshd=
case $sshd in /*) ;; *) fail "there is no sshd where the task runs; install openssh-server there";; esac
command -v ssh-keygen >/dev/null || fail "there is no ssh-keygen where the task runs; install openssh-client there"
[ "$(id -u)" != 0 ] || fail "the job runs as root, which does not log in by SSH; let jobs run as another user (run_as)"
me=$(id -un 2>/dev/null) || fail "the job's user, $(id -u), has no name where the task runs"
entry=$(getent passwd "$me" 2>/dev/null </dev/null || grep "^$me:" /etc/passwd) || fail "there is no user $me in passwd"
case ${{entry##*:}} in
*/nologin|*/false) fail "the shell of user $me is ${{entry##*:}}, which refuses logins; set another with chsh";;
esac
folder=${{ROTA_RUN_DIR:?}}/.rota-ssh
mkdir -p "$folder" 2>/dev/null
[ -O "$folder" ] && [ ! -L "$folder" ] && chmod 700 "$folder" || fail "$folder is not a folder of user $me"
if [ ! -f "$folder/host_key" ]; then
    ssh-keygen -q -t ed25519 -N '' -C '' -f "$folder/new.$$" </dev/null >/dev/null || fail "can't make a key in $folder"
    ln "$folder/new.$$" "$folder/host_key" 2>/dev/null
    rm -f "$folder/new.$$" "$folder/new.$$.pub"
fi
key=$(ssh-keygen -y -f "$folder/host_key" </dev/null) || fail "$folder/host_key can't be read"
printf '{HELLO} %s %s\\n' "$me" "$key"
[ $# -gt 0 ] || exit 0
sftp=$(find_in /usr/lib/openssh/sftp-server /usr/lib/ssh/sftp-server /usr/lib/sftp-server \\
    /usr/libexec/openssh/sftp-server /usr/libexec/sftp-server)
tty=$(getent group tty 2>/dev/null </dev/null || grep '^tty:' /etc/group) && tty=${{tty#*:*:}} && tty=${{tty%%:*}}
pts=
while read -r _ at kind options _; do [ "$at $kind" = '/dev/pts devpts' ] && pts=,$options,; done </proc/mounts
rota_why=
case $pts in ''|*,gid=$tty,*) ;; *)  # sshd would end the connection, as it can't give the terminal to that group
    [ -z "$tty" ] || rota_why="rota: no terminal: /dev/pts is mounted without gid=$tty there; rota exec has one";;
esac
set -C
new=$folder/open.$$
unset TERM SSH_CONNECTION SSH_CLIENT SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND
{{
    (unset new folder sshd entry me key sftp tty pts at kind options rota_why; export -p)
    printf "rota_why='%s'\n" "$rota_why"
}} >"$new" && exec 3<"$new" && rm "$new" || exit
printf '%s\\n' "$@" >"$new" && exec 4<"$new" && rm "$new" || exit
printf '%s' '{_ENTER}' | sed "s/@PID@/$$/" >"$new" && exec 5<"$new" && rm "$new" || exit
{{
    printf '%s' '{_SETTINGS}' | sed "s/@PID@/$$/"
    printf 'HostKey "%s/host_key"\\n' "$folder"
    [ -z "$rota_why" ] || echo PermitTTY no
    [ -z "$sftp" ] || printf 'Subsystem sftp %s\\n' "$sftp"
    case $me in *[!A-Za-z0-9._-]*) ;; *) printf 'AllowUsers %s\\n' "$me";; esac
}} >"$new" && exec 6<"$new" && rm "$new" || exit
"$sshd" -i -e -f "/proc/$$/fd/6"
exit $?
"""
"""Its arguments are the public keys that may log in; without one it only names the user and the key of the host."""


def server_words(keys: list[str]) -> list[str]:
    """Return the command that serves one connection for the holders of keys."""
    return ["/bin/sh", "-c", SCRIPT, "rota-ssh", *keys]


def are_keys(found: object) -> bool:
    """Whether a value is a list of public keys."""
    if not isinstance(found, list) or len(found) > MOST_KEYS:
        return False
    return all(isinstance(each, str) and KEY.fullmatch(each) is not None for each in found)
