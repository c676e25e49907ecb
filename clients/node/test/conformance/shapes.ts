/** What goes into steps and comes out of them, as the scenarios have it and as the client does. */
import {
  BoltqError,
  type Delivery,
  type ExchangeInfo,
  type KvEvent,
  type Message,
  type QueueInfo,
  QueueMessage,
  type QueueSettings,
  type ReceivedMessage,
  type SettleResult,
} from "@boltq/client";

import { type Fields, milliseconds, type Value } from "./values.js";

/** Arguments of a step. */
export class Arguments {
  readonly fields: Fields;

  constructor(fields: Fields) {
    this.fields = fields;
  }

  /** How long the step may take. */
  get timeoutMs(): number {
    return this.ms("timeout") ?? 30_000;
  }

  text(name: string): string {
    const value = this.fields[name];
    if (typeof value !== "string") throw new Error(`${name} is missing`);
    return value;
  }

  optional<T extends Value>(name: string): T | undefined {
    return (this.fields[name] ?? undefined) as T | undefined;
  }

  ms(name: string): number | undefined {
    const value = this.optional<string>(name);
    return value === undefined ? undefined : milliseconds(value);
  }

  tokens(): Uint8Array[] {
    return (this.fields["tokens"] as readonly string[]).map((token) => Buffer.from(token, "hex"));
  }
}

export function message(value: Value | undefined): Message {
  const fields = new Arguments(value as Fields);
  return {
    payload: fields.text("payload"),
    headers: fields.optional<Record<string, string>>("headers"),
    contentType: fields.optional("content_type"),
    priority: fields.optional("priority"),
    delayMs: fields.ms("delay"),
    ttlMs: fields.ms("ttl"),
    idempotencyKey: fields.optional("idempotency_key"),
    orderingKey: fields.optional("ordering_key"),
  };
}

/** The settings, as the client calls them and as the protos do. Those that are durations end in `Ms` here. */
const SETTINGS: readonly (readonly [keyof QueueSettings, string])[] = [
  ["maxRetry", "max_retry"],
  ["retryBackoffMs", "retry_backoff"],
  ["retryBackoffMaxMs", "retry_backoff_max"],
  ["ackTimeoutMs", "ack_timeout"],
  ["defaultTtlMs", "default_ttl"],
  ["maxLength", "max_length"],
  ["maxLengthBytes", "max_length_bytes"],
  ["overflow", "overflow"],
  ["deadLetterQueue", "dead_letter_queue"],
  ["dedupTtlMs", "dedup_ttl"],
  ["singleActiveConsumer", "single_active_consumer"],
  ["paused", "paused"],
];

export function settings(value: Value | undefined, mask?: readonly string[]): QueueSettings {
  const fields = (value ?? {}) as Fields;
  const given = SETTINGS.filter(([, name]) => mask?.includes(name) ?? name in fields);
  return Object.fromEntries(
    given.map(([name, wire]) => {
      const each = fields[wire] ?? undefined;
      return [name, name.endsWith("Ms") && typeof each === "string" ? milliseconds(each) : each];
    }),
  );
}

function durationText(ms: number): string {
  if (ms % 3_600_000 === 0 && ms > 0) return `${ms / 3_600_000}h`;
  if (ms % 60_000 === 0 && ms > 0) return `${ms / 60_000}m`;
  return ms % 1_000 === 0 ? `${ms / 1_000}s` : `${ms}ms`;
}

export function queueOf({ name, ready, leased, delayed, deadLetters, settings: own }: QueueInfo): Value {
  const shown = SETTINGS.map(([field, wire]) => {
    const each = own[field];
    if (each === undefined)
      return [
        wire,
        { overflow: "REJECT", dead_letter_queue: "", single_active_consumer: false, paused: false }[wire] ?? null,
      ];
    return [wire, field.endsWith("Ms") ? durationText(Number(each)) : each];
  });
  return { name, ready, leased, delayed, dead_letters: deadLetters, settings: Object.fromEntries(shown) as Fields };
}

export function received(item: ReceivedMessage): Value {
  const { id, headers, contentType, priority } = item;
  const common = { message_id: id, payload: item.text(), headers, content_type: contentType, priority };
  if (!(item instanceof QueueMessage)) return common;
  const token = "token" in item ? Buffer.from((item as Delivery).token).toString("hex") : "";
  return { ...common, delivery_token: token, attempts: item.attempts, ordering_key: item.orderingKey };
}

export function changed(event: KvEvent): Value {
  switch (event.type) {
    case "put":
      return { put: { key: event.entry.key, value: event.entry.text(), version: Number(event.entry.version) } };
    case "removed":
      return { removed: { key: event.key, version: Number(event.version) } };
    case "restarted":
      return { restarted: {} };
    default:
      return { [event.type]: { version: Number(event.version) } };
  }
}

export function failures(result: SettleResult): Value {
  return result.failures.map(({ token, reason }) => ({ token: Buffer.from(token).toString("hex"), reason }));
}

export function exchangeOf(info: ExchangeInfo) {
  const { name, type, durable, alternateExchange, bindings } = info;
  return { name, type, durable, alternate_exchange: alternateExchange, bindings };
}

/** What a failure is in a scenario. */
export function failureOf(error: unknown): Value {
  if (!(error instanceof BoltqError)) throw error;
  const { code, reason, retriable, metadata } = error;
  return { code, reason, retriable, metadata };
}
