"""Address and credentials of an API server, from a kubeconfig file or from within a pod."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.drivers.kubernetes.api.sign_in import SignIn
from rota.files.yaml_input import parse_yaml

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One API server and one identity. A token file is read again periodically because tokens rotate."""

    server: str
    namespace: str = "default"
    token: str | None = None
    token_file: Path | None = None
    authority: str | None = None
    """Trusted certificates as PEM; None uses the system's."""
    certificate: str | None = None
    key: str | None = None
    sign_in: SignIn | None = None
    """The credential program, where the file holds neither token nor certificate."""
    insecure: bool = False

    def credentials(self) -> str | None:
        """The current token."""
        if self.sign_in is not None:
            return self.sign_in.credential().token
        if self.token_file is None:
            return self.token
        return self.token_file.read_text(encoding="utf-8").strip()

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.authority)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = self.certificate, self.key
        if self.sign_in is not None:
            signed = self.sign_in.credential()
            certificate, key = signed.certificate, signed.key
        if certificate is not None and key is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
                pair.write(f"{certificate}\n{key}\n")
                pair.flush()
                context.load_cert_chain(pair.name)
        return context


def connect(context: str | None = None, kubeconfig: Path | None = None) -> Connection:
    """The connection of a context, of the kubeconfig's current context, or of the surrounding pod."""
    path = kubeconfig or _kubeconfig()
    if path is None and context is None and (IN_POD / "token").is_file():
        return _in_pod()
    if path is None:
        raise RotaError("no kubeconfig found: name one with --kubeconfig or KUBECONFIG, or run in a pod")
    return _from_file(path, context)


def _kubeconfig() -> Path | None:
    named = os.environ.get("KUBECONFIG")
    if named:
        return Path(named.split(os.pathsep)[0])
    usual = Path.home() / ".kube" / "config"
    return usual if usual.is_file() else None


def _in_pod() -> Connection:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise RotaError("KUBERNETES_SERVICE_HOST is not set, though this seems to be a pod; use --kubeconfig")
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=(IN_POD / "namespace").read_text(encoding="utf-8").strip(),
        token_file=IN_POD / "token",
        authority=(IN_POD / "ca.crt").read_text(encoding="utf-8"),
    )


def _from_file(path: Path, context: str | None) -> Connection:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RotaError(f"no such kubeconfig: {path}") from None
    document = parse_yaml(text, f"{path}: not a kubeconfig")
    if not isinstance(document, dict):
        raise RotaError(f"{path}: not a kubeconfig")
    name = context or document.get("current-context")
    if not name:
        raise RotaError(f"{path}: it has no current-context; name one with --context")
    chosen = _named(document, "contexts", "context", name, path)
    cluster = _named(document, "clusters", "cluster", chosen.get("cluster", ""), path)
    user = _named(document, "users", "user", chosen["user"], path) if chosen.get("user") else {}
    if "auth-provider" in user:
        raise RotaError(f"{path}: user {chosen['user']!r} has an auth-provider, which Kubernetes has removed; use exec")
    token_file = user.get("tokenFile")
    return Connection(
        server=str(cluster.get("server", "")).rstrip("/"),
        namespace=chosen.get("namespace", "default"),
        token=user.get("token"),
        token_file=None if token_file is None else path.parent / token_file,
        authority=_pem(cluster, "certificate-authority", path),
        certificate=_pem(user, "client-certificate", path),
        key=_pem(user, "client-key", path),
        sign_in=SignIn(user, chosen["user"], path) if "exec" in user else None,
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
    )


def _named(document: Json, plural: str, single: str, name: str, path: Path) -> Json:
    found = {entry.get("name"): entry.get(single) or {} for entry in document.get(plural) or ()}
    if name not in found:
        raise RotaError(f"{path}: unknown {single} {name!r}; {did_you_mean(name, [str(each) for each in found])}")
    value: Json = found[name]
    return value


def _pem(values: Mapping[str, Any], field: str, path: Path) -> str | None:
    """A certificate or key, inline or in a file beside the kubeconfig."""
    inline = values.get(f"{field}-data")
    if inline:
        return base64.b64decode(inline).decode()
    named = values.get(field)
    return None if not named else (path.parent / named).read_text(encoding="utf-8")
