// The client and its handles for a task and a session.

import { readFileSync } from "node:fs";
import { type DescMethodUnary, type DescService, fromJson, type JsonObject, type MessageInitShape, toJson } from "@bufbuild/protobuf";
import type { CallOptions, Client as ServiceClient, Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { type Retry, serviceClient, type Settings } from "./call.js";
import { AdminService } from "./gen/strata/admin/v1/admin_pb.js";
import { Kind, LongTermMemoryService, Source, type StatementSchema, Trigger, type WriteResult } from "./gen/strata/longterm/v1/longterm_pb.js";
import { type AssembleContextRequestSchema, type AssembleContextResponse, RouterService } from "./gen/strata/router/v1/router_pb.js";
import {
  type AppendTurnsRequestSchema,
  type EndSessionResponse,
  type GetWindowRequestSchema,
  type GetWindowResponse,
  type NewTurnSchema,
  Role,
  SessionMemoryService,
} from "./gen/strata/session/v1/session_pb.js";
import {
  type CreateTaskRequestSchema,
  type EndTaskResponse,
  type Fact,
  type Task as Board,
  type Todo,
  TodoState,
  WorkingMemoryService,
} from "./gen/strata/working/v1/working_pb.js";

/** Longest message either way, in bytes: the server's own bound. */
const MESSAGE_BYTES = 4 * 1024 * 1024;

/** What to trust, and for mutual TLS who we are. Paths of PEM files, or their bytes. */
export interface Tls {
  /** Authority that signed the server's certificate; none trusts Node's roots. */
  readonly ca?: string | Buffer;
  /** Our certificate chain, for mutual TLS. */
  readonly certificate?: string | Buffer;
  /** Its private key. */
  readonly key?: string | Buffer;
  /** Name in the server's certificate when the address is another one. */
  readonly serverName?: string;
}

/** How a client reaches its server and how long it tries. */
export interface ClientOptions {
  /** `http://host:port` or `https://host:port`; the default is `STRATA_SERVER`, or the local server. */
  readonly server?: string;
  /** API key or JWT, or a function that gives one for each call; the default is `STRATA_API_KEY`, or the file that
   * `STRATA_API_KEY_FILE` names. */
  readonly credential?: string | (() => string | Promise<string>);
  /** For an `https://` server; the default is what `STRATA_CA_FILE`, `STRATA_CERTIFICATE_FILE` and `STRATA_PRIVATE_KEY_FILE`
   * name, as for `strata ctl`. */
  readonly tls?: Tls;
  /** Milliseconds for a call with all its retries, unless the call says otherwise; default 10,000. */
  readonly timeoutMs?: number;
  /** Default: 4 attempts, 50 ms doubling up to 2 s. */
  readonly retry?: Partial<Retry>;
  /** Owner that is filled in where a request names none. */
  readonly userId?: string;
  readonly agentId?: string;
}

const pem = (source: string | Buffer): Buffer => (typeof source === "string" ? readFileSync(source) : source);

const env = (name: string): string | undefined => process.env[name] || undefined;

function tlsFromEnvironment(): Tls {
  const [ca, certificate, key] = [env("STRATA_CA_FILE"), env("STRATA_CERTIFICATE_FILE"), env("STRATA_PRIVATE_KEY_FILE")];
  return { ...(ca && { ca }), ...(certificate && { certificate }), ...(key && { key }) };
}

/** A mounted secret may be renewed: the file is read for each call. */
function credentialFromEnvironment(): (() => string) | undefined {
  const [value, file] = [env("STRATA_API_KEY"), env("STRATA_API_KEY_FILE")];
  if (value) return () => value;
  return file ? () => readFileSync(file, "utf8").trim() : undefined;
}

interface Connection {
  readonly transport: Transport;
  readonly sessions: Http2SessionManager;
}

function connect(server: string, given: Tls | undefined): Connection {
  const scheme = server.split("://", 1)[0];
  if (scheme !== "http" && scheme !== "https") throw new TypeError(`server: ${server} does not begin with http:// or https://`);
  if (scheme === "http" && given) throw new TypeError("server: an http:// address has no TLS; write https://");
  const tls = scheme === "https" ? (given ?? tlsFromEnvironment()) : undefined;
  // Without pings a connection that a partition cut is found dead only by the deadline of every call on it.
  const sessions = new Http2SessionManager(server, { pingIntervalMs: 30_000, pingTimeoutMs: 10_000 }, {
    ...(tls?.ca && { ca: pem(tls.ca) }),
    ...(tls?.certificate && { cert: pem(tls.certificate) }),
    ...(tls?.key && { key: pem(tls.key) }),
    ...(tls?.serverName && { servername: tls.serverName }),
  });
  const transport = createGrpcTransport({
    baseUrl: server,
    sessionManager: sessions,
    readMaxBytes: MESSAGE_BYTES,
    writeMaxBytes: MESSAGE_BYTES,
  });
  return { transport, sessions };
}

function settingsOf(options: ClientOptions): Settings {
  const credential = options.credential ?? credentialFromEnvironment();
  return {
    credential: typeof credential === "string" ? () => credential : credential,
    timeoutMs: options.timeoutMs ?? 10_000,
    retry: { attempts: 4, baseMs: 50, longestMs: 2_000, ...options.retry },
    userId: options.userId,
    agentId: options.agentId,
  };
}

/** A connection to a server, with one client for each of its services. */
export class Client {
  readonly working: ServiceClient<typeof WorkingMemoryService>;
  readonly session: ServiceClient<typeof SessionMemoryService>;
  readonly longterm: ServiceClient<typeof LongTermMemoryService>;
  readonly router: ServiceClient<typeof RouterService>;
  readonly admin: ServiceClient<typeof AdminService>;
  readonly #connection: Connection;
  readonly #settings: Settings;

  constructor(options?: ClientOptions);
  /** @internal */
  constructor(options: ClientOptions, shared: { connection: Connection; settings: Settings });
  constructor(options: ClientOptions = {}, shared?: { connection: Connection; settings: Settings }) {
    this.#connection = shared?.connection ?? connect(options.server ?? env("STRATA_SERVER") ?? "http://127.0.0.1:7420", options.tls);
    this.#settings = shared?.settings ?? settingsOf(options);
    const of = <S extends DescService>(service: S): ServiceClient<S> => serviceClient(service, this.#connection.transport, this.#settings);
    this.working = of(WorkingMemoryService);
    this.session = of(SessionMemoryService);
    this.longterm = of(LongTermMemoryService);
    this.router = of(RouterService);
    this.admin = of(AdminService);
  }

  /** The transport, for plain generated clients. */
  get transport(): Transport {
    return this.#connection.transport;
  }

  /** The same connection, bound to a user, and to an agent of it. */
  forUser(userId: string, agentId?: string): Client {
    return new Client({}, { connection: this.#connection, settings: { ...this.#settings, userId, agentId } });
  }

  /** A handle of a task; `begin()` creates its board or takes up the one that is there. */
  openTask(taskId: string, goal?: Goal): Task {
    return new Task(this, taskId, goal);
  }

  /** Begins a task, does the work, and ends the task, whatever happened. */
  async withTask<T>(taskId: string, goal: Goal, work: (task: Task) => Promise<T>): Promise<T> {
    const task = this.openTask(taskId, goal);
    await task.begin();
    let result: T;
    try {
      result = await work(task);
    } catch (thrown) {
      await task.end().catch(() => undefined); // the error of the work is the one to see; an idle board is swept
      throw thrown;
    }
    await task.end();
    return result;
  }

  /** A handle of a session. It begins with its first turn; `first` is for that append. */
  openSession(sessionId: string, first: Omit<MessageInitShape<typeof AppendTurnsRequestSchema>, "$typeName" | "sessionId" | "turns"> = {}): Session {
    return new Session(this, sessionId, first);
  }

  /** Does the work in a session and ends it; after an error it stays, to be taken up again. */
  async withSession<T>(sessionId: string, work: (session: Session) => Promise<T>): Promise<T> {
    const session = this.openSession(sessionId);
    const result = await work(session);
    await session.end();
    return result;
  }

  /** Calls an RPC by its name (`Recall`, `WorkingMemoryService/PutFacts`), with JSON: field names as in the protos, enums by
   * name. For scripts; programs have the typed clients. */
  async call(rpc: string, request: JsonObject, options: CallOptions = {}): Promise<JsonObject> {
    const services = [WorkingMemoryService, SessionMemoryService, LongTermMemoryService, RouterService, AdminService] as const;
    const found = services.flatMap((service) => service.methods.filter((method) => `/${service.typeName}/${method.name}`.match(new RegExp(`[/.]${rpc.replace(/[.]/g, "\\.")}$`))));
    const [method] = found as DescMethodUnary[];
    if (method === undefined || found.length > 1) throw new TypeError(`${rpc} is the name of ${found.length} RPCs: ${found.map((one) => one.parent.typeName)}`);
    const area = [this.working, this.session, this.longterm, this.router, this.admin][services.findIndex((s) => s.typeName === method.parent.typeName)];
    const send = (area as unknown as Record<string, (request: unknown, options: CallOptions) => Promise<never>>)[method.localName];
    const answer = await send!(fromJson(method.input, request), options);
    return toJson(method.output, answer, { useProtoFieldName: true }) as JsonObject;
  }

  /** Closes the connection, also that of clients made by `forUser`. */
  close(): void {
    this.#connection.sessions.abort();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** What a task is for, and what belongs to its creation. */
export type Goal = Omit<MessageInitShape<typeof CreateTaskRequestSchema>, "$typeName" | "taskId" | "goal"> & {
  readonly goal: string;
  readonly acceptance: string;
};

/** A task's board. Remembers its generation, so that a write after a loss is refused as TASK_LOST instead of mending silently
 * half a board. */
export class Task {
  generation = 0n;
  constructor(
    readonly client: Client,
    readonly taskId: string,
    readonly goal?: Goal,
  ) {}

  /** Creates the board, or takes up the one that is there when no goal was given. */
  async begin(): Promise<Board> {
    if (!this.goal) return this.board();
    const { goal, acceptance, ...more } = this.goal;
    const { task } = await this.client.working.createTask({ ...more, taskId: this.taskId, goal: { sentence: goal, acceptance } });
    return this.#known(task);
  }

  /** The whole board; what it says of its generation is known from then on. */
  async board(): Promise<Board> {
    return this.#known((await this.client.working.getTask({ taskId: this.taskId })).task);
  }

  #known(board: Board | undefined): Board {
    if (!board) throw new TypeError("the answer holds no board");
    this.generation = board.generation;
    return board;
  }

  /** Writes one checked field; `source` says where it was checked. */
  async put(key: string, value: string, source: string, traceId = ""): Promise<Fact> {
    const { facts } = await this.client.working.putFacts({ taskId: this.taskId, generation: this.generation, facts: [{ key, value, source, traceId }] });
    return facts[0]!;
  }

  /** Adds a step (new id) or moves it (known id); gives all steps. */
  async todo(id: string, step = "", state: TodoState = TodoState.PENDING, note = ""): Promise<Todo[]> {
    return (await this.client.working.updateTodos({ taskId: this.taskId, generation: this.generation, todos: [{ id, step, state, note }] })).todos;
  }

  /** Appends one sentence about a tool call; the raw return is kept elsewhere, under the trace id. */
  async digest(tool: string, sentence: string, traceId: string): Promise<void> {
    await this.client.working.appendDigest({ taskId: this.taskId, generation: this.generation, digest: { tool, sentence, traceId } });
  }

  /** Ends the task: its board is gone. */
  async end(): Promise<EndTaskResponse> {
    return this.client.working.endTask({ taskId: this.taskId });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}

type More<S extends typeof NewTurnSchema | typeof StatementSchema> = Omit<MessageInitShape<S>, "$typeName">;

/** A conversation. */
export class Session {
  constructor(
    readonly client: Client,
    readonly sessionId: string,
    readonly first: Omit<MessageInitShape<typeof AppendTurnsRequestSchema>, "$typeName" | "sessionId" | "turns"> = {},
  ) {}

  /** Appends a turn and gives its number; `more` are fields of `NewTurn`. */
  async append(role: Role, text: string, more: More<typeof NewTurnSchema> = {}): Promise<number> {
    const { seqs } = await this.client.session.appendTurns({ ...this.first, sessionId: this.sessionId, turns: [{ ...more, role, text }] });
    return seqs[0]!;
  }

  /** Appends what the user said. */
  user(text: string, more: More<typeof NewTurnSchema> = {}): Promise<number> {
    return this.append(Role.USER, text, more);
  }

  /** Appends what the agent said. */
  assistant(text: string, more: More<typeof NewTurnSchema> = {}): Promise<number> {
    return this.append(Role.ASSISTANT, text, more);
  }

  /** Appends what a tool returned. */
  tool(text: string, toolCallId: string, more: More<typeof NewTurnSchema> = {}): Promise<number> {
    return this.append(Role.TOOL, text, { ...more, toolCallId });
  }

  /** The part of the session to show to a model. */
  window(more: Omit<MessageInitShape<typeof GetWindowRequestSchema>, "$typeName" | "sessionId"> = {}): Promise<GetWindowResponse> {
    return this.client.session.getWindow({ ...more, sessionId: this.sessionId });
  }

  /** Stores in long-term memory what the user said in turn `seq` and asked to be remembered. `quote` is literal; `more` are
   * fields of `Statement`, such as `key`, `kind`, or a `content` that can be understood alone. */
  async remember(seq: number, quote: string, more: More<typeof StatementSchema> = {}): Promise<WriteResult> {
    const { result } = await this.client.longterm.remember({ statement: this.#statement(seq, quote, Trigger.USER_REQUEST, more) });
    return result!;
  }

  /** Offers to long-term memory what the user said in turn `seq`, without being asked to: the gate decides. */
  async propose(seq: number, quote: string, more: More<typeof StatementSchema> = {}): Promise<WriteResult> {
    const { result } = await this.client.longterm.propose({ statement: this.#statement(seq, quote, Trigger.DECISION_POINT, more) });
    return result!;
  }

  #statement(seq: number, quote: string, trigger: Trigger, more: More<typeof StatementSchema>): More<typeof StatementSchema> {
    return {
      kind: Kind.FACT,
      content: quote,
      source: Source.USER_STATEMENT,
      sourceQuote: quote,
      sourceRef: { kind: { case: "turn", value: { sessionId: this.sessionId, seq } } },
      trigger,
      ...more,
    };
  }

  /** What to put in front of a model that answers `input`; `more` are fields of `AssembleContextRequest`. */
  context(input: string, more: Omit<MessageInitShape<typeof AssembleContextRequestSchema>, "$typeName"> & { task?: Task } = {}): Promise<AssembleContextResponse> {
    const { task, ...fields } = more;
    return this.client.router.assembleContext({ sessionId: this.sessionId, ...(task && { taskId: task.taskId }), ...fields, input });
  }

  /** Ends the session: it is kept as an episode of long-term memory. */
  end(): Promise<EndSessionResponse> {
    return this.client.session.endSession({ sessionId: this.sessionId });
  }
}
