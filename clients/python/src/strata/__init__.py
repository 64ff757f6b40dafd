"""Client of Strata, layered memory for AI agents.

    import strata

    with strata.Client("http://127.0.0.1:7420") as client:
        ada = client.for_user("ada")
        session = ada.open_session("monday")
        seq = session.user("From now on, my cost centre is A-100.")
        session.remember(seq, "From now on, my cost centre is A-100.", key="work.cost_centre")

`strata.aio.Client` is the same for asyncio, `strata.types` has the messages and enums, `strata.chat.messages` makes an
assembled context the messages of a chat model.
"""

from strata._sync import Client, Session, Task
from strata.chat import ChatMessage
from strata.config import Retry, Tls
from strata.errors import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    Precondition,
    ResourceExhaustedError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from strata.reasons import Reason

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "ChatMessage",
    "Client",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "Precondition",
    "Reason",
    "ResourceExhaustedError",
    "Retry",
    "Session",
    "StrataError",
    "Task",
    "Tls",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]
