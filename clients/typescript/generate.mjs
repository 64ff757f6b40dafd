// Makes src/reasons.ts from what error_reason.proto says of each reason: one source for every client.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const proto = readFileSync(new URL("../../proto/strata/common/v1/error_reason.proto", import.meta.url), "utf8");
const entries = [...proto.matchAll(/((?:  \/\/[^\n]*\n)+)  ERROR_REASON_(\w+) = \d+;/g)].flatMap(([, comment, name]) => {
  const said = comment.replace(/\s*\/\/ ?/g, " ").trim();
  const status = /Status (\w+);/.exec(said)?.[1];
  if (!status) return []; // UNSPECIFIED
  const safe = said.includes("is safe and may help");
  if (safe === said.includes("is of no use")) throw new Error(`${name} does not say whether a retry is safe`);
  const code = status.toLowerCase().replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase());
  return [`  /** ${said} */\n  ${name}: { code: Code.${code}, retrySafe: ${safe}, mayHaveWritten: ${said.includes("something may have been written")} },`];
});
mkdirSync(new URL("src/", import.meta.url), { recursive: true });
writeFileSync(
  new URL("src/reasons.ts", import.meta.url),
  `// Generated from error_reason.proto. Do not edit.
import { Code } from "@connectrpc/connect";

/** Why a call failed, and what holds for every failure with that reason. */
export const REASONS = {
${entries.join("\n")}
} as const satisfies Record<string, ReasonFacts>;

/** A reason of failure. */
export type Reason = keyof typeof REASONS;

/** What is documented of a reason. */
export interface ReasonFacts {
  readonly code: Code;
  /** Sending the same request again is safe and may help. */
  readonly retrySafe: boolean;
  /** The failed call may nevertheless have written something. */
  readonly mayHaveWritten: boolean;
}
`,
);
