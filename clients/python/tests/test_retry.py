"""Retries, against a server that fails as it is told: exactly what `ErrorReason` documents, and within the deadline."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

import strata
from strata.admin.v1 import admin_pb2
from strata.reasons import FACTS, Reason
from strata.session.v1 import session_pb2

PROTO = Path(__file__).resolve().parents[3] / "proto/strata/common/v1/error_reason.proto"


class Failing(grpc.GenericRpcHandler):
    """Answers a call with the next of its failures, and with success when there is none left."""

    def __init__(self) -> None:
        self.failures: list[tuple[Reason, float | None]] = []
        self.requests: list[bytes] = []
        self.call_ids: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.requests.append(request)
        self.call_ids += [str(v) for k, v in context.invocation_metadata() if k == "x-request-id"]
        if not self.failures:
            return b""
        reason, after = self.failures.pop(0)
        status = status_pb2.Status(code=FACTS[reason].code.value[0], message="as told")
        details: list[error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo] = [
            error_details_pb2.ErrorInfo(reason=reason.value, domain="strata", metadata={"limit": "5"})]
        if after is not None:
            wait = duration_pb2.Duration()
            wait.FromMicroseconds(int(after * 1e6))
            details.append(error_details_pb2.RetryInfo(retry_delay=wait))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(FACTS[reason].code, "as told")


@pytest.fixture
def failing() -> Iterator[tuple[Failing, str]]:
    handler = Failing()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, f"http://127.0.0.1:{port}"
    server.stop(None)


def append(client: strata.Client) -> session_pb2.AppendTurnsResponse:
    return client.session.append_turns(session_id="s", turns=[{"role": "ROLE_USER", "text": "hello"}])


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_is_retried_if_and_only_if_it_is_documented_as_safe(failing: tuple[Failing, str], reason: Reason) -> None:
    handler, address = failing
    handler.failures = [(reason, None)]
    with strata.Client(address, user_id="u", timeout=20.0, retry=strata.Retry(base=0.001)) as client:
        if FACTS[reason].retry_safe:
            append(client)
            assert len(handler.requests) == 2 and handler.requests[0] == handler.requests[1], "the same bytes, so the same request id"
            assert handler.call_ids[0] == handler.call_ids[1] != ""
        else:
            with pytest.raises(strata.StrataError) as caught:
                append(client)
            assert len(handler.requests) == 1
            assert (caught.value.reason, caught.value.code, caught.value.metadata) == (reason, FACTS[reason].code, {"limit": "5"})


def test_what_may_have_written_is_not_repeated_without_a_request_id(failing: tuple[Failing, str]) -> None:
    handler, address = failing
    with strata.Client(address, timeout=20.0, retry=strata.Retry(base=0.001)) as client:
        assert "request_id" not in admin_pb2.ReindexRequest.DESCRIPTOR.fields_by_name
        handler.failures = [(Reason.STORE_UNAVAILABLE, None)]
        with pytest.raises(strata.UnavailableError):
            client.admin.reindex()
        handler.failures = [(Reason.OVERLOADED, None)]
        client.admin.reindex()  # nothing was written: it may be repeated
        handler.failures = [(Reason.STORE_UNAVAILABLE, None)]
        client.admin.get_status()  # a read may always be


def test_the_server_says_how_long_to_wait(failing: tuple[Failing, str]) -> None:
    handler, address = failing
    handler.failures = [(Reason.OVERLOADED, 0.4)]
    with strata.Client(address, user_id="u", timeout=20.0, retry=strata.Retry(base=0.001)) as client:
        began = time.monotonic()
        append(client)
        assert time.monotonic() - began >= 0.4


def test_a_wait_that_passes_the_deadline_is_not_begun(failing: tuple[Failing, str]) -> None:
    handler, address = failing
    handler.failures = [(Reason.OVERLOADED, 3600.0)]
    with strata.Client(address, user_id="u", timeout=20.0) as client, pytest.raises(strata.ResourceExhaustedError) as caught:
        append(client)
    assert caught.value.retry_after == 3600.0 and len(handler.requests) == 1


def test_attempts_end(failing: tuple[Failing, str]) -> None:
    handler, address = failing
    handler.failures = [(Reason.OVERLOADED, None)] * 10
    retry = strata.Retry(attempts=3, base=0.001)
    with strata.Client(address, user_id="u", timeout=20.0, retry=retry) as client, pytest.raises(strata.ResourceExhaustedError):
        append(client)
    assert len(handler.requests) == 3


def test_every_reason_of_the_protos_is_known() -> None:
    names = re.findall(r"ERROR_REASON_(\w+) = [1-9]", PROTO.read_text())
    assert [reason.value for reason in Reason] == names and set(FACTS) == set(Reason)
