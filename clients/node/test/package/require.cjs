// The package as CommonJS has it. The process ends by itself.
const { BoltqClient, BoltqError, connect } = require("@boltq/client");

async function main() {
  const client = connect({ addresses: process.env.BOLTQ_ADDR });
  await client.publish("cjs", "required");
  const subscription = client.subscribe("cjs");
  const { value: delivery } = await subscription.next();
  await delivery.ack();
  await subscription.close();
  const error = await client.queues.get("none").catch((failed) => failed);
  console.log(delivery.text(), client instanceof BoltqClient, error instanceof BoltqError);
  await client.close();
}

main();
