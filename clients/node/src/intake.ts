/**
 * The receiving half of a subscription to a queue: one stream at a time, and the next one when it breaks.
 *
 * The stream is read only as long as its owner has room. What is not read stays in the transport, whose windows are small, and then
 * on the server: so a client that is slow holds what it has room for, one response (4 MiB at most), and a window.
 */
import type { Caller } from "./caller.js";
import type { BidiCall } from "./channel.js";
import { optionalDuration } from "./convert.js";
import { BoltqError } from "./errors.js";
import {
  QueueService,
  type SubscribeRequestSchema,
  type SubscribeResponseSchema,
  type Delivery as WireDelivery,
} from "./gen/boltq/queue/v1/queue_pb.js";
import { Deferred } from "./wait.js";

/** What is subscribed to. */
export interface IntakeOptions {
  /** Name of the queue. */
  readonly queue: string;
  /** Unsettled messages at most. */
  readonly maxInFlight: number;
  /** Length of the leases; undefined: what the queue says. */
  readonly leaseMs: number | undefined;
  /** Milliseconds without a stream after which the failure is reported; undefined: never. */
  readonly outageMs: number | undefined;
  /** Whether it waits so long also for its first stream, and not just as long as the client waits to be connected. */
  readonly patient: boolean;
}

/** Who gets the messages. */
export interface IntakeOwner {
  /** Messages that came. */
  take(deliveries: readonly WireDelivery[]): void;
  /** Fulfilled when there is room for more. */
  room(): Promise<void> | undefined;
  /** The stream broke: the leases of what came over it have ended. */
  broken(): void;
}

const STOP = { request: { case: "stop" as const, value: {} } };

/** Reads until it is stopped or fails for good. */
export class Intake {
  readonly #caller: Caller;
  readonly #options: IntakeOptions;
  readonly #owner: IntakeOwner;
  readonly #stopping = new AbortController();
  readonly #opened = new Deferred<void>();
  #call: BidiCall<typeof SubscribeRequestSchema, typeof SubscribeResponseSchema> | undefined;
  /** Whether the server is to deliver no more. */
  #enough = false;
  /** Fulfilled when it was stopped; fails when the subscription cannot go on. */
  readonly ended: Promise<void>;

  constructor(caller: Caller, options: IntakeOptions, owner: IntakeOwner) {
    this.#caller = caller;
    this.#options = options;
    this.#owner = owner;
    this.ended = this.#run();
    this.ended.then(
      () => this.#opened.resolve(),
      (error) => this.#opened.reject(error),
    );
  }

  /** Fulfilled when the server has accepted the subscription for the first time. */
  get opened(): Promise<void> {
    return this.#opened.promise;
  }

  /** Asks for no more. What was delivered stays leased, and what was on its way can still come. */
  stopDeliveries(): void {
    if (this.#enough) return;
    this.#enough = true;
    this.#call?.send(STOP);
  }

  /** Ends the stream, and with it the leases of what is not settled. */
  stop(): void {
    this.#stopping.abort();
    this.#call?.cancel();
  }

  async #run(): Promise<void> {
    const backoff = this.#caller.backoff();
    const { outageMs, patient } = this.#options;
    let deadline = deadlineIn(outageMs);
    while (!this.#stopping.signal.aborted) {
      const channel = this.#caller.channel();
      try {
        await this.#read(channel, () => {
          backoff.reset();
          deadline = undefined;
        });
        return;
      } catch (error) {
        this.#owner.broken();
        if (this.#stopping.signal.aborted) return;
        deadline ??= deadlineIn(outageMs);
        try {
          await this.#caller.recover({
            channel,
            error,
            repeat: "repeatable",
            backoff,
            deadline,
            patient,
            signal: this.#stopping.signal,
          });
        } catch (final) {
          if (this.#stopping.signal.aborted) return;
          throw final;
        }
      }
    }
  }

  async #read(channel: ReturnType<Caller["channel"]>, works: () => void): Promise<void> {
    const call = channel.bidi(QueueService.method.subscribe, {});
    this.#call = call;
    const { queue, maxInFlight, leaseMs } = this.#options;
    const init = { queue, maxInFlight, lease: optionalDuration(leaseMs, "leaseMs") };
    call.send({ request: { case: "init", value: init } });
    if (this.#enough) call.send(STOP);
    call.opened.then(
      () => this.#opened.resolve(),
      () => undefined,
    );
    try {
      for await (const response of call.responses) {
        works();
        if (this.#stopping.signal.aborted) return;
        if (response.deliveries.length > 0) this.#owner.take(response.deliveries);
        await this.#owner.room();
      }
      if (!this.#stopping.signal.aborted) {
        throw new BoltqError("the server has ended the subscription", { code: "UNAVAILABLE" });
      }
    } finally {
      this.#call = undefined;
      call.cancel();
    }
  }
}

function deadlineIn(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Date.now() + ms;
}
