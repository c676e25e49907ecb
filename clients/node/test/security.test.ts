/** TLS, certificates of clients, keys and tokens. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import type { BoltqError } from "@boltq/client";

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
      // The time can be over while it connects once more.
      { code: /^(UNAVAILABLE|DEADLINE_EXCEEDED)$/ },
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
  const message = /the API key that was shown is none of this server/;
  const denied = { code: "UNAUTHENTICATED", reason: "UNAUTHENTICATED", retriable: false, message };
  await assert.rejects(stranger.publish("q", "x"), denied);
  await assert.rejects(stranger.subscribe("q").next(), denied);
  await assert.rejects(stranger.kv.watch().next(), denied);
  await assert.rejects(stranger.worker("q", () => undefined).finished, denied);

  await using nobody = testbed.connect();
  await assert.rejects(nobody.publish("q", "x"), { code: "UNAUTHENTICATED", message: /^unauthorized/ });
  await using bearer = testbed.connect({ token: "wrong" });
  await assert.rejects(bearer.publish("q", "x"), { message: /^the token that was shown is none of this server/ });
});

test("a worker that may not consume does not end in silence", async () => {
  await using testbed = await Testbed.start("--storage", "memory", "--set", "security.api_key=s3cret");
  await using client = testbed.connect({ apiKey: "wrong" });
  const told = await new Promise<unknown[]>((resolve) => {
    client.worker("q", () => undefined, { onError: (...all) => resolve(all) });
  });
  assert.equal((told[0] as BoltqError).code, "UNAUTHENTICATED");
  assert.equal(told[1], undefined);

  const connected = `const client = connect({ addresses: "${testbed.addresses[0]}", apiKey: "wrong" });`;
  const begin = `import { connect } from "@boltq/client"; ${connected}`;
  for (const [options, code] of [
    ["{}", 1],
    ["{ onError: (error, delivery) => console.error(delivery.id) }", 1],
    ["{ onError: () => undefined }", 0],
  ] as const) {
    const program = `${begin} client.worker("q", () => undefined, ${options});`;
    const child = spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
      cwd: fileURLToPath(new URL("..", import.meta.url)),
      encoding: "utf8",
      timeout: 60_000,
    });
    assert.equal(child.status, code, options + child.stderr);
    if (code === 1) assert.match(child.stderr, /UNAUTHENTICATED/);
  }
});
