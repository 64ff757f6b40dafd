// Plays dialogues of examples/ with this client and checks what they expect.
//
//   node story.js ../../../examples/agent.en.jsonl --server http://127.0.0.1:7420
//
// The same files are played by the clients in every language and by `strata replay`.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { parseArgs } from "node:util";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Client, session, StrataError } from "strata-client";

interface Step {
  type: "meta" | "turn" | "call" | "query";
  dialogue: string;
  id: string;
  session?: string;
  task?: string;
  role: string;
  speaker: string;
  text: string;
  rpc: string;
  request: JsonObject;
  refused?: string;
  save?: Record<string, string>;
  expect?: { contains?: string[]; absent?: string[] };
}

class Player {
  met = 0;
  readonly unmet: string[] = [];
  #client: Client;
  #saved: Record<string, JsonValue> = {};
  #at = "";

  constructor(client: Client) {
    this.#client = client;
  }

  async play(file: string): Promise<void> {
    const connection = this.#client;
    this.#saved = { promotion: randomUUID() };
    const lines = readFileSync(file, "utf8").split("\n").filter((line) => line.trim() !== "");
    for (const [index, line] of lines.entries()) {
      const step = JSON.parse(line) as Step;
      this.#at = `${basename(file)}:${index + 1}`;
      switch (step.type) {
        case "meta":
          this.#client = connection.forUser(step.dialogue);
          break;
        case "turn": {
          const role = session.Role[step.role.toUpperCase() as keyof typeof session.Role];
          await this.#client.openSession(step.session!).append(role, step.text, { speaker: step.speaker, externalId: step.id });
          break;
        }
        case "call":
          await this.#call(step);
          break;
        case "query":
          await this.#query(step);
      }
    }
    this.#client = connection;
  }

  async #call(step: Step): Promise<void> {
    let answer: JsonObject;
    try {
      answer = await this.#client.call(step.rpc, this.#fill(step.request) as JsonObject);
    } catch (thrown) {
      this.check(thrown instanceof StrataError && thrown.reason === step.refused, `${thrown}, expected ${step.refused ?? "an answer"}`);
      return;
    }
    if (step.refused) this.check(false, `was not refused with ${step.refused}`);
    for (const [name, pointer] of Object.entries(step.save ?? {})) {
      this.#saved[name] = pointer.slice(1).split("/").reduce<JsonValue>((value, part) => (value as JsonObject)[part]!, answer);
    }
    this.#expect(step, JSON.stringify(answer));
  }

  async #query(step: Step): Promise<void> {
    const context = await this.#client.router.assembleContext({ input: step.text, sessionId: step.session ?? "", taskId: step.task ?? "" });
    // Every block but the user's own input, which repeats the question.
    this.#expect(step, context.blocks.filter((block) => block.name !== "input").map((block) => block.text).join("\n"));
  }

  #expect(step: Step, text: string): void {
    for (const wanted of step.expect?.contains ?? []) this.check(text.includes(wanted), `${wanted} is missing`);
    for (const unwanted of step.expect?.absent ?? []) this.check(!text.includes(unwanted), `${unwanted} must not be there`);
  }

  check(holds: boolean, otherwise: string): void {
    if (holds) this.met++;
    else this.unmet.push(`${this.#at}: ${otherwise}`);
  }

  /** Puts saved values in the place of `${name}`. */
  #fill(value: JsonValue): JsonValue {
    if (typeof value === "string" && value.startsWith("${")) return this.#saved[value.slice(2, -1)]!;
    if (Array.isArray(value)) return value.map((item) => this.#fill(item));
    if (typeof value === "object" && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, this.#fill(item)]));
    }
    return value;
  }
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { server: { type: "string" } }, // credential and TLS are in the environment
});
const client = new Client({ timeoutMs: 30_000, ...(values.server && { server: values.server }) });
const player = new Player(client);
for (const file of positionals) await player.play(file);
client.close();
for (const line of player.unmet) console.error(`unmet: ${line}`);
console.log(`typescript: ${player.met} passed, ${player.unmet.length} failed`);
process.exitCode = player.unmet.length > 0 ? 1 : 0;
