/**
 * A stream of publishes with a confirmation for each: what {@link Publisher} and `client.publish` are made of.
 *
 * Messages wait in `#ready` until they are sent, in batches, and then in `#sent` until the server has answered for their batch; answers
 * come in the order of the batches. When the stream breaks, what was sent and not answered goes back to the front of `#ready`, in its
 * order, and is sent again on the next stream. The idempotency key of each message keeps the server from storing it twice. A message
 * without a key is sent again only if it was surely not stored, and is reported otherwise.
 */
import type { Caller } from "./caller.js";
import type { Channel } from "./channel.js";
import type { Answered, Confirming, Target } from "./confirming.js";
import { hex, type WireMessage } from "./convert.js";
import { BoltqError, closed, inDoubt } from "./errors.js";
import { KEYS_FULL, type KeyMaker } from "./keys.js";
import { nextBatch, type Outgoing, refusal } from "./outgoing.js";
import { type Backoff, isRepeated } from "./retry.js";
import { Deferred, timerMs } from "./wait.js";

/** Sends messages, and sends them again. How many is for its owner to bound. */
export class PublishStream {
  readonly #caller: Caller;
  readonly #keys: KeyMaker;
  readonly #target: Target;
  readonly #backoff: Backoff;
  readonly #stopping = new AbortController();
  #ready: Outgoing[] = [];
  #sent: Outgoing[][] = [];
  #call: Confirming | undefined;
  /** Where the stream goes. */
  #channel: Channel | undefined;
  /** Whether a turn of the loop that sends is due. */
  #scheduled = false;
  /** Whether it waits after a failure. */
  #resting = false;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = 0;
  #drained: Deferred<void> | undefined;
  /** Why something was sent again, until something is confirmed. */
  #lastError: unknown;
  /** Messages that are not confirmed yet. */
  unconfirmed = 0;

  constructor(caller: Caller, keys: KeyMaker, target: Target) {
    this.#caller = caller;
    this.#keys = keys;
    this.#target = target;
    this.#backoff = caller.backoff();
  }

