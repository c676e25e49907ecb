/** The client: everything begins here. */
import { Caller, type CallOptions } from "./caller.js";
import { callable, queueName, timeout } from "./check.js";
import { Admin, Cluster } from "./cluster.js";
import { openChannel } from "./connect.js";
import { type Message, messageInit, optionalDuration, type Payload } from "./convert.js";
import { Endpoints } from "./endpoints.js";
import { BoltqError, closed } from "./errors.js";
import { Exchanges } from "./exchanges.js";
import { QueueService } from "./gen/boltq/queue/v1/queue_pb.js";
import { KeyMaker } from "./keys.js";
import { Kv } from "./kv.js";
import { type ConnectOptions, settingsOf } from "./options.js";
import { checkedSize } from "./outgoing.js";
import { PublishStream } from "./publish-stream.js";
import { Publisher, type PublisherOptions } from "./publisher.js";
import { Queues } from "./queues.js";
import { Delivery, type NackOptions } from "./received.js";
import { type SettleResult, Settler, settle } from "./settler.js";
import { type SubscribeOptions, Subscription } from "./subscription.js";
import { Topics } from "./topics.js";
import { orAbort } from "./wait.js";
import { type Handler, Worker, type WorkerOptions } from "./worker.js";

/** What is asked for with {@link BoltqClient.consume}. */
export interface ConsumeOptions extends CallOptions {
  /** Messages at most, 1 to 1,000. Default 1. */
  readonly maxMessages?: number | undefined;
  /** Milliseconds to wait for the first one, up to 60,000. Default: not at all. */
  readonly waitMs?: number | undefined;
  /** Length of the leases in milliseconds, 1 s to 12 h. Default: what the queue says. */
  readonly leaseMs?: number | undefined;
}

/** What came of a message of {@link BoltqClient.publishMany}. */
export type PublishResult =
  | { readonly id: string; readonly error?: undefined }
  | { readonly id?: undefined; readonly error: BoltqError };

/** What can be ended. */
interface Part {
  close(): Promise<unknown>;
}

/**
 * A connection to a broker, or to any nodes of a cluster. It is made when it is first needed, and again when it is lost; calls are
 * repeated as far as that is safe. One client is enough for a process.
 *
 * ```ts
 * const client = connect({ addresses: ["10.0.0.1:9091", "10.0.0.2:9091"], apiKey: process.env.BOLTQ_API_KEY });
 * await client.publish("email_jobs", json({ to: "a@example.org" }));
 * await client.close();
 * ```
 */
export class BoltqClient implements AsyncDisposable {
  /** Looking at queues and managing them. */
  readonly queues: Queues;
  /** Topics. */
  readonly topics: Topics;
  /** Exchanges. */
  readonly exchanges: Exchanges;
  /** The key-value cache. */
  readonly kv: Kv;
  /** Statistics. */
  readonly admin: Admin;
  /** Who belongs to the cluster and who leads it. */
  readonly cluster: Cluster;
  readonly #caller: Caller;
  readonly #settler: Settler;
  readonly #keys: KeyMaker;
  readonly #publishes: PublishStream;
  readonly #parts = new Set<Part>();
  #closed: Promise<void> | undefined;

  /** See {@link connect}. */
  constructor(options: ConnectOptions = {}) {
    const { addresses, channel, retry, idempotentPublishes } = settingsOf(options);
    // Clients that are started together spread over the nodes.
    const first = Math.floor(Math.random() * addresses.length);
    const caller = new Caller(new Endpoints(addresses, (address) => openChannel(address, channel), first), retry);
    this.#caller = caller;
    this.#settler = new Settler(caller);
    this.#keys = new KeyMaker(idempotentPublishes);
    this.#publishes = new PublishStream(caller, this.#keys);
    this.queues = new Queues(caller);
    this.topics = new Topics(caller);
    this.exchanges = new Exchanges(caller);
    this.kv = new Kv(caller);
    this.admin = new Admin(caller);
    this.cluster = new Cluster(caller);
  }

