/** What is refused before anything is sent: arguments that are none. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { type BoltqClient, BoltqError, connect, type Message, type Payload } from "@boltq/client";

import { Testbed, unique } from "./testbed.js";

let testbed: Testbed;
let client: BoltqClient;

before(async () => {
  testbed = await Testbed.start("--storage", "memory");
  client = testbed.connect();
});

after(async () => {
  await client.close();
  await testbed[Symbol.asyncDispose]();
});

/** What JavaScript passes where TypeScript would not. */
function wrong<T>(value: unknown): T {
  return value as T;
}

/** Says which argument it was, and that nothing was done. */
function names(argument: string): (error: unknown) => true {
  return (error) => {
    assert.ok(error instanceof BoltqError, String(error));
    assert.deepEqual([error.code, error.notApplied], ["INVALID_ARGUMENT", true], error.message);
    assert.ok(error.message.startsWith(argument), `"${error.message}" does not begin with ${argument}`);
    return true;
  };
}

const NO_NAMES = [undefined, null, "", 42, {}, ["q"]];

/** Messages that cannot be sent, by what is wrong with them. */
const NO_MESSAGES: readonly [string, unknown][] = [
  ["message", undefined],
  ["message", null],
  ["message", 7],
  ["payload", {}],
  ["payload", { to: "ann" }],
  ["payload", { payload: 7 }],
  ["payload", { payload: null }],
  ["payload", { payload: { length: 3 } }],
  ["headers", { payload: "x", headers: "a=b" }],
  ["message", ["x"]],
  ['headers["n"]', { payload: "x", headers: { n: 1 } }],
  ['headers["n"]', { payload: "x", headers: { n: undefined } }],
  ["contentType", { payload: "x", contentType: 1 }],
  ["priority", { payload: "x", priority: 1.5 }],
  ["priority", { payload: "x", priority: Number.NaN }],
  ["priority", { payload: "x", priority: -1 }],
  ["priority", { payload: "x", priority: 10 }],
  ["priority", { payload: "x", priority: "5" }],
  ["delayMs", { payload: "x", delayMs: -1 }],
  ["delayMs", { payload: "x", delayMs: Number.POSITIVE_INFINITY }],
  ["delayMs", { payload: "x", delayMs: 1e300 }],
  ["delayMs", { payload: "x", delayMs: "5" }],
  ["ttlMs", { payload: "x", ttlMs: Number.NaN }],
  ["idempotencyKey", { payload: "x", idempotencyKey: 17 }],
  ["orderingKey", { payload: "x", orderingKey: Symbol("x") }],
];

describe("a queue that is none", () => {
  test("is refused wherever one is named, and nothing goes to another queue", async () => {
    const before = unique("before");
    await client.publish(before, "first");
    for (const each of NO_NAMES) {
      const queue = wrong<string>(each);
      const [good, bad] = await Promise.allSettled([client.publish(before, "x"), client.publish(queue, "x")]);
      assert.equal(good.status, "fulfilled");
      assert.ok(bad.status === "rejected");
      names("queue")(bad.reason);
      await assert.rejects(client.publishMany(queue, ["x"]), names("queue"));
      assert.throws(() => client.publisher(queue), names("queue"));
      assert.throws(() => client.worker(queue, () => undefined), names("queue"));
      assert.throws(() => client.subscribe(queue), names("queue"));
      await assert.rejects(client.consume(queue), names("queue"));
      await assert.rejects(client.queues.get(queue), names("queue"));
      await assert.rejects(client.queues.purge(queue), names("queue"));
    }
    assert.equal((await client.queues.get(before)).ready, 1 + NO_NAMES.length);
  });
});

