/** How a client ends. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { after, before, describe, test } from "node:test";

import { type BoltqClient, connect } from "@boltq/client";

import { deferred, eventually, Testbed, unique, within } from "./testbed.js";

/** Far below the default of what a stop may take, and far above what it takes. */
const AT_ONCE_MS = 20_000;
const CLOSED = { name: "BoltqError", code: "CANCELLED", reason: "CLIENT_CLOSED" };

let testbed: Testbed;

before(async () => {
  testbed = await Testbed.start("--storage", "memory");
});

after(async () => {
  await testbed[Symbol.asyncDispose]();
});

/** A worker of one message, whose handler has begun and does not end by itself. */
async function stuck(client: BoltqClient, stopTimeoutMs?: number) {
  const queue = unique("stuck");
  const id = await client.publish(queue, "x");
  const { promise: end, resolve: finish } = deferred<void>();
  const { promise: begun, resolve: begin } = deferred<AbortSignal>();
  const worker = client.worker(
    queue,
    (_, { signal }) => {
      begin(signal);
      return end;
    },
    { stopTimeoutMs },
  );
  return { queue, id, worker, signal: await begun, finish };
}

describe("a client that is closed", () => {
  test("ends at once what waits for something, although a handler never ends", async () => {
    const client = testbed.connect();
    const { signal, finish } = await stuck(client);
    const topic = client.topics.subscribe(unique("topic"));
    const watch = client.kv.watch();
    const subscription = client.subscribe(unique("empty"));
    await Promise.all([topic.opened, watch.opened, subscription.opened]);
    const waiting = [
      client.consume(unique("empty"), { waitMs: 60_000 }),
      topic.next(),
      watch.next(),
      subscription.next(),
    ].map((each) => assert.rejects(each, CLOSED));
    const closed = client.close();
    await within(AT_ONCE_MS, "what waits to end", Promise.all(waiting));
    await assert.rejects(client.consume(unique("late")), CLOSED);
    assert.throws(() => client.subscribe(unique("late")), CLOSED);
    assert.equal(signal.aborted, false);
    finish();
    await within(AT_ONCE_MS, "the client to be closed", closed);
  });

  test("ends calls that are on their way when nothing is to be finished", async () => {
    // It takes what comes, and says nothing.
    const silent = createServer((socket) => socket.on("error", () => undefined));
    silent.listen(0, "127.0.0.1");
    await once(silent, "listening");
    const client = connect({ addresses: `127.0.0.1:${(silent.address() as AddressInfo).port}` });
    const pending = [client.kv.get("k"), client.consume("q"), client.queues.get("q"), client.topics.publish("t", "x")];
    const ended = pending.map((each) => assert.rejects(each, CLOSED));
    await within(AT_ONCE_MS, "the client to be closed", client.close());
    await within(AT_ONCE_MS, "the calls to end", Promise.all(ended));
    silent.close();
  });

  test("gives back what a worker does not finish in its own time", async () => {
    const client = testbed.connect();
    const { queue, id, worker, signal } = await stuck(client, 50);
    await within(AT_ONCE_MS, "the client to be closed", client.close());
    assert.equal(signal.aborted, true);
    assert.deepEqual(await worker.stop(), { notSettled: [id] });
    await using other = testbed.connect();
    await eventually(
      "the message to be ready for others",
      () => other.consume(queue),
      (deliveries) => deliveries.length === 1,
    );
  });

  test("waits as long as it is told, which can be said again", async () => {
    const client = testbed.connect();
    const first = await stuck(client);
    const second = await stuck(client, 3_600_000);
    const closed = client.close({ timeoutMs: 3_600_000 });
    assert.equal(client.close({ timeoutMs: 0 }), closed);
    await within(AT_ONCE_MS, "the client to be closed", closed);
    assert.deepEqual([first.signal.aborted, second.signal.aborted], [true, true]);
    await client.close({ timeoutMs: 5 });
  });

  test("waits for publishes that nobody confirms no longer than it is told", async () => {
    const silent = createServer((socket) => socket.on("error", () => undefined));
    silent.listen(0, "127.0.0.1");
    await once(silent, "listening");
    const client = connect({ addresses: `127.0.0.1:${(silent.address() as AddressInfo).port}`, timeoutMs: 3_600_000 });
    const own = client.publisher("q");
    const { confirmed } = await own.send("x");
    const ended = [confirmed, client.publish("q", "x")].map((each) => assert.rejects(each, { code: "CANCELLED" }));
    await within(AT_ONCE_MS, "the client to be closed", client.close({ timeoutMs: 50 }));
    await within(AT_ONCE_MS, "the publishes to end", Promise.all(ended));
    silent.close();
  });

  test("lets handlers finish with all they need of it", async () => {
    const client = testbed.connect();
    const [queue, results] = [unique("work"), unique("results")];
    await client.publish(queue, "x");
    const { promise: closing, resolve: close } = deferred<void>();
    const { promise: begun, resolve: begin } = deferred<void>();
    client.worker(queue, async () => {
      begin();
      await closing;
      await client.kv.set(results, "1");
      await client.publish(results, "a");
      await client.publishMany(results, ["b"]);
    });
    await begun;
    const closed = client.close();
    close();
    await within(AT_ONCE_MS, "the client to be closed", closed);
    await assert.rejects(client.publish(results, "late"), CLOSED);
    await using other = testbed.connect();
    assert.equal((await other.queues.get(results)).ready, 2);
    const left = await other.queues.get(queue);
    assert.deepEqual([left.ready, left.leased], [0, 0]);
  });
});
