// Builds the package twice, for `import` and for `require`, into dist/esm and dist/cjs.
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");

rmSync(`${root}dist`, { recursive: true, force: true });
for (const config of ["tsconfig.json", "tsconfig.cjs.json"]) {
  execFileSync(process.execPath, [tsc, "-p", `${root}${config}`], { stdio: "inherit" });
}
// The package is one of ES modules; this folder is not.
writeFileSync(`${root}dist/cjs/package.json`, '{ "type": "commonjs" }\n');