describe("a message that is none", () => {
  test("is refused alone and at once, and those beside it are stored", async () => {
    for (const [argument, each] of NO_MESSAGES) {
      const queue = unique("beside");
      const message = wrong<Message>(each);
      const begin = Date.now();
      const [first, bad, last] = await Promise.allSettled([
        client.publish(queue, "a"),
        client.publish(queue, message),
        client.publish(queue, "b"),
      ]);
      assert.deepEqual([first.status, last.status], ["fulfilled", "fulfilled"]);
      assert.ok(bad.status === "rejected");
      names(argument)(bad.reason);
      assert.ok(Date.now() - begin < 5_000);

      const results = await client.publishMany(queue, ["c", wrong<Payload>(each), "d"]);
      assert.deepEqual(
        results.map(({ error }) => error?.code),
        [undefined, "INVALID_ARGUMENT", undefined],
      );
      await assert.rejects(client.topics.publish("t", message), names(argument));
      await assert.rejects(client.exchanges.publish("", queue, message), names(argument));
      assert.equal((await client.queues.get(queue)).ready, 4);
    }
  });

  test("cannot become one after it was taken", async () => {
    const queue = unique("changed");
    const headers: Record<string, string> = { a: "1" };
    const confirmed = client.publish(queue, { payload: "x", headers });
    headers["a"] = wrong<string>(Symbol("x"));
    await confirmed;
    const [delivery] = await client.consume(queue);
    assert.deepEqual(delivery?.headers, { a: "1" });
  });

  test("has times of any fraction of a millisecond", async () => {
    const queue = unique("fraction");
    for (const delayMs of [0, 0.0000001, 1.1, 0.9999999999, 2.675])
      await client.publish(queue, { payload: "x", delayMs });
  });
});

test("other arguments are checked, too", async () => {
  const queue = unique("others");
  const bad = wrong<number>("many");
  for (const each of [bad, Number.NaN, 1.5, -1]) {
    await assert.rejects(client.consume(queue, { maxMessages: each }), names("maxMessages"));
    assert.throws(() => client.subscribe(queue, { maxInFlight: each }), names("maxInFlight"));
    assert.throws(() => client.worker(queue, () => undefined, { concurrency: each }), names("concurrency"));
    assert.throws(() => client.worker(queue, () => undefined, { prefetch: each }), names("prefetch"));
    assert.throws(() => client.publisher(queue, { maxInFlight: each }), names("maxInFlight"));
  }
  for (const each of [bad, Number.NaN, -1]) {
    await assert.rejects(client.consume(queue, { waitMs: each }), names("waitMs"));
    await assert.rejects(client.publish(queue, "x", { timeoutMs: each }), names("timeoutMs"));
    await assert.rejects(client.queues.get(queue, { timeoutMs: each }), names("timeoutMs"));
    assert.throws(() => client.subscribe(queue, { leaseMs: each }), names("leaseMs"));
    assert.throws(() => client.worker(queue, () => undefined, { leaseMs: each }), names("leaseMs"));
  }
  for (const each of [999, 12 * 3_600_000 + 1]) {
    assert.throws(() => client.worker(queue, () => undefined, { leaseMs: each }), names("leaseMs"));
  }
  assert.throws(() => client.worker(queue, wrong(undefined)), names("handler"));
  await assert.rejects(client.exchanges.publish(wrong(undefined), queue, "x"), names("exchange"));
  await assert.rejects(client.exchanges.publish("", wrong(42), "x"), names("routingKey"));
  await assert.rejects(client.exchanges.bind("x", queue, { headers: wrong({ a: 1 }) }), names('headers["a"]'));
  await assert.rejects(client.topics.publish(wrong(42), "x"), names("topic"));
  await assert.rejects(client.topics.subscribe(wrong(42)).next(), names("topic"));
  await assert.rejects(client.kv.get(wrong(42)), names("key"));
  for (const delta of [1.5, Number.NaN, wrong<number>("1"), 2n ** 64n]) {
    await assert.rejects(client.kv.increment("n", delta), names("delta"));
  }
  assert.throws(() => connect({ addresses: wrong(5) }), names("addresses"));
  assert.throws(() => connect({ addresses: wrong([5]) }), names("addresses"));
  assert.throws(() => connect({ apiKey: wrong(5) }), names("apiKey"));
  assert.throws(() => connect({ token: wrong(5) }), names("token"));
  assert.throws(() => connect({ tls: wrong(5) }), names("tls"));
  assert.throws(() => connect({ tls: { ca: wrong(5) } }), names("tls.ca"));
  assert.throws(() => connect({ onRetry: wrong(5) }), names("onRetry"));
  await assert.rejects(client.queues.reschedule("0".repeat(32), wrong({})), names("delayMs"));
  await assert.rejects(client.queues.reschedule("0".repeat(32), wrong({ deliverAt: "soon" })), names("deliverAt"));
});

