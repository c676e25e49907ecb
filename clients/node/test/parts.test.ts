/** Parts of the client that need no server. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { BoltqError, connect, json } from "@boltq/client";

import { Budget } from "../dist/esm/budget.js";
import type { Channel } from "../dist/esm/channel.js";
import { Endpoints } from "../dist/esm/endpoints.js";
import { KeyMaker } from "../dist/esm/keys.js";
import { settingsOf } from "../dist/esm/options.js";

describe("addresses", () => {
  test("have a port, and are there once", () => {
    const { addresses } = settingsOf({ addresses: ["a", "b:1", "a:9091", "[::1]:5", " c "] });
    assert.deepEqual(addresses, ["a:9091", "b:1", "[::1]:5", "c:9091"]);
    assert.deepEqual(settingsOf({}).addresses, ["localhost:9091"]);
    assert.deepEqual(settingsOf({ addresses: "a:1,b:2" }).addresses, ["a:1", "b:2"]);
  });

  test("that are none are refused", () => {
    for (const addresses of ["", "http://a:1", "a:b", "a:99999", []]) {
      assert.throws(
        () => settingsOf({ addresses }),
        { name: "BoltqError", code: "INVALID_ARGUMENT" },
        String(addresses),
      );
    }
  });
});

test("options that contradict each other are refused", () => {
  assert.throws(() => connect({ apiKey: "a", token: "b" }), /apiKey or token/);
  assert.throws(() => connect({ tls: { cert: "a" } }), /go together/);
  assert.throws(() => connect({ timeoutMs: 0 }), /timeoutMs is 0/);
});

test("a value without a form in JSON is refused", () => {
  assert.deepEqual(json({ a: 1 }, { priority: 5 }), {
    payload: '{"a":1}',
    contentType: "application/json",
    priority: 5,
  });
  assert.throws(() => json(undefined), BoltqError);
});

describe("the choice of a node", () => {
  const open = (address: string): Channel => ({ address, close: () => undefined }) as unknown as Channel;
  const broken = new BoltqError("…", { code: "UNAVAILABLE" });
  const elsewhere = (leader: string): BoltqError => {
    return new BoltqError("…", {
      code: "UNAVAILABLE",
      reason: "NOT_LEADER",
      metadata: { leader, retry_after_ms: "100" },
    });
  };

  test("goes round, once for many failures at the same node", () => {
    const endpoints = new Endpoints(["a:1", "b:1", "c:1"], open, 1);
    const first = endpoints.current();
    assert.equal(first.address, "b:1");
    assert.equal(endpoints.failed(first, broken), true);
    assert.equal(endpoints.failed(first, broken), true);
    assert.equal(endpoints.current().address, "c:1");
    endpoints.failed(endpoints.current(), broken);
    assert.equal(endpoints.current().address, "a:1");
  });

  test("stays when another node would not be better", () => {
    const endpoints = new Endpoints(["a:1", "b:1"], open, 0);
    const slow = new BoltqError("…", {
      code: "UNAVAILABLE",
      reason: "NO_MAJORITY",
      metadata: { retry_after_ms: "100" },
    });
    assert.equal(endpoints.failed(endpoints.current(), slow), false);
    assert.equal(endpoints.current().address, "a:1");
  });

  test("follows the leader, and comes back when that one is gone", () => {
    const endpoints = new Endpoints(["a:1", "b:1"], open, 0);
    endpoints.failed(endpoints.current(), elsewhere("b:1"));
    assert.equal(endpoints.current().address, "b:1");
    endpoints.failed(endpoints.current(), elsewhere("x:1"));
    assert.equal(endpoints.current().address, "x:1");
    endpoints.failed(endpoints.current(), broken);
    assert.equal(endpoints.current().address, "b:1");
  });

  test("keeps few connections to nodes that were only named", () => {
    let opened = 0;
    let closed = 0;
    const counting = (address: string): Channel => {
      opened += 1;
      return {
        ...open(address),
        close: () => {
          closed += 1;
        },
      };
    };
    const endpoints = new Endpoints(["a:1"], counting, 0);
    for (let number = 0; number < 100; number += 1) {
      endpoints.failed(endpoints.current(), elsewhere(`x:${number + 1}`));
      endpoints.current();
    }
    assert.ok(opened - closed <= 9, `${opened} opened, ${closed} closed`);
  });
});

describe("room for messages", () => {
  test("is bounded in messages and bytes, and given in order", async () => {
    const budget = new Budget(3, 100);
    assert.ok(budget.tryTake(60));
    assert.ok(!budget.tryTake(60));
    const order: string[] = [];
    const large = budget.take(60).then(() => order.push("large"));
    const small = budget.take(10).then(() => order.push("small"));
    assert.ok(!budget.tryTake(1), "it does not overtake");
    budget.give(60);
    await Promise.all([large, small]);
    assert.deepEqual(order, ["large", "small"]);
    assert.equal(budget.bytes, 70);
  });

  test("is there for a message that is larger than all of it, alone", () => {
    const budget = new Budget(3, 100);
    assert.ok(budget.tryTake(1_000));
    assert.ok(!budget.tryTake(1));
    budget.give(1_000);
    assert.ok(budget.tryTake(1));
  });

  test("is not kept by who gives up", async () => {
    const budget = new Budget(1, 100);
    assert.ok(budget.tryTake(1));
    const abort = new AbortController();
    const waits = budget.take(1, abort.signal);
    abort.abort(new Error("enough"));
    await assert.rejects(waits, /enough/);
    budget.give(1);
    assert.equal(budget.messages, 0);
  });
});

test("keys differ, and none are made while the server has too many", () => {
  const keys = new KeyMaker(true);
  const made = new Set(Array.from({ length: 1_000 }, () => keys.next()));
  assert.equal(made.size, 1_000);
  assert.ok(!made.has(""));
  keys.rest();
  assert.equal(keys.next(), "");
  assert.equal(new KeyMaker(false).next(), "");
});
