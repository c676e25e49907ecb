/** What failures mean, and how long to wait: clients/README.md has the table. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

import { readErrorInfo } from "../dist/esm/error-info.js";
import { BoltqError, type ErrorCode, inDoubt } from "../dist/esm/errors.js";
import { Backoff, isRepeated, whereNext } from "../dist/esm/retry.js";

type Row = [code: ErrorCode, reason: string, metadata: Record<string, string>, repeated: boolean, notApplied: boolean];

const SOON = { retry_after_ms: "100" };
const ROWS: readonly Row[] = [
  ["UNAVAILABLE", "NOT_LEADER", { ...SOON, leader: "b:1", leader_id: "n2" }, true, true],
  ["UNAVAILABLE", "NOT_LEADER", SOON, true, true],
  ["UNAVAILABLE", "LEADER_LOST", SOON, true, false],
  ["UNAVAILABLE", "NODE_REMOVED", {}, true, true],
  ["FAILED_PRECONDITION", "NODE_REMOVED", {}, false, true],
  ["UNAVAILABLE", "NOT_CURRENT", SOON, true, true],
  ["UNAVAILABLE", "NOT_ENOUGH_REPLICAS", SOON, true, true],
  ["UNAVAILABLE", "NO_LEADER", SOON, true, true],
  ["RESOURCE_EXHAUSTED", "TOO_MANY_UNFINISHED_REQUESTS", SOON, true, true],
  ["RESOURCE_EXHAUSTED", "TOO_MANY_UNFINISHED_REQUESTS", {}, false, true],
  ["UNAVAILABLE", "STOPPED", SOON, true, false],
  ["UNAVAILABLE", "NO_MAJORITY", SOON, true, false],
  ["UNAVAILABLE", "NOT_IN_SYNC", SOON, true, false],
  ["DEADLINE_EXCEEDED", "REQUEST_STALLED", {}, true, false],
  ["UNAVAILABLE", "", {}, true, false],
  ["DEADLINE_EXCEEDED", "", {}, false, false],
  ["RESOURCE_EXHAUSTED", "QUEUE_FULL", SOON, false, true],
  ["RESOURCE_EXHAUSTED", "STORAGE_FULL", SOON, false, true],
  ["RESOURCE_EXHAUSTED", "IDEMPOTENCY_KEYS_FULL", SOON, false, true],
  ["RESOURCE_EXHAUSTED", "TOO_MANY_FAILED_ATTEMPTS", SOON, false, true],
  ["NOT_FOUND", "QUEUE_NOT_FOUND", {}, false, true],
  ["DATA_LOSS", "STORAGE_DAMAGED", {}, false, false],
];

describe("a failure", () => {
  for (const [code, reason, metadata, repeated, notApplied] of ROWS) {
    test(`${code} ${reason} ${JSON.stringify(metadata)}`, () => {
      const error = new BoltqError("…", { code, reason, metadata });
      assert.equal(isRepeated(error), repeated);
      assert.equal(error.notApplied, notApplied);
    });
  }

  test("that is reported says that it can pass, and when", () => {
    const error = new BoltqError("full", {
      code: "RESOURCE_EXHAUSTED",
      reason: "QUEUE_FULL",
      metadata: { retry_after_ms: "1000" },
    });
    assert.equal(error.retriable, true);
    assert.equal(error.retryAfterMs, 1_000);
  });

  test("names the node to go on with", () => {
    const error = new BoltqError("…", { code: "UNAVAILABLE", reason: "NOT_LEADER", metadata: { leader: "b:1" } });
    assert.deepEqual(whereNext(error), { elsewhere: true, leader: "b:1" });
    const slow = new BoltqError("…", { code: "UNAVAILABLE", reason: "NO_MAJORITY", metadata: SOON });
    assert.deepEqual(whereNext(slow), { elsewhere: false, leader: undefined });
  });

  test("after an attempt whose outcome is unknown says that it is unknown", () => {
    const refused = new BoltqError("full", { code: "RESOURCE_EXHAUSTED", reason: "QUEUE_FULL", metadata: SOON });
    const doubtful = inDoubt(refused);
    assert.deepEqual([doubtful.notApplied, doubtful.reason, doubtful.retriable], [false, "QUEUE_FULL", true]);
  });

  test("of which nothing was sent was not applied, whatever it is", () => {
    assert.equal(new BoltqError("…", { code: "UNAVAILABLE", unsent: true }).notApplied, true);
  });
});

describe("waits", () => {
  test("double up to the longest, are random, and never shorter than the server asks for", () => {
    const longest = new Backoff(50, 2_000, () => 1);
    assert.deepEqual(
      [1, 2, 3, 4, 5, 6, 7, 8].map(() => longest.next(false)),
      [50, 100, 200, 400, 800, 1_600, 2_000, 2_000],
    );
    longest.reset();
    assert.equal(longest.next(false), 50);
    const shortest = new Backoff(50, 2_000, () => 0);
    assert.deepEqual([shortest.next(false), shortest.next(false, 700)], [0, 700]);
  });

  test("are none for the first attempt with another node", () => {
    const backoff = new Backoff(50, 2_000, () => 1);
    assert.deepEqual([backoff.next(true, 100), backoff.next(true, 100)], [0, 200]);
  });
});

describe("an ErrorInfo", () => {
  test("is read, and fields that are not known are passed over", () => {
    const entry = new BinaryWriter()
      .tag(1, WireType.LengthDelimited)
      .string("leader")
      .tag(2, WireType.LengthDelimited)
      .string("b:1");
    const info = new BinaryWriter()
      .tag(1, WireType.LengthDelimited)
      .string("NOT_LEADER")
      .tag(9, WireType.Varint)
      .uint32(7)
      .tag(2, WireType.LengthDelimited)
      .string("boltq")
      .tag(3, WireType.LengthDelimited)
      .bytes(entry.finish());
    assert.deepEqual(readErrorInfo(info.finish()), {
      reason: "NOT_LEADER",
      domain: "boltq",
      metadata: { leader: "b:1" },
    });
  });

  test("that is cut off is an error and nothing worse", () => {
    const bytes = new BinaryWriter().tag(1, WireType.LengthDelimited).string("NOT_LEADER").finish();
    for (let length = 1; length < bytes.length; length += 1)
      assert.throws(() => readErrorInfo(bytes.subarray(0, length)));
  });
});
