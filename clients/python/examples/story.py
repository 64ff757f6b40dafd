"""Plays a dialogue of examples/ with this client and checks what it expects.

    python story.py ../../../examples/agent.en.jsonl --server http://127.0.0.1:7420

The same file is played by the clients in every language and by `strata replay`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import uuid
from typing import Any

import strata


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--server", help="default: STRATA_SERVER; credential and TLS are in the environment too")
    options = parser.parse_args()
    with strata.Client(options.server, timeout=30.0) as client:
        players = [Player(client, file) for file in options.files]
        for player in players:
            player.play()
    met, unmet = sum(p.met for p in players), [line for p in players for line in p.unmet]
    for line in unmet:
        print(f"unmet: {line}", file=sys.stderr)
    print(f"python: {met} passed, {len(unmet)} failed")
    return 1 if unmet else 0


class Player:
    def __init__(self, client: strata.Client, file: pathlib.Path) -> None:
        self.steps = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        self.client = client.for_user(self.steps[0]["dialogue"])
        self.saved: dict[str, Any] = {"promotion": str(uuid.uuid4())}
        self.met, self.unmet, self.at = 0, list[str](), ""

    def play(self) -> None:
        for number, step in enumerate(self.steps, 1):
            self.at = f"{step['type']} {number} {step.get('rpc', step.get('id', ''))}"
            match step["type"]:
                case "turn":
                    self.turn(step)
                case "call":
                    self.call(step)
                case "query":
                    self.query(step)

    def turn(self, step: dict[str, Any]) -> None:
        session = self.client.open_session(step["session"])
        session.append(f"ROLE_{step['role'].upper()}", step["text"], speaker=step["speaker"], external_id=step["id"])

    def call(self, step: dict[str, Any]) -> None:
        expected = step.get("refused", "")
        try:
            answer = self.client.call(step["rpc"], self.fill(step["request"]))
        except strata.StrataError as error:
            self.check(error.reason == expected, f"refused with {error}, expected {expected or 'an answer'}")
            return
        if expected:
            self.check(False, f"was not refused with {expected}")
        for name, pointer in step.get("save", {}).items():
            value: Any = answer
            for part in pointer.strip("/").split("/"):
                value = value[part]
            self.saved[name] = value
        self.expect(step, json.dumps(answer, ensure_ascii=False))

    def query(self, step: dict[str, Any]) -> None:
        context = self.client.router.assemble_context(
            input=step["text"], session_id=step.get("session"), task_id=step.get("task"))
        # Every block but the user's own input, which repeats the question.
        self.expect(step, "\n".join(block.text for block in context.blocks if block.name != "input"))

    def expect(self, step: dict[str, Any], text: str) -> None:
        for wanted in step.get("expect", {}).get("contains", []):
            self.check(wanted in text, f"{wanted!r} is missing")
        for unwanted in step.get("expect", {}).get("absent", []):
            self.check(unwanted not in text, f"{unwanted!r} must not be there")

    def check(self, holds: bool, otherwise: str) -> None:
        if holds:
            self.met += 1
        else:
            self.unmet.append(f"{self.at}: {otherwise}")

    def fill(self, value: Any) -> Any:
        """Puts saved values in the place of `${name}`."""
        if isinstance(value, str) and value.startswith("${"):
            return self.saved[value[2:-1]]
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, dict):
            return {name: self.fill(item) for name, item in value.items()}
        return value


if __name__ == "__main__":
    sys.exit(main())
