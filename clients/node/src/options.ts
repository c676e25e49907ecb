/** What a client is made with. */
import type { RetrySettings } from "./caller.js";
import { callable, given, shown, text, timeout } from "./check.js";
import type { ChannelOptions } from "./connect.js";
import { type BoltqError, invalid } from "./errors.js";

const PORT_DEFAULT = "9091";
const TIMEOUT_MS_DEFAULT = 30_000;
const CONNECT_TIMEOUT_MS_DEFAULT = 5_000;
const BACKOFF_MS_DEFAULT = 50;
const BACKOFF_MAX_MS_DEFAULT = 2_000;

/** Encryption. Each of the three is PEM, as text or bytes. */
export interface TlsOptions {
  /** Authorities to believe, and no others. Default: those of Node. */
  readonly ca?: string | Uint8Array | undefined;
  /** Certificate of this client, for servers that ask for one. */
  readonly cert?: string | Uint8Array | undefined;
  /** Its key. */
  readonly key?: string | Uint8Array | undefined;
  /** Name that the certificate of the server has to have. Default: the host of the address. */
  readonly serverName?: string | undefined;
}

/** What {@link connect} takes. */
export interface ConnectOptions {
  /** One or more nodes of the cluster, as `host:port`; the port is 9091 if none is given. Default: `localhost:9091`. */
  readonly addresses?: string | readonly string[] | undefined;
  /** API key, shown with every call. */
  readonly apiKey?: string | undefined;
  /** Bearer token, shown with every call; or what is asked for one before every call. */
  readonly token?: string | (() => string | Promise<string>) | undefined;
  /** Encrypts connections. `true`: with the authorities of Node. */
  readonly tls?: boolean | TlsOptions | undefined;
  /** Milliseconds that a call may take with everything that is repeated. Default 30,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * Milliseconds for one attempt to connect to one node, and for all of them as long as no server has ever answered this client: its
   * calls fail then, and do not wait as long as they may take. Default 5,000.
   */
  readonly connectTimeoutMs?: number | undefined;
  /** Milliseconds of the first wait between attempts at most; doubles with each. Default 50. */
  readonly backoffMs?: number | undefined;
  /** Milliseconds of any wait at most. Default 2,000. */
  readonly backoffMaxMs?: number | undefined;
  /** Whether publishes to queues without an idempotency key get a random one, so that they can be repeated. Default true. */
  readonly idempotentPublishes?: boolean | undefined;
  /** Told about failures that are not reported because the client tries again, for logs. */
  readonly onRetry?: ((error: BoltqError, waitMs: number) => void) | undefined;
}

/** The same, checked and complete. */
export interface Settings {
  readonly addresses: readonly string[];
  readonly channel: ChannelOptions;
  readonly retry: RetrySettings;
  readonly idempotentPublishes: boolean;
}

/** Checks what was given. */
export function settingsOf(asked: ConnectOptions | undefined): Settings {
  const options = given(asked);
  const connectTimeoutMs = timeout(options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS_DEFAULT, "connectTimeoutMs");
  const named = options.addresses ?? "localhost";
  if (typeof named !== "string" && !Array.isArray(named)) {
    throw invalid(`addresses is ${shown(named)}; it has to be an array of host:port`);
  }
  const addresses = [
    ...new Set(
      (typeof named === "string" ? named.split(",") : named).map((each) => addressOf(text(each, "addresses"))),
    ),
  ];
  if (addresses.length === 0) throw invalid("addresses is empty; give at least one, as host:port");
  if (options.apiKey !== undefined && options.token !== undefined) throw invalid("give apiKey or token, not both");
  return {
    addresses,
    idempotentPublishes: options.idempotentPublishes ?? true,
    channel: {
      connectTimeoutMs,
      tls: tlsOf(options.tls),
      credentials: credentialsOf(options),
      shows: options.apiKey !== undefined ? "API key" : options.token !== undefined ? "token" : undefined,
    },
    retry: {
      connectTimeoutMs,
      timeoutMs: timeout(options.timeoutMs ?? TIMEOUT_MS_DEFAULT, "timeoutMs"),
      backoffMs: timeout(options.backoffMs ?? BACKOFF_MS_DEFAULT, "backoffMs"),
      backoffMaxMs: timeout(options.backoffMaxMs ?? BACKOFF_MAX_MS_DEFAULT, "backoffMaxMs"),
      onRetry: retryListener(options.onRetry),
    },
  };
}

/** As `host:port`; an IPv6 address is in brackets. */
export function addressOf(text: string): string {
  const address = text.trim();
  if (address === "" || address.includes("/")) throw invalid(`"${text}" is no address; those are host:port`);
  let url: URL;
  try {
    url = new URL(`tcp://${address}`);
  } catch {
    throw invalid(`"${text}" is no address; those are host:port`);
  }
  if (url.hostname === "" || url.username !== "") throw invalid(`"${text}" is no address; those are host:port`);
  return `${url.hostname}:${url.port || PORT_DEFAULT}`;
}

function retryListener(listener: ConnectOptions["onRetry"]): ConnectOptions["onRetry"] {
  if (listener !== undefined) callable(listener, "onRetry");
  return listener;
}

function credentialsOf({ apiKey, token }: ConnectOptions): ChannelOptions["credentials"] {
  if (apiKey !== undefined) {
    const headers = { "x-api-key": text(apiKey, "apiKey") };
    return () => headers;
  }
  if (typeof token === "function") return async () => ({ authorization: `Bearer ${await token()}` });
  const headers: Record<string, string> =
    token === undefined ? {} : { authorization: `Bearer ${text(token, "token")}` };
  return () => headers;
}

function tlsOf(tls: ConnectOptions["tls"]): ChannelOptions["tls"] {
  if (tls === undefined || tls === false) return undefined;
  if (tls === true) return {};
  const { ca, cert, key, serverName } = given(tls, "tls");
  if ((cert === undefined) !== (key === undefined)) throw invalid("tls.cert and tls.key go together");
  return {
    ...(ca === undefined ? {} : { ca: pem(ca, "tls.ca") }),
    ...(cert === undefined ? {} : { cert: pem(cert, "tls.cert") }),
    ...(key === undefined ? {} : { key: pem(key, "tls.key") }),
    ...(serverName === undefined ? {} : { servername: text(serverName, "tls.serverName") }),
  };
}

function pem(value: string | Uint8Array, what: string): string | Buffer {
  if (typeof value === "string") return value;
  if (value instanceof Uint8Array) return Buffer.from(value);
  throw invalid(`${what} is ${shown(value)}; it has to be PEM, as text or a Uint8Array`);
}
