/**
 * The replicated key-value cache. Versions, and what is counted with `increment`, use all of their 64 bits, so they are `bigint` here.
 */
import type { Caller, CallOptions } from "./caller.js";
import { given, whole } from "./check.js";
import { bytesOf, count, dateOf, duration, optionalDate, optionalDuration, type Payload } from "./convert.js";
import { KvService, type WatchResponse, type Entry as WireEntry } from "./gen/boltq/kv/v1/kv_pb.js";
import { pages } from "./pages.js";
import { type ServerItems, serverItems } from "./streams.js";

const PAGE = 1_000;

/** A value and what is known of it. */
export class KvEntry {
  readonly key: string;
  readonly value: Uint8Array;
  /** Of its last change. */
  readonly version: bigint;
  /** When it was set. */
  readonly createdAt: Date;
  /** From then on there is no value; undefined: it stays. */
  readonly expiresAt: Date | undefined;

  /** For the client itself. @internal */
  constructor(wire: WireEntry) {
    this.key = wire.key;
    this.value = wire.value;
    this.version = wire.version;
    this.createdAt = dateOf(wire.createdAt);
    this.expiresAt = optionalDate(wire.expiresAt);
  }

  /** The value as UTF-8. */
  text(): string {
    return Buffer.from(this.value.buffer, this.value.byteOffset, this.value.byteLength).toString("utf8");
  }

  /** The value as JSON; throws a SyntaxError if it is none. */
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }
}

/** What has to be so for a value to be set: one of these at most. */
export type KvCondition =
  | { readonly ifAbsent?: undefined; readonly ifPresent?: undefined; readonly ifVersion?: undefined }
  | { readonly ifAbsent: true; readonly ifPresent?: undefined; readonly ifVersion?: undefined }
  | { readonly ifAbsent?: undefined; readonly ifPresent: true; readonly ifVersion?: undefined }
  | { readonly ifAbsent?: undefined; readonly ifPresent?: undefined; readonly ifVersion: bigint };

/** How a value is set. With a condition that is not met it fails with `CONDITION_NOT_MET`. */
export type KvSetOptions = CallOptions &
  KvCondition & {
    /** Milliseconds that it lives. 0: for ever. Default: what the server says. */
    readonly ttlMs?: number | undefined;
  };

/** A change that {@link Kv.watch} reports. */
export type KvEvent =
  /** The key has this value now. */
  | { readonly type: "put"; readonly entry: KvEntry }
  /** The key has no value any more. */
  | { readonly type: "removed"; readonly key: string; readonly version: bigint }
  /** No key has a value any more. */
  | { readonly type: "flushed"; readonly version: bigint }
  /** What was there has been reported; changes after this version follow. */
  | { readonly type: "ready"; readonly version: bigint }
  /**
   * The stream broke, and changes may have been missed. Everything that is there is reported again, up to the next `ready`; what is not
   * among it is gone.
   */
  | { readonly type: "restarted" };

/** What is watched. */
export interface WatchOptions {
  /** As for {@link Kv.keys}. Default: all keys. */
  readonly pattern?: string | undefined;
  /** Whether to begin with what is there. */
  readonly initial?: boolean | undefined;
  /** Ends the watch; the loop over it then throws the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** Figures of the cache. */
export interface KvStats {
  /** Whether the cache is switched on; the rest is 0 if not. */
  readonly enabled: boolean;
  readonly keys: number;
  /** Of keys and values. */
  readonly bytes: number;
  readonly hits: number;
  readonly misses: number;
  readonly sets: number;
  readonly deletes: number;
  readonly expired: number;
  readonly evicted: number;
}

/** `client.kv`. */
export class Kv {
  readonly #caller: Caller;

  /** For the client itself. @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** The value of a key; undefined if there is none. */
  async get(key: string, options?: CallOptions): Promise<KvEntry | undefined> {
    const answer = await this.#caller.unary(KvService.method.get, { key }, "repeatable", options);
    return answer.entry === undefined ? undefined : new KvEntry(answer.entry);
  }

  /** Sets a key, and answers the version of the value. */
  async set(key: string, value: Payload, asked?: KvSetOptions): Promise<bigint> {
    const options: KvSetOptions = given(asked);
    const condition = conditionOf(options);
    const request = { key, value: bytesOf(value, "value"), ttl: optionalDuration(options.ttlMs, "ttlMs"), condition };
    // Whether a condition held is known from the first time alone.
    const repeat = condition.case === undefined ? "repeatable" : "once";
    const answer = await this.#caller.unary(KvService.method.set, request, repeat, options);
    return answer.version;
  }

