// A durable subscription gets what was published while it was away.
import { connect, json } from "@boltq/client";

const client = connect({ addresses: process.env.BOLTQ_ADDR ?? "localhost:9091", apiKey: process.env.BOLTQ_API_KEY });
const edge = { subscription: "edge-3", durable: true };

const first = client.topics.subscribe("prices", edge);
await first.opened;
await first.close();

await client.topics.publish("prices", json({ sku: "A-1", cents: 1999 }));
for await (const message of client.topics.subscribe("prices", edge)) {
  const { sku, cents } = message.json();
  console.log(`${sku} costs ${cents / 100}`);
  break;
}

await client.close();
