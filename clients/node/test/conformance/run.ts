/** Carries out a scenario. */
import type { BoltqClient } from "@boltq/client";

import { type Testbed, within } from "../testbed.js";
import { Many } from "./many.js";
import { Arguments, failureOf } from "./shapes.js";
import { STEPS, type World } from "./steps.js";
import { type Fields, mismatch, show, type Value, Variables } from "./values.js";

/** More than a step may take before it is said to hang. */
const GRACE_MS = 30_000;
const AGAIN_MS = 50;

/** A file of tests/conformance/scenarios. */
export interface Scenario {
  readonly name: string;
  readonly about: string;
  readonly on: readonly string[];
  readonly steps: readonly Fields[];
}

/** Runs all steps; throws at the first that is not as it should be. */
export async function run(scenario: Scenario, client: BoltqClient, testbed: Testbed): Promise<void> {
  const world: World = { client, testbed, streams: new Map(), background: new Map(), workers: new Map() };
  const variables = new Variables();
  try {
    for (const [index, step] of scenario.steps.entries()) {
      try {
        await perform(world, variables, step);
      } catch (cause) {
        const text = cause instanceof Error ? cause.message : String(cause);
        throw new Error(`step ${index + 1}, ${show(step)}: ${text}`, { cause });
      }
    }
  } finally {
    for (const { many } of world.background.values()) many.stop();
    for (const stream of world.streams.values()) await stream.return?.();
    await Promise.allSettled([...world.workers.values()].map((worker) => worker.end()));
    await Promise.allSettled([...world.background.values()].map(({ answer }) => answer));
  }
}

async function perform(world: World, variables: Variables, raw: Fields): Promise<void> {
  const step = new Arguments(variables.fill(raw) as Fields);
  const name = step.optional<string>("background");
  if (name !== undefined) {
    const many = new Many();
    const answer = once(world, step, many);
    answer.catch((error: unknown) => many.fail(error));
    world.background.set(name, { many, answer });
    return;
  }
  const end = Date.now() + (step.ms("within") ?? 0);
  for (;;) {
    const { answer, problem } = await attempt(world, step);
    if (problem === undefined) {
      variables.save((raw["save"] ?? {}) as Fields, answer);
      return;
    }
    if (Date.now() >= end) throw new Error(problem);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function attempt(world: World, step: Arguments): Promise<{ answer: Value; problem: string | undefined }> {
  const { expect, error: wanted } = step.fields;
  let answer: Value;
  try {
    answer = await within(step.timeoutMs + GRACE_MS, "the step", once(world, step, new Many()));
  } catch (error) {
    const failure = failureOf(error);
    if (wanted === undefined) return { answer: failure, problem: `it failed: ${error}` };
    return { answer: failure, problem: mismatch(wanted, failure, "failure") };
  }
  if (wanted !== undefined) return { answer, problem: `it did not fail, and answered ${show(answer)}` };
  return { answer, problem: expect === undefined ? undefined : mismatch(expect, answer) };
}

async function once(world: World, step: Arguments, many: Many): Promise<Value> {
  const carryOut = STEPS[step.text("do")];
  if (carryOut === undefined) throw new Error(`no step is called "${step.text("do")}"`);
  return carryOut(world, step, many);
}
