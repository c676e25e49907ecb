/** What the client does with a server that works. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { type BoltqClient, BoltqError, connect, DeadLetter, type Delivery, json, type KvEvent } from "@boltq/client";

import { eventually, Testbed, unique } from "./testbed.js";

const MIB = 1 << 20;

let testbed: Testbed;
let client: BoltqClient;

before(async () => {
  testbed = await Testbed.start("--storage", "memory", "--set", "queue.dedup_max_keys=100000");
  client = testbed.connect();
});

after(async () => {
  await client.close();
  await testbed[Symbol.asyncDispose]();
});

/** The first message of a queue. */
async function one(queue: string, leaseMs?: number): Promise<Delivery> {
  const [delivery] = await client.consume(queue, { waitMs: 30_000, leaseMs });
  assert.ok(delivery !== undefined, "no message came");
  return delivery;
}

describe("a message", () => {
  test("comes as it was published, and is settled by its delivery", async () => {
    const queue = unique("message");
    const id = await client.publish(queue, json({ to: "ä" }, { headers: { trace: "1" }, priority: 3 }));
    const delivery = await one(queue);
    assert.equal(delivery.id, id);
    assert.deepEqual(delivery.json(), { to: "ä" });
    assert.equal(delivery.contentType, "application/json");
    assert.deepEqual(delivery.headers, { trace: "1" });
    assert.equal(delivery.priority, 3);
    assert.ok(Math.abs(delivery.publishedAt.getTime() - Date.now()) < 600_000);
    await delivery.extend(60_000);
    await delivery.ack();
    await assert.rejects(delivery.ack(), { name: "BoltqError", code: "NOT_FOUND", reason: "NOT_FOUND" });
  });

  test("has a payload of any bytes", async () => {
    const queue = unique("bytes");
    const payload = Uint8Array.from({ length: 256 }, (_, index) => index);
    await client.publish(queue, payload);
    assert.deepEqual(Buffer.from((await one(queue)).payload), Buffer.from(payload));
  });

  test("that no request has room for is refused alone", async () => {
    const queue = unique("large");
    const results = await client.publishMany(queue, [
      "a",
      new Uint8Array(5 * MIB),
      new Uint8Array(4_128_768 - 100),
      "b",
    ]);
    assert.deepEqual(
      results.map(({ error }) => error?.reason),
      [undefined, "MESSAGE_TOO_LARGE", undefined, undefined],
    );
    assert.equal((await client.queues.get(queue)).ready, 3);
  });

  test("is stored once however often it is published with a key", async () => {
    const queue = unique("key");
    const message = { payload: "x", idempotencyKey: "order-17" };
    const ids = await Promise.all([1, 2, 3].map(() => client.publish(queue, message)));
    assert.equal(new Set(ids).size, 1);
    assert.equal((await client.queues.get(queue)).ready, 1);
  });
});

test("a publish to a topic or an exchange is repeated if it has a key", async () => {
  const queue = unique("routed");
  await client.publish(queue, "0");
  const keyed = { payload: "x", idempotencyKey: unique("key") };
  const first = await client.exchanges.publish("", queue, keyed);
  assert.deepEqual(await client.exchanges.publish("", queue, keyed), first);
  assert.equal((await client.queues.get(queue)).ready, 2);
  const topic = unique("told");
  assert.deepEqual(await client.topics.publish(topic, keyed), await client.topics.publish(topic, keyed));

  for (const [message, repeated] of [
    [keyed, true],
    [{ payload: "x" }, false],
  ] as const) {
    for (const publish of [
      (other: BoltqClient) => other.topics.publish(topic, message),
      (other: BoltqClient) => other.exchanges.publish("", queue, message),
    ]) {
      let retries = 0;
      // It takes what comes and answers nothing: the connection is cut instead.
      const silent = createServer((socket) => {
        socket.on("error", () => undefined);
        socket.once("data", () => setTimeout(() => socket.destroy(), 100));
      });
      silent.listen(0, "127.0.0.1");
      await once(silent, "listening");
      const { port } = silent.address() as AddressInfo;
      const other = connect({ addresses: `127.0.0.1:${port}`, timeoutMs: 1_000, onRetry: () => (retries += 1) });
      await assert.rejects(publish(other), { name: "BoltqError", notApplied: false });
      assert.equal(retries > 0, repeated);
      await other.close();
      silent.close();
    }
  }
});

