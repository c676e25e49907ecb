/**
 * Which node is asked.
 *
 * One node is asked for everything, until it fails or names another one. Nodes that were named as leaders need not be among the
 * given addresses. What many calls find out at the same time counts once: only who failed at the present node moves on.
 */
import type { Channel } from "./channel.js";
import type { BoltqError } from "./errors.js";
import { whereNext } from "./retry.js";

/** Connections to former leaders that are kept beside those to the given addresses. */
const NAMED_MAX = 8;

/** The addresses of a cluster, and connections to them. */
export class Endpoints {
  readonly #given: readonly string[];
  readonly #open: (address: string) => Channel;
  readonly #channels = new Map<string, Channel>();
  #position: number;
  #answered = false;
  /** A node outside of the order, that was named as the leader. */
  #named: string | undefined;

  /** `first` is the position of the address to begin with. */
  constructor(given: readonly string[], open: (address: string) => Channel, first: number) {
    this.#given = given;
    this.#open = open;
    this.#position = first % given.length;
  }

  /** The addresses that were given. */
  get given(): readonly string[] {
    return this.#given;
  }

  /** Whether any server has ever answered a call. */
  get answered(): boolean {
    this.#answered ||= [...this.#channels.values()].some((channel) => channel.answered);
    return this.#answered;
  }

  /** The connection to use now. */
  current(): Channel {
    return this.#channel(this.#named ?? this.#given[this.#position] ?? "");
  }

  /** Chooses another node, if the failure is a reason to. Answers whether the next attempt goes to another one. */
  failed(channel: Channel, error: BoltqError): boolean {
    if (this.current() === channel) {
      const { leader, elsewhere } = whereNext(error);
      if (leader !== undefined && leader !== channel.address) this.#follow(leader);
      else if (elsewhere) this.#moveOn();
    }
    return this.current() !== channel;
  }

  #moveOn(): void {
    if (this.#named !== undefined) this.#named = undefined;
    else this.#position = (this.#position + 1) % this.#given.length;
  }

  #follow(leader: string): void {
    const position = this.#given.indexOf(leader);
    if (position >= 0) {
      this.#position = position;
      this.#named = undefined;
    } else {
      this.#named = leader;
    }
  }

  /** Closes all connections. */
  close(): void {
    for (const channel of this.#channels.values()) channel.close();
    this.#channels.clear();
  }

  #channel(address: string): Channel {
    let channel = this.#channels.get(address);
    if (channel === undefined) {
      this.#forgetOne();
      channel = this.#open(address);
      this.#channels.set(address, channel);
    }
    return channel;
  }

  /** Names of leaders come from outside: they must not fill the memory. */
  #forgetOne(): void {
    if (this.#channels.size < this.#given.length + NAMED_MAX) return;
    for (const [address, channel] of this.#channels) {
      if (this.#given.includes(address)) continue;
      channel.close();
      this.#channels.delete(address);
      return;
    }
  }
}
