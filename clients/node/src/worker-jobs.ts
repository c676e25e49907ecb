/** What a worker knows of its messages. */
import { BoltqError } from "./errors.js";
import type { Delivery } from "./received.js";

const REMEMBERED_MS = 60_000;

/** Whether a message is no longer ours to settle. */
export function isLost(error: unknown): boolean {
  return error instanceof BoltqError && (error.reason === "LEASE_LOST" || error.reason === "NOT_FOUND");
}

/** What happens to it. */
export type State = "waiting" | "running" | "acking" | "nacking";

/** A message, from when it came until its settlement is known. */
export interface Job {
  readonly id: string;
  delivery: Delivery;
  /** Number of the stream that its lease belongs to. */
  stream: number;
  readonly bytes: number;
  /** When its handler began. */
  begun: number;
  state: State;
  /** The token whose extension is on its way. */
  extending: Uint8Array | undefined;
  readonly controller: AbortController;
}

/** What was not acknowledged, and why. */
export interface Late {
  readonly delivery: Delivery;
  readonly error: unknown;
}

/**
 * Messages that a worker has handled and whose acknowledgement came too late, as somebody had them again. That can be this worker: after a
 * broken connection the answer to the acknowledgement is often quicker than the new delivery. Each is remembered for a minute.
 */
export class LateAcknowledgements {
  readonly #all = new Map<string, Late & { readonly until: number }>();

  add(delivery: Delivery, error: unknown): void {
    this.#all.set(delivery.id, { delivery, error, until: Date.now() + REMEMBERED_MS });
  }

  /** Whether it was there; it is not any more. */
  delete(id: string): boolean {
    return this.#all.delete(id);
  }

  /** Takes out those that did not come again until then. */
  take(now: number): Late[] {
    const over = [...this.#all.values()].filter(({ until }) => until <= now);
    for (const { delivery } of over) this.#all.delete(delivery.id);
    return over;
  }
}
