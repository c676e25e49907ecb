/** The scenarios that all clients run: tests/conformance. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";

import type { BoltqClient } from "@boltq/client";

import { run, type Scenario } from "./conformance/run.js";
import { REPOSITORY, Testbed } from "./testbed.js";

const FOLDER = `${REPOSITORY}tests/conformance/scenarios/`;
const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
const scenarios = files
  .sort()
  .map((file) => ({ file, scenario: JSON.parse(readFileSync(FOLDER + file, "utf8")) as Scenario }));

for (const [on, nodes] of [
  ["single", "1"],
  ["cluster", "3"],
] as const) {
  describe(on, () => {
    let testbed: Testbed;
    let client: BoltqClient;
    before(async () => {
      testbed = await Testbed.start("--nodes", nodes);
      client = testbed.connect();
    });
    after(async () => {
      await client.close();
      await testbed[Symbol.asyncDispose]();
    });
    for (const { file, scenario } of scenarios.filter((each) => each.scenario.on.includes(on))) {
      test(`${scenario.name}: ${scenario.about}`, async () => {
        assert.equal(file, `${scenario.name}.json`);
        await run(scenario, client, testbed);
      });
    }
  });
}
