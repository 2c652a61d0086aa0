// The documentation of the REST door: Swagger UI shows /openapi.json.

// @ts-expect-error It has no types.
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";
import "./docs.css";

/** The order of what can be done with a lock: acquire, renew, release, read. The document's own is lost in JSON. */
const methods = ["post", "put", "delete", "get", "head"];

interface Operation { get(name: "method"): string }
interface System { React: { createElement(type: string, properties: object, ...children: unknown[]): unknown } }

/** Shows descriptions as the plain texts that they are: the policy of the page permits no markup that is made of texts. */
function plainTexts({ React }: System) {
  const Text = ({ source = "" }) =>
    React.createElement("div", { className: "markdown" }, ...source.split("\n\n").map(each => React.createElement("p", {}, each)));
  return { wrapComponents: { Markdown: () => Text } };
}

/** Shows no request as a command: that would have the token of the caller in it. */
const nothing = () => () => null;
const noCommands = { wrapComponents: { curl: nothing, RequestSnippets: nothing } };

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

const ui = SwaggerUI({
  dom_id: "#docs", url: "/openapi.json", validatorUrl: null, deepLinking: true, requestSnippetsEnabled: false, plugins: [plainTexts, noCommands],
  operationsSorter: (a: Operation, b: Operation) => methods.indexOf(a.get("method")) - methods.indexOf(b.get("method")),
  onComplete: () => { if (!location.hash) ui.layoutActions.show(["operations", "lock", "acquire"], true); },
});
