/**
 * What goes wrong, as one type.
 *
 * The server says with every failure a gRPC code, and in `google.rpc.ErrorInfo` a reason that is never renamed and some
 * metadata. Both are here as they came. What the client adds itself has reasons that start with `CLIENT_`.
 */

import { isNotApplied, isRetriable } from "./retry.js";

/** Reason of a failure: something answers at the address, and it is no server of BoltQ, or TLS is spoken by one side only. */
export const WRONG_SERVER = "CLIENT_WRONG_SERVER";

/** The codes of gRPC by their names. */
export type ErrorCode =
  | "CANCELLED"
  | "UNKNOWN"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

const CODES: readonly ErrorCode[] = [
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
];

/** The name of a code as it is on the wire, 1 to 16. */
export function codeName(code: number): ErrorCode {
  return CODES[code - 1] ?? "UNKNOWN";
}

/** What an error is made of. */
export interface ErrorParts {
  /** Code of gRPC. */
  readonly code: ErrorCode;
  /** Stable name for programs; empty if none is known. */
  readonly reason?: string | undefined;
  /** What the server said beside the reason. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** Whether no byte of the request has left. */
  readonly unsent?: boolean | undefined;
  /** Whether an attempt before may have been carried out. */
  readonly inDoubt?: boolean | undefined;
  /** What was below it. */
  readonly cause?: unknown;
}

/**
 * A call that failed, after what could be repeated was repeated.
 *
 * ```ts
 * try {
 *   await client.queues.get("no_such_queue");
 * } catch (error) {
 *   if (error instanceof BoltqError && error.reason === "QUEUE_NOT_FOUND") { … }
 * }
 * ```
 *
 * A call that was cancelled with an `AbortSignal` throws the reason of the signal instead, as everywhere in Node.
 */
export class BoltqError extends Error {
  override readonly name = "BoltqError";
  /** Code of gRPC, for example `"NOT_FOUND"`. */
  readonly code: ErrorCode;
  /** Stable name for programs, for example `"QUEUE_NOT_FOUND"`; empty if the failure came from below the broker. */
  readonly reason: string;
  /** What the server said beside the reason, for example `leader` or `version`. */
  readonly metadata: Readonly<Record<string, string>>;
  /** How long to wait before the same call is worth trying, in milliseconds, if the server said so. */
  readonly retryAfterMs: number | undefined;
  /** Whether the same call can succeed later. */
  readonly retriable: boolean;
  /**
   * Whether it is certain that nothing was carried out. If not, the outcome is unknown: a publish that failed so may be stored.
   */
  readonly notApplied: boolean;

  /** For the client itself; applications catch these. */
  constructor(message: string, parts: ErrorParts) {
    super(message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.code = parts.code;
    this.reason = parts.reason ?? "";
    this.metadata = parts.metadata ?? {};
    this.retryAfterMs = millisecondsOf(this.metadata["retry_after_ms"]);
    this.retriable = isRetriable(this);
    this.notApplied = parts.inDoubt !== true && (parts.unsent === true || isNotApplied(this));
  }
}

/** The same failure of a call of which an attempt before may have been carried out. */
export function inDoubt(error: BoltqError): BoltqError {
  if (!error.notApplied) return error;
  const { code, reason, metadata } = error;
  return new BoltqError(error.message, { code, reason, metadata, inDoubt: true, cause: error });
}

/**
 * The error of everything that is called on a client, publisher or worker that was closed, or was on its way then. `unsent`: it is certain
 * that nothing was done.
 */
export function closed(what: string, unsent = true): BoltqError {
  return new BoltqError(`the ${what} is closed`, { code: "CANCELLED", reason: "CLIENT_CLOSED", unsent });
}

function millisecondsOf(text: string | undefined): number | undefined {
  const value = text === undefined ? Number.NaN : Number(text);
  return Number.isFinite(value) && value >= 0 ? value : undefined;
}

/** The error of an argument that is refused before anything is sent. */
export function invalid(message: string): BoltqError {
  return new BoltqError(message, { code: "INVALID_ARGUMENT", reason: "INVALID_ARGUMENT" });
}
