/**
 * Settlements, gathered into few calls.
 *
 * What is settled while a call with settlements of the same kind is on its way goes into the next one, up to 1,000 together. So one
 * that is alone is sent at once, and many at a time cost a call for each round trip. They are unary calls and no part of the stream that
 * brought the messages: those are repeated when they fail, and still work when the stream is gone, because the server takes a late
 * acknowledgement as long as nobody else holds the message.
 */
import type { Caller, CallOptions } from "./caller.js";
import { given } from "./check.js";
import { duration, optionalDuration } from "./convert.js";
import { BoltqError, type ErrorCode } from "./errors.js";
import { QueueService, SettleFailureReason, type SettleFailure as WireFailure } from "./gen/boltq/queue/v1/queue_pb.js";
import type { NackOptions, Settling } from "./received.js";
import { Deferred } from "./wait.js";

/** Of one request, as the server says. */
const TOKENS_MAX = 1_000;

/** Why a message could not be settled. */
export type SettleFailureName =
  | "MALFORMED"
  | "NOT_FOUND"
  | "LEASE_LOST"
  | "NOT_SETTLED"
  | "NOT_SCHEDULED"
  | "UNSPECIFIED";

/** A message that could not be settled. */
export interface SettleFailure {
  /** Token or id, as it was given. */
  readonly token: Uint8Array;
  /** Why. */
  readonly reason: SettleFailureName;
}

/** What came of a settlement. */
export interface SettleResult {
  /** How many were settled. */
  readonly settled: number;
  /** The others. */
  readonly failures: readonly SettleFailure[];
}

/** What is asked for with some tokens. */
type Action =
  | { readonly do: "ack" }
  | { readonly do: "nack"; readonly how: NackOptions }
  | { readonly do: "extend"; readonly leaseMs: number };

const CODES: Readonly<Record<SettleFailureName, ErrorCode>> = {
  MALFORMED: "INVALID_ARGUMENT",
  NOT_FOUND: "NOT_FOUND",
  LEASE_LOST: "FAILED_PRECONDITION",
  NOT_SETTLED: "UNAVAILABLE",
  NOT_SCHEDULED: "FAILED_PRECONDITION",
  UNSPECIFIED: "UNKNOWN",
};

const TEXTS: Readonly<Record<SettleFailureName, string>> = {
  MALFORMED: "this is no delivery token of this server",
  NOT_FOUND: "the message is gone: it was settled before, has expired or was purged",
  LEASE_LOST: "the lease has ended, and somebody else has the message now",
  NOT_SETTLED: "this message could not be settled and will be delivered again",
  NOT_SCHEDULED: "the message is due already",
  UNSPECIFIED: "the message could not be settled",
};

/** Failures of the wire. */
export function failuresOf(failures: readonly WireFailure[]): SettleFailure[] {
  return failures.map(({ token, reason }) => ({ token, reason: SettleFailureReason[reason] as SettleFailureName }));
}

/** One call with up to 1,000 tokens. An acknowledgement is repeatable: the second one changes nothing. */
export async function settle(
  caller: Caller,
  action: Action,
  tokens: readonly Uint8Array[],
  options?: CallOptions,
): Promise<SettleResult> {
  let attempts = 0;
  const attempt = (number: number): void => {
    attempts = number;
  };
  const deliveryTokens = [...tokens];
  const { settled, failures } = await (async () => {
    switch (action.do) {
      case "ack": {
        const answer = await caller.unary(QueueService.method.ack, { deliveryTokens }, "repeatable", options, attempt);
        return answer;
      }
      case "nack": {
        const { delayMs, deadLetter, release } = given(action.how, "how");
        const request = {
          deliveryTokens,
          delay: optionalDuration(delayMs, "delayMs"),
          deadLetter: deadLetter ?? false,
          release: release ?? false,
        };
        return await caller.unary(QueueService.method.nack, request, "repeatable", options, attempt);
      }
      case "extend": {
        const request = { deliveryTokens, lease: duration(action.leaseMs, "leaseMs") };
        const answer = await caller.unary(QueueService.method.extendLease, request, "repeatable", options, attempt);
        return { settled: answer.extended, failures: answer.failures };
      }
    }
  })();
  const all = failuresOf(failures);
  if (attempts === 1 || action.do === "extend") return { settled, failures: all };
  // An attempt without an answer may have settled them, and then they are gone now.
  const left = all.filter((failure) => failure.reason !== "NOT_FOUND");
  return { settled: settled + all.length - left.length, failures: left };
}

interface Waiting {
  readonly token: Uint8Array;
  readonly done: Deferred<void>;
}

/** Settles for all deliveries of a client. */
export class Settler implements Settling {
  readonly #caller: Caller;
  readonly #lanes = new Map<string, Lane>();

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  ack(token: Uint8Array): Promise<void> {
    return this.#add("ack", { do: "ack" }, token);
  }

  async nack(token: Uint8Array, asked: NackOptions): Promise<void> {
    const how = given(asked, "how");
    return this.#add(
      `nack ${how.delayMs} ${how.deadLetter ?? false} ${how.release ?? false}`,
      { do: "nack", how },
      token,
    );
  }

  extend(token: Uint8Array, leaseMs: number): Promise<void> {
    return this.#add(`extend ${leaseMs}`, { do: "extend", leaseMs }, token);
  }

  #add(key: string, action: Action, token: Uint8Array): Promise<void> {
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      lane = new Lane(this.#caller, action, () => this.#lanes.delete(key));
      this.#lanes.set(key, lane);
    }
    return lane.add(token);
  }
}

/** Settlements of one kind, one call at a time. */
class Lane {
  readonly #caller: Caller;
  readonly #action: Action;
  readonly #idle: () => void;
  #waiting: Waiting[] = [];
  #busy = false;

  constructor(caller: Caller, action: Action, idle: () => void) {
    this.#caller = caller;
    this.#action = action;
    this.#idle = idle;
  }

  add(token: Uint8Array): Promise<void> {
    const done = new Deferred<void>();
    this.#waiting.push({ token, done });
    if (!this.#busy) {
      this.#busy = true;
      // What is settled in the same turn goes together.
      queueMicrotask(() => void this.#run());
    }
    return done.promise;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, TOKENS_MAX);
      try {
        const tokens = batch.map(({ token }) => token);
        const { failures } = await settle(this.#caller, this.#action, tokens);
        answer(batch, failures);
      } catch (error) {
        for (const { done } of batch) done.reject(error);
      }
    }
    this.#busy = false;
    this.#idle();
  }
}

function answer(batch: readonly Waiting[], failures: readonly SettleFailure[]): void {
  const failed = new Map(failures.map(({ token, reason }) => [key(token), reason]));
  for (const { token, done } of batch) {
    const reason = failed.size === 0 ? undefined : failed.get(key(token));
    if (reason === undefined) done.resolve();
    else done.reject(new BoltqError(TEXTS[reason], { code: CODES[reason], reason }));
  }
}

function key(token: Uint8Array): string {
  return Buffer.from(token.buffer, token.byteOffset, token.byteLength).toString("latin1");
}