  /**
   * Stores a message in a queue, and answers its id when it is as durable as the server promises. Publishes that are made at the same
   * time go to the server together. It is repeated when that is needed, and stored once.
   */
  async publish(queue: string, message: Message | Payload, options: CallOptions = {}): Promise<string> {
    this.#checkOpen();
    options.signal?.throwIfAborted();
    const given = messageInit(message);
    const timeoutMs = timeout(options.timeoutMs ?? this.#caller.settings.timeoutMs);
    return orAbort(this.#publishes.publish(queueName(queue), given, checkedSize(given), timeoutMs), options.signal);
  }

  /**
   * Stores many messages, and answers what came of each, in their order. Takes as many from `messages` as may be on their way. For
   * streams that never end use {@link publisher}.
   */
  async publishMany(
    queue: string,
    messages: Iterable<Message | Payload> | AsyncIterable<Message | Payload>,
    options: PublisherOptions & { readonly signal?: AbortSignal } = {},
  ): Promise<PublishResult[]> {
    const publisher = this.publisher(queue, options);
    const results: (PublishResult | Promise<PublishResult>)[] = [];
    const { signal } = options;
    try {
      for await (const message of messages) {
        try {
          const { confirmed } = await publisher.send(message, signal === undefined ? {} : { signal });
          results.push(confirmed.then(stored, refused));
        } catch (error) {
          results.push(refused(error));
        }
      }
      return await orAbort(Promise.all(results), signal);
    } finally {
      publisher.abort();
    }
  }

  /** A stream of publishes to a queue, with limits for what is on its way. Close it when it is no longer needed. */
  publisher(queue: string, options: PublisherOptions = {}): Publisher {
    this.#checkOpen();
    const publisher: Publisher = new Publisher(this.#caller, this.#keys, queue, options, () =>
      this.#parts.delete(publisher),
    );
    this.#parts.add(publisher);
    return publisher;
  }

  /**
   * Leases waiting messages, and answers none if none came in time. Their leases end by settlement or time only. A call whose
   * answer is lost is made again; the messages of the first come again when their leases end.
   */
  async consume(queue: string, options: ConsumeOptions = {}): Promise<Delivery[]> {
    const { maxMessages = 1, waitMs, leaseMs } = options;
    const wait = optionalDuration(waitMs, "waitMs");
    const request = { queue: queueName(queue), maxMessages, wait, lease: optionalDuration(leaseMs, "leaseMs") };
    const timeoutMs = (options.timeoutMs ?? this.#caller.settings.timeoutMs) + (waitMs ?? 0);
    const answer = await this.#caller.unary(QueueService.method.consume, request, "repeatable", {
      ...options,
      timeoutMs,
    });
    return answer.deliveries.map((delivery) => new Delivery(delivery, this.#settler));
  }

  /**
   * Messages as they come, to be read with `for await`. Each has to be settled.
   *
   * ```ts
   * for await (const delivery of client.subscribe("email_jobs", { signal })) {
   *   await sendEmail(delivery.json());
   *   await delivery.ack();
   * }
   * ```
   */
  subscribe(queue: string, options: SubscribeOptions = {}): Subscription {
    this.#checkOpen();
    return new Subscription(this.#caller, this.#settler, queue, options);
  }

  /** Handles the messages of a queue until it is stopped. */
  worker(queue: string, handler: Handler, options: WorkerOptions = {}): Worker {
    this.#checkOpen();
    callable(handler, "handler");
    const worker = new Worker(this.#caller, this.#settler, queue, handler, options);
    const part: Part = { close: () => worker.stop() };
    this.#parts.add(part);
    worker.whenOver(() => this.#parts.delete(part));
    return worker;
  }

  /** Acknowledges several messages in one call, by their tokens. */
  ack(tokens: readonly Uint8Array[], options?: CallOptions): Promise<SettleResult> {
    return settle(this.#caller, { do: "ack" }, tokens, options);
  }

  /** Gives several messages back as failed in one call. */
  nack(tokens: readonly Uint8Array[], how: NackOptions = {}, options?: CallOptions): Promise<SettleResult> {
    return settle(this.#caller, { do: "nack", how }, tokens, options);
  }

  /** Moves the end of several leases in one call, to so many milliseconds from now. */
  extend(tokens: readonly Uint8Array[], leaseMs: number, options?: CallOptions): Promise<SettleResult> {
    return settle(this.#caller, { do: "extend", leaseMs }, tokens, options);
  }

  /**
   * Stops workers, which finish what they have begun, waits for what is being published, and ends everything else. After it, nothing of the
   * client keeps the process alive.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    const parts = [...this.#parts].map((part) => part.close());
    // What failed was told where it was published.
    await Promise.allSettled([...parts, this.#publishes.drained()]);
    this.#publishes.abort();
    this.#caller.close();
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw closed("client");
  }
}

/** Connects to a broker: to the node at `localhost:9091`, or to those that are named. Nothing is sent before the first call. */
export function connect(options: ConnectOptions = {}): BoltqClient {
  return new BoltqClient(options);
}

function stored(id: string): PublishResult {
  return { id };
}

/** What was given up by a signal is no result of a message. */
function refused(error: unknown): PublishResult {
  if (error instanceof BoltqError) return { error };
  throw error;
}
