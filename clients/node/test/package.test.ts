/** The package as users have it: both kinds of modules, the examples, and what would be published. */
import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { REPOSITORY, Testbed, within } from "./testbed.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const ENDS_WITHIN_MS = 60_000;

let testbed: Testbed;

before(async () => {
  testbed = await Testbed.start("--storage", "memory");
});

after(() => testbed[Symbol.asyncDispose]());

/** Runs a program that has to end by itself, and answers what it wrote. */
async function output(program: string): Promise<string> {
  const env = { ...process.env, BOLTQ_ADDR: testbed.addresses[0] };
  const options = { env, timeout: ENDS_WITHIN_MS, killSignal: "SIGKILL" as const };
  const { stdout } = await promisify(execFile)(process.execPath, ["--throw-deprecation", ROOT + program], options);
  return stdout;
}

describe("the built package", () => {
  test("is imported as an ES module", async () => {
    assert.equal(await output("test/package/import.mjs"), "imported true true\n");
  });

  test("is required as CommonJS", async () => {
    assert.equal(await output("test/package/require.cjs"), "required true true\n");
  });

  test("has everything in it, and nothing else", async () => {
    const { stdout } = await promisify(execFile)("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
      cwd: ROOT,
    });
    const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
    const paths = files.map(({ path }) => path);
    for (const wanted of [
      "README.md",
      "LICENSE",
      "package.json",
      "dist/esm/index.js",
      "dist/esm/index.d.ts",
      "dist/cjs/index.js",
      "dist/cjs/index.d.ts",
      "dist/cjs/package.json",
    ]) {
      assert.ok(paths.includes(wanted), `${wanted} is missing`);
    }
    assert.deepEqual(
      paths.filter((path) => !/^(dist\/|README|LICENSE|package\.json)/.test(path)),
      [],
    );
  });

  test("has the version of everything else", () => {
    const { version } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8")) as { version: string };
    const cargo = readFileSync(`${REPOSITORY}Cargo.toml`, "utf8");
    assert.equal(version, /^version = "(.*)"$/m.exec(cargo)?.[1]);
  });
});

describe("the example", () => {
  const OUTPUTS: Readonly<Record<string, RegExp>> = {
    "quickstart.mjs": /^published [0-9a-f]{32}\ngot \{"to":"ann@example.org"\}\n$/,
    "publisher.mjs": /^5000 events are stored\n$/,
    "topic.mjs": /^A-1 costs 19.99\n$/,
    "cache.mjs": /^somebody else has the lock\nthis is report 1\nlock:report is free\n$/,
  };
  for (const [name, wanted] of Object.entries(OUTPUTS)) {
    test(name, async () => assert.match(await output(`examples/${name}`), wanted));
  }

  test("worker.mjs, which works until it is told to stop", async () => {
    const env = { ...process.env, BOLTQ_ADDR: testbed.addresses[0] };
    const worker: ChildProcess = spawn(process.execPath, [`${ROOT}examples/worker.mjs`], {
      env,
      stdio: ["ignore", "pipe", "inherit"],
    });
    const lines: string[] = [];
    const ended = new Promise<number | null>((resolve) => worker.once("exit", (code) => resolve(code)));
    assert.ok(worker.stdout !== null);
    createInterface({ input: worker.stdout }).on("line", (line) => {
      lines.push(line);
      if (lines.length === 3) worker.kill("SIGTERM");
    });
    try {
      assert.equal(await within(ENDS_WITHIN_MS, "the worker to stop", ended), 0);
    } finally {
      worker.kill("SIGKILL");
    }
    assert.deepEqual(
      lines.toSorted().map((line) => line.replace(/[0-9a-f]{32}/, "…")),
      [
        "made a thumbnail of 128 pixels",
        "made a thumbnail of 64 pixels",
        "message … failed: a thumbnail cannot be 0 pixels wide",
        "stopped",
      ],
    );
  });

  for (const [name, page, heading] of [
    ["the README", `${ROOT}README.md`, "## In five minutes"],
    ["docs/clients.md", `${REPOSITORY}docs/clients.md`, "## Node"],
  ] as const) {
    test(`of ${name}, as it is there`, async () => {
      const section = readFileSync(page, "utf8").split(`${heading}\n`)[1] ?? "";
      const shown = /```js\n(.*?)```/s.exec(section)?.[1] ?? "";
      assert.ok(shown.includes('"localhost:9091"'));
      const program = shown.replace("localhost:9091", testbed.addresses[0] ?? "");
      const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
        cwd: ROOT,
        stdio: ["ignore", "pipe", "inherit"],
      });
      const ended = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
      let written = "";
      child.stdout.on("data", (text) => {
        written += text;
        child.kill("SIGTERM");
      });
      try {
        assert.equal(await within(ENDS_WITHIN_MS, "the program to stop", ended), 0);
      } finally {
        child.kill("SIGKILL");
      }
      assert.match(written, /ann/);
    });
  }

  test("of which none is left out", () => {
    assert.deepEqual(readdirSync(`${ROOT}examples`).sort(), [...Object.keys(OUTPUTS), "worker.mjs"].sort());
  });
});
