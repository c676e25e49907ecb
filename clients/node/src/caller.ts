/**
 * Calls that are repeated when that helps: the retry layer.
 *
 * Everything that talks to a server comes through here. Unary calls go through {@link Caller.unary}; streams, which know themselves how
 * to begin again, ask {@link Caller.recover} after each failure. `retry.ts` says what a failure means.
 */
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Channel } from "./channel.js";
import { given, timeout } from "./check.js";
import type { Endpoints } from "./endpoints.js";
import { BoltqError, closed, inDoubt } from "./errors.js";
import { Backoff, isRepeated } from "./retry.js";
import { linked, sleep } from "./wait.js";

/** What every call takes. */
export interface CallOptions {
  /** Gives the call up; it then throws the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds that it may take with everything that is repeated. Default: that of the client. */
  readonly timeoutMs?: number | undefined;
}

/** Whether a call may be carried out twice: then it is repeated also if its outcome is unknown. */
export type Repeat = "repeatable" | "once";

/** How failures are answered. */
export interface RetrySettings {
  /** Milliseconds that a call may take if it says nothing else. */
  readonly timeoutMs: number;
  /** Longest first wait. */
  readonly backoffMs: number;
  /** Longest wait. */
  readonly backoffMaxMs: number;
  /** For how long calls wait for a server if none has ever answered, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** Told about every failure that is not reported because it will be tried again. */
  readonly onRetry?: ((error: BoltqError, waitMs: number) => void) | undefined;
}

/** A failure, and what may be done about it. */
export interface Failure {
  /** Where it happened. */
  readonly channel: Channel;
  /** What was thrown. */
  readonly error: unknown;
  /** Whether to repeat when the outcome is unknown. */
  readonly repeat: Repeat;
  /** Waits so far. */
  readonly backoff: Backoff;
  /** `Date.now()` after which nothing is tried; undefined: for ever. */
  readonly deadline?: number | undefined;
  /** Whether it waits for a server for ever, also if none has ever answered. */
  readonly patient?: boolean | undefined;
  /** Ends the waiting. */
  readonly signal?: AbortSignal | undefined;
}

/** How a call with one answer is made. */
interface Attempts {
  readonly repeat: Repeat;
  readonly deadline: number;
  readonly signal: AbortSignal;
  readonly attempt: ((number: number) => void) | undefined;
}

/** Makes calls on behalf of one client. */
export class Caller {
  readonly settings: RetrySettings;
  readonly #endpoints: Endpoints;
  readonly #ending = new AbortController();
  readonly #closing = new AbortController();

  constructor(endpoints: Endpoints, settings: RetrySettings) {
    this.#endpoints = endpoints;
    this.settings = settings;
  }

  /** Aborted when the client begins to close: what waits for something to come ends then. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  /** Aborted when the client is closed: everything ends then. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** The connection to use now; throws when the client is closed. */
  channel(): Channel {
    if (this.closing.aborted) throw closed("client");
    return this.#endpoints.current();
  }

  /** Fulfilled when the node in use knows of what was ended. */
  async flush(): Promise<void> {
    if (!this.closing.aborted) await this.#endpoints.current().flush();
  }

  /** Waits between attempts of one call or stream. */
  backoff(): Backoff {
    return new Backoff(this.settings.backoffMs, this.settings.backoffMaxMs);
  }

  /** A call with one answer. `attempt` is told about each attempt, from 1. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    repeat: Repeat,
    options?: CallOptions,
    attempt?: (number: number) => void,
  ): Promise<MessageShape<O>> {
    const { signal, timeoutMs = this.settings.timeoutMs } = given(options);
    const deadline = Date.now() + timeout(timeoutMs);
    const { controller, release } = linked(signal, this.closing);
    try {
      return await this.#repeated(method, request, { repeat, deadline, signal: controller.signal, attempt });
    } finally {
      release();
    }
  }

  async #repeated<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    { repeat, deadline, signal, attempt }: Attempts,
  ): Promise<MessageShape<O>> {
    const backoff = this.backoff();
    let last: BoltqError | undefined;
    let doubt = false;
    for (let number = 1; ; number += 1) {
      if (this.closing.aborted) throw closed("client", !doubt);
      signal.throwIfAborted();
      const channel = this.channel();
      attempt?.(number);
      try {
        return await channel.unary(method, request, { signal, timeoutMs: Math.max(1, deadline - Date.now()) });
      } catch (error) {
        if (this.closing.aborted) throw closed("client", !doubt && error instanceof BoltqError && error.notApplied);
        signal.throwIfAborted();
        last = withCause(error, last);
        if (doubt) last = inDoubt(last);
        doubt = !last.notApplied;
        await this.recover({ channel, error: last, repeat, backoff, deadline, signal });
      }
    }
  }

  /**
   * After a failure: chooses the node for the next attempt, waits as long as is right, and returns; or throws the failure if nothing is
   * to be tried again, or no time is left.
   */
  async recover({ channel, error, repeat, backoff, deadline, patient, signal }: Failure): Promise<void> {
    const unsent = error instanceof BoltqError && error.notApplied;
    if (this.closing.aborted) throw closed("client", unsent);
    if (!(error instanceof BoltqError)) throw error;
    if (!isRepeated(error) || (repeat === "once" && !error.notApplied)) throw error;
    const moved = this.#endpoints.failed(channel, error);
    const waitMs = backoff.next(moved, error.retryAfterMs);
    const until = Date.now() + waitMs;
    if (deadline !== undefined && until >= deadline) throw error;
    if (!this.#endpoints.answered) {
      backoff.unreached.note(channel.address, error);
      const limitMs = patient === true ? Number.POSITIVE_INFINITY : this.settings.connectTimeoutMs;
      const verdict = backoff.unreached.verdict(this.#endpoints.given, until, limitMs);
      if (verdict !== undefined) throw verdict;
    }
    this.settings.onRetry?.(error, waitMs);
    const { controller, release } = linked(signal, this.closing);
    try {
      await sleep(waitMs, controller.signal);
    } catch (reason) {
      throw this.closing.aborted ? closed("client", unsent) : reason;
    } finally {
      release();
    }
  }

  /** Ends what waits for something to come. */
  beginClose(): void {
    this.#ending.abort(closed("client", false));
  }

  /** Ends all calls and connections. */
  close(): void {
    this.beginClose();
    this.#closing.abort(closed("client"));
    this.#endpoints.close();
  }
}

/** A deadline says little about why nothing came in time; what had failed before it says more. */
function withCause(error: unknown, last: BoltqError | undefined): BoltqError {
  if (!(error instanceof BoltqError)) throw error;
  if (error.code !== "DEADLINE_EXCEEDED" || error.reason !== "" || last === undefined) return error;
  return new BoltqError(`${error.message}; before that: ${last.message}`, { code: error.code, cause: last });
}
