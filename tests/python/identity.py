"""Certificates and tokens for tests, by the openssl command alone: an authority, a server and a caller for mutual TLS, and an
issuer of JWTs with its key set."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
import time

ISSUER, AUDIENCE = "https://issuer.test", "strata"
ROLES = ["task_executor", "session_manager", "memory_writer", "record_system", "reader", "eraser", "operator", "auditor"]
DAYS = "2"


def openssl(*arguments: str, given: bytes | None = None) -> bytes:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, input=given).stdout


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Identity:
    """Everything in one folder."""

    def __init__(self, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS, "-subj", "/CN=test authority",
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                "-keyout", str(folder / "ca.key"), "-out", str(self.ca))
        for name in ("server", "caller"):
            self._certificate(name)
        openssl("genpkey", "-algorithm", "ed25519", "-out", str(folder / "issuer.key"))
        # The raw key is the end of its DER form.
        public = openssl("pkey", "-in", str(folder / "issuer.key"), "-pubout", "-outform", "DER")[-32:]
        key = {"kty": "OKP", "crv": "Ed25519", "x": base64url(public), "kid": "test", "use": "sig", "alg": "EdDSA"}
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def certificate(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.key"

    def _certificate(self, name: str) -> None:
        key, request, extensions = self.key(name), self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        # The roles call each other with the server's certificate, so it is good for both.
        extensions.write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=critical,CA:FALSE\n")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key))
        openssl("req", "-new", "-key", str(key), "-subj", f"/CN=test {name}", "-out", str(request))
        openssl("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial",
                "-days", DAYS, "-extfile", str(extensions), "-out", str(self.certificate(name)))

    def token(self, tenant: str, **claims: object) -> str:
        """A token that may do everything in a tenant, as any of its users, for an hour."""
        now = int(time.time())
        body = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 3600, "tenant": tenant, "roles": ROLES, **claims}
        head = {"alg": "EdDSA", "typ": "JWT", "kid": "test"}
        signed = ".".join(base64url(json.dumps(part).encode()) for part in (head, body))
        text = self.folder / "signed"  # pkeyutl wants to know the length before it begins
        text.write_text(signed)
        signature = openssl("pkeyutl", "-sign", "-rawin", "-inkey", str(self.folder / "issuer.key"), "-in", str(text))
        return f"{signed}.{base64url(signature)}"

    def server_config(self, section: str) -> str:
        """The lines of a configuration: `server.tls` or `server.internal_tls`, mutual."""
        return (
            f'[{section}]\ncertificate_file = "{self.certificate("server")}"\nkey_file = "{self.key("server")}"\n'
            f'authorities_file = "{self.ca}"\n'
        )

    def jwt_config(self) -> str:
        """Which tokens are good. They name no user: the tests speak for many."""
        return f'[auth.jwt]\nissuer = "{ISSUER}"\naudiences = ["{AUDIENCE}"]\nuser_claim = ""\njwks_file = "{self.jwks}"\n'
