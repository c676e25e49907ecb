/** Looking at queues and managing them. */
import type { MessageInitShape } from "@bufbuild/protobuf";

import type { Caller, CallOptions } from "./caller.js";
import { given, milliseconds, oneOf, shown } from "./check.js";
import { count, dateOf, duration, hex, idBytes, optionalDuration, optionalMs } from "./convert.js";
import { invalid } from "./errors.js";
import {
  OverflowPolicy,
  QueueService,
  type QueueSettingsSchema,
  type Queue as WireQueue,
  type QueueSettings as WireSettings,
} from "./gen/boltq/queue/v1/queue_pb.js";
import { pages } from "./pages.js";
import { QueueMessage } from "./received.js";
import { failuresOf, type SettleResult } from "./settler.js";

const PAGE = 1_000;

/** What happens when a message is published to a full queue. */
export type Overflow = "REJECT" | "DROP_OLDEST";

/** Settings of one queue. What is undefined is as the configuration of the server says. */
export interface QueueSettings {
  /** Deliveries after the first before a message becomes a dead letter. */
  readonly maxRetry?: number | undefined;
  /** Milliseconds before the second delivery; doubles with each failure. */
  readonly retryBackoffMs?: number | undefined;
  /** Longest wait between deliveries, in milliseconds. */
  readonly retryBackoffMaxMs?: number | undefined;
  /** Milliseconds of a lease for which the consumer asks no other. */
  readonly ackTimeoutMs?: number | undefined;
  /** Time to live, in milliseconds, of messages that are published without one. */
  readonly defaultTtlMs?: number | undefined;
  /** Messages that it may hold. */
  readonly maxLength?: number | undefined;
  /** Bytes that these may have. */
  readonly maxLengthBytes?: number | undefined;
  /** For both limits. */
  readonly overflow?: Overflow | undefined;
  /** Queue that messages go to which failed too often. */
  readonly deadLetterQueue?: string | undefined;
  /** Milliseconds for which the idempotency key of a publish is remembered. */
  readonly dedupTtlMs?: number | undefined;
  /** Only the consumer that came first gets messages. */
  readonly singleActiveConsumer?: boolean | undefined;
  /** Nothing is delivered. */
  readonly paused?: boolean | undefined;
}

/** The fields of {@link QueueSettings}, and what the protos call them. */
const FIELDS: Readonly<Record<keyof QueueSettings, string>> = {
  maxRetry: "max_retry",
  retryBackoffMs: "retry_backoff",
  retryBackoffMaxMs: "retry_backoff_max",
  ackTimeoutMs: "ack_timeout",
  defaultTtlMs: "default_ttl",
  maxLength: "max_length",
  maxLengthBytes: "max_length_bytes",
  overflow: "overflow",
  deadLetterQueue: "dead_letter_queue",
  dedupTtlMs: "dedup_ttl",
  singleActiveConsumer: "single_active_consumer",
  paused: "paused",
};

/** A queue as it is now. */
export interface QueueInfo {
  readonly name: string;
  /** Can be delivered at once, or as soon as their pause is over. */
  readonly ready: number;
  /** Held by consumers; a node that does not lead counts them as ready. */
  readonly leased: number;
  /** Not yet due. */
  readonly delayed: number;
  /** Waiting in the dead-letter queue of this queue. */
  readonly deadLetters: number;
  /** Consumers that wait or are subscribed now. */
  readonly consumers: number;
  /** What it has of its own. */
  readonly settings: QueueSettings;
}

/** A message that is not due yet. */
export interface ScheduledMessage {
  readonly id: string;
  readonly deliverAt: Date;
  readonly priority: number;
}

/** Reads that any node answers. */
export interface ReadOptions extends CallOptions {
  /** Whether the answer has everything in it that was answered before. Slower, and fails without a majority. */
  readonly linearizable?: boolean | undefined;
}

/** Which dead letters are sent back, and how. */
export interface RedriveOptions {
  /** Only those with all of these headers. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Messages at most. Default: all that are ready when it begins. */
  readonly maxMessages?: number | undefined;
  /** Messages each second at most, on average. */
  readonly maxPerSecond?: number | undefined;
  /** Told after each portion how many were sent back so far. */
  readonly onProgress?: ((redriven: number) => void) | undefined;
  /** Ends it; what was sent back until then stays so. */
  readonly signal?: AbortSignal | undefined;
}

/** When a message is to be delivered. */
export type DueTime = { readonly delayMs: number } | { readonly deliverAt: Date };

/** `client.queues`. */
export class Queues {
  readonly #caller: Caller;

  /** For the client itself. @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Creates a queue with settings of its own. Nobody has to; fails with `QUEUE_EXISTS` if it has others. */
  async create(
    queue: string,
    settings: QueueSettings = {},
    options?: CallOptions,
  ): Promise<{ readonly queue: QueueInfo; readonly created: boolean }> {
    const request = { queue, settings: settingsInit(settings) };
    const answer = await this.#caller.unary(QueueService.method.createQueue, request, "repeatable", options);
    return { queue: infoOf(queue, answer.queue), created: answer.created };
  }