test("a name that is chosen from a few is one of them", async () => {
  for (const type of ["topic", undefined, null, 1, "UNSPECIFIED", "toString"]) {
    const name = unique("kind");
    await assert.rejects(client.exchanges.declare(name, wrong(type)), names("type"));
    for await (const exchange of client.exchanges.list()) assert.notEqual(exchange.name, name);
  }
  const queue = unique("overflow");
  for (const overflow of ["reject", 1]) {
    await assert.rejects(client.queues.create(queue, { overflow: wrong(overflow) }), names("overflow"));
    assert.throws(() => client.publisher(queue, { ackLevel: wrong(overflow) }), names("ackLevel"));
  }
});

describe("what is null", () => {
  test("is as if it were left out, as a whole and within", async () => {
    const queue = unique("null");
    const none = wrong<undefined>(null);
    const plain = { headers: none, contentType: none, priority: none, delayMs: none, ttlMs: none, orderingKey: none };
    await client.publish(queue, { payload: "1", idempotencyKey: none, ...plain }, none);
    await client.publish(queue, "2", { timeoutMs: none, signal: none });
    await client.publishMany(queue, ["3"], wrong(null));
    await client.publishMany(queue, ["4"], { maxInFlight: none, ackLevel: none });
    const publisher = client.publisher(queue, wrong(null));
    await publisher.publish("5", wrong(null));
    await publisher.close();
    for (const options of [null, { maxMessages: null, waitMs: null, leaseMs: null }]) {
      const [delivery] = await client.consume(queue, wrong(options));
      await delivery?.nack(wrong(options === null ? null : { delayMs: null, deadLetter: null }));
    }
    const [delivery] = await client.consume(queue);
    await client.nack([delivery?.token ?? new Uint8Array(0)], wrong(null), wrong(null));
    for (const options of [null, { maxInFlight: null, leaseMs: null, maxBufferedBytes: null, signal: null }]) {
      for await (const each of client.subscribe(queue, wrong(options))) {
        await each.ack();
        break;
      }
    }
    for (const options of [null, { concurrency: null, onError: null, nackDelayMs: null, stopTimeoutMs: null }]) {
      await client.worker(queue, () => undefined, wrong(options)).stop(wrong(null));
    }
    await client.queues.update(queue, { maxRetry: 1 });
    assert.deepEqual((await client.queues.update(queue, { maxRetry: none })).settings, {});
    await client.queues.get(queue, wrong({ linearizable: null }));
    await client.queues.peek(queue, wrong(null));
    for await (const { name } of client.queues.list(wrong(null))) assert.ok(name !== "");
    await client.queues.delete(queue, wrong({ ifEmpty: null }));
    const exchange = unique("null");
    await client.exchanges.declare(exchange, "DIRECT", { alternateExchange: none, durable: none });
    await client.exchanges.bind(exchange, queue, wrong(null), wrong(null));
    await client.kv.set("null", "1", wrong(null));
    await client.kv.set("null", "1", { ttlMs: none, ifAbsent: none });
    await client.kv.delete("null", wrong({ ifVersion: null }));
    await client.kv.watch(wrong(null)).close();
    await client.topics.publish(unique("null"), "x", wrong(null));
    await client.topics.subscribe(unique("null"), wrong(null)).close();
    await client.admin.stats(wrong(null));
    for (const options of [null, { tls: null, token: null, apiKey: null, addresses: null, onRetry: null }]) {
      await connect(wrong(options)).close(wrong(null));
    }
    await testbed.connect({ tls: wrong({ ca: null }) }).close();
  });

  test("is refused by name where something is wanted", async () => {
    assert.throws(() => client.worker("q", wrong(null)), names("handler"));
    await assert.rejects(client.kv.set(wrong(null), "x"), names("key"));
    await assert.rejects(client.kv.set("k", wrong(null)), names("value"));
    await assert.rejects(client.queues.reschedule("0".repeat(32), wrong(null)), names("delayMs"));
  });

  test("is not what options are that are something else", async () => {
    const wrongs = [7, "x", true, []].map((each) => wrong<object>(each));
    for (const each of wrongs) {
      assert.throws(() => connect(each), names("options"));
      assert.throws(() => client.subscribe("q", each), names("options"));
      await assert.rejects(client.publish("q", "x", each), names("options"));
      await assert.rejects(client.consume("q", each), names("options"));
      await assert.rejects(client.queues.get("q", each), names("options"));
      await assert.rejects(client.queues.create("q", each), names("settings"));
      await assert.rejects(client.exchanges.bind("x", "q", each), names("binding"));
    }
  });
});
