/**
 * A worker: it takes messages of a queue, calls a handler for each, and settles them by what the handler did.
 *
 * A job is a message from when it came until its settlement is known. Leases of all jobs are extended together, before half of their time
 * is over, until a job is older than the ceiling. When the stream breaks its leases end, and the messages come again, mostly to
 * this worker: a message whose handler still runs is then not handled a second time; the job goes on with the new lease.
 */
import type { Caller } from "./caller.js";
import { callable, given, optionalMilliseconds, optionalWhole, queueName } from "./check.js";
import { BoltqError, closed } from "./errors.js";
import type { Delivery as WireDelivery } from "./gen/boltq/queue/v1/queue_pb.js";
import { Intake, type IntakeOwner } from "./intake.js";
import { Delivery, type NackOptions, type Settling } from "./received.js";
import { BUFFERED_BYTES_DEFAULT, sizeOf } from "./subscription.js";
import { Deferred, timerMs } from "./wait.js";

const CONCURRENCY_DEFAULT = 10;
const LEASE_MS_DEFAULT = 30_000;
const LEASE_MS_MIN = 1_000;
const MAX_LEASE_MS_DEFAULT = 10 * 60_000;
const HELD_MAX = 0x7fff_ffff;
const STOP_MS_DEFAULT = 30_000;

/** Thrown by a handler, it sends the message to the dead letters at once. */
export class DeadLetter extends Error {
  override readonly name = "DeadLetter";
}

/** What a handler gets beside the message. */
export interface HandlerContext {
  /** Aborted when the message is somebody else's: its lease was lost or may not be extended further, or the worker ends. */
  readonly signal: AbortSignal;
}

/** Does the work of one message. It is acknowledged when this returns, and given back as failed when this throws. */
export type Handler = (delivery: Delivery, context: HandlerContext) => Promise<void> | void;

/** How a worker works. */
export interface WorkerOptions {
  /** Handlers that run at a time. Default 10. */
  readonly concurrency?: number | undefined;
  /** Messages that are taken ahead of the handlers, so that these need not wait for the network. Default 0. */
  readonly prefetch?: number | undefined;
  /** Bytes that these may have. Default 16 MiB. At most one response of the server, up to 4 MiB, goes over it. */
  readonly maxBufferedBytes?: number | undefined;
  /** Length of a lease in milliseconds, 1 s to 12 h. Default 30 s. It is extended before it ends. */
  readonly leaseMs?: number | undefined;
  /** Milliseconds for which the lease of one message is extended in all. Default 10 minutes. After that others get it. */
  readonly maxLeaseMs?: number | undefined;
  /** Milliseconds until a failed message comes again. Default: the backoff of the queue. */
  readonly nackDelayMs?: number | ((delivery: Delivery, error: unknown) => number | undefined) | undefined;
  /** Milliseconds without a connection after which the worker fails. Default: it goes on for ever. */
  readonly outageMs?: number | undefined;
  /**
   * Told what a handler threw, that a lease was not extended any further, and why a message could not be settled unless that is because
   * somebody else has it. What it throws itself is ignored.
   *
   * Told without a message why the worker has ended by itself, for example because its key may not consume. If there is no `onError`, or it
   * throws then, and nobody has asked for {@link Worker.finished}, that failure is an unhandled rejection, which ends a process.
   */
  readonly onError?: ((error: unknown, delivery: Delivery | undefined) => void) | undefined;
  /**
   * Milliseconds that handlers have to end when the worker is stopped, by {@link Worker.stop} or with its client. Default 30 s; 0: what runs is
   * given back at once.
   */
  readonly stopTimeoutMs?: number | undefined;
  /** Stops the worker, as {@link Worker.stop} does. */
  readonly signal?: AbortSignal | undefined;
}

/** Whether a message is no longer ours to settle. */
function isLost(error: unknown): boolean {
  return error instanceof BoltqError && (error.reason === "LEASE_LOST" || error.reason === "NOT_FOUND");
}

