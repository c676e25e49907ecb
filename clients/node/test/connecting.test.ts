/** Addresses at which there is no server, or none of BoltQ, or TLS on one side only: clients/README.md has the rule. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as http2 from "node:http2";
import { type AddressInfo, createServer, connect as dial, type Server, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";

import { type BoltqError, type ConnectOptions, connect } from "@boltq/client";

import { eventually, Testbed, unique, within } from "./testbed.js";

/** What a call may take here, and what it takes if it does not wait for that. */
const CALL_MS = 3_600_000;
const SOON_MS = 60_000;

let plain: Testbed;
let secure: Testbed;

before(async () => {
  [plain, secure] = await Promise.all([
    Testbed.start("--storage", "memory"),
    Testbed.start("--storage", "memory", "--tls"),
  ]);
});

after(async () => {
  await Promise.all([plain[Symbol.asyncDispose](), secure[Symbol.asyncDispose]()]);
});

/** An address at which a server listens until the test ends. */
async function listening<S extends Server>(server: S): Promise<{ address: string } & Disposable> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { address: `127.0.0.1:${port}`, [Symbol.dispose]: () => void server.close() };
}

/** An address at which nobody is. */
async function nobody(): Promise<string> {
  using gone = await listening(createServer());
  return gone.address;
}

function only<T>(list: readonly T[]): T {
  const [first] = list;
  assert.ok(first !== undefined);
  return first;
}

/** How calls of all kinds fail. */
async function failures(options: ConnectOptions): Promise<BoltqError[]> {
  await using client = connect({ timeoutMs: CALL_MS, ...options });
  const worker = client.worker("q", () => undefined, { onError: () => undefined });
  const calls: Promise<unknown>[] = [
    client.queues.get("q"),
    client.topics.publish("t", "x"),
    client.kv.increment("n"),
    client.consume("q"),
    client.publish("q", "x"),
    client.subscribe("q").next(),
    client.kv.watch().next(),
    worker.finished,
  ];
  const settled = await within(SOON_MS, "calls to fail", Promise.allSettled(calls));
  return settled.map((each) => {
    assert.ok(each.status === "rejected");
    return each.reason as BoltqError;
  });
}

async function isWrong(options: ConnectOptions, text: string): Promise<void> {
  for (const error of await failures(options)) {
    assert.deepEqual([error.name, error.code, error.reason], ["BoltqError", "UNAVAILABLE", "CLIENT_WRONG_SERVER"]);
    assert.equal(error.notApplied, true);
    assert.ok(error.message.includes(text), error.message);
    for (const address of [options.addresses ?? []].flat()) assert.ok(error.message.includes(address), error.message);
  }
}

describe("an address of something else", () => {
  const HTTP_ONLY = "speaks HTTP/1.1 and not gRPC: it is probably the port of the HTTP API";

  test("is told to be the port of the HTTP API", async () => {
    await isWrong({ addresses: only(plain.nodes).admin }, HTTP_ONLY);
  });

  test("is told to be a server of HTTP/1.1, with TLS and without", async () => {
    using web = await listening(http.createServer((_, response) => response.end("hello")));
    await isWrong({ addresses: web.address }, HTTP_ONLY);
    await isWrong({ addresses: web.address, tls: true }, HTTP_ONLY);
    const { admin } = only(secure.nodes);
    await isWrong({ addresses: admin, tls: { ca: readFileSync(secure.tls?.ca_file ?? "") } }, HTTP_ONLY);
  });

  test("is told to speak TLS", async () => {
    await isWrong({ addresses: secure.addresses }, "speaks TLS, and this client does not");
  });

  test("is told not to speak TLS", async () => {
    await isWrong({ addresses: plain.addresses, tls: true }, "does not speak TLS, and this client does");
  });

  test("is told to speak another protocol", async () => {
    using other = await listening(
      createServer((socket) => {
        socket.on("error", () => undefined);
        socket.once("data", () => socket.end("-ERR unknown command 'PRI'\r\n"));
      }),
    );
    await isWrong({ addresses: other.address }, "speaks neither gRPC nor HTTP");
    await isWrong({ addresses: other.address, tls: true }, "speaks neither gRPC nor HTTP");
  });

  test("is told to be no server of BoltQ if it does not know the call", async () => {
    const server = http2.createServer((request, response) => {
      response.writeHead(404);
      response.end(request.url);
    });
    using web = await listening(server);
    await using client = connect({ addresses: web.address, timeoutMs: CALL_MS });
    const expected = { code: "UNIMPLEMENTED", message: new RegExp(`^${web.address} does not know this call`) };
    await assert.rejects(within(SOON_MS, "a call to fail", client.queues.get("q")), expected);
  });

  test("is passed over if there is another one", async () => {
    for (let round = 0; round < 8; round += 1) {
      await using client = connect({ addresses: [only(plain.nodes).admin, ...plain.addresses], timeoutMs: CALL_MS });
      const queue = unique("other");
      await within(SOON_MS, "a publish", client.publish(queue, "x"));
      await within(SOON_MS, "a call", client.topics.publish(unique("t"), "x"));
      assert.equal((await client.queues.get(queue)).ready, 1);
    }
  });
});

