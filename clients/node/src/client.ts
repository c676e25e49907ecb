/** The client: everything begins here. */
import { Caller, type CallOptions } from "./caller.js";
import { callable, given, oneOf, optionalMilliseconds, queueName, timeout } from "./check.js";
import { Admin, Cluster } from "./cluster.js";
import { type AckLevel, type Target, toQueues, toTopics } from "./confirming.js";
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
import { Publisher, type PublisherOptions, type TopicPublisherOptions } from "./publisher.js";
import { Queues } from "./queues.js";
import { Delivery, type NackOptions } from "./received.js";
import { type SettleResult, Settler, settle } from "./settler.js";
import { type SubscribeOptions, Subscription } from "./subscription.js";
import { Topics } from "./topics.js";
import { linked, orAbort, timerMs } from "./wait.js";
import { Worker } from "./worker.js";
import type { Handler, StopOptions, WorkerOptions } from "./worker-options.js";

const ACK_LEVELS: readonly AckLevel[] = ["quorum", "leader", "none"];

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
  readonly #workers = new Set<Worker>();
  readonly #publishers = new Set<Publisher>();
  /** Whether workers still finish what they have begun, for which they may need to publish. */
  #finishing = false;
  #closed: Promise<void> | undefined;
  #closeTimer: NodeJS.Timeout | undefined;

  /** See {@link connect}. */
  constructor(options?: ConnectOptions) {
    const { addresses, channel, retry, idempotentPublishes } = settingsOf(options);
    // Clients that are started together spread over the nodes.
    const first = Math.floor(Math.random() * addresses.length);
    const caller = new Caller(new Endpoints(addresses, (address) => openChannel(address, channel), first), retry);
    this.#caller = caller;
    this.#settler = new Settler(caller);
    this.#keys = new KeyMaker(idempotentPublishes);
    this.#publishes = new PublishStream(caller, this.#keys, toQueues("quorum"));
    this.queues = new Queues(caller);
    this.topics = new Topics(caller, (topic, asked) => this.#publisher(topic, toTopics, asked));
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
    this.#checkPublishing();
    const { signal, timeoutMs = this.#caller.settings.timeoutMs } = given(options);
    signal?.throwIfAborted();
    const wire = messageInit(message);
    const bytes = checkedSize(wire);
    return orAbort(this.#publishes.publish(queueName(queue), wire, bytes, timeout(timeoutMs)), signal);
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
    const { signal } = given(options);
    const publisher = this.publisher(queue, options);
    const results: (PublishResult | Promise<PublishResult>)[] = [];
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
    const { ackLevel = "quorum" } = given(options);
    return this.#publisher(queueName(queue), toQueues(oneOf(ackLevel, ACK_LEVELS, "ackLevel")), options);
  }

  #publisher(to: string, target: Target, options: TopicPublisherOptions): Publisher {
    this.#checkPublishing();
    const onClose = (publisher: Publisher): void => void this.#publishers.delete(publisher);
    const publisher = new Publisher({ caller: this.#caller, keys: this.#keys, target, to, onClose }, options);
    this.#publishers.add(publisher);
    return publisher;
  }

  /**
   * Leases waiting messages, and answers none if none came in time. Their leases end by settlement or time only. A call whose
   * answer is lost is made again; the messages of the first come again when their leases end.
   */
  async consume(queue: string, options: ConsumeOptions = {}): Promise<Delivery[]> {
    this.#checkOpen();
    const { maxMessages = 1, waitMs, leaseMs, signal, timeoutMs } = given(options);
    const wait = optionalDuration(waitMs, "waitMs");
    const request = { queue: queueName(queue), maxMessages, wait, lease: optionalDuration(leaseMs, "leaseMs") };
    const within = timeout(timeoutMs ?? this.#caller.settings.timeoutMs) + (waitMs ?? 0);
    const { controller, release } = linked(signal, this.#caller.ending);
    const how: CallOptions = { signal: controller.signal, timeoutMs: within };
    try {
      const { deliveries } = await this.#caller.unary(QueueService.method.consume, request, "repeatable", how);
      return deliveries.map((delivery) => new Delivery(delivery, this.#settler));
    } finally {
      release();
    }
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
    this.#workers.add(worker);
    worker.whenOver(() => this.#workers.delete(worker));
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
   * Ends at once what waits for something to come, with the reason `CLIENT_CLOSED`: calls of {@link consume}, subscriptions, watches.
   * Workers are stopped: handlers that run may finish, and use the client for it. Then what is being published is waited for, and everything
   * that is left ends. After it, nothing of the client keeps the process alive.
   *
   * `timeoutMs`: how long all of that may take. Default: as long as workers have to stop ({@link WorkerOptions.stopTimeoutMs}) and publishes to be
   * confirmed. Called again with one, it counts anew: 0 ends everything at once.
   */
  close(options: StopOptions = {}): Promise<void> {
    const { timeoutMs } = given(options);
    optionalMilliseconds(timeoutMs, "timeoutMs");
    if (timeoutMs !== undefined) this.#limitClose(timeoutMs);
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#finishing = true;
    this.#caller.beginClose();
    await Promise.allSettled([...this.#workers].map((worker) => worker.stop()));
    this.#finishing = false;
    // What failed was told where it was published.
    await Promise.allSettled([...[...this.#publishers].map((each) => each.close()), this.#publishes.drained()]);
    clearTimeout(this.#closeTimer);
    this.#publishes.abort();
    this.#caller.close();
  }

  #limitClose(timeoutMs: number): void {
    if (this.#caller.closing.aborted) return;
    clearTimeout(this.#closeTimer);
    this.#closeTimer = setTimeout(() => {
      // With nothing left to wait for, all of them go on.
      for (const worker of this.#workers) void worker.stop({ timeoutMs: 0 });
      for (const publisher of this.#publishers) publisher.abort();
      this.#publishes.abort();
    }, timerMs(timeoutMs));
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw closed("client");
  }

  #checkPublishing(): void {
    if (!this.#finishing) this.#checkOpen();
  }
}

/** Connects to a broker: to the node at `localhost:9091`, or to those that are named. Nothing is sent before the first call. */
export function connect(options?: ConnectOptions): BoltqClient {
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
