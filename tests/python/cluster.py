"""A redis-server and the four roles as processes of their own, for tests that are clients."""

import contextlib
import pathlib
import secrets
import signal
import socket
import subprocess
import time

from identity import Identity

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY_SECONDS = 60  # a debug build on a busy machine; the release build is ready in under 2 s


def free_port() -> int:
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """redis-server and one process per role, on ports of their own. `secure`: mutual TLS everywhere, and JWTs instead of API
    keys."""

    def __init__(self, binary: str, folder: pathlib.Path, tenants: list[str], secure: bool = False):
        self.binary, self.folder, self.processes = binary, folder, {}
        self.redis_port = free_port()
        self.ports = {role: free_port() for role in ("router", "working", "session", "longterm")}
        self.key = f"k1:{secrets.token_hex(32)}"
        self.identity = Identity(folder / "identity") if secure else None
        self.keys, lines = {}, []
        for tenant in tenants:
            if self.identity is not None:
                self.keys[tenant] = self.identity.token(tenant)
                continue
            out = subprocess.run(
                [binary, "config", "new-key", "--id", f"ci-{tenant}", "--tenant", tenant], check=True, capture_output=True, text=True
            ).stdout.splitlines()
            self.keys[tenant] = out[0].rsplit(" ", 1)[1]
            lines += out[1:]
        self.auth = "\n".join(lines) if self.identity is None else self.identity.jwt_config()
        self.scheme = "http" if self.identity is None else "https"
        self.server = f"{self.scheme}://127.0.0.1:{self.ports['router']}"

    def start(self) -> None:
        self.processes["redis"] = subprocess.Popen(
            ["redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--dir", str(self.folder),
             "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        wait_for_port(self.redis_port)
        for role in ("working", "session", "longterm", "router"):
            self.start_role(role)
        for port in self.ports.values():
            wait_for_port(port)

    def start_role(self, role: str) -> None:
        address = f"127.0.0.1:{self.ports[role]}"
        listen = "listen" if role == "router" else "internal_listen"
        config = self.folder / f"{role}.toml"
        config.write_text(
            f'roles = ["{role}"]\n'
            f'data_dir = "{self.folder / role}"\n'
            f'signing_keys = "{self.key}"\n'
            f'[server]\n{listen} = "{address}"\n'
            + self.tls(role)
            + f'[redis]\nurl = "redis://127.0.0.1:{self.redis_port}/0"\n'
            f'[embedder]\nmodel_dir = "{ROOT / "models/use-multilingual-v3"}"\n'
            + (
                "[peers]\n" + "".join(f'{r} = "{self.scheme}://127.0.0.1:{self.ports[r]}"\n' for r in ("working", "session", "longterm"))
                + self.auth
                if role == "router"
                else ""
            )
        )
        with open(self.folder / f"{role}.log", "ab") as log:
            self.processes[role] = subprocess.Popen([self.binary, "serve", "--config", str(config)], stderr=log, stdout=log)

    def tls(self, role: str) -> str:
        if self.identity is None:
            return ""
        public = self.identity.server_config("server.tls") if role == "router" else ""
        return public + self.identity.server_config("server.internal_tls")

    def stop(self) -> dict:
        codes = {}
        for role in ("router", "working", "session", "longterm"):
            process = self.processes.pop(role, None)
            if process is None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                codes[role] = process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[role] = "did not end within 30 s"
        for process in self.processes.values():
            process.kill()
            process.wait()
        return codes

    def logs(self) -> str:
        return "\n".join(f"== {p.name}\n{p.read_text(errors='replace')[-4000:]}" for p in sorted(self.folder.glob("*.log")))


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.closing(socket.socket()) as s:
            s.settimeout(1)
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on {port} after {READY_SECONDS} s")
