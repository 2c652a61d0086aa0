// Builds the page into facade/ui/assets. The same sources make the same bytes.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

const out = process.env.OUT ?? "../facade/ui/assets";
await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: "/* Contains Preact, (c) Jason Miller, MIT License: see NOTICE.txt. */" },
  logLevel: "warning",
});
for (const file of ["index.html", "icon.svg", "NOTICE.txt"]) await copyFile(`src/${file}`, `${out}/${file}`);
