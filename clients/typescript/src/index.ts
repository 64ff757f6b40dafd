/** Client of Strata, layered memory for AI agents. @packageDocumentation */

export { Code } from "@connectrpc/connect";
export { items, pages, type Retry } from "./call.js";
export { type ChatMessage, chatMessages } from "./chat.js";
export { Client, type ClientOptions, type Goal, Session, Task, type Tls } from "./client.js";
export { type FieldViolation, type Precondition, StrataError } from "./errors.js";
export { type Reason, type ReasonFacts, REASONS } from "./reasons.js";

// Messages and enums, by area.
export * as admin from "./gen/strata/admin/v1/admin_pb.js";
export * as common from "./gen/strata/common/v1/common_pb.js";
export * as longterm from "./gen/strata/longterm/v1/longterm_pb.js";
export * as router from "./gen/strata/router/v1/router_pb.js";
export * as session from "./gen/strata/session/v1/session_pb.js";
export * as working from "./gen/strata/working/v1/working_pb.js";
