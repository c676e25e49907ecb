/** Messages as they come from the server. */
import { dateOf, hex, optionalDate } from "./convert.js";
import type { Delivery as WireDelivery } from "./gen/boltq/queue/v1/queue_pb.js";
import type { TopicMessage as WireTopicMessage } from "./gen/boltq/topic/v1/topic_pb.js";

/** What every message has. */
export class ReceivedMessage {
  /** 32 hexadecimal digits, unique. */
  readonly id: string;
  /** As it was published. */
  readonly payload: Uint8Array;
  /** Application headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** Media type of the payload, as it was published. */
  readonly contentType: string;
  /** 0-9. */
  readonly priority: number;
  /** When the server took it. */
  readonly publishedAt: Date;

  /** For the client itself. @internal */
  constructor(wire: WireDelivery | WireTopicMessage) {
    this.id = hex(wire.messageId);
    this.payload = wire.payload;
    this.headers = wire.headers;
    this.contentType = wire.contentType;
    this.priority = wire.priority;
    this.publishedAt = dateOf(wire.publishedAt);
  }

  /** The payload as UTF-8. */
  text(): string {
    const { buffer, byteOffset, byteLength } = this.payload;
    return Buffer.from(buffer, byteOffset, byteLength).toString("utf8");
  }

  /** The payload as JSON; throws a SyntaxError if it is none. */
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }
}

/** A message of a topic. */
export class TopicMessage extends ReceivedMessage {}

/** A message of a queue, as `peek` shows it. */
export class QueueMessage extends ReceivedMessage {
  /** Failed attempts so far, 0 at the first delivery. */
  readonly attempts: number;
  /** When it is discarded; undefined: never. */
  readonly expiresAt: Date | undefined;
  /** When it was due; undefined: it was published without a delay. */
  readonly deliverAt: Date | undefined;
  /** As it was published; empty: none. */
  readonly orderingKey: string;

  /** For the client itself. @internal */
  constructor(wire: WireDelivery) {
    super(wire);
    this.attempts = wire.attempts;
    this.expiresAt = optionalDate(wire.expiresAt);
    this.deliverAt = optionalDate(wire.deliverAt);
    this.orderingKey = wire.orderingKey;
  }
}

/** What is said with a negative acknowledgement. */
export interface NackOptions {
  /** Milliseconds until the next delivery, instead of the backoff of the server. */
  readonly delayMs?: number | undefined;
  /** Straight to the dead letters, whatever the number of attempts. */
  readonly deadLetter?: boolean | undefined;
  /**
   * Nobody has worked on it: it is ready for others at once, at its old place, and no failed attempt is counted. Not together with the
   * others.
   */
  readonly release?: boolean | undefined;
}

/** What a delivery wants from the client that it came to. */
export interface Settling {
  /** Settles one token; fails with a BoltqError if it could not be. */
  ack(token: Uint8Array): Promise<void>;
  /** The same, as failed. */
  nack(token: Uint8Array, how: NackOptions): Promise<void>;
  /** Moves the end of the lease. */
  extend(token: Uint8Array, leaseMs: number): Promise<void>;
}

/** A message of a queue and the right to settle it. */
export class Delivery extends QueueMessage {
  /** Names this lease. Opaque. */
  readonly token: Uint8Array;
  readonly #settling: Settling;

  /** For the client itself. @internal */
  constructor(wire: WireDelivery, settling: Settling) {
    super(wire);
    this.token = wire.deliveryToken;
    this.#settling = settling;
  }

  /**
   * Done: it will not be delivered again. Settlements that are asked for at the same time go to the server together.
   *
   * Fails with reason `LEASE_LOST` if somebody else has the message now, `NOT_FOUND` if it is gone.
   */
  ack(): Promise<void> {
    return this.#settling.ack(this.token);
  }

  /** Failed: it comes again after a pause, or becomes a dead letter. */
  nack(how: NackOptions = {}): Promise<void> {
    return this.#settling.nack(this.token, how);
  }

  /** Not worked on: it is ready for others at once, at its old place, and no failed attempt is counted. */
  release(): Promise<void> {
    return this.#settling.nack(this.token, { release: true });
  }

  /** The lease ends so many milliseconds from now, 1 s to 12 h. */
  extend(leaseMs: number): Promise<void> {
    return this.#settling.extend(this.token, leaseMs);
  }
}
