"""What a client takes from the environment, as `strata ctl` does."""

from __future__ import annotations

from pathlib import Path

import pytest

import strata
from strata.config import credential_from_environment, target


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "API_KEY", "API_KEY_FILE", "CA_FILE", "CERTIFICATE_FILE", "PRIVATE_KEY_FILE"):
        monkeypatch.delenv(f"STRATA_{name}", raising=False)


def test_nothing_is_nothing() -> None:
    assert strata.Tls.from_environment() is None and credential_from_environment() is None
    assert target("http://127.0.0.1:7420/", None)[:2] == ("127.0.0.1:7420", None)


def test_files_of_tls_are_found_for_https_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_CA_FILE", "/nowhere/ca.pem")
    assert strata.Tls.from_environment() == strata.Tls(ca="/nowhere/ca.pem")
    assert target("http://127.0.0.1:7420", None)[1] is None
    with pytest.raises(FileNotFoundError):
        target("https://127.0.0.1:7420", None)


def test_a_credential_in_a_file_is_read_for_each_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("STRATA_API_KEY_FILE", str(file))
    credential = credential_from_environment()
    assert callable(credential)
    for token in ("first", "second"):
        file.write_text(token + "\n")
        assert credential() == token
    monkeypatch.setenv("STRATA_API_KEY", "itself")
    assert credential_from_environment() == "itself"
