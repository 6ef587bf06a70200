// The API, written from the server's own description of it.

import { h } from "./dom.js";

const paragraphs = (text) => (text ?? "").split("\n\n").map((part) => h("p", {}, part.split(/(`[^`]+`)/).map((bit) => (bit.startsWith("`") ? h("code", {}, bit.slice(1, -1)) : bit))));

/** A type in a few words; schemas that have a name are linked. */
function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) { const name = schema.$ref.split("/").pop(); return h("a", { href: `#schema-${name}` }, name); }
  if (schema.anyOf) return schema.anyOf.flatMap((part, i) => (i ? [" or ", typeOf(part)] : [typeOf(part)]));
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return ["list of ", typeOf(schema.items)];
  if (schema.type === "object" && schema.additionalProperties) return ["map to ", typeOf(schema.additionalProperties)];
  return [schema.format === "binary" || schema.contentMediaType ? "file" : schema.format ?? schema.type ?? "anything"];
}

const fields = (schema) => h("table", {}, h("thead", {}, h("tr", {}, ["Field", "Type", "Meaning"].map((text) => h("th", { scope: "col" }, text)))),
  h("tbody", {}, Object.entries(schema.properties ?? {}).map(([name, part]) => h("tr", {},
    h("th", { scope: "row" }, h("code", {}, name), schema.required?.includes(name) ? "" : h("span", { class: "note" }, "optional")), h("td", {}, typeOf(part)), h("td", {}, part.description ?? "")))));

function operation(method, path, found) {
  const bodies = Object.entries(found.requestBody?.content ?? {}), answers = Object.entries(found.responses).filter(([status]) => status.startsWith("2"));
  return h("div", { class: "operation" },
    h("h3", {}, h("span", { class: "verb" }, method.toUpperCase()), h("code", {}, path), " ", h("span", { class: "role" }, found["x-role"] ? `role ${found["x-role"]}` : "no token")),
    paragraphs(found.description),
    h("details", {}, h("summary", {}, "Takes and gives"),
      found.parameters?.length ? h("ul", {}, found.parameters.map((part) => h("li", {}, h("code", {}, part.name), ` (${part.in}): `, part.description ?? typeOf(part.schema)))) : null,
      bodies.map(([kind, content]) => h("p", {}, "Takes ", typeOf(content.schema), ` as ${kind}`)),
      answers.map(([status, answer]) => Object.entries(answer.content ?? {}).map(([kind, content]) => h("p", {}, `${status}: `, typeOf(content.schema), ` as ${kind}`)))));
}

const description = await (await fetch("/openapi.json")).json();
const operations = Object.entries(description.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, found]) => [method, path, found]));
document.getElementById("main").replaceChildren(
  h("div", { class: "heading" }, h("h1", {}, "The API"), h("p", { class: "hint" }, `version ${description.info.version}`), paragraphs(description.info.description)),
  ...description.tags.map((tag) => h("section", { class: "card", "aria-label": `Routes of ${tag.name}` }, h("h2", {}, tag.name), h("p", { class: "hint" }, tag.description),
    operations.filter(([, , found]) => found.tags?.includes(tag.name)).map((found) => operation(...found)))),
  h("section", { class: "card", "aria-label": "Types" }, h("h2", {}, "Types"), Object.entries(description.components.schemas).map(([name, schema]) => h("div", { class: "operation", id: `schema-${name}` },
    h("h3", {}, h("code", {}, name)), h("p", {}, schema.description ?? ""), schema.properties ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Fields of ${name}` }, fields(schema)) : null))));
