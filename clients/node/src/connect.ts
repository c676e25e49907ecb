/**
 * The transport: gRPC over HTTP/2 with the transport of `@connectrpc/connect-node`. docs/clients.md says why it and not another one.
 *
 * One channel is one connection at a time. When the server says that it stops (GOAWAY), what is on its way ends there and what
 * is new goes over another connection. Pings notice a server that hangs; `server/src/doors/port/http.rs` takes as many as come.
 */
import type * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";

import type {
  DescMessage,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { ConnectError, type StreamResponse, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import type { AttemptOptions, BidiCall, Channel, StreamCall } from "./channel.js";
import { checkRequest } from "./check.js";
import { type ErrorInfo, readErrorInfo } from "./error-info.js";
import { BoltqError, codeName, WRONG_SERVER } from "./errors.js";
import { httpOnly, strangerAt } from "./strangers.js";
import { Deferred, linked, timerMs } from "./wait.js";

const ERROR_INFO_TYPE = "google.rpc.ErrorInfo";
/** How soon a server that is gone without a word is noticed: interval plus timeout. */
const PING_INTERVAL_MS = 10_000;
const PING_TIMEOUT_MS = 5_000;
/** What the server may have on its way to one stream, and to all of them. */
const STREAM_WINDOW_BYTES = 1 << 20;
const CONNECTION_WINDOW_BYTES = 4 << 20;
/** In MB. What waits for the socket is bounded by who sends it; the default would refuse streams while much does. */
const SESSION_MEMORY_MAX = 256;
/** A server that does not answer so long gets what is written when it can. */
const FLUSH_MS_MAX = 1_000;

/** How connections are made. */
export interface ChannelOptions {
  /** For one attempt to connect. */
  readonly connectTimeoutMs: number;
  /** Undefined: not encrypted. */
  readonly tls: (tls.SecureContextOptions & { readonly servername?: string }) | undefined;
  /** Metadata of every call. */
  readonly credentials: () => Promise<Readonly<Record<string, string>>> | Readonly<Record<string, string>>;
  /** What they are. */
  readonly shows: "API key" | "token" | undefined;
}

/** A channel to an address, `host:port`. */
export function openChannel(address: string, options: ChannelOptions): Channel {
  return new ConnectChannel(address, options);
}

/** Failures after which it is certain that nothing was sent. */
const unsent = new WeakSet<object>();

class ConnectChannel implements Channel {
  readonly address: string;
  readonly #options: ChannelOptions;
  readonly #sessions: Sessions;
  readonly #transport: Transport;
  #answered = false;
  #stranger: Promise<string | undefined> | undefined;

  constructor(address: string, options: ChannelOptions) {
    this.address = address;
    this.#options = options;
    const baseUrl = `${options.tls === undefined ? "http" : "https"}://${address}`;
    this.#sessions = new Sessions(baseUrl, address, options);
    this.#transport = createGrpcTransport({
      baseUrl,
      sessionManager: this.#sessions,
      acceptCompression: [],
    });
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    { signal, timeoutMs }: AttemptOptions,
  ): Promise<MessageShape<O>> {
    checkRequest(method.input, request);
    try {
      const headers = await this.#options.credentials();
      const response = await this.#transport.unary(method, signal, timeoutMs, headers, request);
      this.#answered = true;
      return response.message;
    } catch (error) {
      throw await this.#failure(error, signal);
    }
  }

  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: AttemptOptions,
  ): StreamCall<O> {
    const { controller, release } = linked(options.signal);
    const input = (async function* () {
      yield request;
    })();
    const begin = async (): Promise<StreamResponse<I, O>> => {
      checkRequest(method.input, request);
      return this.#stream(method, input, controller.signal, options.timeoutMs);
    };
    return { ...this.#reading(begin(), release, controller.signal), cancel: () => controller.abort() };
  }

  bidi<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    options: AttemptOptions,
  ): BidiCall<I, O> {
    const { controller, release } = linked(options.signal);
    const requests = new Requests<MessageInitShape<I>>();
    const opening = this.#stream(method, requests, controller.signal, options.timeoutMs);
    return {
      ...this.#reading(opening, release, controller.signal),
      send: (message) => requests.push(message),
      finish: () => requests.end(),
      cancel: () => {
        requests.end();
        controller.abort();
      },
    };
  }

  get answered(): boolean {
    return this.#answered;
  }

  flush(): Promise<void> {
    return this.#sessions.flush();
  }

  close(): void {
    this.#sessions.abort();
  }

  async #stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O> | DescMethodBiDiStreaming<I, O>,
    input: AsyncIterable<MessageInitShape<I>>,
    signal: AbortSignal,
    timeoutMs: number | undefined,
  ): Promise<StreamResponse<I, O>> {
    const headers = await this.#options.credentials();
    const response = await this.#transport.stream(method, signal, timeoutMs, headers, input);
    // The head of a failure can be that of anybody; it says with its end who it is.
    if (!response.header.has("grpc-status")) this.#answered = true;
    return response;
  }

  /** Its two promises are one: whoever looks at neither has no unhandled rejection. */
  #reading<I extends DescMessage, O extends DescMessage>(
    opening: Promise<StreamResponse<I, O>>,
    release: () => void,
    signal: AbortSignal,
  ): Pick<StreamCall<O>, "opened" | "responses"> {
    const failure = (error: unknown): Promise<unknown> => this.#failure(error, signal);
    const opened = opening.then(
      () => undefined,
      async (error: unknown) => {
        release();
        throw await failure(error);
      },
    );
    opened.catch(() => undefined);
    const responses = (async function* () {
      try {
        yield* (await opening).message;
      } catch (error) {
        throw await failure(error);
      } finally {
        release();
      }
    })();
    return { opened, responses };
  }

  /** Calls that fail together ask once. */
  async #whoIsThere(): Promise<string | undefined> {
    const { tls, connectTimeoutMs } = this.#options;
    this.#stranger ??= strangerAt(this.address, tls !== undefined, connectTimeoutMs);
    try {
      return await this.#stranger;
    } finally {
      this.#stranger = undefined;
    }
  }

  /** A failure as the client knows it, with what is probably wrong if no server has ever answered here. */
  async #failure(error: unknown, signal: AbortSignal | undefined): Promise<unknown> {
    const failure = translate(error, this.address, this.#options.shows);
    if (!(failure instanceof BoltqError) || this.#answered || signal?.aborted === true) return failure;
    if (error instanceof ConnectError && error.metadata.has("grpc-status") && failure.code !== "UNIMPLEMENTED") {
      this.#answered = true;
    }
    const below = codeBelow(failure);
    if (failure.code !== "UNAVAILABLE" || this.#answered || ABSENT.has(below)) return failure;
    const stranger = WITHOUT_HTTP2.has(below) ? httpOnly(this.address) : await this.#whoIsThere();
    if (stranger === undefined) return failure;
    return new BoltqError(stranger, { code: "UNAVAILABLE", reason: WRONG_SERVER, unsent: true, cause: failure });
  }
}

/** What it is called that a server with TLS has no HTTP/2: if the server does not say so, by {@link dial}. */
const WITHOUT_HTTP2: ReadonlySet<unknown> = new Set([WRONG_SERVER, "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL"]);

/** What Node calls it that there is nobody at an address. */
const ABSENT: ReadonlySet<unknown> = new Set([
  "EAI_AGAIN",
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "ETIMEDOUT",
]);

/** What Node, or {@link dial}, calls the error that is at the bottom of a failure. */
function codeBelow(failure: BoltqError): unknown {
  let code: unknown;
  for (let cause: unknown = failure.cause; cause instanceof Error; cause = cause.cause) {
    if ("code" in cause) code = cause.code;
  }
  return code;
}

/** Messages to send, for a transport that asks for them. */
class Requests<T> implements AsyncIterable<T> {
  #waiting: T[] = [];
  #ended = false;
  #wanted: Deferred<void> | undefined;

  push(message: T): void {
    if (this.#ended) return;
    this.#waiting.push(message);
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (;;) {
      const waiting = this.#waiting;
      this.#waiting = [];
      yield* waiting;
      if (this.#waiting.length > 0) continue;
      if (this.#ended) return;
      this.#wanted = new Deferred();
      await this.#wanted.promise;
    }
  }

  #wake(): void {
    this.#wanted?.resolve();
    this.#wanted = undefined;
  }
}

/** Connections with larger windows, that are made in time or not at all. */
class Sessions extends Http2SessionManager {
  readonly #widened = new WeakSet<object>();
  #session: http2.Http2Session | undefined;

  constructor(url: string, address: string, options: ChannelOptions) {
    super(
      url,
      // A connection without calls is asked before it is used again. Pinging it meanwhile is not safe with this session manager: it begins
      // to ping again after the connection was destroyed, and that throws where nobody can catch it.
      { pingIntervalMs: PING_INTERVAL_MS, pingTimeoutMs: PING_TIMEOUT_MS, pingIdleConnection: false },
      {
        createConnection: () => dial(address, options),
        maxSessionMemory: SESSION_MEMORY_MAX,
        settings: { initialWindowSize: STREAM_WINDOW_BYTES, enablePush: false },
      },
    );
  }

  async flush(): Promise<void> {
    const session = this.#session;
    if (session === undefined || session.closed || session.destroyed) return;
    // The stream is told to end in this turn, and has to be before the ping.
    await new Promise((resolve) => setImmediate(resolve));
    if (!session.closed && !session.destroyed) await ping(session);
  }

  override async request(
    ...request: Parameters<Http2SessionManager["request"]>
  ): ReturnType<Http2SessionManager["request"]> {
    try {
      const stream = await super.request(...request);
      const { session } = stream;
      if (session !== undefined && !this.#widened.has(session)) {
        this.#widened.add(session);
        this.#session = session;
        session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
      }
      return stream;
    } catch (error) {
      if (typeof error === "object" && error !== null) unsent.add(error);
      throw error;
    }
  }
}

/** A cancelled stream is told to the server only with the next bytes that are written; the answer to a ping comes after both. */
function ping(session: http2.Http2Session): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, FLUSH_MS_MAX);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    // It answers false when so many are on their way that another one adds nothing.
    if (!session.ping(done)) done();
  });
}