describe("a server that is not there", () => {
  test("fails calls when the time to connect is over, and not their own", async () => {
    const addresses = [await nobody(), await nobody()];
    await using client = connect({ addresses, timeoutMs: CALL_MS, connectTimeoutMs: 300 });
    const unreached = (error: BoltqError): true => {
      assert.deepEqual([error.code, error.reason, error.notApplied], ["UNAVAILABLE", "", true]);
      assert.match(error.message, /^no server has answered within 300 ms: /);
      for (const address of addresses) assert.ok(error.message.includes(`ECONNREFUSED ${address}`), error.message);
      return true;
    };
    const calls = [
      client.queues.get("q"),
      client.publish("q", "x"),
      client.topics.publish("t", "x"),
      client.subscribe("q").next(),
    ].map((call) => assert.rejects(call, unreached));
    await within(SOON_MS, "calls to fail", Promise.all(calls));
  });

  test("is waited for by calls that have the time, and by workers", async () => {
    const address = await nobody();
    await using client = connect({ addresses: address, timeoutMs: CALL_MS, connectTimeoutMs: CALL_MS });
    await using impatient = connect({ addresses: address, connectTimeoutMs: 1 });
    let retries = 0;
    const waiting = client.queues.list().next();
    const worker = impatient.worker("q", () => undefined);
    await assert.rejects(impatient.queues.get("q"), { code: "UNAVAILABLE" });
    const again = connect({
      addresses: address,
      timeoutMs: CALL_MS,
      connectTimeoutMs: CALL_MS,
      onRetry: () => (retries += 1),
    });
    const published = again.publish("q", "x");
    await eventually(
      "a few attempts",
      () => retries,
      (count) => count >= 3,
    );
    assert.equal(worker.running, 0);
    // It listens where the client looks.
    const [host, port] = address.split(":");
    const upstream = only(plain.addresses);
    const proxy = createServer((socket) => forward(socket, upstream));
    proxy.listen(Number(port), host);
    await within(SOON_MS, "the calls", Promise.all([waiting, published]));
    await again.close();
    await worker.stop();
    proxy.close();
  });

  test("is waited for as long as a call may take once it has answered", async () => {
    const testbed = await Testbed.start();
    let retries = 0;
    await using client = testbed.connect({
      timeoutMs: CALL_MS,
      connectTimeoutMs: 2_000,
      onRetry: () => (retries += 1),
    });
    await eventually(
      "the server to answer",
      () =>
        client.admin.stats().then(
          () => true,
          () => false,
        ),
      (answered) => answered,
    );
    await testbed.command("kill 0");
    const begin = Date.now();
    const calls = Promise.all([client.queues.list().next(), client.publish("q", "x")]);
    await eventually(
      "attempts for longer than the time to connect",
      () => retries > 0 && Date.now() - begin > 4_000,
      (enough) => enough,
    );
    await testbed.command("start 0");
    await within(SOON_MS, "the calls", calls);
    await client.close();
    await testbed[Symbol.asyncDispose]();
  });
});

/** Both directions, until one ends. */
function forward(socket: Socket, address: string): void {
  const [host = "", port] = address.split(":");
  const other = dial({ host, port: Number(port) });
  for (const each of [socket, other]) each.on("error", () => undefined);
  socket.pipe(other).pipe(socket);
  socket.on("close", () => other.destroy());
  other.on("close", () => socket.destroy());
}
