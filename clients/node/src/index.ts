/**
 * Client of BoltQ, a message broker: queues, topics, exchanges and a replicated cache over gRPC.
 *
 * @packageDocumentation
 */

export type { CallOptions } from "./caller.js";
export type { ConsumeOptions, PublishResult } from "./client.js";
export { BoltqClient, connect } from "./client.js";
export type { ClusterGroup, ClusterNode, ClusterStatus, GroupMember, GroupRole, Stats } from "./cluster.js";
export { Admin, Cluster } from "./cluster.js";
export type { AckLevel } from "./confirming.js";
export type { Message, Payload } from "./convert.js";
export { json } from "./convert.js";
export type { ErrorCode, ErrorParts } from "./errors.js";
export { BoltqError } from "./errors.js";
export type {
  BindingInfo,
  BindingOptions,
  DeclareOptions,
  ExchangeInfo,
  ExchangeKind,
  Routed,
} from "./exchanges.js";
export { Exchanges } from "./exchanges.js";
export type { KvCondition, KvEvent, KvSetOptions, KvStats, WatchOptions } from "./kv.js";
export { Kv, KvEntry } from "./kv.js";
export type { ConnectOptions, TlsOptions } from "./options.js";
export type { Publication, PublisherOptions, TopicPublisherOptions } from "./publisher.js";
export { Publisher } from "./publisher.js";
export type {
  DueTime,
  Overflow,
  QueueInfo,
  QueueSettings,
  ReadOptions,
  RedriveOptions,
  ScheduledMessage,
} from "./queues.js";
export { Queues } from "./queues.js";
export type { NackOptions, Settling } from "./received.js";
export { Delivery, QueueMessage, ReceivedMessage, TopicMessage } from "./received.js";
export type { SettleFailure, SettleFailureName, SettleResult } from "./settler.js";
export { ServerItems } from "./streams.js";
export type { SubscribeOptions } from "./subscription.js";
export { Subscription } from "./subscription.js";
export type { SubscriptionInfo, TopicInfo, TopicPublished, TopicSubscribeOptions } from "./topics.js";
export { Topics } from "./topics.js";
export { Worker } from "./worker.js";
export type {
  Handler,
  HandlerContext,
  StopOptions,
  StopResult,
  WorkerFailure,
  WorkerOptions,
} from "./worker-options.js";
export { DeadLetter } from "./worker-options.js";
