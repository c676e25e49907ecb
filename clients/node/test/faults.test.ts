/** Servers that are killed, restarted and stopped while a client works with them: the application is told of nothing. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import type { BoltqClient } from "@boltq/client";

import { eventually, Testbed, unique } from "./testbed.js";

/** A load on all parts of a client, and what it was told. */
class Load {
  readonly #client: BoltqClient;
  readonly #queue = unique("load");
  readonly #running: Promise<void>[];
  #stopping = false;
  readonly errors: unknown[] = [];
  readonly confirmed = new Set<string>();
  readonly handled = new Map<string, number>();
  readonly counted = { unary: 0, kv: 0 };

  constructor(client: BoltqClient) {
    this.#client = client;
    this.#running = [this.#publish(), this.#call()].map((running) =>
      running.catch((error: unknown) => void this.errors.push(error)),
    );
  }

  /** With a confirmed stream, as quickly as 50 at a time allow. */
  async #publish(): Promise<void> {
    await using publisher = this.#client.publisher(this.#queue, { maxInFlight: 50, timeoutMs: 120_000 });
    for (let number = 0; !this.#stopping; number += 1) {
      const text = `stream-${number}`;
      const { confirmed } = await publisher.send(text);
      confirmed.then(
        () => this.confirmed.add(text),
        (error: unknown) => this.errors.push(error),
      );
      // The servers need the processor too.
      if (number % 50 === 0) await sleep(5);
    }
    await publisher.flush();
  }

  /** One call after the other. */
  async #call(): Promise<void> {
    const options = { timeoutMs: 120_000 };
    for (let number = 0; !this.#stopping; number += 1) {
      const text = `unary-${number}`;
      await this.#client.publish(this.#queue, text, options);
      this.confirmed.add(text);
      this.counted.unary += 1;
      await this.#client.kv.set(this.#queue, text, options);
      const entry = await this.#client.kv.get(this.#queue, options);
      if (entry?.text() === text) this.counted.kv += 1;
      await sleep(5);
    }
  }

  worker(): ReturnType<BoltqClient["worker"]> {
    const handler = (delivery: { text(): string }): void => {
      const text = delivery.text();
      this.handled.set(text, (this.handled.get(text) ?? 0) + 1);
    };
    return this.#client.worker(this.#queue, handler, { concurrency: 16, onError: (error) => this.errors.push(error) });
  }

  /** Waits for progress after whatever has happened. */
  async goesOn(): Promise<void> {
    const stream = this.confirmed.size;
    const { unary, kv } = this.counted;
    const enough = (): boolean =>
      this.errors.length > 0 ||
      (this.confirmed.size > stream + 200 && this.counted.unary > unary + 5 && this.counted.kv > kv + 5);
    await eventually("the load to go on", enough, (done) => done);
    assert.deepEqual(this.errors, []);
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await Promise.all(this.#running);
    assert.deepEqual(this.errors, []);
  }

  /** Messages that are there. */
  async ready(): Promise<number> {
    return (await this.#client.queues.get(this.#queue, { linearizable: true })).ready;
  }
}

describe("one server", () => {
  test("is killed while messages are published: each confirmed one is there, and none twice", async () => {
    await using testbed = await Testbed.start();
    await using client = testbed.connect();
    const load = new Load(client);
    for (let kill = 0; kill < 3; kill += 1) {
      await load.goesOn();
      await testbed.command("restart 0");
    }
    await load.goesOn();
    await load.stop();
    assert.equal(await load.ready(), load.confirmed.size);
  });

  test("is killed while messages are worked on: each one is handled", async () => {
    await using testbed = await Testbed.start("--set", "queue.max_retry=1000");
    await using client = testbed.connect();
    const load = new Load(client);
    const worker = load.worker();
    for (let kill = 0; kill < 2; kill += 1) {
      await load.goesOn();
      await testbed.command("restart 0");
    }
    await load.goesOn();
    await load.stop();
    await eventually(
      "all to be handled",
      () => load.handled.size,
      (size) => size >= load.confirmed.size,
    );
    await worker.stop();
    for (const text of load.confirmed) assert.ok(load.handled.has(text), text);
    assert.equal(await load.ready(), 0);
  });

  test("a thousand clients come and go, and leave nothing behind", async () => {
    await using testbed = await Testbed.start("--storage", "memory");
    const openFiles = async (): Promise<number> => Number((await testbed.command("stat 0"))["open_files"]);
    const handles = (): number => process.getActiveResourcesInfo().length;
    const before = { files: await openFiles(), handles: handles() };
    for (let cycle = 0; cycle < 1_000; cycle += 1) {
      const client = testbed.connect();
      if (cycle % 4 === 0) await client.publish("cycles", "x");
      else if (cycle % 4 === 1) await client.kv.get("k");
      else if (cycle % 4 === 2) await client.subscribe("cycles", { maxInFlight: 1 }).opened;
      else await client.worker("other", () => undefined).stop();
      await client.close();
    }
    await eventually("the connections to be gone", openFiles, (files) => files <= before.files + 2);
    await eventually("the handles to be gone", handles, (count) => count <= before.handles + 2);
  });
});

describe("three nodes", () => {
  test("are restarted one after the other while everything is in use", async () => {
    await using testbed = await Testbed.start("--nodes", "3", "--set", "queue.max_retry=1000");
    await using client = testbed.connect();
    const load = new Load(client);
    const worker = load.worker();
    await load.goesOn();
    await testbed.command("rolling-restart");
    await load.goesOn();
    await load.stop();
    await eventually(
      "all to be handled",
      () => load.handled.size,
      (size) => size >= load.confirmed.size,
    );
    await worker.stop();
    for (const text of load.confirmed) assert.ok(load.handled.has(text), text);
    assert.equal(await load.ready(), 0);
  });

  test("one of them hangs: the client notices by itself and goes on with the others", async () => {
    await using testbed = await Testbed.start("--nodes", "3");
    const { node } = await testbed.command("leader");
    const others = testbed.addresses.filter((_, index) => index !== node);
    const hanging = testbed.addresses[Number(node)] ?? "";
    await using client = testbed.connect({ addresses: [hanging, hanging, ...others] });
    await client.publish("hang", "a");
    await testbed.command(`pause ${node}`);
    assert.match(await client.publish("hang", "b", { timeoutMs: 90_000 }), /^[0-9a-f]{32}$/);
    await testbed.command(`resume ${node}`);
    await testbed.command("settled");
    assert.equal((await client.queues.get("hang", { linearizable: true })).ready, 2);
  });
});
