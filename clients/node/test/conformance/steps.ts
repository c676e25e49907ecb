/** The steps of the scenarios, each with the public interface of the client. */
import {
  type BoltqClient,
  type BoltqError,
  type ExchangeKind,
  type KvEvent,
  ReceivedMessage,
  Subscription,
} from "@boltq/client";
import type { Testbed } from "../testbed.js";
import { type Many, publishMany, workMany } from "./many.js";
import { type Arguments, changed, exchangeOf, failures, message, queueOf, received, settings } from "./shapes.js";
import type { Value } from "./values.js";
import { ToldWorker } from "./workers.js";

/** What a step has to work with. */
export interface World {
  readonly client: BoltqClient;
  readonly testbed: Testbed;
  /** Streams that are open, by name. */
  readonly streams: Map<string, AsyncIterableIterator<unknown>>;
  /** Steps that go on in the background, by name. */
  readonly background: Map<string, { readonly many: Many; readonly answer: Promise<Value> }>;
  /** Workers that were started, by name. */
  readonly workers: Map<string, ToldWorker>;
}

/** A step: its arguments, how long it may take, and what `many.progress` and `many.stop` can see of it. */
export type Step = (world: World, step: Arguments, many: Many) => Promise<Value> | Value;

async function done(what: Promise<unknown>): Promise<Value> {
  await what;
  return {};
}

/** Where a settlement goes: over a stream, or as a call. */
function via(world: World, step: Arguments): BoltqClient | Subscription {
  const name = step.optional<string>("via");
  if (name === undefined) return world.client;
  const stream = world.streams.get(name);
  if (!(stream instanceof Subscription)) throw new Error(`${name} is no subscription to a queue`);
  return stream;
}

async function open(
  world: World,
  step: Arguments,
  stream: AsyncIterableIterator<unknown> & { readonly opened: Promise<void> },
) {
  world.streams.set(step.text("as"), stream);
  await stream.opened;
  return {};
}

async function all<T, R extends Value>(items: AsyncIterable<T>, show: (item: T) => R): Promise<R[]> {
  const shown: R[] = [];
  for await (const item of items) shown.push(show(item));
  return shown;
}

async function take(stream: AsyncIterableIterator<unknown> | undefined, count: number): Promise<Value> {
  if (stream === undefined) throw new Error("there is no such stream");
  const items: Value[] = [];
  while (items.length < count) {
    const { done, value } = await stream.next();
    if (done === true) throw new Error(`the stream ended after ${items.length} items`);
    items.push(value instanceof ReceivedMessage ? received(value) : changed(value as KvEvent));
  }
  return { items };
}

function running(world: World, step: Arguments) {
  const found = world.background.get(step.text("of"));
  if (found === undefined) throw new Error(`nothing in the background is called ${step.text("of")}`);
  return found;
}

function workerOf(world: World, step: Arguments): ToldWorker {
  const found = world.workers.get(step.text("of"));
  if (found === undefined) throw new Error(`no worker is called ${step.text("of")}`);
  return found;
}