  /** Publishes a message that was checked. `over` is called once, when its outcome is known. */
  publish(
    to: string,
    wire: WireMessage,
    bytes: number,
    timeoutMs: number,
    over?: (error?: unknown) => void,
  ): Promise<string> {
    if (this.#stopping.signal.aborted) throw closed("publisher");
    const madeKey = wire.idempotencyKey === "";
    if (madeKey) wire.idempotencyKey = this.#keys.next();
    const confirmed = new Deferred<string>();
    const deadline = Date.now() + timeoutMs;
    this.#ready.push({ to, wire, bytes, deadline, madeKey, unknown: false, over: false, onOver: over, confirmed });
    this.unconfirmed += 1;
    this.#watchDeadlines(deadline);
    this.#schedule();
    return confirmed.promise;
  }

  /** Fulfilled when nothing is unconfirmed. */
  async drained(): Promise<void> {
    if (this.unconfirmed === 0) return;
    this.#drained ??= new Deferred();
    await this.#drained.promise;
  }

  /** Ends at once. What is not confirmed fails. */
  abort(): void {
    this.#stopping.abort();
    this.#call?.cancel();
    this.#call = undefined;
    this.#failAll(closed("publisher"));
  }

  /** What is published in the same turn of the event loop goes together. */
  #schedule(): void {
    if (this.#scheduled || this.#resting) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#sendReady();
    });
  }

  #sendReady(): void {
    if (this.#ready.length === 0 || this.#resting || this.#stopping.signal.aborted) return;
    const ready = this.#ready;
    this.#ready = [];
    let first = 0;
    try {
      const call = this.#stream();
      while (first < ready.length) {
        const batch = nextBatch(ready, first);
        first += batch.taken;
        if (batch.messages.length === 0) continue;
        this.#sent.push(batch.messages);
        call.send(
          batch.to,
          batch.messages.map(({ wire }) => wire),
        );
      }
    } catch (error) {
      // Only a client that was closed has no connection to begin a stream on.
      this.#ready = ready.slice(first);
      this.#failAll(error);
    }
  }

  #stream(): Confirming {
    const channel = this.#caller.channel();
    // A stream to a node that is no longer the one to ask is left when everything on it is answered.
    if (this.#call !== undefined && this.#channel !== channel && this.#sent.length === 0) {
      this.#call.cancel();
      this.#call = undefined;
    }
    if (this.#call === undefined) {
      const call = this.#target(channel);
      this.#call = call;
      this.#channel = channel;
      void this.#read(call, channel);
    }
    return this.#call;
  }

  async #read(call: Confirming, channel: Channel): Promise<void> {
    let failure: unknown = new BoltqError("the server has ended the stream of publishes", { code: "UNAVAILABLE" });
    try {
      for await (const response of call.responses) {
        if (this.#call !== call) return;
        this.#backoff.reset();
        this.#lastError = undefined;
        this.#answered(response);
      }
    } catch (error) {
      failure = error;
    }
    if (this.#call !== call) return;
    this.#call = undefined;
    call.cancel();
    await this.#again(this.#takeBack(failure), channel, failure);
  }

  #answered(response: Answered): void {
    const batch = this.#sent.shift() ?? [];
    const refused = new Map(response.failures.map((failure) => [failure.index, failure]));
    const again: Outgoing[] = [];
    const keyless: Outgoing[] = [];
    let last: BoltqError | undefined;
    batch.forEach((message, index) => {
      const failure = refused.get(index);
      if (failure === undefined) {
        const id = hex(response.messageIds[index] ?? new Uint8Array(0));
        this.#settle(message, undefined, () => message.confirmed.resolve(id));
        return;
      }
      const error = refusal(failure);
      if (this.#dropsKey(message, error)) keyless.push(message);
      else if (this.#mayRepeat(message, error)) {
        last = error;
        again.push(message);
      } else this.#fail(message, error);
    });
    if (keyless.length > 0) {
      this.#ready = keyless.concat(this.#ready);
      this.#schedule();
    }
    if (last !== undefined) void this.#again(again, this.#caller.channel(), last);
  }

  /** Whether a message is sent again at once without the key that the client has made. */
  #dropsKey(message: Outgoing, error: BoltqError): boolean {
    if (error.reason !== KEYS_FULL || !message.madeKey || message.unknown || message.over) return false;
    this.#keys.rest();
    message.wire.idempotencyKey = "";
    return true;
  }

  /** Whether a message that failed is sent again. */
  #mayRepeat(message: Outgoing, error: BoltqError): boolean {
    if (message.over) return false;
    if (!error.notApplied) message.unknown = true;
    return isRepeated(error) && (error.notApplied || message.wire.idempotencyKey !== "");
  }

  /** What was sent and not answered, if it may be sent again; the rest fails. */
  #takeBack(failure: unknown): Outgoing[] {
    const unanswered = this.#sent.flat();
    this.#sent = [];
    if (!(failure instanceof BoltqError)) {
      for (const message of unanswered) this.#fail(message, failure);
      return [];
    }
    return unanswered.filter((message) => {
      if (this.#mayRepeat(message, failure)) return true;
      this.#fail(message, failure);
      return false;
    });
  }

  /** Sends messages once more, before all others, after a while. */
  async #again(messages: Outgoing[], channel: Channel, error: unknown): Promise<void> {
    this.#ready = messages.concat(this.#ready);
    this.#lastError = error;
    if (this.#resting || this.#stopping.signal.aborted) return;
    this.#resting = true;
    try {
      await this.#caller.recover({
        channel,
        error,
        repeat: "repeatable",
        backoff: this.#backoff,
        signal: this.#stopping.signal,
      });
    } catch (final) {
      if (!this.#stopping.signal.aborted) this.#failAll(final);
    } finally {
      this.#resting = false;
    }
    this.#schedule();
  }

  #fail(message: Outgoing, failure: unknown): void {
    const error = message.unknown && failure instanceof BoltqError ? inDoubt(failure) : failure;
    this.#settle(message, error, () => message.confirmed.reject(error));
  }

  #failAll(error: unknown): void {
    const sent = this.#sent.flat();
    for (const message of sent) message.unknown = true;
    const all = sent.concat(this.#ready);
    this.#sent = [];
    this.#ready = [];
    for (const message of all) this.#fail(message, error);
  }

  #settle(message: Outgoing, error: unknown, how: () => void): void {
    if (message.over) return;
    message.over = true;
    how();
    this.unconfirmed -= 1;
    message.onOver?.(error);
    if (this.unconfirmed > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#drained?.resolve();
    this.#drained = undefined;
  }

  /** One timer for all, for the message that is late first. */
  #watchDeadlines(deadline: number): void {
    if (this.#timer !== undefined && this.#timerAt <= deadline) return;
    clearTimeout(this.#timer);
    this.#timerAt = deadline;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#failLate();
      },
      timerMs(Math.max(1, deadline - Date.now())),
    );
  }

  #failLate(): void {
    const now = Date.now();
    let next = Number.POSITIVE_INFINITY;
    const judge = (message: Outgoing, unsent: boolean): void => {
      if (message.over) return;
      if (message.deadline > now) {
        next = Math.min(next, message.deadline);
        return;
      }
      this.#fail(message, late(this.#lastError, unsent));
    };
    for (const message of this.#sent.flat()) judge(message, false);
    for (const message of this.#ready) judge(message, !message.unknown);
    this.#ready = this.#ready.filter((message) => !message.over);
    if (next !== Number.POSITIVE_INFINITY) this.#watchDeadlines(next);
  }
}

/** Why a message was not confirmed in time: what failed last, if nothing has worked since. */
function late(last: unknown, unsent: boolean): BoltqError {
  if (!(last instanceof BoltqError))
    return new BoltqError("the publish was not confirmed in time", { code: "DEADLINE_EXCEEDED", unsent });
  const { code, reason, metadata } = last;
  return new BoltqError(`the publish was not confirmed in time; at last: ${last.message}`, {
    code,
    reason,
    metadata,
    unsent,
    cause: last,
  });
}
