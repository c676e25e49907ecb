// Measures the client against a server that runs; clients/README.md has the arguments and the line that it prints.
import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";

import { connect } from "@boltq/client";

const HANDLERS = 64;
const WARM_UP = 0.1;

const CASES = {
  /** The confirmed stream. Keys would fill the memory of the server in a long run. */
  async publish_batches(client, queue, messages, payload) {
    await publishMany(client, queue, messages, payload);
  },
  /** One after the other. */
  async publish_single(client, queue, messages, payload) {
    for (let number = 0; number < messages; number += 1) await client.publish(queue, payload);
  },
  /** Handlers that do nothing. What they take is published before, which does not count. */
  async worker(client, queue, messages) {
    let handled = 0;
    const { promise, resolve } = withResolvers();
    const worker = client.worker(
      queue,
      () => {
        handled += 1;
        if (handled === messages) resolve();
      },
      { concurrency: HANDLERS },
    );
    await Promise.race([promise, worker.finished]);
    await worker.stop();
  },
};

async function publishMany(client, queue, messages, payload) {
  const publisher = client.publisher(queue);
  for (let number = 0; number < messages; number += 1) await publisher.send(payload);
  await publisher.close();
}

function withResolvers() {
  let resolve;
  const promise = new Promise((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}

function read() {
  const options = {
    address: { type: "string" },
    case: { type: "string" },
    messages: { type: "string" },
    payload: { type: "string" },
  };
  const { values } = parseArgs({ options });
  const messages = Number(values.messages);
  const payload = Number(values.payload);
  if (!values.address) throw new Error("--address HOST:PORT is missing");
  if (!Object.hasOwn(CASES, values.case ?? "")) throw new Error(`--case is one of ${Object.keys(CASES).join(", ")}`);
  if (!Number.isSafeInteger(messages) || messages < 1) throw new Error("--messages is a whole number from 1 on");
  if (!Number.isSafeInteger(payload) || payload < 0) throw new Error("--payload is a number of bytes");
  return { address: values.address, name: values.case, messages, payload };
}

async function main() {
  const { address, name, messages, payload } = read();
  const client = connect({ addresses: address, idempotentPublishes: false });
  const queue = `bench-node-${randomBytes(6).toString("hex")}`;
  const bytes = new Uint8Array(payload);
  let seconds = 0;
  for (const count of [Math.ceil(messages * WARM_UP), messages]) {
    if (name === "worker") await publishMany(client, queue, count, bytes);
    const start = performance.now();
    await CASES[name](client, queue, count, bytes);
    seconds = (performance.now() - start) / 1_000;
  }
  await client.queues.delete(queue);
  await client.close();
  const line = {
    client: "node",
    case: name,
    messages,
    payload_bytes: payload,
    seconds,
    messages_per_second: messages / seconds,
  };
  console.log(JSON.stringify(line));
}

main().catch((error) => {
  console.error(`bench: ${error.message}`);
  process.exitCode = 1;
});
