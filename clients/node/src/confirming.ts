/** Streams of publishes with an answer for each batch, to queues and to topics: what a {@link PublishStream} sends over. */
import type { Channel } from "./channel.js";
import type { WireMessage } from "./convert.js";
import { QueueService, AckLevel as WireAckLevel } from "./gen/boltq/queue/v1/queue_pb.js";
import { TopicService } from "./gen/boltq/topic/v1/topic_pb.js";
import type { Refused } from "./outgoing.js";

/** What a confirmation waits for; see docs/ack-levels.md. Less than `"quorum"` has to be allowed by the server. */
export type AckLevel = "quorum" | "leader" | "none";

const ACK_LEVELS: Readonly<Record<AckLevel, WireAckLevel>> = {
  quorum: WireAckLevel.QUORUM,
  leader: WireAckLevel.LEADER,
  none: WireAckLevel.NONE,
};

/** What became of a batch. */
export interface Answered {
  /** One for each message, in order. */
  readonly messageIds: readonly Uint8Array[];
  /** Those that were refused. */
  readonly failures: readonly Refused[];
}

/** One stream. */
export interface Confirming {
  /** Sends a batch. */
  send(to: string, messages: WireMessage[]): void;
  /** In the order of the batches. */
  readonly responses: AsyncIterable<Answered>;
  /** Ends it at once. */
  cancel(): void;
}

/** Where publishes go. */
export type Target = (channel: Channel) => Confirming;

/** To queues. */
export function toQueues(level: AckLevel): Target {
  const ackLevel = ACK_LEVELS[level];
  return (channel) => {
    const call = channel.bidi(QueueService.method.publishStream, {});
    return {
      send: (queue, messages) => call.send({ queue, messages, ackLevel }),
      responses: call.responses,
      cancel: () => call.cancel(),
    };
  };
}

/** To topics. */
export const toTopics: Target = (channel) => {
  const call = channel.bidi(TopicService.method.publishStream, {});
  return {
    send: (topic, messages) => call.send({ topic, messages }),
    responses: call.responses,
    cancel: () => call.cancel(),
  };
};
