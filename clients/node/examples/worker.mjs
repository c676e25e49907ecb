// Handles messages until SIGTERM, and finishes what it has begun. Failed messages come again, broken ones go to the dead letters.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { connect, DeadLetter, json } from "@boltq/client";

const client = connect({ addresses: process.env.BOLTQ_ADDR ?? "localhost:9091", apiKey: process.env.BOLTQ_API_KEY });

for (const width of [64, 128, 0]) await client.publish("thumbnails", json({ width }));

const worker = client.worker(
  "thumbnails",
  async (delivery, { signal }) => {
    const { width } = delivery.json();
    if (width <= 0) throw new DeadLetter(`a thumbnail cannot be ${width} pixels wide`);
    await draw(width, signal);
    console.log(`made a thumbnail of ${width} pixels`);
  },
  {
    concurrency: 4,
    nackDelayMs: (delivery) => 1_000 * 2 ** delivery.attempts,
    onError: (error, delivery) =>
      console.log(`${delivery ? `message ${delivery.id} failed` : "the worker has ended"}: ${error.message}`),
  },
);

await once(process, "SIGTERM");
await worker.stop({ timeoutMs: 10_000 });
await client.close();
console.log("stopped");

async function draw(width, signal) {
  // Work that takes long looks at the signal: it is aborted when the message is somebody else's.
  await sleep(width, undefined, { signal });
}