function check(queue: string, options: WorkerOptions): void {
  queueName(queue);
  optionalWhole(options.concurrency, "concurrency", 1, HELD_MAX);
  optionalWhole(options.prefetch, "prefetch", 0, HELD_MAX);
  optionalWhole(options.maxBufferedBytes, "maxBufferedBytes", 1);
  optionalMilliseconds(options.leaseMs, "leaseMs");
  optionalMilliseconds(options.maxLeaseMs, "maxLeaseMs");
  optionalMilliseconds(options.outageMs, "outageMs");
  optionalMilliseconds(options.stopTimeoutMs, "stopTimeoutMs");
  if (typeof options.nackDelayMs !== "function") optionalMilliseconds(options.nackDelayMs, "nackDelayMs");
  if (options.onError !== undefined) callable(options.onError, "onError");
}

/** How something is ended. */
export interface StopOptions {
  /** Milliseconds to wait for what has begun. */
  readonly timeoutMs?: number | undefined;
}

/** What has become of the messages of a worker that was stopped. */
export interface StopResult {
  /** Messages whose handlers did not end in time, or had not begun. They are ready for others. */
  readonly released: number;
}

type State = "waiting" | "running" | "acking" | "nacking";

interface Job {
  readonly id: string;
  delivery: Delivery;
  /** Number of the stream that its lease belongs to. */
  stream: number;
  readonly bytes: number;
  readonly since: number;
  state: State;
  readonly controller: AbortController;
}

/**
 * Handles the messages of a queue until it is stopped. Broken connections and restarts of servers are not seen.
 *
 * ```ts
 * await using worker = client.worker("email_jobs", async (delivery) => {
 *   await sendEmail(delivery.json());
 * }, { concurrency: 20 });
 * await once(process, "SIGTERM");
 * ```
 */
export class Worker implements AsyncDisposable {
  readonly #handler: Handler;
  readonly #options: WorkerOptions;
  readonly #concurrency: number;
  readonly #leaseMs: number;
  readonly #settling: Settling;
  readonly #intake: Intake;
  readonly #extending: NodeJS.Timeout;
  readonly #onAbort = (): void => void this.stop();
  readonly #finished = new Deferred<void>();
  /** By id of the message. */
  readonly #jobs = new Map<string, Job>();
  #waiting: Job[] = [];
  #waitingBytes = 0;
  #running = 0;
  /** Whether somebody has asked for {@link finished}. */
  #watched = false;
  #stream = 0;
  #room: Deferred<void> | undefined;
  /** Fulfilled when a worker that was stopped has no job left, or no time. */
  readonly #quiet = new Deferred<void>();
  #stopTimer: NodeJS.Timeout | undefined;
  /** Whether it has ended, however that was. */
  #over = false;
  #stopped: Promise<StopResult> | undefined;

  /** For the client itself. @internal */
  constructor(caller: Caller, settling: Settling, queue: string, handler: Handler, asked: WorkerOptions) {
    const options = given(asked);
    check(queue, options);
    this.#handler = handler;
    this.#options = options;
    this.#settling = settling;
    this.#concurrency = options.concurrency ?? CONCURRENCY_DEFAULT;
    this.#leaseMs = Math.max(LEASE_MS_MIN, options.leaseMs ?? LEASE_MS_DEFAULT);
    options.signal?.throwIfAborted();
    const maxInFlight = this.#concurrency + (options.prefetch ?? 0);
    const owner: IntakeOwner = {
      take: (deliveries) => this.#take(deliveries),
      room: () => this.#whenRoom(),
      broken: () => this.#broken(),
    };
    this.#intake = new Intake(
      caller,
      { queue, maxInFlight, leaseMs: this.#leaseMs, outageMs: options.outageMs, patient: true },
      owner,
    );
    this.#intake.ended.then(
      () => this.#finished.resolve(),
      (error: unknown) => this.#failed(error),
    );
    this.#extending = setInterval(() => this.#extend(), timerMs(this.#leaseMs / 2));
    options.signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  /**
   * Fulfilled when the worker has stopped; fails if it cannot go on, for example because the key may not consume. Nobody has to look
   * at it who has `onError`.
   */
  get finished(): Promise<void> {
    this.#watched = true;
    return this.#finished.promise;
  }

