/** Steps about many messages, which are numbered from 0. */
import { type BoltqClient, BoltqError, type Publisher, type TopicPublisherOptions } from "@boltq/client";

import type { Arguments } from "./shapes.js";
import type { Value } from "./values.js";

const UNCONFIRMED_MAX = 64;

/** What other steps see of one that goes on. */
export class Many {
  #reached = 0;
  #stopped = false;
  #waiting: (() => void)[] = [];
  #failure: { readonly error: unknown } | undefined;

  get reached(): number {
    return this.#reached;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  advance(reached: number): void {
    this.#reached = reached;
    this.#wake();
  }

  stop(): void {
    this.#stopped = true;
    this.#wake();
  }

  fail(error: unknown): void {
    this.#failure = { error };
    this.#wake();
  }

  async reaches(atLeast: number): Promise<number> {
    await this.until(() => this.#reached >= atLeast);
    return this.#reached;
  }

  async until(what: () => boolean): Promise<void> {
    while (!what()) {
      if (this.#failure !== undefined) throw this.#failure.error;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each();
  }
}

/** A publisher for the topic or queue that a step names. */
function publisherOf(client: BoltqClient, step: Arguments, options: TopicPublisherOptions): Publisher {
  const topic = step.optional<string>("topic");
  return topic === undefined ? client.publisher(step.text("queue"), options) : client.topics.publisher(topic, options);
}

/** `many.publish`. */
export async function publishMany(client: BoltqClient, step: Arguments, many: Many): Promise<Value> {
  const count = step.optional<number>("count") ?? Number.POSITIVE_INFINITY;
  const options = { maxInFlight: UNCONFIRMED_MAX, timeoutMs: step.timeoutMs };
  await using publisher = publisherOf(client, step, options);
  let confirmed = 0;
  let failed = 0;
  for (let number = 0; number < count && !many.stopped; number += 1) {
    const publication = await publisher.send(String(number));
    publication.confirmed.then(
      () => {
        confirmed += 1;
        many.advance(confirmed);
      },
      () => {
        failed += 1;
      },
    );
  }
  await publisher.flush().catch(() => undefined);
  return { confirmed, failed };
}

/** `many.work`. */
export async function workMany(client: BoltqClient, step: Arguments, many: Many): Promise<Value> {
  const until = step.optional<number>("until") ?? Number.POSITIVE_INFINITY;
  const failEvery = step.optional<number>("fail_every");
  const handled = new Set<number>();
  const seen = new Set<number>();
  let unexpected = 0;
  let failed = 0;
  let errors = 0;
  const failure = new Error("as the scenario wants it");
  const worker = client.worker(
    step.text("queue"),
    (delivery) => {
      const number = Number(delivery.text());
      if (!Number.isInteger(number) || number < 0 || number >= until) unexpected += 1;
      if (failEvery !== undefined && number % failEvery === 0 && !seen.has(number)) {
        seen.add(number);
        failed += 1;
        throw failure;
      }
      handled.add(number);
      many.advance(handled.size);
    },
    {
      concurrency: step.optional<number>("concurrency"),
      leaseMs: step.ms("lease"),
      nackDelayMs: 10,
      onError: (error, _, what) => {
        const late = error instanceof BoltqError && (error.reason === "LEASE_LOST" || error.reason === "NOT_FOUND");
        if (what !== "HANDLER_FAILED" && !late) errors += 1;
      },
    },
  );
  worker.finished.catch((error: unknown) => many.fail(error));
  await many.until(() => many.stopped || handled.size >= until);
  await worker.stop();
  return { handled: handled.size, unexpected, failed, errors };
}
