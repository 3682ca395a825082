"""Certificates and keys: a certificate authority of one's own, a server certificate, and a key for every node.

KEYS/authority/ca.key       signs server certificates; needed by nobody but you
KEYS/server/                ca.crt, server.crt, server.key and the nodes' public keys: for the server's machine
KEYS/node-1/, node-2/, ...  ca.crt and node.key: one folder for each node's machine
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedtempo.errors import ConfigError, OutputError, require

if TYPE_CHECKING:
    from cryptography import x509

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DAYS = 365
MOST_NODES = 10_000
CONNECT_SECONDS = 10.0


class ServerKeys(NamedTuple):
    """The files of the server's folder."""

    authority: Path
    certificate: Path
    key: Path
    nodes: tuple[Path, ...]


class NodeKeys(NamedTuple):
    """The files of a node's folder."""

    authority: Path
    key: Path


def make_keys(folder: Path, nodes: int, hosts: Sequence[str] = LOOPBACK, days: float = DAYS) -> None:
    """A new authority, a certificate for a server under these names and addresses, and a key for each node.

    `days` is how long the server's certificate is valid; the authority's is valid for a year.
    """
    require(0 < nodes <= MOST_NODES, "nodes", f"an int in [1, {MOST_NODES}]", nodes)
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(f"keys must go to a new folder. Got {folder}, which is not empty.")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority, certificate = _certificates(authority_key, server_key, hosts, days)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    for key, place in ((authority_key, "authority/ca.key"), (server_key, "server/server.key")):
        _write(folder / place, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    for place in ("authority", "server", *(f"node-{number}" for number in range(1, nodes + 1))):
        _write(folder / place / "ca.crt", authority)
    _write(folder / "server" / "server.crt", certificate)
    for number in range(1, nodes + 1):
        own = ec.generate_private_key(ec.SECP384R1())
        _write(folder / f"node-{number}/node.key", own.private_bytes(pem, serialization.PrivateFormat.OpenSSH, plain))
        ssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        _write(folder / f"server/nodes/{number}.pub", own.public_key().public_bytes(*ssh))


def server_keys(folder: Path) -> ServerKeys:
    """The server's files; a private key that others can read is refused."""
    public = public_keys(folder)
    if not public:
        raise ConfigError(f"keys must hold the nodes' public keys in nodes/. Got {folder}, which does not.")
    found = ServerKeys(folder / "ca.crt", folder / "server.crt", folder / "server.key", public)
    _check(folder, found.authority, found.certificate)
    check_ours(folder, found.authority, found.certificate)
    _check_private(found.key)
    for certificate in (found.certificate, found.authority):
        _check_valid(certificate)
    return found


def public_keys(folder: Path) -> tuple[Path, ...]:
    """The keys of the nodes that are to be let in, in the order of their numbers; nobody else may write them."""
    found = tuple(sorted((folder / "nodes").glob("*.pub"), key=lambda path: (len(path.stem), path.stem)))
    if not (folder / "nodes").is_dir():
        raise ConfigError(f"keys must hold the nodes' public keys in nodes/. Got {folder}, which does not.")
    check_ours(folder, folder / "nodes", *found)
    return found


def node_keys(folder: Path) -> NodeKeys:
    """A node's files; a private key that others can read is refused."""
    found = NodeKeys(folder / "ca.crt", folder / "node.key")
    _check(folder, found.authority)
    check_ours(folder, found.authority)
    _check_private(found.key)
    _check_valid(found.authority)
    return found


def check_server(host: str, port: int, authority: Path) -> None:
    """A server that listens must have a certificate that a node can trust. One that does not listen yet is fine.

    Flower's node would try again and again, and call a certificate that has expired a connection error.
    """
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=CONNECT_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=host.strip("[]")).close()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"the server's certificate must be one that {authority} vouches for, and valid now. "
            f"{host}:{port} has another: {error.verify_message}."
        ) from None
    except OSError:
        return


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check(folder: Path, *files: Path) -> None:
    for path in files:
        if not path.is_file():
            raise ConfigError(f"keys must hold {path.name} (fedtempo deploy init makes it). Got {folder}.")


def check_ours(*paths: Path) -> None:
    """Files and folders that decide whom to trust belong to this user, or to root, and nobody else may write them."""
    for path in paths:
        try:
            found = path.stat()
        except OSError as error:
            raise ConfigError(f"keys must hold {path.name}. Got {path}: {error.strerror}.") from None
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise ConfigError(f"keys must be plain files and folders. Got {path}, which is neither.")
        if found.st_mode & 0o022:
            raise ConfigError(f"{path} must be writable by its owner only (chmod go-w {path}).")
        if found.st_uid not in (os.getuid(), 0):
            raise ConfigError(f"{path} must belong to you or to root. It belongs to user {found.st_uid}.")


def _check_valid(path: Path) -> None:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} must be a certificate. It cannot be read: {error}.") from None
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= datetime.datetime.now(datetime.UTC) <= end:
        when = f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
        raise ConfigError(f"{path} must be valid now (fedtempo deploy init makes a new one). It is valid {when}.")


def _check_private(path: Path) -> None:
    _check(path.parent, path)
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} must be readable by its owner only (chmod 600 {path}).")
    check_ours(path)


def _write(path: Path, content: bytes) -> None:
    """A new file that only its owner can read, in folders that only their owner can enter."""
    try:
        for parent in (path.parent.parent, path.parent):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        raise OutputError(
            f"keys must go to a folder that can be written. Got {path.parent}: {error.strerror}."
        ) from None


def _certificates(authority_key: object, server_key: object, hosts: Sequence[str], days: float) -> tuple[bytes, bytes]:
    """The authority's own certificate, and the server's, signed by it, for these names and addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    assert isinstance(server_key, ec.EllipticCurvePrivateKey)
    now = datetime.datetime.now(datetime.UTC)
    ends = {True: now + datetime.timedelta(days=max(days, DAYS)), False: now + datetime.timedelta(days=days)}
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FedTempo deployment authority")])

    def builder(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        end = ends[name == issuer]
        return (
            x509.CertificateBuilder(issuer, name, key, x509.random_serial_number())
            .not_valid_before(min(now, end) - datetime.timedelta(minutes=5))
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )

    authority = (
        builder(issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        builder(server, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return authority.public_bytes(pem), certificate.public_bytes(pem)


def _name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"host must be a name or an address. Got {host!r}.") from None


def _usage(signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