  /** Calls back when the worker has ended, however that was. For the client itself. @internal */
  whenOver(over: () => void): void {
    this.#finished.promise.then(over, over);
  }

  /** Handlers that run now. */
  get running(): number {
    return this.#running;
  }

  /**
   * Begins no more handlers, and waits for those that run and for their settlements. What has not ended in time is told so by its signal,
   * and released: it is ready for others at once, without a failed attempt.
   *
   * `timeoutMs`: how long, instead of {@link WorkerOptions.stopTimeoutMs}. Called again with one, it counts anew: 0 ends a stop that takes
   * too long.
   */
  stop(options: StopOptions = {}): Promise<StopResult> {
    const { timeoutMs } = given(options);
    optionalMilliseconds(timeoutMs, "timeoutMs");
    if (this.#stopped === undefined || timeoutMs !== undefined) {
      this.#limitStop(timeoutMs ?? this.#options.stopTimeoutMs ?? STOP_MS_DEFAULT);
    }
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(): Promise<StopResult> {
    const dropped = this.#dropWaiting();
    if (this.#jobs.size > 0) await this.#quiet.promise;
    const left = this.#jobs.size;
    this.#endAll(closed("worker"));
    await this.#intake.ended.catch(() => undefined);
    return { released: dropped + left };
  }

  #failed(error: unknown): void {
    if (this.#stopped === undefined) this.#tell(error);
    this.#stopped ??= Promise.resolve({ released: this.#jobs.size });
    this.#endAll(error);
    this.#finished.reject(error);
  }

  /** A worker that ends by itself must not do so in silence: the queue would fill, and nobody know. */
  #tell(error: unknown): void {
    const { onError } = this.#options;
    let told = this.#watched;
    try {
      onError?.(error, undefined);
      told ||= onError !== undefined;
    } catch {
      // It expects a message, and has told nobody.
    }
    if (!told) void Promise.reject(error);
  }

  #endAll(reason: unknown): void {
    this.#over = true;
    clearInterval(this.#extending);
    clearTimeout(this.#stopTimer);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#dropWaiting();
    for (const job of this.#jobs.values()) job.controller.abort(reason);
    this.#jobs.clear();
    this.#intake.stop();
    this.#makeRoom();
  }

  #limitStop(timeoutMs: number): void {
    if (this.#over) return;
    clearTimeout(this.#stopTimer);
    this.#stopTimer = setTimeout(() => this.#quiet.resolve(), timerMs(timeoutMs));
  }

  /** Called when a job is gone. */
  #maybeQuiet(): void {
    if (this.#stopped !== undefined && this.#jobs.size === 0) this.#quiet.resolve();
  }

  #take(deliveries: readonly WireDelivery[]): void {
    for (const wire of deliveries) {
      const delivery = new Delivery(wire, this.#settling);
      const known = this.#jobs.get(delivery.id);
      if (known !== undefined && known.state !== "nacking") {
        // Its lease ended, with a stream before or by time, and its handler has not. What is given back can only come for another try.
        known.delivery = delivery;
        known.stream = this.#stream;
      } else if (this.#stopped === undefined) this.#add(delivery, sizeOf(wire));
      // A worker that stops leaves it: it is released with the stream.
    }
    this.#begin();
  }

  #add(delivery: Delivery, bytes: number): void {
    const job: Job = {
      id: delivery.id,
      delivery,
      stream: this.#stream,
      bytes,
      since: Date.now(),
      state: "waiting",
      controller: new AbortController(),
    };
    this.#jobs.set(job.id, job);
    this.#waiting.push(job);
    this.#waitingBytes += bytes;
  }

  #begin(): void {
    while (this.#running < this.#concurrency && this.#stopped === undefined) {
      const job = this.#waiting.shift();
      if (job === undefined) break;
      this.#waitingBytes -= job.bytes;
      this.#running += 1;
      job.state = "running";
      void this.#work(job);
    }
    if (this.#waitingBytes < this.#maxWaitingBytes) this.#makeRoom();
  }

  async #work(job: Job): Promise<void> {
    let settle: () => Promise<void> = () => job.delivery.ack();
    let state: State = "acking";
    try {
      await this.#handler(job.delivery, { signal: job.controller.signal });
    } catch (error) {
      this.#report(error, job);
      const how = this.#nackOf(job, error);
      settle = () => job.delivery.nack(how);
      state = "nacking";
    }
    job.state = state;
    this.#running -= 1;
    this.#begin();
    if (!job.controller.signal.aborted) await this.#settle(job, settle);
    if (this.#jobs.get(job.id) === job) this.#jobs.delete(job.id);
    this.#maybeQuiet();
  }

  async #settle(job: Job, settle: () => Promise<void>): Promise<void> {
    for (;;) {
      const { token } = job.delivery;
      try {
        await settle();
        return;
      } catch (error) {
        // It came again meanwhile, and has another token.
        if (token !== job.delivery.token) continue;
        // A message that is somebody else's, or done, is nothing to worry about: that is what "at least once" means.
        if (!isLost(error) && !job.controller.signal.aborted) this.#report(error, job);
        return;
      }
    }
  }

  #nackOf(job: Job, error: unknown): NackOptions {
    if (error instanceof DeadLetter) return { deadLetter: true };
    const { nackDelayMs } = this.#options;
    if (typeof nackDelayMs !== "function") return { delayMs: nackDelayMs };
    try {
      return { delayMs: nackDelayMs(job.delivery, error) ?? undefined };
    } catch (wrong) {
      this.#report(wrong, job);
      return {};
    }
  }

  #report(error: unknown, job: Job): void {
    try {
      this.#options.onError?.(error, job.delivery);
    } catch {
      // Who is told about errors has none to tell.
    }
  }

  /** Everything that is held gets a new lease, but for what is held too long, or came over a stream that broke. */
  #extend(): void {
    const oldest = Date.now() - (this.#options.maxLeaseMs ?? MAX_LEASE_MS_DEFAULT);
    for (const job of this.#jobs.values()) {
      if (job.state === "acking" || job.state === "nacking" || job.stream !== this.#stream) continue;
      if (job.since <= oldest) {
        const text = "the message was held for as long as maxLeaseMs allows; others get it";
        const error = new BoltqError(text, { code: "DEADLINE_EXCEEDED", reason: "CLIENT_LEASE_CEILING" });
        this.#report(error, job);
        this.#giveUp(job, error);
        continue;
      }
      const { token } = job.delivery;
      job.delivery.extend(this.#leaseMs).catch((error: unknown) => {
        // Anything else can be better the next time, and half of the lease is left.
        if (isLost(error) && token === job.delivery.token && job.stream === this.#stream) this.#giveUp(job, error);
      });
    }
  }

  #giveUp(job: Job, reason: unknown): void {
    if (this.#jobs.get(job.id) !== job) return;
    job.controller.abort(reason);
    this.#jobs.delete(job.id);
    this.#waiting = this.#waiting.filter((other) => other !== job);
    if (job.state === "waiting") this.#waitingBytes -= job.bytes;
    this.#maybeQuiet();
  }

  #broken(): void {
    this.#stream += 1;
    // What has not begun comes again, to whoever asks first.
    this.#dropWaiting();
    this.#makeRoom();
  }

  #dropWaiting(): number {
    const waiting = this.#waiting;
    for (const job of waiting) this.#jobs.delete(job.id);
    this.#waiting = [];
    this.#waitingBytes = 0;
    return waiting.length;
  }

  get #maxWaitingBytes(): number {
    return this.#options.maxBufferedBytes ?? BUFFERED_BYTES_DEFAULT;
  }

  #whenRoom(): Promise<void> | undefined {
    if (this.#waitingBytes < this.#maxWaitingBytes || this.#stopped !== undefined) return undefined;
    this.#room ??= new Deferred();
    return this.#room.promise;
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}
