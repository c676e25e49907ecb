// A lock that only one can have, a counter, and a watch.
import { BoltqError, connect } from "@boltq/client";

const client = connect({ addresses: process.env.BOLTQ_ADDR ?? "localhost:9091", apiKey: process.env.BOLTQ_API_KEY });
const watch = client.kv.watch({ pattern: "lock:*" });
await watch.opened;

const version = await client.kv.set("lock:report", "worker-1", { ifAbsent: true, ttlMs: 30_000 });
try {
  await client.kv.set("lock:report", "worker-2", { ifAbsent: true, ttlMs: 30_000 });
} catch (error) {
  if (!(error instanceof BoltqError) || error.reason !== "CONDITION_NOT_MET") throw error;
  console.log("somebody else has the lock");
}
const { value } = await client.kv.increment("reports");
console.log(`this is report ${value}`);
await client.kv.delete("lock:report", { ifVersion: version });

for await (const event of watch) {
  if (event.type !== "removed") continue;
  console.log(`${event.key} is free`);
  break;
}

await client.close();
