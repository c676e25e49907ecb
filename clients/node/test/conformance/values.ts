/** Variables and matching of the scenarios; tests/conformance/README.md defines both. */
import { randomBytes } from "node:crypto";

/** Anything that JSON has. */
export type Value = null | boolean | number | string | readonly Value[] | { readonly [member: string]: Value };
/** An object of JSON. */
export type Fields = Readonly<Record<string, Value>>;

/** What one run of a scenario knows. */
export class Variables {
  readonly #values = new Map<string, Value>();
  readonly #names = new Map<string, string>();

  save(paths: Fields, answer: Value): void {
    for (const [path, name] of Object.entries(paths)) {
      const value = path.split(".").reduce<Value | undefined>((at, part) => member(at, part), answer);
      if (value === undefined) throw new Error(`the answer has no ${path}: ${show(answer)}`);
      this.#values.set(String(name), value);
    }
  }

  /** A value with all variables in it replaced. */
  fill(value: Value): Value {
    if (typeof value === "string") return this.#text(value);
    if (Array.isArray(value)) return value.map((each) => this.fill(each));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, this.fill(each)]));
  }

  #text(text: string): Value {
    const whole = /^\$([a-z_0-9]+)$/.exec(text)?.[1];
    if (whole !== undefined && whole !== "any") return this.#value(whole);
    return text
      .replace(/\$unique\(([^)]*)\)/g, (_, prefix: string) => this.#unique(prefix))
      .replace(/\$\{([a-z_0-9]+)\}/g, (_, name: string) => asText(this.#value(name)));
  }

  #value(name: string): Value {
    const value = this.#values.get(name);
    if (value === undefined) throw new Error(`there is no variable ${name}`);
    return value;
  }

  #unique(prefix: string): string {
    let name = this.#names.get(prefix);
    if (name === undefined) {
      name = `${prefix}-${randomBytes(6).toString("hex")}`;
      this.#names.set(prefix, name);
    }
    return name;
  }
}

/** Why an answer is not what is expected; undefined if it is. */
export function mismatch(expected: Value, actual: Value | undefined, path = "answer"): string | undefined {
  const differs = (): string => `${path} is ${show(actual)}, not ${show(expected)}`;
  if (expected === "$any") return actual === undefined || actual === null || actual === "" ? differs() : undefined;
  if (expected === null || typeof expected !== "object") return expected === actual ? undefined : differs();
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length) return differs();
    return first(expected.map((each, index) => mismatch(each, actual[index], `${path}.${index}`)));
  }
  const fields = expected as Fields;
  if ("$min" in fields) return typeof actual === "number" && actual >= Number(fields["$min"]) ? undefined : differs();
  if ("$length" in fields) return Array.isArray(actual) && actual.length === fields["$length"] ? undefined : differs();
  if ("$contains" in fields) return hasEach(list(fields["$contains"]), actual) ? undefined : differs();
  if ("$unordered" in fields) {
    const wanted = list(fields["$unordered"]);
    return Array.isArray(actual) && actual.length === wanted.length && pairs(wanted, actual) ? undefined : differs();
  }
  if (actual === undefined || actual === null || typeof actual !== "object" || Array.isArray(actual)) return differs();
  return first(Object.entries(fields).map(([name, each]) => mismatch(each, member(actual, name), `${path}.${name}`)));
}

function hasEach(wanted: readonly Value[], actual: Value | undefined): boolean {
  return (
    Array.isArray(actual) && wanted.every((each) => actual.some((other: Value) => mismatch(each, other) === undefined))
  );
}

/** Whether each of `wanted` has an element of its own. */
function pairs(wanted: readonly Value[], actual: readonly Value[]): boolean {
  const [next, ...rest] = wanted;
  if (next === undefined) return true;
  return actual.some((other, index) => mismatch(next, other) === undefined && pairs(rest, actual.toSpliced(index, 1)));
}

function first(problems: readonly (string | undefined)[]): string | undefined {
  return problems.find((problem) => problem !== undefined);
}

function list(value: Value | undefined): readonly Value[] {
  if (!Array.isArray(value)) throw new Error(`${show(value)} is no array`);
  return value;
}

function member(value: Value | undefined, name: string): Value | undefined {
  if (value === null || typeof value !== "object") return undefined;
  return Object.hasOwn(value, name) ? (value as Fields)[name] : undefined;
}

function asText(value: Value): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A value as a person reads it. */
export function show(value: unknown): string {
  return value === undefined ? "not there" : JSON.stringify(value);
}

/** Milliseconds of a duration such as `"150ms"`. */
export function milliseconds(text: string): number {
  const [, count, unit] = /^(\d+)(ms|s|m|h)$/.exec(text) ?? [];
  const factor = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }[unit ?? ""];
  if (count === undefined || factor === undefined) throw new Error(`"${text}" is no duration`);
  return Number(count) * factor;
}
