/** Waiting that can be given up, and that keeps no process alive by mistake. */

/** The longest time that a timer of Node takes; a longer one ends at once. */
const TIMER_MS_MAX = 0x7fff_ffff;

/** Milliseconds as a timer takes them: some weeks at most. */
export function timerMs(ms: number): number {
  return Math.min(ms, TIMER_MS_MAX);
}

/** Resolves after so many milliseconds; rejects with the reason of the signal when that comes first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, timerMs(ms));
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** The promise, or the reason of the signal when that comes first. What the promise does then is nobody's concern. */
export function orAbort<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** A promise with its two ends. A rejection that nobody looks at is no unhandled one. */
export class Deferred<T> {
  /** Settled by {@link resolve} or {@link reject}, whichever comes first. */
  readonly promise: Promise<T>;
  /** Fulfils it. */
  resolve!: (value: T) => void;
  /** Fails it. */
  reject!: (error: unknown) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.promise.catch(() => undefined);
  }
}

/** An `AbortController` that is also aborted when one of the signals is; `release` takes it off them. */
export function linked(...signals: (AbortSignal | undefined)[]): { controller: AbortController; release: () => void } {
  const controller = new AbortController();
  const undo: (() => void)[] = [];
  for (const signal of signals) {
    if (signal === undefined) continue;
    const onAbort = (): void => controller.abort(signal.reason);
    if (signal.aborted) onAbort();
    else {
      signal.addEventListener("abort", onAbort, { once: true });
      undo.push(() => signal.removeEventListener("abort", onAbort));
    }
  }
  return {
    controller,
    release: () => {
      for (const each of undo) each();
    },
  };
}
