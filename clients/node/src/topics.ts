/** Topics: every message goes to all who subscribe, and into the backlog of every durable subscription. */
import type { Caller, CallOptions } from "./caller.js";
import { given, topicName } from "./check.js";
import { count, hex, type Message, messageInit, optionalDate, type Payload, repeatOf } from "./convert.js";
import { TopicService } from "./gen/boltq/topic/v1/topic_pb.js";
import { pages } from "./pages.js";
import type { Publisher, TopicPublisherOptions } from "./publisher.js";
import { TopicMessage } from "./received.js";
import { type ServerItems, serverItems } from "./streams.js";

const PAGE = 1_000;

/** How a subscription to a topic is made. */
export interface TopicSubscribeOptions {
  /** Names the subscription. Required if `durable`. The same name again takes it over from whoever had it. */
  readonly subscription?: string | undefined;
  /** Keeps messages while nobody is attached. */
  readonly durable?: boolean | undefined;
  /** Messages that may wait on the server, 1 to 100,000. Default 256. What does not fit is dropped, or waits in the backlog. */
  readonly maxInFlight?: number | undefined;
  /** Told how many messages were dropped before the next one, because the application did not keep up. */
  readonly onDropped?: ((dropped: number) => void) | undefined;
  /** Told when the stream was begun again: a live subscriber may have missed messages. */
  readonly onRestart?: (() => void) | undefined;
  /** Ends the subscription; the loop over it then throws the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** What came of a publish to a topic. */
export interface TopicPublished {
  /** All subscribers get the message with this id. */
  readonly id: string;
  /** Durable subscriptions that have it in their backlog. */
  readonly durableSubscriptions: number;
}

/** A topic as it is now. */
export interface TopicInfo {
  readonly name: string;
  readonly durableSubscriptions: number;
  /** On the node that was asked. */
  readonly subscribers: number;
}

/** A durable subscription as it is now. */
export interface SubscriptionInfo {
  readonly subscription: string;
  /** The queue that is its backlog. */
  readonly queue: string;
  /** Messages that are not delivered. */
  readonly backlog: number;
  /** When somebody was last known to be attached. */
  readonly lastAttachedAt: Date | undefined;
}

/** `client.topics`. */
export class Topics {
  readonly #caller: Caller;
  readonly #publisher: (topic: string, options: TopicPublisherOptions) => Publisher;

  /** For the client itself. @internal */
  constructor(caller: Caller, publisher: (topic: string, options: TopicPublisherOptions) => Publisher) {
    this.#caller = caller;
    this.#publisher = publisher;
  }

  /**
   * Publishes a message. With an `idempotencyKey` it is repeated when that is needed, and told once. The client makes up no key here:
   * without one it is not repeated if no answer comes, and the failure says that the outcome is unknown (`notApplied` is false).
   */
  async publish(topic: string, message: Message | Payload, options?: CallOptions): Promise<TopicPublished> {
    const request = { topic, message: messageInit(message) };
    const repeat = repeatOf(request.message);
    const answer = await this.#caller.unary(TopicService.method.publish, request, repeat, options);
    return { id: hex(answer.messageId), durableSubscriptions: count(answer.durableSubscriptions) };
  }

  /**
   * A stream of publishes to a topic, with limits for what is on its way, as {@link BoltqClient.publisher} is for a queue: messages without an
   * `idempotencyKey` get one, so that what a broken connection left open is sent again and told once. Close it when it is no longer
   * needed.
   */
  publisher(topic: string, options: TopicPublisherOptions = {}): Publisher {
    return this.#publisher(topicName(topic), options);
  }

  /**
   * Messages as they come, to be read with `for await`. There is nothing to acknowledge. It goes on over broken connections and
   * restarts; a durable subscription then misses nothing, and can get the last messages twice.
   *
   * Fails with `SUBSCRIPTION_REPLACED` if somebody else takes it over.
   */
  subscribe(topic: string, options: TopicSubscribeOptions = {}): ServerItems<TopicMessage> {
    const { subscription = "", durable = false, maxInFlight = 0, onDropped, onRestart, signal } = given(options);
    return serverItems(
      this.#caller,
      {
        method: TopicService.method.subscribe,
        request: () => ({ topic, subscription, durable, maxInFlight }),
        restarted: () => {
          onRestart?.();
          return [];
        },
        items: ({ messages, dropped }) => {
          if (dropped > 0n) onDropped?.(count(dropped));
          return messages.map((message) => new TopicMessage(message));
        },
      },
      signal,
    );
  }

  /** Topics by name: those that have a durable subscription, or a subscriber on the node that is asked. */
  list(options: CallOptions = {}): AsyncGenerator<TopicInfo, void, undefined> {
    return pages(async (pageToken) => {
      const request = { pageSize: PAGE, pageToken };
      const answer = await this.#caller.unary(TopicService.method.listTopics, request, "repeatable", options);
      const items = answer.topics.map(({ name, durableSubscriptions, subscribers }) => ({
        name,
        durableSubscriptions,
        subscribers,
      }));
      return { items, nextPageToken: answer.nextPageToken };
    });
  }

  /** The durable subscriptions of a topic. */
  subscriptions(topic: string, options: CallOptions = {}): AsyncGenerator<SubscriptionInfo, void, undefined> {
    return pages(async (pageToken) => {
      const request = { topic, pageSize: PAGE, pageToken };
      const answer = await this.#caller.unary(TopicService.method.listSubscriptions, request, "repeatable", options);
      const items = answer.subscriptions.map(({ subscription, queue, backlog, lastAttachedAt }) => ({
        subscription,
        queue,
        backlog: count(backlog),
        lastAttachedAt: optionalDate(lastAttachedAt),
      }));
      return { items, nextPageToken: answer.nextPageToken };
    });
  }

  /** Removes a durable subscription, and answers how many messages were in its backlog. */
  async deleteSubscription(topic: string, subscription: string, options?: CallOptions): Promise<number> {
    const request = { topic, subscription };
    const answer = await this.#caller.unary(TopicService.method.deleteSubscription, request, "once", options);
    return count(answer.purged);
  }
}
