// The package as an ES module has it. The process ends by itself.
import { BoltqClient, BoltqError, connect } from "@boltq/client";

const client = connect({ addresses: process.env.BOLTQ_ADDR });
await client.publish("esm", "imported");
const [delivery] = await client.consume("esm", { waitMs: 20_000 });
await delivery.ack();
const error = await client.queues.get("none").catch((failed) => failed);
console.log(delivery.text(), client instanceof BoltqClient, error instanceof BoltqError);
await client.close();
