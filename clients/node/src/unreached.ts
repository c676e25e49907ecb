/**
 * Attempts of one call or stream, of a client that no server has ever answered.
 *
 * What a client has to know from outside is most often wrong at its first call: the address, the port, TLS. Then its calls do not wait
 * for as long as they may take. Each address is tried, and then for a while again, as a server may just be starting; where a server answers
 * that is none of ours, waiting does not help. Once one has answered, a failure is an outage, and that is waited out.
 */
import { BoltqError, WRONG_SERVER } from "./errors.js";

/** The last failure at each address, until a server answers. */
export class Unreached {
  readonly #failures = new Map<string, BoltqError>();
  #since = Date.now();

  /** Remembers a failure. */
  note(address: string, error: BoltqError): void {
    if (this.#failures.size === 0) this.#since = Date.now();
    this.#failures.set(address, error);
  }

  /** What to report instead of waiting until then; undefined: another attempt is worth it. */
  verdict(addresses: readonly string[], until: number, limitMs: number): BoltqError | undefined {
    const failures = addresses.map((address) => this.#failures.get(address)).filter((each) => each !== undefined);
    const last = failures.at(-1);
    if (last === undefined || failures.length < addresses.length) return undefined;
    const wrong = failures.every(({ reason }) => reason === WRONG_SERVER);
    if (!wrong && until < this.#since + limitMs) return undefined;
    this.#failures.clear();
    const texts = failures.map(({ message }) => message).join("; ");
    return new BoltqError(wrong ? texts : `no server has answered within ${limitMs} ms: ${texts}`, {
      code: "UNAVAILABLE",
      reason: wrong ? WRONG_SERVER : "",
      unsent: failures.every(({ notApplied }) => notApplied),
      cause: last,
    });
  }

  /** A server has answered. */
  reset(): void {
    this.#failures.clear();
  }
}