  /** Deletes a key. False: there was no value. After a failure in between that can also be the trace of the first attempt. */
  async delete(key: string, options: CallOptions & { readonly ifVersion?: bigint } = {}): Promise<boolean> {
    const { ifVersion } = given(options);
    const repeat = ifVersion === undefined ? "repeatable" : "once";
    const answer = await this.#caller.unary(KvService.method.delete, { key, ifVersion }, repeat, options);
    return answer.deleted;
  }

  /** Whether a key has a value. */
  async exists(key: string, options?: CallOptions): Promise<boolean> {
    const answer = await this.#caller.unary(KvService.method.exists, { key }, "repeatable", options);
    return answer.exists;
  }

  /** Keys in byte order. `p*`: those that start with p, `*s`: that end with s, `*m*`: that have m in them. Default: all. */
  keys(pattern = "*", options: CallOptions = {}): AsyncGenerator<string, void, undefined> {
    return pages(async (pageToken) => {
      const request = { pattern, pageSize: PAGE, pageToken };
      const answer = await this.#caller.unary(KvService.method.keys, request, "repeatable", options);
      return { items: answer.keys, nextPageToken: answer.nextPageToken };
    });
  }

  /** Changes how long a value lives, from now on; 0: for ever. False: there is no value. */
  async expire(key: string, ttlMs: number, options?: CallOptions): Promise<boolean> {
    const request = { key, ttl: duration(ttlMs, "ttlMs") };
    const answer = await this.#caller.unary(KvService.method.expire, request, "repeatable", options);
    return answer.found;
  }

  /**
   * Adds to the number that is the value of a key. It is not repeated if its outcome is unknown; the failure then has `notApplied`
   * false.
   */
  async increment(
    key: string,
    delta: bigint | number = 1n,
    options?: CallOptions,
  ): Promise<{ readonly value: bigint; readonly version: bigint }> {
    const request = {
      key,
      delta: typeof delta === "number" ? BigInt(whole(delta, "delta", Number.MIN_SAFE_INTEGER)) : delta,
    };
    const { value, version } = await this.#caller.unary(KvService.method.increment, request, "once", options);
    return { value, version };
  }

  /** Removes everything, and answers how many keys that were. */
  async flush(options?: CallOptions): Promise<number> {
    const answer = await this.#caller.unary(KvService.method.flush, {}, "repeatable", options);
    return count(answer.removed);
  }

  /** Figures of the cache on the node that is asked. */
  async stats(options?: CallOptions): Promise<KvStats> {
    const answer = await this.#caller.unary(KvService.method.getStats, {}, "repeatable", options);
    return {
      enabled: answer.enabled,
      keys: count(answer.keys),
      bytes: count(answer.bytes),
      hits: count(answer.hits),
      misses: count(answer.misses),
      sets: count(answer.sets),
      deletes: count(answer.deletes),
      expired: count(answer.expired),
      evicted: count(answer.evicted),
    };
  }

  /**
   * Changes as they are made, to be read with `for await`. What is set in quick succession may be reported once. When the stream breaks,
   * or the application is too slow for it, it begins again with `restarted` and everything that is there.
   */
  watch(options: WatchOptions = {}): ServerItems<KvEvent> {
    const { pattern = "", initial = false, signal } = given(options);
    return serverItems<typeof KvService.method.watch.input, typeof KvService.method.watch.output, KvEvent>(
      this.#caller,
      {
        method: KvService.method.watch,
        request: (again) => ({ pattern, initial: initial || again }),
        items: eventsOf,
        restarted: () => [{ type: "restarted" }],
        survives: ({ reason }) => reason === "WATCH_TOO_SLOW",
      },
      signal,
    );
  }
}

function conditionOf(condition: KvCondition) {
  if (condition.ifAbsent) return { case: "ifAbsent" as const, value: true };
  if (condition.ifPresent) return { case: "ifPresent" as const, value: true };
  if (condition.ifVersion !== undefined) return { case: "ifVersion" as const, value: condition.ifVersion };
  return { case: undefined };
}

function eventsOf({ event }: WatchResponse): KvEvent[] {
  switch (event.case) {
    case "put":
      return [{ type: "put", entry: new KvEntry(event.value) }];
    case "removed":
      return [{ type: "removed", key: event.value.key, version: event.value.version }];
    case "flushed":
      return [{ type: "flushed", version: event.value.version }];
    case "ready":
      return [{ type: "ready", version: event.value.version }];
    case undefined:
      return [];
  }
}
