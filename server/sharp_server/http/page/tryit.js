// Try it and correct it: an example that is drawn, dropped or pasted; the answer; the right label; the new answer.

import { learnerPath, post, postForm } from "./api.js";
import { bar } from "./charts.js";
import { canvasPad } from "./drawing.js";
import { attempt, toast } from "./dialogs.js";
import { count, counted, h, percent, replace, setText } from "./dom.js";

const RESULTS = { top_k: 5, nearest_memories: 5, novelty: true };
const LARGEST_DRAWING = 64;

/** How something may be drawn for a learner: its sides, and whether it takes them as a vector. */
function drawable(shape) {
  if (!shape) return null;
  if (shape.length === 3) {
    const [channels, height, width] = shape;
    return (channels === 1 || channels === 3) && Math.max(height, width) <= LARGEST_DRAWING ? { width, height, vector: false } : null;
  }
  const side = Math.sqrt(shape[0]);
  return Number.isInteger(side) && side >= 4 && side <= LARGEST_DRAWING ? { width: side, height: side, vector: true } : null;
}

/** The numbers in a text, however they are separated; throws what is wrong with it. */
export function parseVector(text, length) {
  const values = text.replace(/[[\](){}]/g, " ").split(/[\s,;]+/).filter(Boolean).map(Number);
  if (!values.length) throw new Error("There are no numbers");
  if (values.some((value) => !Number.isFinite(value))) throw new Error("Not everything there is a number");
  if (length && values.length !== length) throw new Error(`The learner takes ${count(length)} numbers, these are ${count(values.length)}`);
  return values;
}

const novelty = (value) => (value >= 0.95 ? "unlike anything it knows" : value >= 0.8 ? "unusual" : "familiar");

