/**
 * Arguments, checked once and before anything is sent. TypeScript knows the types; who writes JavaScript hears of a wrong one here, by the
 * name of the argument. What is checked is that a value can be sent as it is meant; limits that the server has are its own to check.
 */
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";

import { BoltqError, invalid } from "./errors.js";

/** Fits into a Duration with room to spare, and is some 285,000 years. */
const MS_MAX = Number.MAX_SAFE_INTEGER;

/** A value as a text for people shows it. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "function" || (typeof value === "object" && value !== null)) return `of type ${typeof value}`;
  return String(value);
}

/**
 * Options as they were given, or none. What is null in them is left out: it is what forms, databases and JSON have where nothing was
 * given. Each function of the client that takes an object with options reads them through this.
 */
export function given<T extends object>(value: T | null | undefined, what = "options"): T {
  if (value === undefined || value === null) return {} as T;
  if (typeof value !== "object" || Array.isArray(value))
    throw invalid(`${what} is ${shown(value)}; it has to be an object`);
  const entries = Object.entries(value);
  if (!entries.some(([, each]) => each === null)) return value;
  // The names stay: an update of settings wants to know which were there.
  return Object.fromEntries(entries.map(([name, each]) => [name, each ?? undefined])) as T;
}

/** Any text. */
export function text(value: unknown, what: string): string {
  if (typeof value === "string") return value;
  throw invalid(`${what} is ${shown(value)}; it has to be text`);
}

/** The name of a queue: text with something in it. On a stream of publishes none at all would be the queue of the message before. */
export function queueName(value: unknown): string {
  if (typeof value === "string" && value !== "") return value;
  const code = "INVALID_ARGUMENT";
  throw new BoltqError(`queue is ${shown(value)}; it has to be the name of a queue`, { code, reason: "INVALID_NAME" });
}

/** The name of a topic, for the same reason. */
export function topicName(value: unknown): string {
  if (typeof value === "string" && value !== "") return value;
  const code = "INVALID_ARGUMENT";
  throw new BoltqError(`topic is ${shown(value)}; it has to be the name of a topic`, { code, reason: "INVALID_NAME" });
}

/** A whole number. */
export function whole(value: unknown, what: string, min: number, max = Number.MAX_SAFE_INTEGER): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  const range = max === Number.MAX_SAFE_INTEGER ? `, at least ${min}` : ` from ${min} to ${max}`;
  throw invalid(`${what} is ${shown(value)}; it has to be a whole number${range}`);
}

/** A whole number that may be left out. */
export function optionalWhole(value: unknown, what: string, min: number, max?: number): void {
  if (value !== undefined) whole(value, what, min, max);
}

/** A time in milliseconds, with fractions. */
export function milliseconds(value: unknown, what: string): number {
  if (typeof value === "number" && value >= 0 && value <= MS_MAX) return value;
  throw invalid(`${what} is ${shown(value)}; it has to be a number of milliseconds, 0 or more`);
}

/** As {@link milliseconds}; may be left out. */
export function optionalMilliseconds(value: unknown, what: string): void {
  if (value !== undefined) milliseconds(value, what);
}

/** A time in milliseconds within bounds; may be left out. */
export function optionalMillisecondsWithin(value: unknown, what: string, min: number, max: number): void {
  if (value === undefined || (typeof value === "number" && value >= min && value <= max)) return;
  throw invalid(`${what} is ${shown(value)}; it has to be a number of milliseconds from ${min} to ${max}`);
}

/** Milliseconds that something may take. */
export function timeout(value: unknown, what = "timeoutMs"): number {
  if (typeof value === "number" && value > 0 && value <= MS_MAX) return value;
  throw invalid(`${what} is ${shown(value)}; it has to be a number of milliseconds over 0`);
}

/** One of a few names. */
export function oneOf<T extends string>(value: unknown, names: readonly T[], what: string): T {
  if (typeof value === "string" && (names as readonly string[]).includes(value)) return value as T;
  const choice = names.map((name) => `"${name}"`).join(", ");
  throw invalid(`${what} is ${shown(value)}; it has to be one of ${choice}`);
}

/** What is called back. */
export function callable(value: unknown, what: string): void {
  if (typeof value !== "function") throw invalid(`${what} is ${shown(value)}; it has to be a function`);
}

/** Texts by their names, as a copy: what is checked is what is sent. */
export function texts(value: unknown, what: string): Record<string, string> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid(`${what} is ${shown(value)}; it has to be an object with texts`);
  }
  const copy: Record<string, string> = {};
  for (const [name, each] of Object.entries(value)) copy[name] = text(each, `${what}[${JSON.stringify(name)}]`);
  return copy;
}

/**
 * Whether all fields of a request are what the protos want; the transport would make texts of numbers, and nothing of what is missing.
 */
export function checkRequest(method: DescMessage, request: object): void {
  const fields = request as Readonly<Record<string, unknown>>;
  for (const field of method.fields) {
    const { oneof, localName } = field;
    if (oneof === undefined || oneof.fields.length === 1) {
      const value = fields[localName];
      // Left out by the client, and not by the application.
      if (localName in fields && !(value === undefined && mayBeMissing(field))) checkField(field, value);
    } else {
      const chosen = fields[oneof.localName] as { readonly case?: string; readonly value?: unknown } | undefined;
      if (chosen?.case === localName) checkField(field, chosen.value);
    }
  }
}

function mayBeMissing(field: DescField): boolean {
  return field.fieldKind === "message" || field.proto.proto3Optional || field.oneof !== undefined;
}

function checkField(field: DescField, value: unknown): void {
  const what = field.localName;
  switch (field.fieldKind) {
    case "scalar":
      checkScalar(field.scalar, value, what);
      break;
    case "enum":
      whole(value, what, 0);
      break;
    case "map":
      if (field.mapKind === "scalar" && field.scalar === ScalarType.STRING) texts(value, what);
      break;
    case "list":
      if (!Array.isArray(value)) throw invalid(`${what} is ${shown(value)}; it has to be an array`);
      if (field.listKind === "scalar") {
        const { scalar } = field;
        for (const [index, each] of value.entries()) checkScalar(scalar, each, `${what}[${index}]`);
      }
      break;
    case "message":
      // Times are made by the client, and messages checked when they are.
      if (field.message.typeName.startsWith("google.") || field.message.name === "Message") break;
      if (typeof value !== "object" || value === null)
        throw invalid(`${what} is ${shown(value)}; it has to be an object`);
      checkRequest(field.message, value);
      break;
  }
}

function checkScalar(scalar: ScalarType, value: unknown, what: string): void {
  switch (scalar) {
    case ScalarType.STRING:
      text(value, what);
      break;
    case ScalarType.BYTES:
      if (!(value instanceof Uint8Array)) throw invalid(`${what} is ${shown(value)}; it has to be a Uint8Array`);
      break;
    case ScalarType.BOOL:
      if (typeof value !== "boolean") throw invalid(`${what} is ${shown(value)}; it has to be true or false`);
      break;
    case ScalarType.UINT32:
      whole(value, what, 0, 0xffff_ffff);
      break;
    case ScalarType.INT32:
      whole(value, what, -0x8000_0000, 0x7fff_ffff);
      break;
    case ScalarType.UINT64:
    case ScalarType.INT64: {
      const fits =
        typeof value === "bigint" &&
        value === (scalar === ScalarType.UINT64 ? BigInt.asUintN(64, value) : BigInt.asIntN(64, value));
      if (!fits) throw invalid(`${what} is ${shown(value)}; it has to be a bigint of 64 bits`);
      break;
    }
    default:
      break;
  }
}
