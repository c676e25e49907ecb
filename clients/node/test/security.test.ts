/** TLS, certificates of clients, keys and tokens. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Testbed } from "./testbed.js";

test("mTLS: with the right authority and a certificate everything works, without one nothing does", async () => {
  await using testbed = await Testbed.start("--storage", "memory", "--mtls");
  assert.ok(testbed.tls !== null);
  const ca = readFileSync(testbed.tls.ca_file);
  const cert = readFileSync(testbed.tls.cert_file);
  const key = readFileSync(testbed.tls.key_file, "utf8");

  await using client = testbed.connect({ tls: { ca, cert, key } });
  await client.publish("secret", "x");
  for await (const delivery of client.subscribe("secret")) {
    await delivery.ack();
    break;
  }

  for (const tls of [{ ca }, { cert, key }, true, false]) {
    await using stranger = testbed.connect({ tls, timeoutMs: 1_000 });
    await assert.rejects(
      stranger.admin.stats(),
      { code: "UNAVAILABLE" },
      JSON.stringify(tls === true || Object.keys(tls)),
    );
  }
});

test("a key is shown with every call, in either form", async () => {
  await using testbed = await Testbed.start("--storage", "memory", "--set", "security.api_key=s3cret");
  for (const options of [{ apiKey: "s3cret" }, { token: "s3cret" }, { token: async () => "s3cret" }]) {
    await using client = testbed.connect(options);
    await client.publish("q", "x");
    const [delivery] = await client.consume("q");
    await delivery?.ack();
  }
  await using stranger = testbed.connect({ apiKey: "wrong" });
  const denied = { code: "UNAUTHENTICATED", reason: "UNAUTHENTICATED", retriable: false };
  await assert.rejects(stranger.publish("q", "x"), denied);
  await assert.rejects(stranger.subscribe("q").next(), denied);
  await assert.rejects(stranger.kv.watch().next(), denied);
  await assert.rejects(stranger.worker("q", () => undefined).finished, denied);
});