test("a publish that was sent when its publisher was given up may be stored", async () => {
  const publisher = client.publisher(unique("given-up"));
  const sent = await publisher.send("x");
  await new Promise((resolve) => setImmediate(resolve));
  const unsent = await publisher.send("y");
  const outcomes = Promise.allSettled([sent.confirmed, unsent.confirmed]);
  publisher.abort();
  assert.deepEqual(
    (await outcomes).map((outcome) => outcome.status === "rejected" && (outcome.reason as BoltqError).notApplied),
    [false, true],
  );
});

describe("calls", () => {
  test("are given up by their signal, with its reason", async () => {
    const abort = new AbortController();
    const waiting = client.consume(unique("abort"), { waitMs: 30_000, signal: abort.signal });
    abort.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
    await assert.rejects(client.publish("q", "x", { signal: abort.signal }), /enough/);
  });

  test("are repeated until their time is over, and then tell the last failure", async () => {
    let retries = 0;
    const nobody = connect({
      addresses: "127.0.0.1:1",
      onRetry: () => {
        retries += 1;
      },
    });
    const told = { name: "BoltqError", code: "UNAVAILABLE", notApplied: true, retriable: true };
    await assert.rejects(nobody.kv.get("k", { timeoutMs: 500 }), told);
    await assert.rejects(nobody.topics.publish("t", "x", { timeoutMs: 500 }), told);
    assert.ok(retries >= 2, `${retries} retries`);
    await assert.rejects(nobody.publish("q", "x", { timeoutMs: 500 }), {
      code: "UNAVAILABLE",
      message: /ECONNREFUSED/,
    });
    const streams = connect({ addresses: "127.0.0.1:1", timeoutMs: 300 });
    await assert.rejects(streams.subscribe("q").next(), { code: "UNAVAILABLE" });
    await assert.rejects(streams.kv.watch().next(), { code: "UNAVAILABLE" });
    await streams.close();
    await nobody.close();
  });

  test("fail when the client is closed", async () => {
    const other = testbed.connect();
    const waiting = other.consume(unique("close"), { waitMs: 30_000 });
    const refused = assert.rejects(waiting, { reason: "CLIENT_CLOSED", notApplied: false });
    await sleep(50);
    await other.close();
    await refused;
    await assert.rejects(other.publish("q", "x"), { reason: "CLIENT_CLOSED", notApplied: true });
    await assert.rejects(other.kv.get("k"), { reason: "CLIENT_CLOSED", notApplied: true });
    assert.throws(() => other.worker("q", () => undefined), { reason: "CLIENT_CLOSED" });
  });
});

