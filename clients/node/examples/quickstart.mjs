// Publishes one message, takes it, and acknowledges it.
import { connect, json } from "@boltq/client";

const client = connect({ addresses: process.env.BOLTQ_ADDR ?? "localhost:9091", apiKey: process.env.BOLTQ_API_KEY });

const id = await client.publish("email_jobs", json({ to: "ann@example.org" }));
console.log(`published ${id}`);

const [delivery] = await client.consume("email_jobs", { waitMs: 5_000 });
console.log(`got ${delivery.text()}`);
await delivery.ack();

await client.close();