function dial(address: string, { tls: secure, connectTimeoutMs }: ChannelOptions): net.Socket {
  const { hostname, port } = new URL(`tcp://${address}`);
  const host = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
  const servername = net.isIP(host) === 0 ? { servername: host } : {};
  const socket =
    secure === undefined
      ? net.connect({ host, port: Number(port), noDelay: true })
      : tls.connect({ host, port: Number(port), ALPNProtocols: ["h2"], ...servername, ...secure });
  const timer = setTimeout(() => {
    socket.destroy(
      Object.assign(new Error(`no connection to ${address} within ${connectTimeoutMs} ms`), { code: "ETIMEDOUT" }),
    );
  }, timerMs(connectTimeoutMs));
  const done = (): void => clearTimeout(timer);
  socket.once(secure === undefined ? "connect" : "secureConnect", done);
  socket.once("secureConnect", () => {
    // It would take what is sent for a request of HTTP/1.1.
    if (!(socket instanceof tls.TLSSocket) || socket.alpnProtocol === "h2") return;
    socket.destroy(Object.assign(new Error(httpOnly(address)), { code: WRONG_SERVER }));
  });
  socket.once("close", done);
  return socket;
}

/** From the errors of the transport. What a server has not said itself is a connection that broke, whatever it is called there. */
function translate(error: unknown, address: string, shows: ChannelOptions["shows"]): unknown {
  if (error instanceof BoltqError || !(error instanceof ConnectError)) return error;
  const info = errorInfo(error);
  const code = codeName(error.code);
  const refused = code === "UNAUTHENTICATED" && shows !== undefined;
  const message = refused
    ? `the ${shows} that was shown is none of this server (${error.rawMessage})`
    : error.rawMessage;
  if (info !== undefined) return new BoltqError(message, { code, reason: info.reason, metadata: info.metadata });
  const told = error.metadata.has("grpc-status") || code === "DEADLINE_EXCEEDED";
  if (code === "UNIMPLEMENTED") {
    const text = `${address} does not know this call: it is no server of BoltQ, or one of an older version (${message})`;
    return new BoltqError(text, { code, cause: error });
  }
  if (told) return new BoltqError(message, { code, cause: error });
  const unheard = message.includes("REFUSED_STREAM") || unsent.has(error);
  const what = unheard ? `no connection to ${address}` : `the connection to ${address} broke`;
  const text = message.includes(address) ? message : `${what}: ${message}`;
  return new BoltqError(text, { code: "UNAVAILABLE", unsent: unheard, cause: error });
}

function errorInfo(error: ConnectError): ErrorInfo | undefined {
  for (const detail of error.details) {
    if (!("type" in detail) || detail.type !== ERROR_INFO_TYPE) continue;
    try {
      return readErrorInfo(detail.value);
    } catch {
      // What is not readable tells nothing; code and text are left.
      return undefined;
    }
  }
  return undefined;
}