/** All steps but `many.publish` and its like, by what a scenario calls them. */
export const STEPS: Readonly<Record<string, Step>> = {
  "queue.publish": async ({ client }, s) => ({
    message_id: await client.publish(s.text("queue"), message(s.fields["message"]), s),
  }),
  "queue.publish_many": async ({ client }, s) => {
    const messages = (s.fields["messages"] as readonly Value[]).map(message);
    const results = await client.publishMany(s.text("queue"), messages, { timeoutMs: s.timeoutMs });
    return {
      results: results.map(({ id, error }) => (error ? { error: { reason: error.reason } } : { message_id: id ?? "" })),
    };
  },
  "queue.consume": async ({ client }, s) => {
    const options = {
      maxMessages: s.optional<number>("max_messages"),
      waitMs: s.ms("wait"),
      leaseMs: s.ms("lease"),
      timeoutMs: s.timeoutMs,
    };
    return { deliveries: (await client.consume(s.text("queue"), options)).map(received) };
  },
  "queue.ack": async (world, s) => {
    const result = await via(world, s).ack(s.tokens());
    return { settled: result.settled, failures: failures(result) };
  },
  "queue.nack": async (world, s) => {
    const result = await via(world, s).nack(s.tokens(), {
      delayMs: s.ms("delay"),
      deadLetter: s.optional("dead_letter"),
      release: s.optional("release"),
    });
    return { settled: result.settled, failures: failures(result) };
  },
  "queue.extend": async (world, s) => {
    const result = await via(world, s).extend(s.tokens(), s.ms("lease") ?? 0);
    return { extended: result.settled, failures: failures(result) };
  },
  "queue.peek": async ({ client }, s) => {
    const options = {
      linearizable: true,
      timeoutMs: s.timeoutMs,
      maxMessages: s.optional<number>("max_messages") ?? 0,
    };
    return { deliveries: (await client.queues.peek(s.text("queue"), options)).map(received) };
  },
  "queue.purge": async ({ client }, s) => ({ purged: await client.queues.purge(s.text("queue"), s) }),
  "queue.purge_dead_letters": async ({ client }, s) => ({
    purged: await client.queues.purgeDeadLetters(s.text("queue"), s),
  }),
  "queue.redrive": async ({ client }, s) => {
    const options = {
      headers: s.optional<Record<string, string>>("headers"),
      maxMessages: s.optional<number>("max_messages"),
    };
    return { redriven: await client.queues.redriveDeadLetters(s.text("queue"), options) };
  },
  "queue.create": async ({ client }, s) => {
    const { queue, created } = await client.queues.create(s.text("queue"), settings(s.fields["settings"]), s);
    return { created, queue: queueOf(queue) };
  },
  "queue.update": async ({ client }, s) => {
    const changes = settings(s.fields["settings"], s.optional<readonly string[]>("update_mask"));
    return { queue: queueOf(await client.queues.update(s.text("queue"), changes, s)) };
  },
  "queue.delete": async ({ client }, s) => ({
    deleted_messages: await client.queues.delete(s.text("queue"), {
      ifEmpty: s.optional<boolean>("if_empty") ?? false,
      timeoutMs: s.timeoutMs,
    }),
  }),
  "queue.get": async ({ client }, s) => ({
    queue: queueOf(await client.queues.get(s.text("queue"), { linearizable: true, timeoutMs: s.timeoutMs })),
  }),
  "queue.list": async ({ client }, s) => ({
    queues: await all(client.queues.list({ prefix: s.text("prefix"), linearizable: true }), ({ name }) => name),
  }),
  "queue.scheduled": async ({ client }, s) => ({
    messages: await all(client.queues.listScheduled(s.text("queue"), s), ({ id, priority }) => ({
      message_id: id,
      priority,
    })),
  }),
  "queue.cancel": async ({ client }, s) => {
    const result = await client.queues.cancelScheduled(s.fields["message_ids"] as readonly string[], s);
    return { cancelled: result.settled, failures: failures(result) };
  },
  "queue.reschedule": async ({ client }, s) => {
    await client.queues.reschedule(s.text("message_id"), { delayMs: s.ms("delay") ?? 0 }, s);
    return {};
  },
  "queue.subscribe": (world, s) => {
    const options = { maxInFlight: s.optional<number>("max_in_flight"), leaseMs: s.ms("lease") };
    return open(world, s, world.client.subscribe(s.text("queue"), options));
  },
  "topic.subscribe": (world, s) => {
    const options = {
      subscription: s.optional<string>("subscription"),
      durable: s.optional<boolean>("durable"),
      maxInFlight: s.optional<number>("max_in_flight"),
    };
    return open(world, s, world.client.topics.subscribe(s.text("topic"), options));
  },
  "kv.watch": (world, s) => {
    return open(
      world,
      s,
      world.client.kv.watch({ pattern: s.text("pattern"), initial: s.optional<boolean>("initial") }),
    );
  },
  "stream.receive": ({ streams }, s) => take(streams.get(s.text("from")), Number(s.fields["count"])),
  "stream.close": async ({ streams }, s) => {
    await streams.get(s.text("from"))?.return?.();
    streams.delete(s.text("from"));
    return {};
  },
  "topic.publish": async ({ client }, s) => {
    const { id, durableSubscriptions } = await client.topics.publish(s.text("topic"), message(s.fields["message"]), s);
    return { message_id: id, durable_subscriptions: durableSubscriptions };
  },
  "topic.publish_many": async ({ client }, s) => {
    const messages = (s.fields["messages"] as readonly Value[]).map(message);
    await using publisher = client.topics.publisher(s.text("topic"), { timeoutMs: s.timeoutMs });
    const outcomes: Promise<Value>[] = [];
    for (const each of messages) {
      const { confirmed } = await publisher.send(each);
      outcomes.push(
        confirmed.then(
          (id) => ({ message_id: id }),
          (error: BoltqError) => ({ error: { reason: error.reason } }),
        ),
      );
    }
    const results = await Promise.all(outcomes);
    await publisher.flush().catch(() => undefined);
    return { results };
  },
  "topic.subscriptions": async ({ client }, s) => ({
    subscriptions: await all(client.topics.subscriptions(s.text("topic"), s), ({ subscription, queue, backlog }) => ({
      subscription,
      queue,
      backlog,
    })),
  }),
  "topic.delete_subscription": async ({ client }, s) => ({
    purged: await client.topics.deleteSubscription(s.text("topic"), s.text("subscription"), s),
  }),
  "topic.list": async ({ client }, s) => ({
    topics: await all(client.topics.list(s), ({ name, durableSubscriptions }) => ({
      name,
      durable_subscriptions: durableSubscriptions,
    })),
  }),
  "exchange.declare": async ({ client }, s) => {
    const options = {
      durable: s.optional<boolean>("durable") ?? false,
      alternateExchange: s.optional<string>("alternate_exchange"),
      timeoutMs: s.timeoutMs,
    };
    const info = await client.exchanges.declare(s.text("name"), s.text("type") as ExchangeKind, options);
    return { exchange: exchangeOf(info) };
  },
  "exchange.delete": async ({ client }, s) => {
    await client.exchanges.delete(s.text("name"), s);
    return {};
  },
  "exchange.bind": async ({ client }, s) => {
    const binding = {
      bindingKey: s.optional<string>("binding_key"),
      headers: s.optional<Record<string, string>>("headers"),
      matchAll: s.optional<boolean>("match_all") ?? false,
    };
    return { created: await client.exchanges.bind(s.text("exchange"), s.text("queue"), binding, s) };
  },
  "exchange.unbind": async ({ client }, s) => ({
    removed: await client.exchanges.unbind(
      s.text("exchange"),
      s.text("queue"),
      s.optional<string>("binding_key") ?? "",
      s,
    ),
  }),
  "exchange.publish": async ({ client }, s) => {
    const { id, routed } = await client.exchanges.publish(
      s.text("exchange"),
      s.text("routing_key"),
      message(s.fields["message"]),
      s,
    );
    return { message_id: id, routed };
  },
  "exchange.list": async ({ client }, s) => ({
    exchanges: await all(client.exchanges.list({ linearizable: true, timeoutMs: s.timeoutMs }), exchangeOf),
  }),
  "exchange.bindings": async ({ client }, s) => ({
    bindings: await all(client.exchanges.bindings(s.text("exchange"), { linearizable: true }), (binding) => ({
      queue: binding.queue,
      binding_key: binding.bindingKey,
      headers: binding.headers,
      match_all: binding.matchAll,
    })),
  }),
  "kv.set": async ({ client }, s) => {
    const version = s.optional<number>("if_version");
    const condition = s.optional<boolean>("if_absent")
      ? { ifAbsent: true as const }
      : s.optional<boolean>("if_present")
        ? { ifPresent: true as const }
        : version === undefined
          ? {}
          : { ifVersion: BigInt(version) };
    const options = { ...condition, ttlMs: s.ms("ttl"), timeoutMs: s.timeoutMs };
    return { version: Number(await client.kv.set(s.text("key"), s.text("value"), options)) };
  },
  "kv.get": async ({ client }, s) => {
    const entry = await client.kv.get(s.text("key"), s);
    return {
      entry: entry === undefined ? null : { key: entry.key, value: entry.text(), version: Number(entry.version) },
    };
  },
  "kv.delete": async ({ client }, s) => {
    const version = s.optional<number>("if_version");
    return {
      deleted: await client.kv.delete(s.text("key"), version === undefined ? {} : { ifVersion: BigInt(version) }),
    };
  },
  "kv.exists": async ({ client }, s) => ({ exists: await client.kv.exists(s.text("key"), s) }),
  "kv.keys": async ({ client }, s) => ({ keys: await all(client.kv.keys(s.text("pattern"), s), (key) => key) }),
  "kv.expire": async ({ client }, s) => ({ found: await client.kv.expire(s.text("key"), s.ms("ttl") ?? 0, s) }),
  "kv.increment": async ({ client }, s) => {
    const { value, version } = await client.kv.increment(s.text("key"), s.optional<number>("delta") ?? 1, s);
    return { value: Number(value), version: Number(version) };
  },
  "kv.flush": async ({ client }, s) => ({ removed: await client.kv.flush(s) }),
  "admin.stats": async ({ client }, s) => {
    const { version, storage } = await client.admin.stats(s);
    return { version, storage: { mode: storage.mode, writable: storage.writable } };
  },
  "cluster.status": async ({ client }, s) => {
    const { enabled, nodes, groups } = await client.cluster.status(s);
    return {
      enabled,
      nodes: nodes.map(({ id, voter }) => ({ node_id: id, voter })),
      groups: groups.map(({ name }) => name),
    };
  },
  "many.publish": ({ client }, s, many) => publishMany(client, s, many),
  "many.work": ({ client }, s, many) => workMany(client, s, many),
  "many.consume": async ({ client }, s) => {
    const numbers: number[] = [];
    while (numbers.length < Number(s.fields["count"])) {
      const [delivery] = await client.consume(s.text("queue"), { waitMs: 5_000 });
      if (delivery === undefined) continue;
      numbers.push(Number(delivery.text()));
      await delivery.ack();
    }
    return { numbers };
  },
  "many.progress": async (world, s) => ({
    reached: await running(world, s).many.reaches(Number(s.fields["at_least"])),
  }),
  "many.stop": (world, s) => {
    running(world, s).many.stop();
    return {};
  },
  join: (world, s) => running(world, s).answer,
  "worker.start": ({ client, workers }, s) => {
    workers.set(s.text("as"), new ToldWorker(client, s));
    return {};
  },
  "worker.look": (world, s) => workerOf(world, s).look(),
  "worker.finish": (world, s) => {
    workerOf(world, s).finish();
    return {};
  },
  "worker.stop": async (world, s) => ({ not_settled: await workerOf(world, s).stop() }),
  "server.restart": ({ testbed }) => done(testbed.command("restart 0")),
  "cluster.kill_leader": async ({ testbed }) => ({ node: String((await testbed.command("kill-leader"))["name"]) }),
  "cluster.restart_killed": ({ testbed }) => done(testbed.command("restart-killed")),
  "cluster.rolling_restart": ({ testbed }) => done(testbed.command("rolling-restart")),
  sleep: async (_, s) => {
    await new Promise((resolve) => setTimeout(resolve, s.ms("for")));
    return {};
  },
};
