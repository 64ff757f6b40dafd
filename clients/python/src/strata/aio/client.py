"""The client and its handles for a task and a session."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf import json_format

from strata.aio.call import Caller
from strata.aio.services import Services
from strata.config import Credential, Retry, Settings, Tls, credential_from_environment, target
from strata.longterm.v1 import longterm_pb2
from strata.method import Method
from strata.router.v1 import router_pb2
from strata.session.v1 import session_pb2
from strata.working.v1 import working_pb2

Self = TypeVar("Self", bound="Client")


class Client(Services):
    """A connection to a server. Its attributes are the services: `working`, `session`, `longterm`, `router`, `admin`; each
    has one method for every RPC, with the request's fields as keyword arguments.

    `server` is `http://host:port`, `https://host:port`, or `host:port`; the default is `STRATA_SERVER`, or the local server.
    `credential` is an API key or a JWT, or a function that gives one for each call; the default is `STRATA_API_KEY`, or the file
    that `STRATA_API_KEY_FILE` names. `tls` is for `https://`; the default is what `Tls.from_environment` finds.
    `timeout` is in seconds and spans a call with its retries. `user_id` and `agent_id` are filled in where a request names none.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        credential: Credential | None = None,
        tls: Tls | None = None,
        timeout: float = 10.0,
        retry: Retry | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
    ) -> None:
        address = server or os.environ.get("STRATA_SERVER") or "http://127.0.0.1:7420"
        host, credentials, options = target(address, tls)
        if credentials is None:
            channel = grpc.aio.insecure_channel(host, options=options)
        else:
            channel = grpc.aio.secure_channel(host, credentials, options=options)
        settings = Settings(
            credential=credential or credential_from_environment(),
            timeout=timeout,
            retry=retry or Retry(),
            user_id=user_id,
            agent_id=agent_id,
        )
        self._use(Caller(channel, settings))

    def _use(self, caller: Caller) -> None:
        self._caller = caller
        super().__init__(caller)

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel, for plain generated stubs."""
        return self._caller.channel

    def for_user(self: Self, user_id: str, agent_id: str | None = None) -> Self:
        """The same connection, bound to a user, and to an agent of it."""
        bound = object.__new__(type(self))
        settings = dataclasses.replace(self._caller.settings, user_id=user_id, agent_id=agent_id)
        bound._use(Caller(self.channel, settings))
        return bound

    def open_task(self, task_id: str, goal: str | None = None, acceptance: str | None = None, **more: Any) -> Task:
        """A handle of a task. As a context manager it creates the board (with `goal` and `acceptance`, `more` is for
        `create_task`) or takes up one that is there, and ends the task at the end of the block, whatever happens in it."""
        return Task(self, task_id, goal, acceptance, more)

    def open_session(self, session_id: str, **more: Any) -> Session:
        """A handle of a session; `more` is for the first append: `shape`, `ttl`. A session begins with its first turn. As a
        context manager it ends the session at the end of the block; after an exception it stays, to be taken up again."""
        return Session(self, session_id, more)

    async def call(self, rpc: str, request: Mapping[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """Calls an RPC by its name (`Recall`, `WorkingMemoryService/PutFacts`), with JSON: field names as in the protos, enums
        by name. For scripts; programs have the typed methods. Owner and request id are filled in."""
        method = self.method(rpc)
        message = method.request()
        json_format.ParseDict(dict(request), message)
        whole = self._caller.request(method, {})
        whole.MergeFrom(message)
        answer = await self._caller.send(method, whole, timeout)
        found: dict[str, Any] = json_format.MessageToDict(answer, preserving_proto_field_name=True)
        return found

    def method(self, rpc: str) -> Method[Any, Any]:
        """The unary method with a name or a unique ending of it."""
        found = [
            method
            for service in vars(self).values()
            for method in vars(type(service)).values()
            if isinstance(method, Method) and (method.path == f"/{rpc}" or method.path.endswith((f"/{rpc}", f".{rpc}")))
        ]
        if len(found) != 1:
            raise ValueError(f"{rpc} is the name of {len(found)} RPCs: {[m.path for m in found]}")
        return found[0]

    async def close(self) -> None:
        """Closes the connection, also that of clients made by `for_user`."""
        await self.channel.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, kind: object, value: object, trace: object) -> None:
        await self.close()


class Task:
    """A task's board. Remembers its generation, so that a write after a loss is refused as TASK_LOST instead of mending
    silently half a board."""

    def __init__(self, client: Client, task_id: str, goal: str | None, acceptance: str | None, more: Mapping[str, Any]) -> None:
        self.client, self.task_id = client, task_id
        self._goal, self._acceptance, self._more = goal, acceptance, more
        self.generation = 0

    async def begin(self) -> working_pb2.Task:
        """Creates the board, or takes up the one that is there when no goal was given."""
        if self._goal is None:
            return await self.board()
        goal = working_pb2.Goal(sentence=self._goal, acceptance=self._acceptance or "")
        board = (await self.client.working.create_task(task_id=self.task_id, goal=goal, **self._more)).task
        self.generation = board.generation
        return board

    async def board(self) -> working_pb2.Task:
        """The whole board; what it says of its generation is known from then on."""
        board = (await self.client.working.get_task(task_id=self.task_id)).task
        self.generation = board.generation
        return board

    async def put(self, key: str, value: str, source: str, trace_id: str = "") -> working_pb2.Fact:
        """Writes one checked field; `source` says where it was checked."""
        fact = working_pb2.Fact(key=key, value=value, source=source, trace_id=trace_id)
        answer = await self.client.working.put_facts(task_id=self.task_id, facts=[fact], generation=self.generation)
        return answer.facts[0]

    async def todo(
        self, todo_id: str, step: str = "", state: working_pb2.TodoState | str = "TODO_STATE_PENDING", note: str = ""
    ) -> Sequence[working_pb2.Todo]:
        """Adds a step (new id) or moves it (known id); gives all steps."""
        todo = working_pb2.Todo(id=todo_id, step=step, state=state, note=note)
        answer = await self.client.working.update_todos(task_id=self.task_id, todos=[todo], generation=self.generation)
        return answer.todos

    async def digest(self, tool: str, sentence: str, trace_id: str) -> None:
        """Appends one sentence about a tool call; the raw return is kept elsewhere, under the trace id."""
        digest = working_pb2.Digest(tool=tool, sentence=sentence, trace_id=trace_id)
        await self.client.working.append_digest(task_id=self.task_id, digest=digest, generation=self.generation)

    async def end(self) -> working_pb2.EndTaskResponse:
        """Ends the task: its board is gone."""
        return await self.client.working.end_task(task_id=self.task_id)

    async def __aenter__(self) -> Task:
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.end()
        except Exception:
            if value is None:
                raise  # An error of the block itself is the one to see; the board is swept when it lies idle.


class Session:
    """A conversation."""

    def __init__(self, client: Client, session_id: str, more: Mapping[str, Any]) -> None:
        self.client, self.session_id, self._more = client, session_id, more

    async def append(
        self, role: session_pb2.Role | str, text: str, *, time: datetime.datetime | None = None, **more: Any
    ) -> int:
        """Appends a turn and gives its number; `more` are fields of `NewTurn`."""
        turn = session_pb2.NewTurn(role=role, text=text, client_time=time, **more)
        answer = await self.client.session.append_turns(session_id=self.session_id, turns=[turn], **self._more)
        return answer.seqs[0]

    async def user(self, text: str, **more: Any) -> int:
        """Appends what the user said."""
        return await self.append("ROLE_USER", text, **more)

    async def assistant(self, text: str, **more: Any) -> int:
        """Appends what the agent said."""
        return await self.append("ROLE_ASSISTANT", text, **more)

    async def tool(self, text: str, tool_call_id: str, **more: Any) -> int:
        """Appends what a tool returned."""
        return await self.append("ROLE_TOOL", text, tool_call_id=tool_call_id, **more)

    async def window(self, *, max_turns: int | None = None, max_tokens: int | None = None) -> session_pb2.GetWindowResponse:
        """The part of the session to show to a model."""
        return await self.client.session.get_window(session_id=self.session_id, max_turns=max_turns, max_tokens=max_tokens)

    async def remember(
        self, seq: int, quote: str, *, kind: longterm_pb2.Kind | str = "KIND_FACT", content: str | None = None, **more: Any
    ) -> longterm_pb2.WriteResult:
        """Stores in long-term memory what the user said in turn `seq` and asked to be remembered. `quote` is literal;
        `content`, when it has to differ, can be understood alone; `more` are fields of `Statement`, such as `key`."""
        statement = self._statement(seq, quote, "TRIGGER_USER_REQUEST", kind, content, more)
        return (await self.client.longterm.remember(statement=statement)).result

    async def propose(
        self, seq: int, quote: str, *, kind: longterm_pb2.Kind | str = "KIND_FACT", content: str | None = None, **more: Any
    ) -> longterm_pb2.WriteResult:
        """Offers to long-term memory what the user said in turn `seq`, without being asked to: the gate decides."""
        statement = self._statement(seq, quote, "TRIGGER_DECISION_POINT", kind, content, more)
        return (await self.client.longterm.propose(statement=statement)).result

    def _statement(
        self, seq: int, quote: str, trigger: str, kind: longterm_pb2.Kind | str, content: str | None, more: Mapping[str, Any]
    ) -> longterm_pb2.Statement:
        where = longterm_pb2.SourceRef(turn=longterm_pb2.TurnRef(session_id=self.session_id, seq=seq))
        return longterm_pb2.Statement(
            kind=kind, content=quote if content is None else content, source="SOURCE_USER_STATEMENT",
            source_quote=quote, source_ref=where, trigger=trigger, **more,
        )  # fmt: skip

    async def context(self, input: str, *, task: Task | None = None, **more: Any) -> router_pb2.AssembleContextResponse:
        """What to put in front of a model that answers `input`; `more` are fields of `AssembleContextRequest`."""
        return await self.client.router.assemble_context(
            session_id=self.session_id, input=input, task_id=task.task_id if task is not None else None, **more
        )

    async def end(self) -> session_pb2.EndSessionResponse:
        """Ends the session: it is kept as an episode of long-term memory."""
        return await self.client.session.end_session(session_id=self.session_id)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if value is None:
            await self.end()


__all__ = ["Client", "Session", "Task"]