describe("a publisher", () => {
  test("has no more on its way than it may", async () => {
    const queue = unique("publisher");
    await using publisher = client.publisher(queue, { maxInFlight: 100, maxInFlightBytes: 64 << 10 });
    let messages = 0;
    let bytes = 0;
    for (let number = 0; number < 2_000; number += 1) {
      await publisher.send("x".repeat(number % 3_000));
      messages = Math.max(messages, publisher.unconfirmed);
      bytes = Math.max(bytes, publisher.unconfirmedBytes);
    }
    await publisher.flush();
    assert.ok(messages > 1 && messages <= 100, `${messages} messages`);
    assert.ok(bytes > 3_000 && bytes <= 64 << 10, `${bytes} bytes`);
    assert.equal(publisher.unconfirmed, 0);
    assert.equal((await client.queues.get(queue)).ready, 2_000);
  });

  test("takes no more from where messages come from than it has room for", async () => {
    await using nobody = connect({ addresses: "127.0.0.1:1" });
    let taken = 0;
    function* source(): Generator<string> {
      for (;;) {
        taken += 1;
        yield "x";
      }
    }
    const abort = new AbortController();
    const publishing = nobody.publishMany("q", source(), { maxInFlight: 50, signal: abort.signal });
    await eventually(
      "the room to be used",
      () => taken,
      (count) => count === 51,
    );
    await sleep(50);
    assert.equal(taken, 51);
    abort.abort(new Error("enough"));
    await assert.rejects(publishing, /enough/);
  });

  test("keeps the order", async () => {
    const queue = unique("order");
    await client.publishMany(
      queue,
      Array.from({ length: 3_000 }, (_, number) => String(number)),
    );
    const numbers: number[] = [];
    while (numbers.length < 3_000) {
      const deliveries = await client.consume(queue, { maxMessages: 1_000, waitMs: 30_000 });
      numbers.push(...deliveries.map((delivery) => Number(delivery.text())));
      await client.ack(deliveries.map(({ token }) => token));
    }
    assert.deepEqual(
      numbers,
      Array.from({ length: 3_000 }, (_, number) => number),
    );
  });

  test("tells which messages were refused, and goes on", async () => {
    const queue = unique("refused");
    await client.queues.create(queue, { maxLength: 2 });
    const publisher = client.publisher(queue);
    await publisher.publish("a");
    await publisher.publish("b");
    await assert.rejects(publisher.publish("c"), { code: "RESOURCE_EXHAUSTED", reason: "QUEUE_FULL", retriable: true });
    await assert.rejects(publisher.flush(), { reason: "QUEUE_FULL" });
    await client.queues.update(queue, { maxLength: undefined });
    await publisher.publish("c");
    await publisher.close();
    await assert.rejects(publisher.send("d"), { reason: "CLIENT_CLOSED", notApplied: true });
  });

  test("does without keys when the server remembers too many, unless the application wants one", async () => {
    await using small = await Testbed.start("--storage", "memory", "--set", "queue.dedup_max_keys=10");
    await using other = small.connect();
    for (let round = 0; round < 3; round += 1) {
      const results = await other.publishMany(
        "many",
        Array.from({ length: 20 }, () => "x"),
      );
      assert.deepEqual(
        results.filter(({ error }) => error !== undefined),
        [],
      );
    }
    assert.equal((await other.queues.get("many")).ready, 60);
    await assert.rejects(other.publish("many", { payload: "x", idempotencyKey: "mine" }), {
      reason: "IDEMPOTENCY_KEYS_FULL",
    });
  });
});

describe("a subscription", () => {
  test("that is not read takes no more memory than it may", async () => {
    const queue = unique("slow");
    const count = 160;
    const payload = new Uint8Array(MIB / 4);
    await client.publishMany(
      queue,
      Array.from({ length: count }, () => payload),
    );
    const before = process.memoryUsage();
    const subscription = client.subscribe(queue, { maxInFlight: count, maxBufferedBytes: 2 * MIB });
    const first = await subscription.next();
    assert.ok(first.done !== true);
    // All are leased when nothing but the client holds them back; then they are in the windows, or wait on the server.
    await eventually(
      "the reading to stop",
      () => subscription.bufferedBytes,
      (bytes) => bytes >= 2 * MIB,
    );
    for (let look = 0; look < 20; look += 1) {
      await sleep(20);
      assert.ok(subscription.bufferedBytes <= 6 * MIB, `${subscription.bufferedBytes} bytes wait`);
    }
    const grown = process.memoryUsage().arrayBuffers - before.arrayBuffers;
    assert.ok(grown < 20 * MIB, `${grown} bytes more`);
    // Settling does not wait behind what is not read.
    await first.value.ack();
    for (let left = count - 1; left > 0; left -= 1) {
      const next = await subscription.next();
      assert.ok(next.done !== true);
      await next.value.ack();
    }
    await subscription.close();
    assert.equal((await client.queues.get(queue)).ready, 0);
  });

  test("gives back what was not settled when the loop is left", async () => {
    const queue = unique("left");
    await client.publishMany(queue, ["a", "b", "c"]);
    for await (const delivery of client.subscribe(queue)) {
      await delivery.ack();
      break;
    }
    const info = await eventually(
      "the leases to end",
      () => client.queues.get(queue),
      ({ leased }) => leased === 0,
    );
    assert.equal(info.ready, 2);
    assert.equal((await one(queue)).attempts, 0);
  });

  test("ends with the reason of its signal", async () => {
    const abort = new AbortController();
    const subscription = client.subscribe(unique("signal"), { signal: abort.signal });
    await subscription.opened;
    const waiting = subscription.next();
    abort.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
  });

  test("fails when its queue is deleted", async () => {
    const queue = unique("deleted");
    const subscription = client.subscribe(queue);
    await subscription.opened;
    await client.queues.delete(queue);
    await assert.rejects(subscription.next(), { code: "NOT_FOUND", reason: "QUEUE_DELETED" });
  });
});

