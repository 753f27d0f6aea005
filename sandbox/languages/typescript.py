"""TypeScript: each file is made JavaScript, without looking at its types, and run by node."""

import re

from rlvr.sandbox.languages.base import PROGRAM, Grammar, ProgramLanguage

__all__ = ["ROW"]

# Types are not checked: those of node are not installed beside the compiler, and `import fs from
# "fs"` would fail.
_MAKE = """
const path = require("path"), fs = require("fs"), [tool, main, program] = process.argv.slice(1);
const ts = require(path.join(path.dirname(tool), "..", "lib", "typescript.js"));
const made = ts.transpileModule(fs.readFileSync(main, "utf8"), {
  fileName: main, reportDiagnostics: true,
  compilerOptions: { target: "ES2020", module: "CommonJS", esModuleInterop: true } });
for (const d of made.diagnostics) {
  const at = d.file.getLineAndCharacterOfPosition(d.start);
  const said = ts.flattenDiagnosticMessageText(d.messageText, " ");
  console.error(`${main}:${at.line + 1}:${at.character + 1}: error: ${said}`);
}
if (made.diagnostics.length) process.exit(1);
fs.writeFileSync(program, made.outputText);
"""

ROW = ProgramLanguage(
    "main.ts",
    "const version: string = process.version; console.log(`typescript on node ${version}`)",
    tool="tsc",
    package="node-typescript",
    compile=("/usr/bin/env", "node", "-e", _MAKE, "{tool}", "{main}", PROGRAM),
    sources=(".ts",),
    run=("/usr/bin/env", "node", PROGRAM),
    least="let a: number = 1;\n",
    dies=(1,),
    fences=("typescript", "ts"),
    opens=re.compile(
        r"\s*(?:import\s|(?:const|let|var|function|class|interface|type|enum|async)\b|//|/\*|"
        r"console\.)"
    ),
    grammar=Grammar("tree_sitter_typescript", "number", function="language_typescript"),
)
