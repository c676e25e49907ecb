/** Between the types of the application and those of the protos. Ranges that the server checks are not checked here again. */
import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";

import type { Repeat } from "./caller.js";
import { given, milliseconds, shown, text, texts, whole } from "./check.js";
import { invalid } from "./errors.js";

const PRIORITY_MAX = 9;
const NANOS_MAX = 999_999_999;

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
  /** Makes the publish repeatable: the same key is not stored again for a while in that queue, topic, or exchange with that routing key. */
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
  return { ...given(rest, "rest"), payload, contentType: "application/json" };
}

/** The bytes of a payload. */
export function bytesOf(payload: Payload, what = "payload"): Uint8Array {
  if (typeof payload === "string") return Buffer.from(payload, "utf8");
  if (payload instanceof Uint8Array) return payload;
  throw invalid(`${what} is ${shown(payload)}; it has to be text or a Uint8Array`);
}

/** A message as it is sent. */
export interface WireMessage {
  readonly payload: Uint8Array;
  readonly headers: Record<string, string>;
  readonly contentType: string;
  readonly priority: number;
  readonly delay: Duration | undefined;
  readonly ttl: Duration | undefined;
  idempotencyKey: string;
  readonly orderingKey: string;
}

/**
 * As the protos have it, so that it can be sent; throws if it cannot. A payload alone is a message with nothing else. Messages travel
 * together, and one that fails only when it is sent would take the others with it.
 */
export function messageInit(message: Message | Payload): WireMessage {
  if (typeof message === "string" || message instanceof Uint8Array) return messageInit({ payload: message });
  if (typeof message !== "object" || message === null) {
    throw invalid(`message is ${shown(message)}; it has to be text, a Uint8Array, or an object with a payload`);
  }
  const fields = given(message, "message");
  const { payload, headers, contentType = "", priority = 0, delayMs, ttlMs } = fields;
  const { idempotencyKey = "", orderingKey = "" } = fields;
  return {
    payload: bytesOf(payload),
    headers: headers === undefined ? {} : texts(headers, "headers"),
    contentType: text(contentType, "contentType"),
    priority: whole(priority, "priority", 0, PRIORITY_MAX),
    delay: optionalDuration(delayMs, "delayMs"),
    ttl: optionalDuration(ttlMs, "ttlMs"),
    idempotencyKey: text(idempotencyKey, "idempotencyKey"),
    orderingKey: text(orderingKey, "orderingKey"),
  };
}

/** Whether a publish may be made twice: the server knows it again by its key. */
export function repeatOf({ idempotencyKey }: WireMessage): Repeat {
  return idempotencyKey === "" ? "once" : "repeatable";
}

/** Milliseconds as a Duration, rounded to whole nanoseconds: with a part of one it could not be sent. */
export function duration(ms: number, what: string): Duration {
  const seconds = Math.floor(milliseconds(ms, what) / 1_000);
  const nanos = Math.min(NANOS_MAX, Math.round((ms - seconds * 1_000) * 1e6));
  return create(DurationSchema, { seconds: BigInt(seconds), nanos });
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
