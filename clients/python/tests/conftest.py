"""Servers to test against: the whole product in one process on embedded stores, and four processes on a real Redis.
`make clients` starts the second and passes both in the environment."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

import strata
import strata.aio

READY_SECONDS = 60


def environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        pytest.exit(f"{name} is not set: run `make clients`", returncode=2)
    return value


@dataclass(frozen=True)
class Server:
    address: str
    credential: str | None


class Embedded:
    """`strata serve` with everything in it, that can be stopped and started again on the same stores."""

    def __init__(self) -> None:
        with contextlib.closing(socket.socket()) as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory(prefix="strata-embedded-")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        models = pathlib.Path(__file__).resolve().parents[3] / "models/use-multilingual-v3"
        command = [environment("STRATA_BINARY"), "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", self.folder.name]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("STRATA_")}
        log = open(pathlib.Path(self.folder.name) / "log", "ab")
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**clean, "STRATA_EMBEDDER__MODEL_DIR": str(models)})

    def wait(self) -> None:
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            with contextlib.closing(socket.socket()) as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((pathlib.Path(self.folder.name) / "log").read_text())

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)
            self.process = None

    @property
    def server(self) -> Server:
        return Server(f"http://127.0.0.1:{self.port}", None)


@pytest.fixture(autouse=True)
def credentials_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's is for another server: a local one without credentials refuses what it does not know."""
    monkeypatch.delenv("STRATA_API_KEY", raising=False)


@pytest.fixture(scope="session")
def embedded() -> Iterator[Embedded]:
    server = Embedded()
    server.start()
    server.wait()
    yield server
    server.stop()


def four_processes(credential: str) -> Server:
    return Server(environment("STRATA_SERVER"), environment(credential))


@pytest.fixture(scope="session", params=["embedded", "four processes"])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "embedded":
        found: Embedded = request.getfixturevalue("embedded")
        return found.server
    return four_processes("STRATA_TEST_KEY")


@pytest.fixture
def user() -> str:
    return f"u-{uuid.uuid4()}"


@pytest.fixture
def client(server: Server, user: str) -> Iterator[strata.Client]:
    with strata.Client(server.address, credential=server.credential, timeout=30.0, user_id=user) as made:
        yield made


@pytest.fixture
async def aclient(server: Server, user: str) -> AsyncIterator[strata.aio.Client]:
    async with strata.aio.Client(
        server.address, credential=server.credential, timeout=30.0, user_id=user
    ) as made:
        yield made
