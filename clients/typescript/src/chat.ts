// Turns an assembled context into the messages of a chat model.

import type { AssembleContextResponse } from "./gen/strata/router/v1/router_pb.js";

/** What every chat API takes. */
export interface ChatMessage {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

const ROLES: Partial<Record<string, "user" | "assistant">> = { USER: "user", ASSISTANT: "assistant" };

/**
 * A system message with the instructions and the records of memory, one message for each recent turn, the user's current
 * input as the last one.
 *
 * Records keep their delimiters, and the notice that explains them stands before the first: they are data, not instructions.
 * A turn of the user or the agent becomes a message of its own. A tool's return does not become a `tool` message, since chat
 * APIs want the call that it answers: it stays a delimited record, in a user message.
 */
export function chatMessages(context: AssembleContextResponse): ChatMessage[] {
  const system: string[] = [];
  const turns: ChatMessage[] = [];
  const last: ChatMessage[] = [];
  for (const block of context.blocks) {
    if (block.name === "input") {
      last.push({ role: "user", content: block.text });
    } else if (block.name !== "turns") {
      system.push(block.text);
    } else {
      let delimited = false;
      for (const item of block.items) {
        const role = ROLES[item.label.split(" | ", 1)[0] ?? ""];
        if (role) {
          turns.push({ role, content: item.text });
        } else {
          delimited = true;
          turns.push({ role: "user", content: `<<${context.tag} ${item.label} | ${item.id}>>\n${item.text}\n<</${context.tag}>>` });
        }
      }
      const header = block.text.indexOf("## turns\n");
      if (delimited && header > 0) system.push(block.text.slice(0, header));
    }
  }
  const whole = system.map((part) => (part.endsWith("\n") ? part : `${part}\n`)).join("").replace(/\n+$/, "");
  return [...(whole ? [{ role: "system" as const, content: whole }] : []), ...turns, ...last];
}
