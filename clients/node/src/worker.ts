/**
 * A worker: it takes messages of a queue, calls a handler for each, and settles them by what the handler did.
 *
 * A job is a message from when it came until its settlement is known. Leases of all jobs are extended together, before half of their time
 * is over, until a job is older than the ceiling. When the stream breaks its leases end, and the messages come again, mostly to
 * this worker: a message whose handler still runs is then not handled a second time; the job goes on with the new lease. So it is for one
 * whose handler was done and whose acknowledgement came too late: it is remembered for a minute, and acknowledged if it comes again. Only
 * if it does not it was not settled.
 */
import type { Caller } from "./caller.js";
import { given, optionalMilliseconds } from "./check.js";
import { BoltqError, closed } from "./errors.js";
import type { Delivery as WireDelivery } from "./gen/boltq/queue/v1/queue_pb.js";
import { Intake, type IntakeOwner } from "./intake.js";
import { Delivery, type Settling } from "./received.js";
import { BUFFERED_BYTES_DEFAULT, sizeOf } from "./subscription.js";
import { Deferred, timerMs } from "./wait.js";
import { isLost, type Job, LateAcknowledgements, type State } from "./worker-jobs.js";
import {
  checkWorker,
  type Handler,
  inFlight,
  nackOf,
  type StopOptions,
  type StopResult,
  type WorkerFailure,
  type WorkerOptions,
} from "./worker-options.js";

