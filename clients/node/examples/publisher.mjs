// Publishes many messages, as quickly as the server takes them, with bounded memory. Each is stored once, whatever breaks meanwhile.
import { connect, json } from "@boltq/client";

const client = connect({ addresses: process.env.BOLTQ_ADDR ?? "localhost:9091", apiKey: process.env.BOLTQ_API_KEY });
const publisher = client.publisher("events", { maxInFlight: 1_000 });

for (let number = 0; number < 5_000; number += 1) {
  // Waits while 1,000 messages are not confirmed.
  await publisher.send(json({ number }));
}
// Fails if one of them was not stored.
await publisher.flush();
const { ready } = await client.queues.get("events");
console.log(`${ready} events are stored`);

await client.close();