  /**
   * Changes settings. Those that are in `settings` change, and with `undefined` go back to what the server says:
   * `update("jobs", { maxRetry: 1, maxLength: undefined })`.
   */
  async update(queue: string, settings: QueueSettings, options?: CallOptions): Promise<QueueInfo> {
    const paths = Object.keys(given(settings, "settings")).map(
      (field) => FIELDS[field as keyof QueueSettings] ?? unknown(field),
    );
    const request = { queue, settings: settingsInit(settings), updateMask: { paths } };
    const answer = await this.#caller.unary(QueueService.method.updateQueue, request, "repeatable", options);
    return infoOf(queue, answer.queue);
  }

  /** Nothing is delivered until {@link resume}; publishes and settlements go on. */
  pause(queue: string, options?: CallOptions): Promise<QueueInfo> {
    return this.update(queue, { paused: true }, options);
  }

  /** Ends {@link pause}. */
  resume(queue: string, options?: CallOptions): Promise<QueueInfo> {
    return this.update(queue, { paused: undefined }, options);
  }

  /** Deletes a queue with its messages, and answers how many there were. */
  async delete(queue: string, options: CallOptions & { readonly ifEmpty?: boolean } = {}): Promise<number> {
    const { ifEmpty = false } = given(options);
    const request = { queue, ifEmpty };
    const answer = await this.#caller.unary(QueueService.method.deleteQueue, request, "once", options);
    return count(answer.deletedMessages);
  }

  /** Statistics and settings of one queue; fails with `QUEUE_NOT_FOUND` if it does not exist. */
  async get(queue: string, options: ReadOptions = {}): Promise<QueueInfo> {
    const { linearizable = false } = given(options);
    const request = { queue, linearizable };
    const answer = await this.#caller.unary(QueueService.method.getQueue, request, "repeatable", options);
    return infoOf(queue, answer.queue);
  }

  /** All queues by name, or those whose name begins with `prefix`. */
  list(options: ReadOptions & { readonly prefix?: string } = {}): AsyncGenerator<QueueInfo, void, undefined> {
    const { prefix = "", linearizable = false } = given(options);
    return pages(async (pageToken) => {
      const request = { pageSize: PAGE, pageToken, prefix, linearizable };
      const answer = await this.#caller.unary(QueueService.method.listQueues, request, "repeatable", options);
      return { items: answer.queues.map((queue) => infoOf(queue.name, queue)), nextPageToken: answer.nextPageToken };
    });
  }

  /** Shows ready messages in the order of delivery without leasing them, 10 if nothing else is said. */
  async peek(queue: string, options: ReadOptions & { readonly maxMessages?: number } = {}): Promise<QueueMessage[]> {
    const { maxMessages = 0, linearizable = false } = given(options);
    const request = { queue, maxMessages, linearizable };
    const answer = await this.#caller.unary(QueueService.method.peek, request, "repeatable", options);
    return answer.deliveries.map((delivery) => new QueueMessage(delivery));
  }

  /** Removes the ready messages, and answers how many. */
  async purge(queue: string, options?: CallOptions): Promise<number> {
    const answer = await this.#caller.unary(QueueService.method.purgeQueue, { queue }, "repeatable", options);
    return count(answer.purged);
  }

  /** Removes the ready messages of the dead-letter queue of a queue. */
  async purgeDeadLetters(queue: string, options?: CallOptions): Promise<number> {
    const answer = await this.#caller.unary(QueueService.method.purgeDeadLetters, { queue }, "repeatable", options);
    return count(answer.purged);
  }

  /**
   * Sends dead letters back to their queue, and answers how many. It is begun again only if nothing was sent back before it broke off; what
   * is left then can be sent with another call.
   */
  async redriveDeadLetters(queue: string, options: RedriveOptions = {}): Promise<number> {
    const { headers = {}, maxMessages = 0, maxPerSecond = 0, onProgress, signal } = given(options);
    const request = { queue, headers: { ...headers }, maxMessages: optionalBigInt(maxMessages) ?? 0n, maxPerSecond };
    const backoff = this.#caller.backoff();
    const deadline = Date.now() + this.#caller.settings.timeoutMs;
    for (;;) {
      signal?.throwIfAborted();
      const channel = this.#caller.channel();
      const call = channel.serverStream(QueueService.method.redriveDeadLetters, request, { signal });
      let redriven = 0;
      try {
        for await (const response of call.responses) {
          redriven = count(response.redriven);
          onProgress?.(redriven);
        }
        return redriven;
      } catch (error) {
        signal?.throwIfAborted();
        if (redriven > 0) throw error;
        await this.#caller.recover({ channel, error, repeat: "once", backoff, deadline, signal });
      } finally {
        call.cancel();
      }
    }
  }

