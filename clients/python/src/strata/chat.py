"""Turns an assembled context into the messages of a chat model."""

from __future__ import annotations

from typing import Literal, TypedDict

from strata.router.v1 import router_pb2


class ChatMessage(TypedDict):
    """What every chat API takes."""

    role: Literal["system", "user", "assistant"]
    content: str


_ROLES: dict[str, Literal["user", "assistant"]] = {"USER": "user", "ASSISTANT": "assistant"}


def messages(context: router_pb2.AssembleContextResponse) -> list[ChatMessage]:
    """A system message with the instructions and the records of memory, one message for each recent turn, the user's current
    input as the last one.

    Records keep their delimiters, and the notice that explains them stands before the first: they are data, not instructions.
    A turn of the user or the agent becomes a message of its own. A tool's return does not become a `tool` message, since chat
    APIs want the call that it answers: it stays a delimited record, in a user message.
    """
    system: list[str] = []
    turns: list[ChatMessage] = []
    last: list[ChatMessage] = []
    for block in context.blocks:
        if block.name == "input":
            last.append({"role": "user", "content": block.text})
        elif block.name != "turns":
            system.append(block.text)
        else:
            notice = block.text[: block.text.index("## turns\n")] if "## turns\n" in block.text else ""
            delimited = False
            for item in block.items:
                role = _ROLES.get(item.label.split(" | ", 1)[0])
                if role is None:
                    delimited = True
                    record = f"<<{context.tag} {item.label} | {item.id}>>\n{item.text}\n<</{context.tag}>>"
                    turns.append({"role": "user", "content": record})
                else:
                    turns.append({"role": role, "content": item.text})
            if delimited:
                system.append(notice)
    whole = "".join(part if part.endswith("\n") else part + "\n" for part in system if part).rstrip("\n")
    first: list[ChatMessage] = [{"role": "system", "content": whole}] if whole else []
    return first + turns + last
