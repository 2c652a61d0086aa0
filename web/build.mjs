// Builds the pages into facade/ui/assets. The same sources make the same bytes.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";

const out = process.env.OUT ?? "../facade/ui/assets";

/** Makes files of the pictures in style sheets: the policy of the pages permits none that are in the style sheet itself. */
const pictures = {
  name: "pictures",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^data:image\// }, ({ path }) => {
      const hash = createHash("sha256").update(path).digest("hex").slice(0, 8);
      const type = /^data:image\/(\w+)/.exec(path)[1];
      return { path: `picture-${hash}.${type}`, namespace: "picture", pluginData: path };
    });
    onLoad({ filter: /./, namespace: "picture" }, async ({ pluginData }) => ({ contents: new Uint8Array(await (await fetch(pluginData)).arrayBuffer()), loader: "file" }));
  },
};

await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx", style: "src/style.css", docs: "src/docs.ts" },
  outdir: out,
  assetNames: "[name]",
  plugins: [pictures],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: "/* Contains packages of others: see NOTICE.txt. */" },
  logLevel: "warning",
});
for (const file of ["index.html", "docs.html", "icon.svg"]) await copyFile(`src/${file}`, `${out}/${file}`);
// Swagger UI has the packages in it that it is made of.
const notices = ["src/NOTICE.txt", "node_modules/swagger-ui-dist/NOTICE", "node_modules/swagger-ui-dist/swagger-ui-es-bundle.js.LICENSE.txt"];
await writeFile(`${out}/NOTICE.txt`, (await Promise.all(notices.map(file => readFile(file, "utf8")))).join("\n"));
