/** Server streams that begin again when they break, for `for await`: subscriptions to topics, and watches of the cache. */
import type { DescMessage, DescMethodServerStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import type { Caller } from "./caller.js";
import type { Channel, StreamCall } from "./channel.js";
import { BoltqError } from "./errors.js";
import { Deferred, linked } from "./wait.js";

/** What a stream that begins again is made of. */
export interface Restarting<I extends DescMessage, O extends DescMessage, T> {
  /** What is called. */
  readonly method: DescMethodServerStreaming<I, O>;
  /** The request; `again` if the call has worked before. */
  request(again: boolean): MessageInitShape<I>;
  /** The items of a response. */
  items(response: MessageShape<O>): Iterable<T>;
  /** Called when it works again after a break; what it gives is told to the application before the items. */
  restarted(): Iterable<T>;
  /** Whether it begins again after a failure that is final for a call. */
  survives?(error: BoltqError): boolean;
}

/**
 * Items of a server stream. It is read only as far as the application reads: what it does not take waits on the server. Broken connections
 * and restarts of servers are not seen as failures; it fails when nothing has worked for as long as a call may take.
 *
 * Leave the loop, or call {@link close}, to end it.
 */
export class ServerItems<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  readonly #opened = new Deferred<void>();
  readonly #stopping = new AbortController();
  readonly #signal: AbortSignal | undefined;
  readonly #items: AsyncGenerator<T, void, undefined>;
  readonly #caller: Caller;
  readonly #release: () => void;

  /** For the client itself. @internal */
  constructor(
    caller: Caller,
    items: (signal: AbortSignal, opened: () => void) => AsyncGenerator<T, void, undefined>,
    signal?: AbortSignal,
  ) {
    signal?.throwIfAborted();
    const { controller, release } = linked(signal, this.#stopping.signal, caller.ending);
    this.#signal = signal;
    this.#caller = caller;
    this.#release = release;
    this.#items = this.#guard(
      items(controller.signal, () => this.#opened.resolve()),
      release,
    );
  }

  /** Fulfilled when the server has accepted the call for the first time. Not necessary to wait for. */
  get opened(): Promise<void> {
    return this.#opened.promise;
  }

  /** The next item. */
  next(): Promise<IteratorResult<T, undefined>> {
    return this.#items.next() as Promise<IteratorResult<T, undefined>>;
  }

  /** Called by `for await` when the loop is left. */
  async return(): Promise<IteratorResult<T, undefined>> {
    await this.close();
    return { done: true, value: undefined };
  }

  /** Ends it; fulfilled when the server knows, so that what is published from then on is not for this stream. */
  async close(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort();
    await this.#items.return();
    this.#release();
    await this.#caller.flush();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async *#guard(items: AsyncGenerator<T, void, undefined>, release: () => void): AsyncGenerator<T, void, undefined> {
    try {
      yield* items;
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      this.#signal?.throwIfAborted();
      this.#opened.reject(error);
      throw error;
    } finally {
      release();
    }
  }
}

/** Opens a stream at once, and gives its items, over one connection after the other. */
export function serverItems<I extends DescMessage, O extends DescMessage, T>(
  caller: Caller,
  what: Restarting<I, O, T>,
  signal?: AbortSignal,
): ServerItems<T> {
  return new ServerItems<T>(
    caller,
    (stop, opened) => {
      const first = open(caller, what, stop, false);
      first.call.opened.then(opened, () => undefined);
      return run(caller, what, stop, first, opened);
    },
    signal,
  );
}

interface Open<O extends DescMessage> {
  readonly channel: Channel;
  readonly call: StreamCall<O>;
}

function open<I extends DescMessage, O extends DescMessage, T>(
  caller: Caller,
  what: Restarting<I, O, T>,
  signal: AbortSignal,
  again: boolean,
): Open<O> {
  const channel = caller.channel();
  return { channel, call: channel.serverStream(what.method, what.request(again), { signal }) };
}

async function* run<I extends DescMessage, O extends DescMessage, T>(
  caller: Caller,
  what: Restarting<I, O, T>,
  signal: AbortSignal,
  first: Open<O>,
  opened: () => void,
): AsyncGenerator<T, void, undefined> {
  const backoff = caller.backoff();
  const patience = caller.settings.timeoutMs;
  let deadline: number | undefined = Date.now() + patience;
  let current = first;
  let worked = false;
  for (;;) {
    const { channel, call } = current;
    let error: unknown = new BoltqError("the server has ended the stream", { code: "UNAVAILABLE" });
    try {
      await call.opened;
      opened();
      backoff.reset();
      deadline = undefined;
      if (worked) yield* what.restarted();
      worked = true;
      for await (const response of call.responses) yield* what.items(response);
    } catch (failed) {
      error = failed;
    } finally {
      call.cancel();
    }
    if (signal.aborted) throw signal.reason;
    deadline ??= Date.now() + patience;
    await caller.recover({ channel, error: survivor(error, what), repeat: "repeatable", backoff, deadline, signal });
    current = open(caller, what, signal, worked);
  }
}

/** A failure that is final for others, as one that can pass. */
function survivor<I extends DescMessage, O extends DescMessage, T>(error: unknown, what: Restarting<I, O, T>): unknown {
  if (!(error instanceof BoltqError) || what.survives?.(error) !== true) return error;
  return new BoltqError(error.message, { code: "UNAVAILABLE", cause: error });
}
