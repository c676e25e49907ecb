/** Who belongs to the cluster and who leads it; and what operators look at. */
import type { Caller, CallOptions } from "./caller.js";
import { given } from "./check.js";
import { count, optionalMs } from "./convert.js";
import { AdminService } from "./gen/boltq/admin/v1/admin_pb.js";
import {
  ClusterService,
  GroupState,
  type Group as WireGroup,
  type Node as WireNode,
} from "./gen/boltq/cluster/v1/cluster_pb.js";
import type { ReadOptions } from "./queues.js";

/** A node of the cluster. */
export interface ClusterNode {
  readonly id: string;
  /** Where other nodes reach it. */
  readonly raftAddress: string;
  /** Where clients reach it. */
  readonly messagingAddress: string;
  /** Where operators reach it over HTTP. */
  readonly adminAddress: string;
  /** False for a read replica. */
  readonly voter: boolean;
  /** What it runs. */
  readonly version: string;
}

/** What a node is in a group. */
export type GroupRole = "LEADER" | "FOLLOWER" | "CANDIDATE" | "LEARNER" | "SHUTDOWN" | "UNSPECIFIED";

/** A member of a group. */
export interface GroupMember {
  readonly nodeId: string;
  readonly address: string;
  /** Whether it votes now. */
  readonly voter: boolean;
  /** Entries that it lacks, as far as the leader knows. */
  readonly lag: bigint | undefined;
}

/** A replicated log, as the answering node sees it. */
export interface ClusterGroup {
  /** `"meta"`, `"queue"`, `"stream-0"` … */
  readonly name: string;
  /** What the answering node is in it. */
  readonly state: GroupRole;
  /** Name of the node that leads; empty while nobody is known to. */
  readonly leaderId: string;
  readonly term: bigint;
  /** Last entry in the log of the answering node. */
  readonly lastIndex: bigint;
  /** Last entry that it has applied. */
  readonly appliedIndex: bigint;
  readonly members: readonly GroupMember[];
}

/** The cluster as the answering node sees it. */
export interface ClusterStatus {
  /** False: the node is alone by configuration, and nothing else is set. */
  readonly enabled: boolean;
  /** The node that answers. */
  readonly node: ClusterNode | undefined;
  readonly clusterId: string;
  readonly nodes: readonly ClusterNode[];
  readonly groups: readonly ClusterGroup[];
  /** The node that answers was removed from the cluster. */
  readonly removed: boolean;
}

/** `client.cluster`. */
export class Cluster {
  readonly #caller: Caller;

  /** For the client itself. @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** The cluster as the node that is asked sees it. Answers without a leader too. */
  async status(options?: CallOptions): Promise<ClusterStatus> {
    const answer = await this.#caller.unary(ClusterService.method.getStatus, {}, "repeatable", options);
    return {
      enabled: answer.enabled,
      node: answer.node === undefined ? undefined : nodeOf(answer.node),
      clusterId: answer.clusterId,
      nodes: answer.nodes.map(nodeOf),
      groups: answer.groups.map(groupOf),
      removed: answer.removed,
    };
  }

  /** Takes the node that runs at an address into the cluster; joining again is harmless. Answers the groups it becomes a member of. */
  async join(
    address: string,
    options: CallOptions & { readonly nodeId?: string; readonly nonVoter?: boolean } = {},
  ): Promise<readonly string[]> {
    const { nodeId = "", nonVoter = false } = given(options);
    const request = { address, nodeId, nonVoter };
    const answer = await this.#caller.unary(ClusterService.method.join, request, "repeatable", options);
    return answer.groups;
  }

  /** Takes a node out of the cluster, for good. Answers the groups it was a member of. */
  async leave(nodeId: string, options?: CallOptions): Promise<readonly string[]> {
    const answer = await this.#caller.unary(ClusterService.method.leave, { nodeId }, "once", options);
    return answer.groups;
  }

  /** Hands a group over to another voter, and answers who leads then. */
  async transferLeadership(
    group: string,
    options: CallOptions & { readonly nodeId?: string } = {},
  ): Promise<ClusterNode | undefined> {
    const { nodeId = "" } = given(options);
    const request = { group, nodeId };
    const answer = await this.#caller.unary(ClusterService.method.transferLeadership, request, "once", options);
    return answer.leader === undefined ? undefined : nodeOf(answer.leader);
  }
}

/** Counters and totals of a node. */
export interface Stats {
  /** Ready messages by queue; dead-letter queues are not among them. */
  readonly queues: Readonly<Record<string, number>>;
  /** Messages in dead-letter queues, by the name of the dead-letter queue. */
  readonly deadLetters: Readonly<Record<string, number>>;
  /** Leased, over all queues; a node that does not lead counts them as ready. */
  readonly pending: number;
  /** Not yet due, over all queues. */
  readonly delayed: number;
  /** Since the data directory was created, as those below. */
  readonly published: number;
  /** Since the start of the server. */
  readonly consumed: number;
  readonly acked: number;
  readonly nacked: number;
  readonly expired: number;
  readonly deadLettered: number;
  /** Removed from full queues to make room. */
  readonly dropped: number;
  /** Not stored because a queue was full. */
  readonly rejected: number;
  /** Of the server, in milliseconds. */
  readonly uptimeMs: number;
  /** For example `"0.1.0"`. */
  readonly version: string;
  readonly storage: { readonly mode: string; readonly bytes: number; readonly writable: boolean };
}

/** `client.admin`. */
export class Admin {
  readonly #caller: Caller;

  /** For the client itself. @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Counters and totals of the node that is asked. */
  async stats(options: ReadOptions = {}): Promise<Stats> {
    const { linearizable = false } = given(options);
    const request = { linearizable };
    const answer = await this.#caller.unary(AdminService.method.getStats, request, "repeatable", options);
    return {
      queues: counts(answer.queues),
      deadLetters: counts(answer.deadLetters),
      pending: count(answer.pending),
      delayed: count(answer.delayed),
      published: count(answer.published),
      consumed: count(answer.consumed),
      acked: count(answer.acked),
      nacked: count(answer.nacked),
      expired: count(answer.expired),
      deadLettered: count(answer.deadLettered),
      dropped: count(answer.dropped),
      rejected: count(answer.rejected),
      uptimeMs: optionalMs(answer.uptime) ?? 0,
      version: answer.version,
      storage: {
        mode: answer.storage?.mode ?? "",
        bytes: count(answer.storage?.bytes ?? 0n),
        writable: answer.storage?.writable ?? false,
      },
    };
  }
}

function counts(values: Readonly<Record<string, bigint>>): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, count(value)]));
}

function nodeOf(wire: WireNode): ClusterNode {
  const { nodeId: id, raftAddress, messagingAddress, adminAddress, voter, version } = wire;
  return { id, raftAddress, messagingAddress, adminAddress, voter, version };
}

function groupOf(wire: WireGroup): ClusterGroup {
  const { name, leaderId, term, lastIndex, appliedIndex } = wire;
  const members = wire.members.map(({ nodeId, address, voter, lag }) => ({ nodeId, address, voter, lag }));
  return { name, state: GroupState[wire.state] as GroupRole, leaderId, term, lastIndex, appliedIndex, members };
}
