"""Certificates of the admission webhook: an authority of its own, and a serving certificate that it signs.

Both are renewed long before they expire. A new authority signs from the next serving certificate on, and the one
before it stays trusted until then, so that no connection fails while the API server learns of the new one.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

RENEW_AT = 2 / 3
"""The part of its life after which a certificate is renewed."""
AUTHORITY_LIVES = 12
"""Lives of a serving certificate in that of the authority."""
EARLIER_S = 300.0
"""How long before its making a certificate is valid, since clocks differ."""
_FIELDS = {
    "authority": "ca.crt",
    "authority_key": "ca.key",
    "previous": "previous-ca.crt",
    "serving": "tls.crt",
    "serving_key": "tls.key",
}
"""Keys of the Secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSet:
    """All certificates and keys, as PEM. `previous` is the authority before the present one; empty if there is none."""

    authority: str
    authority_key: str
    previous: str
    serving: str
    serving_key: str

    @property
    def bundle(self) -> str:
        """The authorities that clients have to trust."""
        return self.authority + self.previous

    def encode(self) -> dict[str, str]:
        """Return the data of a Secret."""
        return {key: base64.b64encode(getattr(self, name).encode()).decode() for name, key in _FIELDS.items()}


def decode_certificates(data: Mapping[str, str]) -> CertificateSet | None:
    """Return the certificates in a Secret; None if they are incomplete or damaged."""
    try:
        found = {name: base64.b64decode(data[key], validate=True).decode() for name, key in _FIELDS.items()}
        certificates = CertificateSet(**found)
        for text in (certificates.authority, certificates.serving):
            x509.load_pem_x509_certificate(text.encode())
        for text in (certificates.authority_key, certificates.serving_key):
            serialization.load_pem_private_key(text.encode(), password=None)
    except (KeyError, ValueError, TypeError):
        return None
    return certificates


def renewed(
    was: CertificateSet | None, names: Sequence[str], *, life_s: float, now: datetime | None = None
) -> CertificateSet:
    """Return the certificates to use now: `was` itself if nothing of it is due."""
    now = now or datetime.now(UTC)
    authority_life_s = life_s * AUTHORITY_LIVES
    if was is None or _expires(was.authority) <= now:
        authority, key = _authority(now, authority_life_s)
        return _served(
            CertificateSet(authority=authority, authority_key=key, previous="", serving="", serving_key=""),
            names,
            now,
            life_s,
        )
    if _is_due(was.authority, now):
        authority, key = _authority(now, authority_life_s)
        was = replace(was, authority=authority, authority_key=key, previous=was.authority)
    if _is_due(was.serving, now) or _names(was.serving) != set(names):
        was = _served(was, names, now, life_s)
    return was


def serving_until(certificates: CertificateSet) -> datetime:
    """Return when the serving certificate expires."""
    return _expires(certificates.serving)


def _is_due(text: str, now: datetime) -> bool:
    found = x509.load_pem_x509_certificate(text.encode())
    begins, ends = found.not_valid_before_utc + timedelta(seconds=EARLIER_S), found.not_valid_after_utc
    return now >= begins + (ends - begins) * RENEW_AT


def _expires(text: str) -> datetime:
    return x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc


def _names(text: str) -> set[str]:
    found = x509.load_pem_x509_certificate(text.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return {str(each.value) for each in found.value}


def _authority(now: datetime, life_s: float) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Rota admission {now:%Y-%m-%dT%H:%M:%S.%f}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        **dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False),
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _begun(name, name, key, now, life_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(made), _key_pem(key)


def _served(was: CertificateSet, names: Sequence[str], now: datetime, life_s: float) -> CertificateSet:
    """Return the set with a new serving certificate for these host names and addresses."""
    authority = x509.load_pem_x509_certificate(was.authority.encode())
    signing = serialization.load_pem_private_key(was.authority_key.encode(), password=None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    made = (
        _begun(subject, authority.subject, key, now, life_s)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return replace(was, serving=_pem(made), serving_key=_key_pem(key))


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life_s: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(seconds=EARLIER_S))
        .not_valid_after(now + timedelta(seconds=life_s))
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