const LEASE_MS_DEFAULT = 30_000;
const MAX_LEASE_MS_DEFAULT = 10 * 60_000;
const STOP_MS_DEFAULT = 30_000;

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
  readonly #late = new LateAcknowledgements();
  #waiting: Job[] = [];
  #waitingBytes = 0;
  #running = 0;
  /** Settlements of messages that are no jobs: they are given back as they came, or acknowledged late. */
  #asides = 0;
  /** Those whose settlement has failed since the worker was stopped. */
  readonly #notSettled: string[] = [];
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
    checkWorker(queue, options);
    this.#handler = handler;
    this.#options = options;
    this.#settling = settling;
    const { concurrency, maxInFlight } = inFlight(options);
    this.#concurrency = concurrency;
    this.#leaseMs = options.leaseMs ?? LEASE_MS_DEFAULT;
    options.signal?.throwIfAborted();
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
   * Begins no more handlers, and gives back at once what waits for one, without a failed attempt. Waits for the handlers that run and for
   * settlements. What has not ended in time is told so by its signal, and given back, too.
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
    this.#intake.stopDeliveries();
    for (const { delivery } of this.#takeWaiting()) void this.#aside(delivery.release());
    // What is still on its way is given back, too.
    this.#makeRoom();
    if (!this.#isQuiet) await this.#quiet.promise;
    this.#forget(Number.POSITIVE_INFINITY);
    const notSettled = [...this.#notSettled, ...this.#jobs.keys()];
    this.#endAll(closed("worker"));
    await this.#intake.ended.catch(() => undefined);
    return { notSettled };
  }

  /** Waits for a settlement of a message that is no job. What could not be released is ready for others when the stream ends. */
  async #aside(settling: Promise<void>, failed?: (error: unknown) => void): Promise<void> {
    this.#asides += 1;
    try {
      await settling;
    } catch (error) {
      if (!this.#over) failed?.(error);
    }
    this.#asides -= 1;
    this.#maybeQuiet();
  }

  #failed(error: unknown): void {
    if (this.#stopped === undefined) this.#tell(error);
    this.#stopped ??= Promise.resolve({ notSettled: [...this.#jobs.keys()] });
    this.#forget(Number.POSITIVE_INFINITY);
    this.#endAll(error);
    this.#finished.reject(error);
  }

  /** A worker that ends by itself must not do so in silence: the queue would fill, and nobody know. */
  #tell(error: unknown): void {
    const { onError } = this.#options;
    let told = this.#watched;
    try {
      onError?.(error, undefined, "WORKER_ENDED");
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
    this.#takeWaiting();
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
    if (this.#stopped !== undefined && this.#isQuiet) this.#quiet.resolve();
  }

  get #isQuiet(): boolean {
    return this.#jobs.size === 0 && this.#asides === 0;
  }

  #take(deliveries: readonly WireDelivery[]): void {
    for (const wire of deliveries) {
      const delivery = new Delivery(wire, this.#settling);
      const known = this.#jobs.get(delivery.id);
      if (known !== undefined && known.state !== "nacking") {
        // Its lease ended, with a stream before or by time, and its handler has not. What is given back can only come for another try.
        known.delivery = delivery;
        known.stream = this.#stream;
      } else if (this.#late.delete(delivery.id)) {
        void this.#aside(delivery.ack(), (error) => this.#tooLate(error, delivery));
      } else if (this.#stopped === undefined) this.#add(delivery, sizeOf(wire));
      // It was on its way when the stream was told to stop.
      else void this.#aside(delivery.release());
    }
    this.#begin();
  }

  #add(delivery: Delivery, bytes: number): void {
    const job: Job = {
      id: delivery.id,
      delivery,
      stream: this.#stream,
      bytes,
      begun: 0,
      extending: undefined,
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
      job.begun = Date.now();
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
      this.#report(error, job.delivery, "HANDLER_FAILED");
      const how = nackOf(this.#options, job.delivery, error, (wrong) =>
        this.#report(wrong, job.delivery, "HANDLER_FAILED"),
      );
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
        if (this.#over) return;
        if (job.state === "acking") this.#tooLate(error, job.delivery);
        else this.#unsettled(error, job.delivery);
        return;
      }
    }
  }

  /** It was not acknowledged: if somebody has it again, that can be this worker soon. */
  #tooLate(error: unknown, delivery: Delivery): void {
    if (error instanceof BoltqError && error.reason === "LEASE_LOST") {
      this.#late.add(delivery, error);
    } else {
      this.#unsettled(error, delivery);
    }
  }

  /** Tells of those that did not come again until then. */
  #forget(now: number): void {
    for (const { delivery, error } of this.#late.take(now)) this.#unsettled(error, delivery);
  }

  #unsettled(error: unknown, delivery: Delivery): void {
    if (this.#stopped !== undefined) this.#notSettled.push(delivery.id);
    this.#report(error, delivery, "NOT_SETTLED");
  }

  #report(error: unknown, delivery: Delivery, what: WorkerFailure): void {
    try {
      this.#options.onError?.(error, delivery, what);
    } catch {
      // Who is told about errors has none to tell.
    }
  }

  /** Everything that is held gets a new lease, but for what is held too long, or came over a stream that broke. */
  #extend(): void {
    const now = Date.now();
    const oldest = now - (this.#options.maxLeaseMs ?? MAX_LEASE_MS_DEFAULT);
    this.#forget(now);
    for (const job of this.#jobs.values()) {
      if (job.state === "acking" || job.state === "nacking" || job.stream !== this.#stream) continue;
      if (job.state === "running" && job.begun <= oldest) {
        const text = "the message was held for as long as maxLeaseMs allows; others get it";
        const error = new BoltqError(text, { code: "DEADLINE_EXCEEDED", reason: "CLIENT_LEASE_CEILING" });
        this.#report(error, job.delivery, "LEASE_CEILING");
        this.#giveUp(job, error);
        continue;
      }
      const { token } = job.delivery;
      // While the server is slow, asking again would only make it slower.
      if (job.extending === token) continue;
      job.extending = token;
      const extended = job.delivery.extend(this.#leaseMs).finally(() => {
        if (job.extending === token) job.extending = undefined;
      });
      extended.catch((error: unknown) => {
        // Anything else can be better the next time, and half of the lease is left.
        if (!isLost(error) || token !== job.delivery.token || job.stream !== this.#stream) return;
        // Its settlement has overtaken this, and says itself what came of it.
        if (job.state === "acking" || job.state === "nacking") return;
        if (this.#jobs.get(job.id) === job) this.#report(error, job.delivery, "LEASE_LOST");
        this.#giveUp(job, error);
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
    this.#takeWaiting();
    this.#makeRoom();
  }

  #takeWaiting(): readonly Job[] {
    const waiting = this.#waiting;
    for (const job of waiting) this.#jobs.delete(job.id);
    this.#waiting = [];
    this.#waitingBytes = 0;
    return waiting;
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
