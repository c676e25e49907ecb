/** How many messages, and how many bytes of them, may be on their way. Who asks first gets room first. */
import { Deferred } from "./wait.js";

interface Claim {
  readonly bytes: number;
  readonly granted: Deferred<void>;
}

/** Room for messages. */
export class Budget {
  readonly #maxMessages: number;
  readonly #maxBytes: number;
  #claims: Claim[] = [];
  /** Messages that have room. */
  messages = 0;
  /** Their bytes. */
  bytes = 0;

  constructor(maxMessages: number, maxBytes: number) {
    this.#maxMessages = maxMessages;
    this.#maxBytes = maxBytes;
  }

  /** Takes room for a message if there is some and nobody waits for it. */
  tryTake(bytes: number): boolean {
    if (this.#claims.length > 0 || !this.#fits(bytes)) return false;
    this.#take(bytes);
    return true;
  }

  /** Waits for room for a message. */
  async take(bytes: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.tryTake(bytes)) return;
    const claim: Claim = { bytes, granted: new Deferred() };
    const onAbort = (): void => {
      this.#claims = this.#claims.filter((other) => other !== claim);
      claim.granted.reject(signal?.reason);
      this.#grant();
    };
    this.#claims.push(claim);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      await claim.granted.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Gives room back. */
  give(bytes: number): void {
    this.messages -= 1;
    this.bytes -= bytes;
    this.#grant();
  }

  /** Fails all that wait. */
  close(error: unknown): void {
    const claims = this.#claims;
    this.#claims = [];
    for (const { granted } of claims) granted.reject(error);
  }

  #grant(): void {
    let granted = 0;
    for (const claim of this.#claims) {
      if (!this.#fits(claim.bytes)) break;
      this.#take(claim.bytes);
      claim.granted.resolve();
      granted += 1;
    }
    if (granted > 0) this.#claims.splice(0, granted);
  }

  /** A message that is larger than all of it goes alone. */
  #fits(bytes: number): boolean {
    return this.messages === 0 || (this.messages < this.#maxMessages && this.bytes + bytes <= this.#maxBytes);
  }

  #take(bytes: number): void {
    this.messages += 1;
    this.bytes += bytes;
  }
}
