"""Failures as exceptions: one class for each status, the reason and its details as attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from strata.reasons import FACTS, Facts, Reason

#: `ErrorInfo.domain` of every failure of a server.
DOMAIN = "strata"


@dataclass(frozen=True)
class FieldViolation:
    """A refused field: its path, such as `todos[2].state`, and how to mend it."""

    field: str
    description: str


@dataclass(frozen=True)
class Precondition:
    """A rule that refused, such as `G3`, what it is about, and the condition in words."""

    rule: str
    subject: str
    description: str


class StrataError(Exception):
    """A failed call. `reason` is for code, the text for people. A reason that this client does not know yet is kept by name."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: Reason | str,
        message: str,
        *,
        fields: tuple[FieldViolation, ...] = (),
        preconditions: tuple[Precondition, ...] = (),
        metadata: dict[str, str] | None = None,
        retry_after: float | None = None,
        call_id: str = "",
        from_server: bool = True,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        #: Refused fields.
        self.fields = fields
        #: Rules of gate, ownership and promotion that refused.
        self.preconditions = preconditions
        #: What belongs to the reason, such as `limit`, `owner`, `generation`.
        self.metadata = metadata or {}
        #: Seconds after which the server expects a retry to help.
        self.retry_after = retry_after
        #: The `x-request-id` of the call: the server's log lines have it.
        self.call_id = call_id
        #: False when the server did not answer: the reason is then the nearest one.
        self.from_server = from_server

    @property
    def facts(self) -> Facts:
        """What `ErrorReason` documents of the reason; of an unknown one, what is safe to assume."""
        return FACTS[self.reason] if isinstance(self.reason, Reason) else Facts(self.code, False, True)

    @property
    def retry_safe(self) -> bool:
        """Sending the same request again is safe and may help."""
        return self.facts.retry_safe

    @property
    def may_have_written(self) -> bool:
        """The failed call may nevertheless have written something."""
        return self.facts.may_have_written

    def __str__(self) -> str:
        rules = "".join(f"; {p.rule}: {p.description}" for p in self.preconditions)
        return f"{self.reason}: {self.message}{rules}"


class InvalidArgumentError(StrataError):
    """A field is missing, malformed or out of range; see `fields`."""


class NotFoundError(StrataError):
    """No such thing, for this owner."""


class AlreadyExistsError(StrataError):
    """The id is in use."""


class PermissionDeniedError(StrataError):
    """The credential does not allow it, or the owner does not match."""


class UnauthenticatedError(StrataError):
    """No credential, or one that is not known."""


class FailedPreconditionError(StrataError):
    """A rule refused; see `preconditions`."""


class AbortedError(StrataError):
    """Another writer was faster, or a promotion is in progress."""


class ResourceExhaustedError(StrataError):
    """A limit is reached, or the server has too much to do."""


class UnavailableError(StrataError):
    """A store or layer does not answer, or is switched off. Never means "nothing found"."""


class DeadlineExceededError(StrataError):
    """The time was over; a write may have happened."""


class UnimplementedError(StrataError):
    """The server does not serve the method."""


class InternalError(StrataError):
    """A defect of the server; `call_id` leads to its log line."""


_CLASSES: dict[grpc.StatusCode, type[StrataError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.CANCELLED: DeadlineExceededError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
}

#: The nearest reason of a status that the transport made: it has no details.
_TRANSPORT: dict[grpc.StatusCode, Reason] = {
    grpc.StatusCode.INVALID_ARGUMENT: Reason.INVALID_FIELD,
    grpc.StatusCode.OUT_OF_RANGE: Reason.INVALID_FIELD,
    grpc.StatusCode.NOT_FOUND: Reason.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED: Reason.ROLE_MISSING,
    grpc.StatusCode.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.OVERLOADED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED: Reason.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE: Reason.STORE_UNAVAILABLE,
    grpc.StatusCode.UNIMPLEMENTED: Reason.NOT_SERVED,
}


def from_call(failed: Any, call_id: str) -> StrataError:
    """The exception of a failed call (`grpc.RpcError` or `grpc.aio.AioRpcError`)."""
    code: grpc.StatusCode = failed.code()
    reason: Reason | str | None = None
    fields: list[FieldViolation] = []
    preconditions: list[Precondition] = []
    metadata: dict[str, str] = {}
    retry_after: float | None = None
    for detail in _details(failed):
        info, bad, failure, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.PreconditionFailure(),
            error_details_pb2.RetryInfo(),
        )
        if detail.Unpack(info) and info.domain == DOMAIN:
            reason = Reason(info.reason) if info.reason in Reason.__members__ else info.reason
            metadata = dict(info.metadata)
        elif detail.Unpack(bad):
            fields = [FieldViolation(v.field, v.description) for v in bad.field_violations]
        elif detail.Unpack(failure):
            preconditions = [Precondition(v.type, v.subject, v.description) for v in failure.violations]
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    return _CLASSES.get(code, InternalError)(
        code,
        reason if reason is not None else _TRANSPORT.get(code, Reason.INTERNAL),
        failed.details() or "",
        fields=tuple(fields),
        preconditions=tuple(preconditions),
        metadata=metadata,
        retry_after=retry_after,
        call_id=call_id,
        from_server=reason is not None,
    )


def _details(failed: Any) -> list[Any]:
    for key, value in failed.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return list(status_pb2.Status.FromString(value).details)
    return []


__all__ = [
    "AbortedError", "AlreadyExistsError", "DeadlineExceededError", "FailedPreconditionError", "FieldViolation", "InternalError",
    "InvalidArgumentError", "NotFoundError", "PermissionDeniedError", "Precondition", "Reason", "ResourceExhaustedError",
    "StrataError", "UnauthenticatedError", "UnavailableError", "UnimplementedError",
]  # fmt: skip
