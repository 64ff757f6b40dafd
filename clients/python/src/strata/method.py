"""What the client knows of an RPC, read from its messages."""

from __future__ import annotations

from typing import Generic, TypeVar

from google.protobuf.message import Message

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

#: How the names of RPCs begin that change nothing: sending one again is always safe.
READS = ("Get", "List", "Lookup", "BatchGet", "Recall", "Search", "Match", "Assemble", "Explain", "Export", "Watch")


class Method(Generic[Q, A]):
    """One RPC: its path and its messages."""

    def __init__(self, path: str, request: type[Q], response: type[A]) -> None:
        self.path, self.request, self.response = path, request, response
        fields = request.DESCRIPTOR.fields_by_name
        #: The client makes the id that lets the server answer a repetition as it answered first.
        self.has_request_id = "request_id" in fields
        #: Fields that a client bound to a user fills in.
        self.owner = tuple(name for name in ("user_id", "agent_id") if name in fields)
        name = path.rsplit("/", 1)[1]
        #: Sending the same request twice has one effect, also when the first one was carried out.
        self.repeatable = self.has_request_id or "promotion_id" in fields or name.startswith(READS)

    def __repr__(self) -> str:
        return f"Method({self.path})"