describe("a worker", () => {
  test("runs as many handlers as it may, and acknowledges what they did", async () => {
    const queue = unique("worker");
    await client.publishMany(
      queue,
      Array.from({ length: 60 }, (_, number) => String(number)),
    );
    const seen = new Set<string>();
    let most = 0;
    await using worker = client.worker(
      queue,
      async (delivery) => {
        most = Math.max(most, worker.running);
        await sleep(5);
        seen.add(delivery.text());
      },
      { concurrency: 4 },
    );
    await eventually(
      "all to be handled",
      () => seen.size,
      (size) => size === 60,
    );
    assert.deepEqual(await worker.stop(), { notSettled: [] });
    assert.ok(most > 1 && most <= 4, `${most} at a time`);
    const { ready, leased } = await client.queues.get(queue);
    assert.deepEqual({ ready, leased }, { ready: 0, leased: 0 });
  });

  test("gives back what failed, with a delay, or to the dead letters", async () => {
    const queue = unique("failing");
    await client.queues.create(queue, { retryBackoffMs: 3_600_000, retryBackoffMaxMs: 3_600_000 });
    await client.publishMany(queue, ["again", "never"]);
    const errors: unknown[] = [];
    const attempts: number[] = [];
    await using worker = client.worker(
      queue,
      (delivery) => {
        if (delivery.text() === "never") throw new DeadLetter("broken");
        attempts.push(delivery.attempts);
        if (delivery.attempts === 0) throw new Error("not yet");
      },
      { nackDelayMs: () => 1, onError: (error) => errors.push(error) },
    );
    await eventually(
      "the second attempt",
      () => attempts,
      ({ length }) => length === 2,
    );
    await worker.stop();
    assert.deepEqual(attempts, [0, 1]);
    assert.deepEqual(errors.map(String).sort(), ["DeadLetter: broken", "Error: not yet"]);
    const info = await client.queues.get(queue);
    assert.deepEqual([info.ready, info.deadLetters], [0, 1]);
    assert.equal(await client.queues.redriveDeadLetters(queue), 1);
    assert.equal((await one(queue)).text(), "never");
  });

  test("extends leases as long as handlers run", async () => {
    const queue = unique("long");
    await client.publish(queue, "x");
    const attempts: number[] = [];
    await using worker = client.worker(
      queue,
      async (delivery) => {
        attempts.push(delivery.attempts);
        await sleep(2_500);
      },
      { leaseMs: 1_000 },
    );
    await eventually(
      "the message to be done",
      () => client.queues.get(queue),
      ({ ready, leased }) => ready + leased === 0,
    );
    await worker.stop();
    assert.deepEqual(attempts, [0]);
  });

  test("stops extending at the ceiling, and tells the handler", async () => {
    const queue = unique("ceiling");
    await client.publish(queue, "x");
    const errors: unknown[] = [];
    let told: unknown;
    await using worker = client.worker(
      queue,
      async (delivery, { signal }) => {
        if (delivery.attempts > 0) return;
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        told = signal.reason;
      },
      { leaseMs: 1_000, maxLeaseMs: 1_200, onError: (error) => errors.push(error) },
    );
    await eventually(
      "the second delivery to be done",
      () => client.queues.get(queue),
      ({ ready, leased }) => ready + leased === 0,
    );
    await worker.stop();
    assert.ok(told instanceof BoltqError && told.reason === "CLIENT_LEASE_CEILING", String(told));
    assert.deepEqual(errors, [told]);
  });

  test("waits for its handlers when it stops, and releases what takes too long", async () => {
    const queue = unique("stopping");
    const published = await client.publishMany(queue, ["quick", "slow", "waits"]);
    const slow = published[1]?.id;
    const ended: string[] = [];
    const worker = client.worker(
      queue,
      async (delivery, { signal }) => {
        await sleep(delivery.text() === "slow" ? 60_000 : 300, undefined, { signal, ref: false }).catch(
          () => undefined,
        );
        ended.push(signal.aborted ? "told" : delivery.text());
      },
      { concurrency: 2, prefetch: 1 },
    );
    await eventually(
      "two handlers",
      () => worker.running,
      (running) => running === 2,
    );
    assert.deepEqual(await worker.stop({ timeoutMs: 1_500 }), { notSettled: [slow] });
    await worker.finished;
    await eventually(
      "both handlers to end",
      () => ended,
      ({ length }) => length === 2,
    );
    assert.deepEqual(ended, ["quick", "told"]);
    const left = [await one(queue), await one(queue)];
    assert.deepEqual(
      left.map((each) => [each.text(), each.attempts]),
      [
        ["slow", 0],
        ["waits", 0],
      ],
    );
  });

  test("stops with its signal", async () => {
    const abort = new AbortController();
    const worker = client.worker(unique("signalled"), () => undefined, { signal: abort.signal });
    abort.abort();
    await worker.finished;
  });
});

