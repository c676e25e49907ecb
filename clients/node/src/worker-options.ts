/** What a worker is made with, and what its handlers see. */
import { callable, optionalMilliseconds, optionalMillisecondsWithin, optionalWhole, queueName } from "./check.js";
import type { Delivery, NackOptions } from "./received.js";

/** Of messages in flight, as the server has it. */
const IN_FLIGHT_MAX = 100_000;
const CONCURRENCY_DEFAULT = 16;
/** Of leases, as the server has it. */
const LEASE_MS_MIN = 1_000;
const LEASE_MS_MAX = 12 * 3_600_000;

/** Thrown by a handler, it sends the message to the dead letters at once. */
export class DeadLetter extends Error {
  override readonly name = "DeadLetter";
}

/** What a handler gets beside the message. */
export interface HandlerContext {
  /** Aborted when the message is somebody else's: its lease was lost or may not be extended further, or the worker ends. */
  readonly signal: AbortSignal;
}

/** Does the work of one message. It is acknowledged when this returns, and given back as failed when this throws. */
export type Handler = (delivery: Delivery, context: HandlerContext) => Promise<void> | void;

/**
 * What went wrong: the handler of a message failed; its lease is not extended any further, because the handler has run for `maxLeaseMs`; its
 * lease was lost when it was to be extended; it was not settled when its handler had ended; or the worker has ended by itself.
 */
export type WorkerFailure = "HANDLER_FAILED" | "LEASE_CEILING" | "LEASE_LOST" | "NOT_SETTLED" | "WORKER_ENDED";

/** How a worker works. */
export interface WorkerOptions {
  /** Handlers that run at a time, 1 to 100,000. Default 16. */
  readonly concurrency?: number | undefined;
  /**
   * Messages that may wait here for a handler, so that no handler waits for the network; others do not get them. Default: as many as handlers.
   * Both together are 100,000 at most. The server counts what is not settled: so many and the handlers are in flight, those included whose
   * settlement is on its way.
   */
  readonly prefetch?: number | undefined;
  /** Bytes that these may have. Default 16 MiB. At most one response of the server, up to 4 MiB, goes over it. */
  readonly maxBufferedBytes?: number | undefined;
  /**
   * Length of a lease in milliseconds, 1 s to 12 h. Default 30 s. It is extended when half of it is over, while the message waits for a handler
   * and while that runs.
   */
  readonly leaseMs?: number | undefined;
  /** Milliseconds that a handler may hold a message in all. Default 10 minutes. After that its lease is not extended, and others get it. */
  readonly maxLeaseMs?: number | undefined;
  /** Milliseconds until a failed message comes again. Default: the backoff of the queue. */
  readonly nackDelayMs?: number | ((delivery: Delivery, error: unknown) => number | undefined) | undefined;
  /** Milliseconds without a connection after which the worker fails. Default: it goes on for ever. */
  readonly outageMs?: number | undefined;
  /**
   * Told what went wrong with a message: what its handler threw, that its lease is not extended any further or was lost, and why it could
   * not be settled. What it throws itself is ignored.
   *
   * Told without a message why the worker has ended by itself, for example because its key may not consume. If there is no `onError`, or it
   * throws then, and nobody has asked for {@link Worker.finished}, that failure is an unhandled rejection, which ends a process.
   */
  readonly onError?: ((error: unknown, delivery: Delivery | undefined, what: WorkerFailure) => void) | undefined;
  /**
   * Milliseconds that handlers, and answers to settlements, have when the worker is stopped, by {@link Worker.stop} or with its client. Default 30 s; 0: what runs is
   * given back at once.
   */
  readonly stopTimeoutMs?: number | undefined;
  /** Stops the worker, as {@link Worker.stop} does. */
  readonly signal?: AbortSignal | undefined;
}

/** Checks them. */
export function checkWorker(queue: string, options: WorkerOptions): void {
  queueName(queue);
  optionalWhole(options.concurrency, "concurrency", 1, IN_FLIGHT_MAX);
  const { concurrency } = inFlight(options);
  optionalWhole(options.prefetch, "prefetch", 0, IN_FLIGHT_MAX - concurrency);
  optionalWhole(options.maxBufferedBytes, "maxBufferedBytes", 1);
  optionalMillisecondsWithin(options.leaseMs, "leaseMs", LEASE_MS_MIN, LEASE_MS_MAX);
  optionalMilliseconds(options.maxLeaseMs, "maxLeaseMs");
  optionalMilliseconds(options.outageMs, "outageMs");
  optionalMilliseconds(options.stopTimeoutMs, "stopTimeoutMs");
  if (typeof options.nackDelayMs !== "function") optionalMilliseconds(options.nackDelayMs, "nackDelayMs");
  if (options.onError !== undefined) callable(options.onError, "onError");
}

/** How many messages are held. */
export function inFlight(options: WorkerOptions): { readonly concurrency: number; readonly maxInFlight: number } {
  const concurrency = options.concurrency ?? CONCURRENCY_DEFAULT;
  return { concurrency, maxInFlight: Math.min(concurrency + (options.prefetch ?? concurrency), IN_FLIGHT_MAX) };
}

/** What becomes of a message whose handler failed. `wrong` is told what the options throw. */
export function nackOf(
  { nackDelayMs }: WorkerOptions,
  delivery: Delivery,
  error: unknown,
  wrong: (error: unknown) => void,
): NackOptions {
  if (error instanceof DeadLetter) return { deadLetter: true };
  if (typeof nackDelayMs !== "function") return { delayMs: nackDelayMs };
  try {
    return { delayMs: nackDelayMs(delivery, error) ?? undefined };
  } catch (thrown) {
    wrong(thrown);
    return {};
  }
}

/** How something is ended. */
export interface StopOptions {
  /** Milliseconds to wait for what has begun. */
  readonly timeoutMs?: number | undefined;
}

/** What a worker that was stopped leaves. */
export interface StopResult {
  /**
   * Ids of the messages whose handlers did not end in time, or whose settlement failed since the stop or had no answer in time. They come
   * again, unless they were settled all the same.
   */
  readonly notSettled: readonly string[];
}
