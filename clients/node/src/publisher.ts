/** Publishing many messages at a time: a confirmed stream with limits. */
import { Budget } from "./budget.js";
import type { Caller } from "./caller.js";
import { given, optionalWhole, timeout } from "./check.js";
import type { AckLevel, Target } from "./confirming.js";
import { type Message, messageInit, type Payload } from "./convert.js";
import { closed } from "./errors.js";
import type { KeyMaker } from "./keys.js";
import { checkedSize } from "./outgoing.js";
import { PublishStream } from "./publish-stream.js";

const MESSAGES_DEFAULT = 10_000;
const BYTES_DEFAULT = 16 << 20;

/** How a publisher to a topic works. */
export interface TopicPublisherOptions {
  /** Messages that may be unconfirmed. Default 10,000. */
  readonly maxInFlight?: number | undefined;
  /** Bytes that these may have. Default 16 MiB. A larger message goes alone. */
  readonly maxInFlightBytes?: number | undefined;
  /** Milliseconds within which a message has to be confirmed, with everything that is repeated. Default: that of the client. */
  readonly timeoutMs?: number | undefined;
}

/** How a publisher to a queue works. */
export interface PublisherOptions extends TopicPublisherOptions {
  /** What a confirmation waits for. Default `"quorum"`. At the other levels messages have no ids. */
  readonly ackLevel?: AckLevel | undefined;
}

/** What a publisher is made of. */
export interface PublisherParts {
  readonly caller: Caller;
  readonly keys: KeyMaker;
  readonly target: Target;
  /** Name of the queue or topic, which was checked. */
  readonly to: string;
  readonly onClose: (publisher: Publisher) => void;
}

/** A message that was accepted by {@link Publisher.send}. */
export interface Publication {
  /** Its id, when the server has confirmed it; fails with a BoltqError. Nobody has to look at it: {@link Publisher.flush} tells failures too. */
  readonly confirmed: Promise<string>;
}

/**
 * Publishes to a queue or a topic, many messages at a time. Each is confirmed; what is not confirmed is known to have failed. Broken connections and
 * restarts of servers are not seen: messages are sent again, and not stored twice.
 *
 * Messages of a publisher are stored in the order in which they were given to it as long as no node fails and none is refused. After a
 * failure, what is sent again can come behind what was confirmed meanwhile.
 *
 * ```ts
 * await using publisher = client.publisher("events");
 * for (const event of events) await publisher.send(json(event)); // waits while too much is on its way
 * await publisher.flush();                                       // fails if one of them was not stored
 * ```
 */
export class Publisher implements AsyncDisposable {
  readonly #to: string;
  readonly #timeoutMs: number;
  readonly #budget: Budget;
  readonly #stream: PublishStream;
  readonly #onClose: (publisher: Publisher) => void;
  #failure: { readonly error: unknown } | undefined;
  #closed = false;

  /** For the client itself. @internal */
  constructor({ caller, keys, target, to, onClose }: PublisherParts, asked: TopicPublisherOptions) {
    const options = given(asked);
    this.#to = to;
    optionalWhole(options.maxInFlight, "maxInFlight", 1);
    optionalWhole(options.maxInFlightBytes, "maxInFlightBytes", 1);
    this.#timeoutMs = timeout(options.timeoutMs ?? caller.settings.timeoutMs);
    this.#budget = new Budget(options.maxInFlight ?? MESSAGES_DEFAULT, options.maxInFlightBytes ?? BYTES_DEFAULT);
    this.#stream = new PublishStream(caller, keys, target);
    this.#onClose = onClose;
  }

  /** Messages that are not confirmed yet. */
  get unconfirmed(): number {
    return this.#stream.unconfirmed;
  }

  /** Bytes that they have. */
  get unconfirmedBytes(): number {
    return this.#budget.bytes;
  }

  /**
   * Takes a message as soon as there is room for it. Wait for this, not for the confirmation, to publish quickly: so the
   * memory of the process stays within the limits.
   */
  async send(message: Message | Payload, options: { readonly signal?: AbortSignal } = {}): Promise<Publication> {
    if (this.#closed) throw closed("publisher");
    const { signal } = given(options);
    const wire = messageInit(message);
    const bytes = checkedSize(wire);
    if (!this.#budget.tryTake(bytes)) await this.#budget.take(bytes, signal);
    try {
      const confirmed = this.#stream.publish(this.#to, wire, bytes, this.#timeoutMs, (error) => {
        this.#budget.give(bytes);
        if (error !== undefined) this.#failure ??= { error };
      });
      return { confirmed };
    } catch (error) {
      this.#budget.give(bytes);
      throw error;
    }
  }

  /** Publishes a message and waits for its confirmation: its id. */
  async publish(message: Message | Payload, options: { readonly signal?: AbortSignal } = {}): Promise<string> {
    const { confirmed } = await this.send(message, options);
    return confirmed;
  }

  /** Waits until everything that was sent is confirmed. Fails with the first failure since the last flush. */
  async flush(): Promise<void> {
    await this.#stream.drained();
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) throw failure.error;
  }

  /** Takes no more, waits for what is on its way, and ends the stream. Fails as {@link flush} does. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#budget.close(closed("publisher"));
    try {
      await this.flush();
    } finally {
      this.abort();
    }
  }

  /** Ends at once. What is not confirmed fails; whether it was stored is not known. */
  abort(): void {
    this.#closed = true;
    this.#budget.close(closed("publisher"));
    this.#stream.abort();
    this.#onClose(this);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