/** The card. */
export function tryCard(app, name) {
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "How to give an example" });
  const panel = h("div", { class: "panel", role: "tabpanel", id: "try-panel", tabindex: "0" });
  const result = h("div", { class: "result", "aria-live": "polite" });
  const element = h("section", { class: "card try", "aria-label": "Try it" }, h("h2", {}, "Try it"), tabs, panel, result);
  let learner = null, kinds = "", asked = null, labels = [];

  // ---- asking -------------------------------------------------------------------------------------------------------

  /** An example is {vector} or {blob}, and what it looks like: {preview}. */
  async function ask(example, before = null) {
    asked = example;
    const answer = await attempt(null, () => predict(example));
    if (answer && asked === example) showAnswer(example, answer, before);
  }

  async function predict(example) {
    if (example.vector) return post(learnerPath(name, "/predict"), { vectors: [example.vector], ...RESULTS });
    return postForm(learnerPath(name, "/predict/images"), formOf(example, RESULTS));
  }

  function formOf(example, more) {
    const form = new FormData();
    form.append("images", example.blob, "example");
    form.append("resize", "true");
    for (const [key, value] of Object.entries(more)) form.append(key, String(value));
    return form;
  }

  async function teach(example, text, button) {
    const label = learner.label_kind === "integer" ? Number(text) : text;
    if (learner.label_kind === "integer" && !Number.isSafeInteger(label)) { toast("This learner's labels are integers.", "bad"); return; }
    const before = example.answer?.label ?? null;
    const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;
    const done = await attempt(button, () => (example.vector
      ? post(learnerPath(name, "/teach"), { vectors: [example.vector], labels: [label], request_id: id })
      : postForm(learnerPath(name, "/teach/images"), formOf(example, { labels: text, request_id: id }))));
    if (!done) return;
    toast(`It knows now: this is ${label}.`);
    await ask(example, before);
  }

  // ---- the answer ---------------------------------------------------------------------------------------------------

  function showAnswer(example, answer, before) {
    const found = (example.answer = answer.predictions[0]);
    const beyond = answer.examples_beyond_version ?? 0;
    replace(result,
      h("div", { class: "verdict" },
        example.preview ? example.preview() : null,
        h("div", {},
          before !== null ? h("p", { class: "before" }, before === found.label ? "still " : "was ", h("s", {}, String(before)), " – now") : null,
          h("p", { class: "answer", "data-label": String(found.label) }, String(found.label)),
          h("p", { class: "hint" }, `version ${answer.model_version}${beyond ? ` and ${counted(beyond, "example")} beyond it` : ""}`))),
      h("dl", { class: "facts" },
        h("div", {}, h("dt", {}, "Share"), h("dd", {}, bar(found.vote_share, { label: percent(found.vote_share) }), percent(found.vote_share))),
        h("div", {}, h("dt", {}, "Novelty"), h("dd", {}, bar(found.novelty, { kind: found.novelty >= 0.8 ? "warm" : "", label: percent(found.novelty) }), novelty(found.novelty)))),
      found.top_classes.length > 1 ? h("div", {}, h("h3", {}, "Runners-up"), h("ul", { class: "runners" }, found.top_classes.slice(1).map((score) => h("li", {},
        h("span", { class: "runner" }, String(score.label)), bar(score.vote_share, { label: percent(score.vote_share, 1) }), h("span", { class: "amount" }, percent(score.vote_share, score.vote_share < 0.1 ? 1 : 0)))))) : null,
      found.nearest_memories.length ? h("div", {}, h("h3", {}, "Nearest memories"), h("ul", { class: "chips" }, found.nearest_memories.map((memory) => h("li", { class: memory.label === found.label ? "same" : "" },
        h("b", {}, String(memory.label)), ` episode ${memory.episode}`, h("span", { class: "hint" }, ` at ${memory.distance < 100 ? memory.distance.toPrecision(2) : count(memory.distance)}`))))) : null,
      app.may("learn") ? correction(example, found) : null);
  }

  function correction(example, found) {
    const field = h("input", { id: "right-label", list: "known-labels", required: true, autocomplete: "off", maxlength: "1000",
      inputmode: learner.label_kind === "integer" ? "numeric" : null, placeholder: "another label" });
    const button = h("button", { class: "primary" }, "Teach it");
    const guesses = found.top_classes.map((score) => score.label).filter((label) => label !== found.label).slice(0, 4);
    return h("form", { class: "correct", onsubmit: (event) => { event.preventDefault(); teach(example, field.value.trim(), button); } },
      h("h3", {}, "Not right?"),
      guesses.length ? h("div", { class: "guesses" }, guesses.map((label) => h("button", { type: "button", class: "guess", onclick: (event) => teach(example, String(label), event.currentTarget) }, `It is ${label}`))) : null,
      h("div", { class: "inline" }, h("label", { for: "right-label", class: "unseen" }, "The right label"), field, button),
      h("datalist", { id: "known-labels" }, labels.map((label) => h("option", { value: String(label) }))),
      h("p", { class: "hint" }, "One example is enough: the answer changes at once."));
  }

  // ---- ways to give an example ----------------------------------------------------------------------------------------

  function drawPanel() {
    const size = drawable(learner.input_shape);
    const pad = canvasPad(size, (drawing) => {
      if (size.vector) ask({ vector: drawing.values, preview: drawing.preview });
      else drawing.blob().then((blob) => ask({ blob, preview: drawing.preview }));
    });
    return h("div", { class: "drawing" }, pad.canvas,
      h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => { pad.clear(); result.replaceChildren(); } }, "Clear"),
        h("span", { class: "hint" }, `Seen as ${size.width}×${size.height} pixels.`)));
  }

  function imagePanel() {
    const input = h("input", { type: "file", accept: "image/png,image/jpeg,image/webp,image/bmp", id: "image-file", class: "unseen", onchange: () => take(input.files[0]) });
    const take = (file) => {
      if (!file) return;
      const address = URL.createObjectURL(file);
      ask({ blob: file, preview: () => h("img", { class: "preview", src: address, alt: "The image that was asked about" }) });
      input.value = "";
    };
    const zone = h("label", { class: "drop", for: "image-file",
      ondragover: (event) => { event.preventDefault(); zone.classList.add("over"); },
      ondragleave: () => zone.classList.remove("over"),
      ondrop: (event) => { event.preventDefault(); zone.classList.remove("over"); take(event.dataTransfer.files[0]); } },
    h("b", {}, "Drop an image here"), h("span", {}, "or choose a PNG, JPEG, WebP or BMP file"));
    return h("div", { class: "dropping" }, input, zone);
  }

  function vectorPanel() {
    const length = learner.input_shape?.length === 1 ? learner.input_shape[0] : 0;
    const field = h("textarea", { id: "vector", rows: 4, spellcheck: false, placeholder: "0.12, 0.5, 0.93, …", required: true });
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    return h("form", { onsubmit: (event) => {
      event.preventDefault();
      try { problem.hidden = true; ask({ vector: parseVector(field.value, length) }); } catch (error) { problem.hidden = false; setText(problem, `${error.message}.`); }
    } },
    h("label", { for: "vector", class: "field" }, length ? `${count(length)} numbers, separated by commas or spaces` : "Numbers, separated by commas or spaces"), field, problem,
    h("div", { class: "actions" }, h("button", { class: "primary" }, "Ask")));
  }

  const PANELS = { draw: ["Draw", drawPanel], image: ["Image", imagePanel], vector: ["Vector", vectorPanel] };

  function choose(kind, focus = false) {
    for (const tab of tabs.children) {
      const chosen = tab.dataset.kind === kind;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) tab.focus();
    }
    panel.setAttribute("aria-labelledby", `try-${kind}`);
    panel.replaceChildren(PANELS[kind][1]());
    result.replaceChildren();
  }

  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...tabs.children], at = all.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    choose(all[(at + step + all.length) % all.length].dataset.kind, true);
    event.preventDefault();
  });

  return {
    element,
    update(current) {
      learner = current;
      labels = current.classes.map((entry) => entry.label);
      const vector = !current.input_shape || current.input_shape.length === 1;
      const wanted = [drawable(current.input_shape) ? "draw" : null, vector ? null : "image", vector ? "vector" : null].filter(Boolean);
      if (kinds === JSON.stringify([wanted, current.input_shape])) return;
      kinds = JSON.stringify([wanted, current.input_shape]);
      tabs.hidden = wanted.length < 2;
      tabs.replaceChildren(...wanted.map((kind) => h("button", { type: "button", role: "tab", id: `try-${kind}`, "data-kind": kind, "aria-controls": "try-panel", onclick: () => choose(kind) }, PANELS[kind][0])));
      choose(wanted[0]);
    },
  };
}
