"""How a client reaches its server and how long it tries."""

from __future__ import annotations

import os
import pathlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from strata.errors import StrataError

#: Longest message either way, in bytes: the server's own bound.
MESSAGE_BYTES = 4 * 1024 * 1024
#: A credential, or a function that is asked before each call: a token that is renewed stays fresh.
Credential = str | Callable[[], str]


@dataclass(frozen=True)
class Tls:
    """What to trust, and for mutual TLS who we are. Paths of PEM files, or their bytes."""

    #: Authority that signed the server's certificate; none trusts the roots that gRPC ships.
    ca: str | os.PathLike[str] | bytes | None = None
    #: Our certificate chain, for mutual TLS.
    certificate: str | os.PathLike[str] | bytes | None = None
    #: Its private key.
    key: str | os.PathLike[str] | bytes | None = None
    #: Name in the server's certificate when the address is another one.
    server_name: str | None = None

    @classmethod
    def from_environment(cls) -> Tls | None:
        """What `STRATA_CA_FILE`, `STRATA_CERTIFICATE_FILE` and `STRATA_PRIVATE_KEY_FILE` name, as for `strata ctl`."""
        names = ("STRATA_CA_FILE", "STRATA_CERTIFICATE_FILE", "STRATA_PRIVATE_KEY_FILE")
        ca, certificate, key = (os.environ.get(name) or None for name in names)
        return cls(ca, certificate, key) if ca or certificate else None

    def credentials(self) -> grpc.ChannelCredentials:
        """For a channel."""
        return grpc.ssl_channel_credentials(_pem(self.ca), _pem(self.key), _pem(self.certificate))


def _pem(source: str | os.PathLike[str] | bytes | None) -> bytes | None:
    return source if source is None or isinstance(source, bytes) else pathlib.Path(source).read_bytes()


def credential_from_environment() -> Credential | None:
    """`STRATA_API_KEY`, or the file that `STRATA_API_KEY_FILE` names, read for each call: a mounted secret may be renewed."""
    file = os.environ.get("STRATA_API_KEY_FILE")
    return os.environ.get("STRATA_API_KEY") or ((lambda: pathlib.Path(file).read_text().strip()) if file else None)


@dataclass(frozen=True)
class Retry:
    """When a failed call is sent again: only when `ErrorReason` says that a retry is safe, and, where something may have been
    written, only when the server can tell the repetition (by the request id that the client makes). Waits grow from `base` to
    `longest` seconds, with noise, and are never shorter than the server's `RetryInfo`."""

    attempts: int = 4
    base: float = 0.05
    longest: float = 2.0

    def wait(self, failed: StrataError, done: int, repeatable: bool) -> float | None:
        """Seconds until the next attempt after attempt number `done`; none when there is none."""
        if done >= self.attempts or not failed.retry_safe or (failed.may_have_written and not repeatable):
            return None
        grown = min(self.longest, self.base * 2.0 ** min(done - 1, 30))
        return max(grown * random.uniform(0.5, 1.0), failed.retry_after or 0.0)


@dataclass(frozen=True)
class Settings:
    """Everything of a client but its channel."""

    #: API key or JWT.
    credential: Credential | None = None
    #: Seconds for a call with all its retries, unless the call says otherwise.
    timeout: float = 10.0
    retry: Retry = field(default_factory=Retry)
    #: Owner that is filled in where a request names none.
    user_id: str | None = None
    agent_id: str | None = None

    def metadata(self, call_id: str) -> tuple[tuple[str, str], ...]:
        """Headers of a call."""
        token = self.credential() if callable(self.credential) else self.credential
        who = (("authorization", f"Bearer {token}"),) if token else ()
        return (("x-request-id", call_id), *who)


def target(server: str, tls: Tls | None) -> tuple[str, grpc.ChannelCredentials | None, list[tuple[str, str | int]]]:
    """gRPC's form of an address (`http://host:port`, `https://host:port`, `host:port`), credentials and options."""
    scheme, _, rest = server.rpartition("://")
    if scheme not in ("", "http", "https"):
        raise ValueError(f"server: {scheme}:// is neither http:// nor https://")
    if scheme == "http" and tls is not None:
        raise ValueError("server: an http:// address has no TLS; write https://")
    secure = scheme == "https" or tls is not None
    if secure and tls is None:
        tls = Tls.from_environment()
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        # Without pings a connection that a partition cut is found dead only by the deadline of every call on it.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # A server that comes back is found within two seconds, not after gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]
    if tls is not None and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    credentials = (tls or Tls()).credentials() if secure else None
    return rest.rstrip("/"), credentials, options
