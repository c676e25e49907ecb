/** What a worker is made with, and what its handlers see. */
import { callable, optionalMilliseconds, optionalWhole, queueName } from "./check.js";
import type { Delivery } from "./received.js";

const HELD_MAX = 0x7fff_ffff;

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

/** How a worker works. */
export interface WorkerOptions {
  /** Handlers that run at a time. Default 10. */
  readonly concurrency?: number | undefined;
  /** Messages that are taken ahead of the handlers, so that these need not wait for the network. Default 0. */
  readonly prefetch?: number | undefined;
  /** Bytes that these may have. Default 16 MiB. At most one response of the server, up to 4 MiB, goes over it. */
  readonly maxBufferedBytes?: number | undefined;
  /** Length of a lease in milliseconds, 1 s to 12 h. Default 30 s. It is extended before it ends. */
  readonly leaseMs?: number | undefined;
  /** Milliseconds for which the lease of one message is extended in all. Default 10 minutes. After that others get it. */
  readonly maxLeaseMs?: number | undefined;
  /** Milliseconds until a failed message comes again. Default: the backoff of the queue. */
  readonly nackDelayMs?: number | ((delivery: Delivery, error: unknown) => number | undefined) | undefined;
  /** Milliseconds without a connection after which the worker fails. Default: it goes on for ever. */
  readonly outageMs?: number | undefined;
  /**
   * Told what a handler threw, that a lease was not extended any further, and why a message could not be settled unless that is because
   * somebody else has it. What it throws itself is ignored.
   *
   * Told without a message why the worker has ended by itself, for example because its key may not consume. If there is no `onError`, or it
   * throws then, and nobody has asked for {@link Worker.finished}, that failure is an unhandled rejection, which ends a process.
   */
  readonly onError?: ((error: unknown, delivery: Delivery | undefined) => void) | undefined;
  /**
   * Milliseconds that handlers have to end when the worker is stopped, by {@link Worker.stop} or with its client. Default 30 s; 0: what runs is
   * given back at once.
   */
  readonly stopTimeoutMs?: number | undefined;
  /** Stops the worker, as {@link Worker.stop} does. */
  readonly signal?: AbortSignal | undefined;
}

/** Checks them. */
export function checkWorker(queue: string, options: WorkerOptions): void {
  queueName(queue);
  optionalWhole(options.concurrency, "concurrency", 1, HELD_MAX);
  optionalWhole(options.prefetch, "prefetch", 0, HELD_MAX);
  optionalWhole(options.maxBufferedBytes, "maxBufferedBytes", 1);
  optionalMilliseconds(options.leaseMs, "leaseMs");
  optionalMilliseconds(options.maxLeaseMs, "maxLeaseMs");
  optionalMilliseconds(options.outageMs, "outageMs");
  optionalMilliseconds(options.stopTimeoutMs, "stopTimeoutMs");
  if (typeof options.nackDelayMs !== "function") optionalMilliseconds(options.nackDelayMs, "nackDelayMs");
  if (options.onError !== undefined) callable(options.onError, "onError");
}

/** How something is ended. */
export interface StopOptions {
  /** Milliseconds to wait for what has begun. */
  readonly timeoutMs?: number | undefined;
}

/** What has become of the messages of a worker that was stopped. */
export interface StopResult {
  /** Messages whose handlers did not end in time, or had not begun. They are ready for others. */
  readonly released: number;
}
