/**
 * Which failures are worth another attempt, where, and when. The one place that knows reasons of the server.
 *
 * A failure can pass if the server says when to try again (`retry_after_ms`), or if it came from below the broker: a connection that
 * broke or could not be made. Then the question is what became of the call. Some failures say that nothing was done, so
 * everything may be repeated; after all others only what does no harm a second time. The table is in clients/README.md and is the same
 * for all languages.
 */
import { type BoltqError, WRONG_SERVER } from "./errors.js";
import { Unreached } from "./unreached.js";

/** What is known of a failure. */
type Told = Pick<BoltqError, "code" | "reason" | "metadata" | "retryAfterMs">;

/** Reasons that are given before anything is done. Not `STOPPED`, nor `LEADER_LOST`: that call was passed on. */
const NOT_APPLIED: ReadonlySet<string> = new Set([
  "IDEMPOTENCY_KEYS_FULL",
  "NODE_REMOVED",
  "NOT_CURRENT",
  "NOT_ENOUGH_REPLICAS",
  "NOT_LEADER",
  "NO_LEADER",
  "QUEUE_FULL",
  "STORAGE_FULL",
  "TOO_MANY_FAILED_ATTEMPTS",
  "TOO_MANY_UNFINISHED_REQUESTS",
]);

/** Reasons that can last for hours, so what to do about them is for the application to say. */
const REPORTED: ReadonlySet<string> = new Set([
  "IDEMPOTENCY_KEYS_FULL",
  "QUEUE_FULL",
  "STORAGE_FULL",
  "TOO_MANY_FAILED_ATTEMPTS",
]);

/** Codes with which a call can fail and have been carried out nevertheless. */
const OUTCOME_UNKNOWN: ReadonlySet<string> = new Set([
  "CANCELLED",
  "DATA_LOSS",
  "DEADLINE_EXCEEDED",
  "INTERNAL",
  "UNAVAILABLE",
  "UNKNOWN",
]);

/** Reasons with which another node is worth a try. */
const ELSEWHERE: ReadonlySet<string> = new Set([
  "LEADER_LOST",
  "NODE_REMOVED",
  "NOT_CURRENT",
  "NOT_LEADER",
  "REQUEST_STALLED",
  "STOPPED",
]);

/** Whether it came from below the broker. */
function isBroken({ code, reason }: Told): boolean {
  return (reason === "" || reason === WRONG_SERVER) && code === "UNAVAILABLE";
}

/** Whether the same call can succeed later. Reasons that a newer server may have are judged by their code. */
export function isRetriable({ code, reason, retryAfterMs }: Told): boolean {
  return code === "UNAVAILABLE" || reason === "REQUEST_STALLED" || retryAfterMs !== undefined;
}

/** Whether the client makes the call again, if that does no harm. */
export function isRepeated(told: Told): boolean {
  return isRetriable(told) && !REPORTED.has(told.reason);
}

/** Whether it is certain that nothing was done, if the request was sent. */
export function isNotApplied({ code, reason }: Told): boolean {
  return NOT_APPLIED.has(reason) || !OUTCOME_UNKNOWN.has(code);
}

/** Whether another node is a better choice for the next attempt, and which one leads if the failure says so. */
export function whereNext(told: Told): { readonly elsewhere: boolean; readonly leader: string | undefined } {
  return { elsewhere: isBroken(told) || ELSEWHERE.has(told.reason), leader: told.metadata["leader"] || undefined };
}

/** Waits between attempts: exponential with full jitter, and never shorter than what the server asks for. */
export class Backoff {
  readonly #firstMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #failures = 0;
  /** What failed as long as no server has ever answered. */
  readonly unreached = new Unreached();

  /** The first wait is up to `firstMs`, and each further one up to twice as long, at most `maxMs`. */
  constructor(firstMs: number, maxMs: number, random: () => number = Math.random) {
    this.#firstMs = firstMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }

  /**
   * Milliseconds to wait after a failure. The first attempt with another node comes at once: that one was not asked yet.
   */
  next(elsewhere: boolean, atLeastMs = 0): number {
    if (elsewhere && this.#failures === 0) {
      this.#failures = 1;
      return 0;
    }
    const ceiling = Math.min(this.#maxMs, this.#firstMs * 2 ** Math.min(this.#failures, 30));
    this.#failures += 1;
    return atLeastMs + this.#random() * ceiling;
  }

  /** Begins again with short waits. */
  reset(): void {
    this.#failures = 0;
    this.unreached.reset();
  }
}