describe("topics and the cache", () => {
  test("a topic tells all who subscribe", async () => {
    const topic = unique("topic");
    const subscriptions = [client.topics.subscribe(topic), client.topics.subscribe(topic)];
    await Promise.all(subscriptions.map(({ opened }) => opened));
    const { id } = await client.topics.publish(topic, "news");
    for (const subscription of subscriptions) {
      const { value } = await subscription.next();
      assert.equal(value?.id, id);
      await subscription.close();
    }
  });

  test("a subscription that is taken over fails", async () => {
    const topic = unique("taken");
    const options = { subscription: "edge", durable: true };
    const first = client.topics.subscribe(topic, options);
    await first.opened;
    const second = client.topics.subscribe(topic, options);
    await assert.rejects(first.next(), { code: "ABORTED", reason: "SUBSCRIPTION_REPLACED" });
    await second.close();
  });

  test("a watch reports changes, with versions of 64 bits", async () => {
    const key = unique("watched");
    const watch = client.kv.watch({ pattern: `${key}*`, initial: true });
    const events: KvEvent[] = [(await watch.next()).value as KvEvent];
    const version = await client.kv.set(key, "1", { ifAbsent: true });
    const { value } = await client.kv.increment(key, 9_007_199_254_740_993n);
    assert.equal(value, 9_007_199_254_740_994n);
    assert.equal(
      await client.kv.delete(key, { ifVersion: version }).catch((error: BoltqError) => error.reason),
      "CONDITION_NOT_MET",
    );
    assert.equal(await client.kv.delete(key), true);
    while (events.at(-1)?.type !== "removed") events.push((await watch.next()).value as KvEvent);
    await watch.close();
    assert.equal(events[0]?.type, "ready");
    assert.equal(await client.kv.get(key), undefined);
  });
});
