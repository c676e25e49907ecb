/** Messages on their way: what is known of each, and how they are sent together. */
import type { WireMessage } from "./convert.js";
import { BoltqError, type ErrorCode } from "./errors.js";
import { KEYS_FULL } from "./keys.js";
import type { Deferred } from "./wait.js";

/** Of one request, as the server says. */
const BATCH_MESSAGES_MAX = 1_000;
/** A batch goes out when it has so many bytes: larger ones gain nothing. */
const BATCH_BYTES = 256 << 10;
/** The server takes requests of 4 MiB; what is larger would end the stream, and with it concern other messages. */
const MESSAGE_BYTES_MAX = (4 << 20) - 1_024;

/** One of them. */
export interface Outgoing {
  /** Queue or topic. */
  readonly to: string;
  /** As it is sent. */
  readonly wire: WireMessage;
  /** That it takes. */
  readonly bytes: number;
  /** `Date.now()` after which nobody waits for it. */
  readonly deadline: number;
  /** Whether its key was made by the client. */
  madeKey: boolean;
  /** Whether it was on a stream that broke, so that it may be stored. */
  unknown: boolean;
  /** Whether nobody waits for it any more. */
  over: boolean;
  /** Called when its outcome is known, with the error if it failed. */
  readonly onOver: ((error?: unknown) => void) | undefined;
  /** Its id, or why there is none. */
  readonly confirmed: Deferred<string>;
}

/** The next messages that go together, without those that nobody waits for any more; `taken` is at least 1. */
export function nextBatch(
  ready: readonly Outgoing[],
  first: number,
): { to: string; messages: Outgoing[]; taken: number } {
  const head = ready[first];
  const messages: Outgoing[] = [];
  let bytes = 0;
  let taken = 0;
  for (let index = first; index < ready.length; index += 1) {
    const message = ready[index];
    if (message === undefined || message.to !== head?.to) break;
    if (messages.length > 0 && (messages.length === BATCH_MESSAGES_MAX || bytes + message.bytes > BATCH_BYTES)) break;
    taken += 1;
    if (message.over) continue;
    messages.push(message);
    bytes += message.bytes;
  }
  return { to: head?.to ?? "", messages, taken: Math.max(1, taken) };
}

/** Codes of the reasons that one message of a batch can be refused with, as docs/grpc.md has them; others are `INVALID_ARGUMENT`. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  IDEMPOTENCY_KEYS_FULL: "RESOURCE_EXHAUSTED",
  LEADER_LOST: "UNAVAILABLE",
  NODE_REMOVED: "UNAVAILABLE",
  NOT_ENOUGH_REPLICAS: "UNAVAILABLE",
  NOT_IN_SYNC: "UNAVAILABLE",
  NOT_LEADER: "UNAVAILABLE",
  NO_MAJORITY: "UNAVAILABLE",
  QUEUE_FULL: "RESOURCE_EXHAUSTED",
  STOPPED: "UNAVAILABLE",
  STORAGE_DAMAGED: "DATA_LOSS",
  STORAGE_FULL: "RESOURCE_EXHAUSTED",
};
/** Of these it is a second, of the others a tenth. On a stream the server says whether to try again, but not when. */
const AFTER_A_SECOND: ReadonlySet<string> = new Set([KEYS_FULL, "NOT_ENOUGH_REPLICAS", "QUEUE_FULL", "STORAGE_FULL"]);

/** What the server says of one message of a batch. */
export interface Refused {
  /** Position in the batch. */
  readonly index: number;
  readonly reason: string;
  readonly message: string;
  /** Whether the same message can succeed later. */
  readonly retriable: boolean;
}

/** The same as an error. */
export function refusal({ reason, message, retriable }: Refused): BoltqError {
  const metadata = retriable ? { retry_after_ms: AFTER_A_SECOND.has(reason) ? "1000" : "100" } : {};
  return new BoltqError(message, { code: CODES[reason] ?? "INVALID_ARGUMENT", reason, metadata });
}

/** Bytes of a message on the wire, rounded up; throws if no request has room for them. */
export function checkedSize(message: WireMessage): number {
  const bytes = sizeOf(message);
  if (bytes <= MESSAGE_BYTES_MAX) return bytes;
  const text = `message has ${bytes} bytes with its headers; at most ${MESSAGE_BYTES_MAX} are allowed`;
  throw new BoltqError(text, { code: "INVALID_ARGUMENT", reason: "MESSAGE_TOO_LARGE" });
}

function sizeOf(message: WireMessage): number {
  const { payload, headers, contentType, idempotencyKey, orderingKey } = message;
  let bytes = 96 + payload.length;
  bytes += textBytes(contentType) + textBytes(idempotencyKey) + textBytes(orderingKey);
  for (const name in headers) bytes += 12 + textBytes(name) + textBytes(headers[name]);
  return bytes;
}

function textBytes(text: string | undefined): number {
  return text === undefined ? 0 : Buffer.byteLength(text);
}
