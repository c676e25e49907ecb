/** Between the types of the application and those of the protos. Ranges that the server checks are not checked here again. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, durationFromMs, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";

import { invalid } from "./errors.js";
import type { MessageSchema } from "./gen/boltq/type/v1/message_pb.js";

/** Bytes as they are, or text, which is sent as UTF-8. */
export type Payload = Uint8Array | string;

/** A message to publish. */
export interface Message {
  /** What consumers get; text is sent as UTF-8. */
  readonly payload: Payload;
  /** Application headers, 64 KiB in all. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Media type. With `"application/json"` the server checks that the payload is JSON; see {@link json}. */
  readonly contentType?: string | undefined;
  /** 0 (default) to 9; 9 is delivered first. */
  readonly priority?: number | undefined;
  /** Milliseconds until it may be delivered. */
  readonly delayMs?: number | undefined;
  /** Milliseconds until it is discarded, the delay included. */
  readonly ttlMs?: number | undefined;
  /** Makes the publish to a queue repeatable: the same key is not stored in that queue again for a while. */
  readonly idempotencyKey?: string | undefined;
  /** Messages of a queue with the same key are delivered in order and one at a time. */
  readonly orderingKey?: string | undefined;
}

/**
 * A message whose payload is a value as JSON.
 *
 * ```ts
 * await client.publish("email_jobs", json({ to: "a@example.org" }, { priority: 5 }));
 * ```
 */
export function json(value: unknown, rest: Omit<Message, "payload" | "contentType"> = {}): Message {
  const payload = JSON.stringify(value);
  if (payload === undefined) throw invalid(`${typeof value} has no form in JSON`);
  return { ...rest, payload, contentType: "application/json" };
}

/** The bytes of a payload. */
export function bytesOf(payload: Payload): Uint8Array {
  return typeof payload === "string" ? Buffer.from(payload, "utf8") : payload;
}

/** A payload alone is a message with nothing else. */
export function messageOf(message: Message | Payload): Message {
  return typeof message === "string" || message instanceof Uint8Array ? { payload: message } : message;
}

/** As the protos have it. */
export function messageInit(message: Message): MessageInitShape<typeof MessageSchema> {
  return {
    payload: bytesOf(message.payload),
    headers: message.headers ?? {},
    contentType: message.contentType ?? "",
    priority: message.priority ?? 0,
    delay: optionalDuration(message.delayMs, "delayMs"),
    ttl: optionalDuration(message.ttlMs, "ttlMs"),
    idempotencyKey: message.idempotencyKey ?? "",
    orderingKey: message.orderingKey ?? "",
  };
}

/** Milliseconds as a Duration. */
export function duration(ms: number, what: string): Duration {
  if (!Number.isFinite(ms)) throw invalid(`${what} is ${ms}; it has to be a number of milliseconds`);
  return durationFromMs(ms);
}

/** As {@link duration}; undefined stays unset. */
export function optionalDuration(ms: number | undefined, what: string): Duration | undefined {
  return ms === undefined ? undefined : duration(ms, what);
}

/** A Duration in milliseconds. */
export function optionalMs(value: Duration | undefined): number | undefined {
  return value === undefined ? undefined : durationMs(value);
}

/** A point in time, in whole milliseconds. */
export function optionalDate(value: Timestamp | undefined): Date | undefined {
  return value === undefined ? undefined : timestampDate(value);
}

/** A point in time that the server always sets. */
export function dateOf(value: Timestamp | undefined): Date {
  return value === undefined ? new Date(0) : timestampDate(value);
}

/** Bytes in hexadecimal. */
export function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");
}

/** The bytes of an id. */
export function idBytes(id: string): Uint8Array {
  if (!/^[0-9a-f]{32}$/i.test(id)) throw invalid(`"${id}" is no message id; those have 32 hexadecimal digits`);
  return Buffer.from(id, "hex");
}

/**
 * A count of the server: messages, bytes. They are far below 2^53, so `number` is what is handy. Versions of the cache and what
 * it counts are not counts of this kind, and stay `bigint`.
 */
export function count(value: bigint): number {
  return Number(value);
}

/** Name of a value of an enumeration, as the protos have it without the prefix. */
export function enumName<T extends string>(names: Readonly<Record<number, string>>, value: number, fallback: T): T {
  return (names[value] as T | undefined) ?? fallback;
}
