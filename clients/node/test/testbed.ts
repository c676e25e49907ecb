/** Real servers, by `boltq-testbed`; tests/conformance/README.md describes it. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { type BoltqClient, type ConnectOptions, connect } from "@boltq/client";

/** The root of the repository. */
export const REPOSITORY = fileURLToPath(new URL("../../..", import.meta.url));
/** A debug build on a machine that does other things. */
const READY_WITHIN_MS = 180_000;

interface Answer {
  readonly ok?: boolean;
  readonly error?: string;
  readonly [member: string]: unknown;
}

interface Ready {
  readonly nodes: readonly { readonly name: string; readonly messaging: string; readonly admin: string }[];
  readonly tls: { readonly ca_file: string; readonly cert_file: string; readonly key_file: string } | null;
}

/** One node or a cluster, until it is closed. */
export class Testbed implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  #last: Promise<unknown> = Promise.resolve();
  readonly nodes: Ready["nodes"];
  readonly tls: Ready["tls"];

  private constructor(process: ChildProcess, lines: AsyncIterator<string>, ready: Ready) {
    this.#process = process;
    this.#lines = lines;
    this.nodes = ready.nodes;
    this.tls = ready.tls;
  }

  static async start(...options: string[]): Promise<Testbed> {
    const child = spawn(binary(), options, { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const first = await within(READY_WITHIN_MS, "the test bed to be ready", lines.next());
    if (first.done === true) throw new Error("the test bed ended before it was ready; it has said why above");
    return new Testbed(child, lines, JSON.parse(first.value) as Ready);
  }

  get addresses(): string[] {
    return this.nodes.map(({ messaging }) => messaging);
  }

  connect(options: ConnectOptions = {}): BoltqClient {
    return connect({ addresses: this.addresses, ...options });
  }

  /** Carries out a command; one after the other. */
  command(line: string): Promise<Answer> {
    const answer = this.#last.then(async () => {
      this.#process.stdin?.write(`${line}\n`);
      const next = await within(READY_WITHIN_MS, `the test bed to answer "${line}"`, this.#lines.next());
      if (next.done === true) throw new Error(`the test bed ended while it did "${line}"`);
      const parsed = JSON.parse(next.value) as Answer;
      if (parsed.ok !== true) throw new Error(`test bed, "${line}": ${parsed.error}`);
      return parsed;
    });
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise<void>((resolve) => this.#process.once("exit", () => resolve()));
    this.#process.stdin?.end();
    if (this.#process.exitCode === null) await ended;
  }
}

function binary(): string {
  const path = process.env["BOLTQ_TESTBED_BIN"] ?? `${REPOSITORY}target/debug/boltq-testbed`;
  if (!existsSync(path))
    throw new Error(`${path} is not there; scripts/clients.sh node builds it and sets BOLTQ_TESTBED_BIN`);
  return path;
}

/** A promise, and what fulfils it. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}

/** The value of a promise, unless that takes too long. */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${ms} ms for ${what}`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Asks until the answer is right. */
export async function eventually<T>(
  what: string,
  ask: () => Promise<T> | T,
  right: (answer: T) => boolean,
): Promise<T> {
  const end = Date.now() + 60_000;
  for (;;) {
    const answer = await ask();
    if (right(answer)) return answer;
    if (Date.now() > end) throw new Error(`waited 60 s for ${what}; at last: ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

let names = 0;

/** A name that no other test has. */
export function unique(prefix: string): string {
  names += 1;
  return `${prefix}-${process.pid}-${names}`;
}
