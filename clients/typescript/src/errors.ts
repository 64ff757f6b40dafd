// Failures: one class, with the reason and its details.

import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, PreconditionFailureSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { REASONS, type Reason, type ReasonFacts } from "./reasons.js";

/** `ErrorInfo.domain` of every failure of a server. */
const DOMAIN = "strata";

/** A refused field: its path, such as `todos[2].state`, and how to mend it. */
export interface FieldViolation {
  readonly field: string;
  readonly description: string;
}

/** A rule that refused, such as `G3`, what it is about, and the condition in words. */
export interface Precondition {
  readonly rule: string;
  readonly subject: string;
  readonly description: string;
}

/** The nearest reason of a status that the transport made: it has no details. */
const TRANSPORT: Partial<Record<Code, Reason>> = {
  [Code.InvalidArgument]: "INVALID_FIELD",
  [Code.OutOfRange]: "INVALID_FIELD",
  [Code.NotFound]: "NOT_FOUND",
  [Code.PermissionDenied]: "ROLE_MISSING",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
  [Code.ResourceExhausted]: "OVERLOADED",
  [Code.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [Code.Canceled]: "DEADLINE_EXCEEDED",
  [Code.Unavailable]: "STORE_UNAVAILABLE",
  [Code.Unimplemented]: "NOT_SERVED",
};

/** A failed call. `reason` is for code, `message` for people. */
export class StrataError extends Error {
  /** The gRPC status. */
  readonly code: Code;
  /** Why; a reason that this client does not know yet is kept by name. */
  readonly reason: Reason | (string & {});
  /** Refused fields. */
  readonly fields: readonly FieldViolation[];
  /** Rules of gate, ownership and promotion that refused. */
  readonly preconditions: readonly Precondition[];
  /** What belongs to the reason, such as `limit`, `owner`, `generation`. */
  readonly info: Readonly<Record<string, string>>;
  /** Milliseconds after which the server expects a retry to help. */
  readonly retryAfterMs: number | undefined;
  /** The `x-request-id` of the call: the server's log lines have it. */
  readonly callId: string;
  /** False when the server did not answer: the reason is then the nearest one. */
  readonly fromServer: boolean;

  constructor(failed: ConnectError, callId: string) {
    super(failed.rawMessage, { cause: failed });
    this.code = failed.code;
    const info = failed.findDetails(ErrorInfoSchema).find((found) => found.domain === DOMAIN);
    this.reason = info?.reason ?? TRANSPORT[failed.code] ?? "INTERNAL";
    this.fromServer = info !== undefined;
    this.info = { ...info?.metadata };
    this.fields = failed.findDetails(BadRequestSchema).flatMap((bad) =>
      bad.fieldViolations.map(({ field, description }) => ({ field, description })),
    );
    this.preconditions = failed.findDetails(PreconditionFailureSchema).flatMap((failure) =>
      failure.violations.map(({ type, subject, description }) => ({ rule: type, subject, description })),
    );
    const delay = failed.findDetails(RetryInfoSchema)[0]?.retryDelay;
    this.retryAfterMs = delay && Number(delay.seconds) * 1000 + delay.nanos / 1e6;
    this.callId = callId;
    this.name = `StrataError ${this.reason}`;
  }

  /** What `ErrorReason` documents of the reason; of an unknown one, what is safe to assume. */
  get facts(): ReasonFacts {
    const known: Partial<Record<string, ReasonFacts>> = REASONS;
    return known[this.reason] ?? { code: this.code, retrySafe: false, mayHaveWritten: true };
  }
}

/** Anything thrown, as a `StrataError`. */
export function strataError(thrown: unknown, callId: string): StrataError {
  return thrown instanceof StrataError ? thrown : new StrataError(ConnectError.from(thrown), callId);
}
