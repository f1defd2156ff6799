"""Mutual proof of a shared secret, before anything else crosses a TCP connection."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket

_NONCE = 32
_TIMEOUT = 10.0


def new_secret() -> str:
    """A fresh secret for one set of ranks."""
    return secrets.token_hex(16)


def admit(sock: socket.socket, secret: str) -> bool:
    """Notebook's side: whether the other side knows the secret; proves it in turn."""
    sock.settimeout(_TIMEOUT)
    ours = secrets.token_bytes(_NONCE)
    try:
        sock.sendall(ours)
        theirs = _exactly(sock, _NONCE)
        proof = _exactly(sock, hashlib.sha256().digest_size)
        if not hmac.compare_digest(proof, _proof(secret, b"agent", ours + theirs)):
            return False
        sock.sendall(_proof(secret, b"notebook", theirs + ours))
    except (OSError, EOFError):
        return False
    sock.settimeout(None)
    return True


def enter(sock: socket.socket, secret: str) -> bool:
    """Agent's side: prove the secret and check that the notebook knows it too."""
    sock.settimeout(_TIMEOUT)
    ours = secrets.token_bytes(_NONCE)
    try:
        theirs = _exactly(sock, _NONCE)
        sock.sendall(ours + _proof(secret, b"agent", theirs + ours))
        proof = _exactly(sock, hashlib.sha256().digest_size)
    except (OSError, EOFError):
        return False
    sock.settimeout(None)
    return hmac.compare_digest(proof, _proof(secret, b"notebook", ours + theirs))


def _proof(secret: str, side: bytes, nonces: bytes) -> bytes:
    return hmac.new(secret.encode(), side + nonces, hashlib.sha256).digest()


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        if not part:
            raise EOFError
        got += part
    return got
