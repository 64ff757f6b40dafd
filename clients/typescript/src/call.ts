// How one call goes: owner and ids filled in, a deadline over all attempts, retries as the reason allows.

import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { create, type DescMessage, type DescMethod, type DescService, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, type Client as ServiceClient, createClient, type Transport } from "@connectrpc/connect";
import { type StrataError, strataError } from "./errors.js";

/** How often a failed call is sent again: only when `ErrorReason` says that a retry is safe, and, where something may have
 * been written, only when the server can tell the repetition (by the request id that the client makes). Waits grow from
 * `baseMs` to `longestMs`, with noise, and are never shorter than the server's `RetryInfo`. */
export interface Retry {
  readonly attempts: number;
  readonly baseMs: number;
  readonly longestMs: number;
}

/** Everything of a client but its connection. */
export interface Settings {
  readonly credential: (() => string | Promise<string>) | undefined;
  readonly timeoutMs: number;
  readonly retry: Retry;
  readonly userId: string | undefined;
  readonly agentId: string | undefined;
}

/** How the names of RPCs begin that change nothing: sending one again is always safe. */
const READS = /^(Get|List|Lookup|BatchGet|Recall|Search|Match|Assemble|Explain|Export|Watch)/;

const has = (message: DescMessage, name: string): boolean => message.fields.some((field) => field.name === name);

/** Sending the same request twice has one effect, also when the first one was carried out. */
const repeatable = (method: DescMethod): boolean =>
  has(method.input, "request_id") || has(method.input, "promotion_id") || READS.test(method.name);

/** The message of a call: what was given, the owner the client is bound to, and a request id. */
function filled(method: DescMethod, given: MessageInitShape<DescMessage>, settings: Settings): Message {
  const message = create(method.input, given as never) as Message & Record<string, unknown>;
  const fill = (field: string, name: string, value: () => string | undefined): void => {
    if (has(method.input, field) && !message[name]) message[name] = value() ?? "";
  };
  fill("user_id", "userId", () => settings.userId);
  fill("agent_id", "agentId", () => settings.agentId);
  fill("request_id", "requestId", randomUUID);
  return message;
}

async function headers(settings: Settings, callId: string, given: CallOptions["headers"]): Promise<Headers> {
  const made = new Headers(given);
  made.set("x-request-id", callId);
  const token = await settings.credential?.();
  if (token) made.set("authorization", `Bearer ${token}`);
  return made;
}

/** Milliseconds until the next attempt after attempt number `done`; undefined when there is none. */
export function nextWait(retry: Retry, failed: StrataError, done: number, again: boolean): number | undefined {
  const { retrySafe, mayHaveWritten } = failed.facts;
  if (done >= retry.attempts || !retrySafe || (mayHaveWritten && !again)) return undefined;
  const grown = Math.min(retry.longestMs, retry.baseMs * 2 ** Math.min(done - 1, 30));
  return Math.max(grown * (0.5 + Math.random() / 2), failed.retryAfterMs ?? 0);
}

type Unary = (request: Message, options: CallOptions) => Promise<Message>;
type Streaming = (request: Message | AsyncIterable<Message>, options: CallOptions) => AsyncIterable<Message>;
type Upload = (requests: AsyncIterable<Message>, options: CallOptions) => Promise<Message>;

async function unary(method: DescMethod, send: Unary, given: never, options: CallOptions, settings: Settings): Promise<Message> {
  const request = filled(method, given, settings);
  const end = performance.now() + (options.timeoutMs ?? settings.timeoutMs);
  const callId = randomUUID();
  for (let done = 1; ; done++) {
    try {
      const timeoutMs = Math.max(1, Math.ceil(end - performance.now()));
      return await send(request, { ...options, timeoutMs, headers: await headers(settings, callId, options.headers) });
    } catch (thrown) {
      const failed = strataError(thrown, callId);
      const pause = options.signal?.aborted ? undefined : nextWait(settings.retry, failed, done, repeatable(method));
      if (pause === undefined || performance.now() + pause >= end) throw failed;
      await wait(pause, undefined, options.signal ? { signal: options.signal } : {});
    }
  }
}

/** Owner and request id are filled into the first message. */
async function* first(method: DescMethod, requests: AsyncIterable<never> | Iterable<never>, settings: Settings): AsyncGenerator<Message> {
  let number = 0;
  for await (const request of requests) {
    yield number++ === 0 ? filled(method, request, settings) : (create(method.input, request) as Message);
  }
}

/** Not retried: the messages may come from a source that can be read once. */
async function upload(method: DescMethod, send: Upload, requests: AsyncIterable<never>, options: CallOptions, settings: Settings): Promise<Message> {
  const callId = randomUUID();
  try {
    return await send(first(method, requests, settings), { ...options, headers: await headers(settings, callId, options.headers) });
  } catch (thrown) {
    throw strataError(thrown, callId);
  }
}

/** Not retried: what was read is known to the caller alone. Without `timeoutMs` it may take as long as it does. */
async function* stream(method: DescMethod, send: Streaming, given: never, options: CallOptions, settings: Settings): AsyncGenerator<Message> {
  const callId = randomUUID();
  try {
    yield* send(filled(method, given, settings), { ...options, headers: await headers(settings, callId, options.headers) });
  } catch (thrown) {
    throw strataError(thrown, callId);
  }
}

/** A client of one service: the methods of its proto, with everything above. */
export function serviceClient<S extends DescService>(service: S, transport: Transport, settings: Settings): ServiceClient<S> {
  const raw = createClient(service, transport) as unknown as Record<string, unknown>;
  const made: Record<string, unknown> = {};
  for (const method of service.methods) {
    const send = raw[method.localName];
    made[method.localName] = (request: never, options: CallOptions = {}) => {
      switch (method.methodKind) {
        case "unary":
          return unary(method, send as Unary, request, options, settings);
        case "client_streaming":
          return upload(method, send as Upload, request, options, settings);
        case "server_streaming":
          return stream(method, send as Streaming, request, options, settings);
        case "bidi_streaming":
          return (send as Streaming)(request, options);
      }
    };
  }
  return made as ServiceClient<S>;
}

/** Every page of a list, fetched as it is wanted: `pages(client.session.listTurns, { sessionId })`. */
export async function* pages<Q extends { pageToken?: string }, A extends { nextPageToken: string }>(
  list: (request: Q, options?: CallOptions) => Promise<A>,
  request: Q,
  options?: CallOptions,
): AsyncGenerator<A> {
  let next = request;
  for (;;) {
    const page = await list(next, options);
    yield page;
    if (page.nextPageToken === "") return;
    next = { ...request, pageToken: page.nextPageToken };
  }
}

/** Every item of a list, over all pages: `items(client.session.listTurns, { sessionId }, (page) => page.turns)`. */
export async function* items<Q extends { pageToken?: string }, A extends { nextPageToken: string }, T>(
  list: (request: Q, options?: CallOptions) => Promise<A>,
  request: Q,
  of: (page: A) => readonly T[],
  options?: CallOptions,
): AsyncGenerator<T> {
  for await (const page of pages(list, request, options)) yield* of(page);
}
