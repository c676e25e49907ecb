/** Messages of a queue as they come, for `for await`. */
import type { Caller } from "./caller.js";
import { given, optionalMilliseconds, optionalWhole, queueName } from "./check.js";
import type { Delivery as WireDelivery } from "./gen/boltq/queue/v1/queue_pb.js";
import { Intake, type IntakeOwner } from "./intake.js";
import { Delivery, type NackOptions, type Settling } from "./received.js";
import { type SettleResult, settle } from "./settler.js";
import { Deferred } from "./wait.js";

/** How a subscription to a queue is made. */
export interface SubscribeOptions {
  /** Unsettled messages at most, 1 to 100,000. Default 256. */
  readonly maxInFlight?: number | undefined;
  /** Length of the leases in milliseconds, 1 s to 12 h. Default: what the queue says. */
  readonly leaseMs?: number | undefined;
  /**
   * Bytes of messages that may wait in the client until the application takes them. Default 16 MiB. At most one response of the server,
   * up to 4 MiB, goes over it.
   */
  readonly maxBufferedBytes?: number | undefined;
  /** Ends the subscription; the loop over it then throws the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** Default for what may wait in the client. */
export const BUFFERED_BYTES_DEFAULT = 16 << 20;
const IN_FLIGHT_DEFAULT = 256;

/**
 * A subscription to a queue. Broken connections and restarts of servers are not seen: it goes on with the next node, and what was not
 * settled comes again. It fails when nothing has worked for as long as a call may take.
 *
 * Leave the loop, or call {@link close}, to end it; what was not settled is ready for others at once.
 */
export class Subscription implements AsyncIterableIterator<Delivery>, AsyncDisposable {
  readonly #caller: Caller;
  readonly #buffer: Buffered;
  readonly #intake: Intake;
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort = (): void => this.#end(this.#signal?.reason);
  readonly #onClose = (): void => this.#end(this.#caller.ending.reason);
  #failure: { readonly error: unknown } | undefined;
  #done = false;
  #wanted: Deferred<void> | undefined;

  /** For the client itself. @internal */
  constructor(caller: Caller, settling: Settling, queue: string, asked: SubscribeOptions) {
    const options = given(asked);
    this.#caller = caller;
    this.#signal = options.signal;
    queueName(queue);
    optionalWhole(options.maxInFlight, "maxInFlight", 1, 0xffff_ffff);
    optionalWhole(options.maxBufferedBytes, "maxBufferedBytes", 1);
    optionalMilliseconds(options.leaseMs, "leaseMs");
    this.#signal?.throwIfAborted();
    this.#buffer = new Buffered(options.maxBufferedBytes ?? BUFFERED_BYTES_DEFAULT, settling, () => this.#wake());
    const { maxInFlight = IN_FLIGHT_DEFAULT, leaseMs } = options;
    const outageMs = caller.settings.timeoutMs;
    this.#intake = new Intake(caller, { queue, maxInFlight, leaseMs, outageMs, patient: false }, this.#buffer);
    this.#intake.ended.then(
      () => this.#end(undefined),
      (error: unknown) => this.#end(error),
    );
    this.#signal?.addEventListener("abort", this.#onAbort, { once: true });
    caller.ending.addEventListener("abort", this.#onClose, { once: true });
  }

  /** Fulfilled when the server has accepted it. Not necessary to wait for. */
  get opened(): Promise<void> {
    return this.#intake.opened;
  }

  /** Bytes of messages that wait for the application. */
  get bufferedBytes(): number {
    return this.#buffer.bytes;
  }

  /** The next message. */
  async next(): Promise<IteratorResult<Delivery, undefined>> {
    for (;;) {
      const delivery = this.#buffer.next();
      if (delivery !== undefined) return { done: false, value: delivery };
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#done) return { done: true, value: undefined };
      this.#wanted ??= new Deferred();
      await this.#wanted.promise;
    }
  }

  /** Called by `for await` when the loop is left. */
  async return(): Promise<IteratorResult<Delivery, undefined>> {
    await this.close();
    return { done: true, value: undefined };
  }

  /** Acknowledges several at a time, by their tokens. */
  ack(tokens: readonly Uint8Array[]): Promise<SettleResult> {
    return settle(this.#caller, { do: "ack" }, tokens);
  }

  /** Gives several back as failed. */
  nack(tokens: readonly Uint8Array[], how: NackOptions = {}): Promise<SettleResult> {
    return settle(this.#caller, { do: "nack", how }, tokens);
  }

  /** Moves the end of several leases. */
  extend(tokens: readonly Uint8Array[], leaseMs: number): Promise<SettleResult> {
    return settle(this.#caller, { do: "extend", leaseMs }, tokens);
  }

  /** Ends it. What waits for the application is ready for others. */
  async close(): Promise<void> {
    this.#end(undefined);
    await this.#intake.ended.catch(() => undefined);
    await this.#caller.flush();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #end(error: unknown): void {
    if (this.#done) return;
    this.#done = true;
    if (error !== undefined) this.#failure = { error };
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#caller.ending.removeEventListener("abort", this.#onClose);
    this.#buffer.close();
    this.#intake.stop();
    this.#wake();
  }

  #wake(): void {
    this.#wanted?.resolve();
    this.#wanted = undefined;
  }
}

/** What came and was not taken. */
class Buffered implements IntakeOwner {
  readonly #maxBytes: number;
  readonly #settling: Settling;
  readonly #arrived: () => void;
  #messages: WireDelivery[] = [];
  #first = 0;
  #room: Deferred<void> | undefined;
  #closed = false;
  bytes = 0;

  constructor(maxBytes: number, settling: Settling, arrived: () => void) {
    this.#maxBytes = maxBytes;
    this.#settling = settling;
    this.#arrived = arrived;
  }

  take(deliveries: readonly WireDelivery[]): void {
    if (this.#closed) return;
    for (const delivery of deliveries) {
      this.#messages.push(delivery);
      this.bytes += sizeOf(delivery);
    }
    this.#arrived();
  }

  next(): Delivery | undefined {
    const wire = this.#messages[this.#first];
    if (wire === undefined) return undefined;
    this.#first += 1;
    this.bytes -= sizeOf(wire);
    if (this.#first === this.#messages.length) this.#forget();
    else if (this.#first >= 1_024 && this.#first * 2 > this.#messages.length) {
      this.#messages = this.#messages.slice(this.#first);
      this.#first = 0;
    }
    if (this.bytes < this.#maxBytes) this.#makeRoom();
    return new Delivery(wire, this.#settling);
  }

  room(): Promise<void> | undefined {
    if (this.bytes < this.#maxBytes || this.#closed) return undefined;
    this.#room ??= new Deferred();
    return this.#room.promise;
  }

  broken(): void {
    // They come again, to whoever asks first.
    this.#forget();
    this.#makeRoom();
  }

  close(): void {
    this.#closed = true;
    this.broken();
  }

  #forget(): void {
    this.#messages = [];
    this.#first = 0;
    this.bytes = 0;
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}

/** Bytes of a message in memory, roughly. */
export function sizeOf(delivery: WireDelivery): number {
  let bytes = 128 + delivery.payload.length + delivery.deliveryToken.length;
  for (const name in delivery.headers) bytes += 32 + name.length + (delivery.headers[name]?.length ?? 0);
  return bytes;
}
