"""How one call goes: owner and ids filled in, a deadline over all attempts, retries as the reason allows."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import grpc
import grpc.aio

from strata.config import Settings
from strata.errors import from_call
from strata.method import A, Method, Q


class Caller:
    """Makes calls over a channel."""

    def __init__(self, channel: grpc.aio.Channel, settings: Settings) -> None:
        self.channel, self.settings = channel, settings

    def request(self, method: Method[Q, A], given: Mapping[str, Any]) -> Q:
        """The message of a call: what was given, the owner the client is bound to, and a request id."""
        fields = {name: value for name, value in given.items() if value is not None}
        for name in method.owner:
            bound = getattr(self.settings, name)
            if bound is not None:
                fields.setdefault(name, bound)
        if method.has_request_id:
            fields.setdefault("request_id", str(uuid.uuid4()))
        return method.request(**fields)

    async def unary(self, method: Method[Q, A], given: Mapping[str, Any], timeout: float | None) -> A:
        """One request, one answer."""
        return await self.send(method, self.request(method, given), timeout)

    async def send(self, method: Method[Q, A], request: Q, timeout: float | None) -> A:
        """Sends a message until it is answered, fails for good, or the time is over."""
        call = self.channel.unary_unary(
            method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.response.FromString
        )
        end = time.monotonic() + (self.settings.timeout if timeout is None else timeout)
        call_id, done = str(uuid.uuid4()), 0
        while True:
            done += 1
            try:
                answer: A = await call(
                    request, timeout=max(0.0, end - time.monotonic()), metadata=self.settings.metadata(call_id)
                )
                return answer
            except grpc.RpcError as failed:
                error = from_call(failed, call_id)
            wait = self.settings.retry.wait(error, done, method.repeatable)
            if wait is None or time.monotonic() + wait >= end:
                raise error
            await asyncio.sleep(wait)

    async def stream(
        self, method: Method[Q, A], given: Mapping[str, Any], timeout: float | None
    ) -> AsyncIterator[A]:
        """One request, many answers. Without `timeout` it may take as long as it does. Not retried: what was read is known to
        the caller alone."""
        call = self.channel.unary_stream(
            method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.response.FromString
        )
        call_id = str(uuid.uuid4())
        try:
            async for answer in call(self.request(method, given), timeout=timeout, metadata=self.settings.metadata(call_id)):
                yield answer
        except grpc.RpcError as failed:
            raise from_call(failed, call_id) from None

    async def upload(self, method: Method[Q, A], requests: Iterable[Q], timeout: float | None) -> A:
        """Many requests, one answer. Owner and request id are filled into the first message. Not retried: the messages may
        come from a source that can be read once."""
        call = self.channel.stream_unary(
            method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.response.FromString
        )
        call_id, messages = str(uuid.uuid4()), self._first(method, requests)
        try:
            answer: A = await call(
                messages, timeout=timeout, metadata=self.settings.metadata(call_id)
            )
            return answer
        except grpc.RpcError as failed:
            raise from_call(failed, call_id) from None

    def _first(self, method: Method[Q, A], requests: Iterable[Q]) -> Iterator[Q]:
        for number, request in enumerate(requests):
            if number == 0:
                whole = self.request(method, {})
                whole.MergeFrom(request)
                yield whole
            else:
                yield request

    async def pages(
        self, method: Method[Q, A], given: Mapping[str, Any], timeout: float | None
    ) -> AsyncIterator[A]:
        """Every page of a list."""
        token = given.get("page_token")
        while True:
            page = await self.unary(method, {**given, "page_token": token}, timeout)
            yield page
            token = page.next_page_token  # type: ignore[attr-defined]  # only of methods that have one
            if not token:
                return

    async def items(
        self, method: Method[Q, A], field: str, given: Mapping[str, Any], timeout: float | None
    ) -> AsyncIterator[Any]:
        """Every item of a list."""
        async for page in self.pages(method, given, timeout):
            for item in getattr(page, field):
                yield item


class Service:
    """A service of the server."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller


__all__ = ["Caller", "Service"]
