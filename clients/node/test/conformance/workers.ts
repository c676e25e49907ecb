/** Workers whose handlers end when the scenario says so. */
import { type BoltqClient, BoltqError, type Delivery, type Worker } from "@boltq/client";

import { deferred } from "../testbed.js";
import { type Arguments, received } from "./shapes.js";
import type { Value } from "./values.js";

/** See the module. */
export class ToldWorker {
  readonly #worker: Worker;
  readonly #begun: Delivery[] = [];
  readonly #running = new Set<Delivery>();
  readonly #errors: Value[] = [];
  readonly #finished: Promise<void>;
  /** Lets all handlers end. */
  readonly finish: () => void;

  constructor(client: BoltqClient, step: Arguments) {
    const { promise, resolve } = deferred<void>();
    this.#finished = promise;
    this.finish = resolve;
    this.#worker = client.worker(step.text("queue"), (delivery, { signal }) => this.#handle(delivery, signal), {
      concurrency: step.optional<number>("concurrency"),
      prefetch: step.optional<number>("prefetch"),
      leaseMs: step.ms("lease"),
      stopTimeoutMs: step.ms("stop_timeout"),
      onError: (error, delivery, what) => {
        const reason = error instanceof BoltqError ? (error.reason ?? "") : "";
        this.#errors.push({ message_id: delivery?.id ?? "", what, reason });
      },
    });
  }

  async #handle(delivery: Delivery, signal: AbortSignal): Promise<void> {
    this.#begun.push(delivery);
    this.#running.add(delivery);
    try {
      const told = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      await Promise.race([this.#finished, told]);
    } finally {
      this.#running.delete(delivery);
    }
  }

  look(): Value {
    return { running: [...this.#running].map(received), begun: this.#begun.map(received), errors: this.#errors };
  }

  async stop(): Promise<readonly string[]> {
    return (await this.#worker.stop()).notSettled;
  }

  async end(): Promise<void> {
    this.finish();
    await this.stop();
  }
}
