/**
 * Idempotency keys that the client makes.
 *
 * A publish without an answer may be stored or not. With a key it can be sent again in either case, so every publish to a queue gets a
 * random one unless it has one. The server remembers a bounded number of keys and refuses more (`IDEMPOTENCY_KEYS_FULL`); for keys
 * that nobody asked for that must not be the end: such a message is sent without one, and no new keys are made for a while.
 */
import { randomFillSync } from "node:crypto";

/** Of an error: the server remembers as many keys as it may. */
export const KEYS_FULL = "IDEMPOTENCY_KEYS_FULL";
const REST_MS = 10_000;
const KEY_BYTES = 12;
const KEYS_PER_FILL = 256;

/** Makes keys for one client. */
export class KeyMaker {
  readonly #pool = Buffer.alloc(KEY_BYTES * KEYS_PER_FILL);
  #used = this.#pool.length;
  #restUntil = 0;
  readonly #enabled: boolean;

  constructor(enabled: boolean) {
    this.#enabled = enabled;
  }

  /** A key, or an empty one if none are to be made now. 96 random bits: no two clients ever have the same. */
  next(): string {
    if (!this.#enabled || (this.#restUntil !== 0 && Date.now() < this.#restUntil)) return "";
    if (this.#used === this.#pool.length) {
      randomFillSync(this.#pool);
      this.#used = 0;
    }
    this.#used += KEY_BYTES;
    return this.#pool.toString("base64url", this.#used - KEY_BYTES, this.#used);
  }

  /** Makes none for a while. */
  rest(): void {
    this.#restUntil = Date.now() + REST_MS;
  }
}