  /** Messages that are not due yet, in the order of their due times. */
  listScheduled(queue: string, options: CallOptions = {}): AsyncGenerator<ScheduledMessage, void, undefined> {
    return pages(async (pageToken) => {
      const request = { queue, pageSize: PAGE, pageToken };
      const answer = await this.#caller.unary(QueueService.method.listScheduled, request, "repeatable", options);
      const items = answer.messages.map(({ messageId, deliverAt, priority }) => ({
        id: hex(messageId),
        deliverAt: dateOf(deliverAt),
        priority,
      }));
      return { items, nextPageToken: answer.nextPageToken };
    });
  }

  /** Removes messages that are not due yet. `settled` says how many; the failures have ids as tokens. */
  async cancelScheduled(ids: readonly string[], options?: CallOptions): Promise<SettleResult> {
    const request = { messageIds: ids.map(idBytes) };
    const answer = await this.#caller.unary(QueueService.method.cancelScheduled, request, "once", options);
    return { settled: answer.cancelled, failures: failuresOf(answer.failures) };
  }

  /** Gives a message that is not due yet another due time, and answers it. */
  async reschedule(id: string, due: DueTime, options?: CallOptions): Promise<Date> {
    const value = duration(Math.max(0, delayOf(due)), "delayMs");
    const request = { messageId: idBytes(id), due: { case: "delay" as const, value } };
    const answer = await this.#caller.unary(QueueService.method.reschedule, request, "repeatable", options);
    return dateOf(answer.deliverAt);
  }
}

function delayOf(due: DueTime): number {
  const { deliverAt, delayMs } = given<{ readonly deliverAt?: Date; readonly delayMs?: number }>(due, "due");
  if (deliverAt === undefined) return milliseconds(delayMs, "delayMs");
  if (deliverAt instanceof Date && !Number.isNaN(deliverAt.getTime())) return deliverAt.getTime() - Date.now();
  throw invalid(`deliverAt is ${shown(deliverAt)}; it has to be a Date`);
}

function unknown(field: string): never {
  throw invalid(`"${field}" is no setting of a queue; there are ${Object.keys(FIELDS).join(", ")}`);
}

function settingsInit(asked: QueueSettings): MessageInitShape<typeof QueueSettingsSchema> {
  const settings = given(asked, "settings");
  return {
    maxRetry: settings.maxRetry,
    retryBackoff: optionalDuration(settings.retryBackoffMs, "retryBackoffMs"),
    retryBackoffMax: optionalDuration(settings.retryBackoffMaxMs, "retryBackoffMaxMs"),
    ackTimeout: optionalDuration(settings.ackTimeoutMs, "ackTimeoutMs"),
    defaultTtl: optionalDuration(settings.defaultTtlMs, "defaultTtlMs"),
    maxLength: optionalBigInt(settings.maxLength),
    maxLengthBytes: optionalBigInt(settings.maxLengthBytes),
    overflow:
      settings.overflow === undefined
        ? OverflowPolicy.UNSPECIFIED
        : OverflowPolicy[oneOf(settings.overflow, ["REJECT", "DROP_OLDEST"], "overflow")],
    deadLetterQueue: settings.deadLetterQueue ?? "",
    dedupTtl: optionalDuration(settings.dedupTtlMs, "dedupTtlMs"),
    singleActiveConsumer: settings.singleActiveConsumer ?? false,
    paused: settings.paused ?? false,
  };
}

function settingsOf(wire: WireSettings | undefined): QueueSettings {
  if (wire === undefined) return {};
  const all: QueueSettings = {
    maxRetry: wire.maxRetry,
    retryBackoffMs: optionalMs(wire.retryBackoff),
    retryBackoffMaxMs: optionalMs(wire.retryBackoffMax),
    ackTimeoutMs: optionalMs(wire.ackTimeout),
    defaultTtlMs: optionalMs(wire.defaultTtl),
    maxLength: wire.maxLength === undefined ? undefined : count(wire.maxLength),
    maxLengthBytes: wire.maxLengthBytes === undefined ? undefined : count(wire.maxLengthBytes),
    overflow: wire.overflow === OverflowPolicy.UNSPECIFIED ? undefined : (OverflowPolicy[wire.overflow] as Overflow),
    deadLetterQueue: wire.deadLetterQueue || undefined,
    dedupTtlMs: optionalMs(wire.dedupTtl),
    singleActiveConsumer: wire.singleActiveConsumer || undefined,
    paused: wire.paused || undefined,
  };
  // Only what the queue has of its own, so that what was read can be written.
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function infoOf(name: string, wire: WireQueue | undefined): QueueInfo {
  return {
    name: wire?.name ?? name,
    ready: count(wire?.ready ?? 0n),
    leased: count(wire?.leased ?? 0n),
    delayed: count(wire?.delayed ?? 0n),
    deadLetters: count(wire?.deadLetters ?? 0n),
    consumers: wire?.consumers ?? 0,
    settings: settingsOf(wire?.settings),
  };
}

function optionalBigInt(value: number | undefined): bigint | undefined {
  if (value !== undefined && !Number.isSafeInteger(value)) throw invalid(`${value} is no whole number`);
  return value === undefined ? undefined : BigInt(value);
}
