// All learners at a glance; and, for those who may only ask or label, the way to the one they know by name.

import { get, subscribe } from "./api.js";
import { bar } from "./charts.js";
import { counted, h, keyed, percent, rate, replace, setText, shape } from "./dom.js";
import { importLearner } from "./operate.js";
import { tryCard } from "./tryit.js";

const STATES = { idle: "Idle", waiting: "Waiting for its turn", training: "Learning", changing: "Being changed" };

/** What a learner is doing, as a pill. */
export function pill(status) {
  const warned = status.backlog.episodes_parked > 0;
  return h("span", { class: `pill ${status.state}` }, STATES[status.state], warned ? h("span", { class: "warned" }, `${status.backlog.episodes_parked} parked`) : null);
}

const accuracyOf = (status) => (status.quality?.quality ? status.quality.quality.right / status.quality.quality.examples : null);

function tile(learner) {
  const link = h("a", { class: "tile", href: `#/learners/${encodeURIComponent(learner.name)}` });
  return h("li", {}, link);
}

function fill(item, learner) {
  const status = learner.status, accuracy = accuracyOf(status);
  const link = item.firstElementChild;
  const text = JSON.stringify([status.state, status.model_version, status.backlog, status.progress, status.throughput, accuracy, status.memories?.classes]);
  if (link.dataset.seen === text) return;
  link.dataset.seen = text;
  replace(link, 
    h("span", { class: "row" }, h("strong", { class: "name" }, learner.name), pill(status)),
    h("span", { class: "figures" },
      h("span", { class: "figure" }, h("b", {}, status.memories?.classes ?? 0), (status.memories?.classes ?? 0) === 1 ? "class" : "classes"),
      h("span", { class: "figure" }, h("b", {}, accuracy === null ? "–" : percent(accuracy, 1)), "held-out accuracy"),
      h("span", { class: "figure" }, h("b", {}, status.model_version || "–"), "version")),
    status.progress ? bar(status.progress.fraction, { kind: "warm", label: `Episode ${status.training_episode}: ${percent(status.progress.fraction)} learned` }) : null,
    h("span", { class: "hint" },
      [shape(learner.input_shape),
        status.backlog.examples ? `${counted(status.backlog.examples, "example")} to learn` : null,
        status.throughput.examples_predicted_per_second > 0 ? `${rate(status.throughput.examples_predicted_per_second)} predicted` : null].filter(Boolean).join(" · ")));
}

/** The view of all learners. */
export function overviewView(app, main) {
  document.title = "Learners – SHARP Serve";
  const list = h("ul", { class: "tiles" });
  const summary = h("p", { class: "hint" }, "");
  const empty = h("section", { class: "empty", hidden: true },
    h("h2", {}, "No learner yet"),
    h("p", {}, "A learner is made by the first batch that somebody sends. From a terminal, for example:"),
    h("pre", { tabindex: "0" }, h("code", {}, "sharp learn digits --classes-per-episode 2")),
    h("p", {}, "Or with the client, in Python: see ", h("a", { href: "/docs" }, "the API"), "."));
  const take = h("button", { type: "button", class: "quiet", onclick: () => importLearner(take) }, "Import a learner …");
  main.replaceChildren(h("div", { class: "heading row" }, h("div", {}, h("h1", {}, "Learners"), summary), take), list, empty);
  return subscribe("/api/events", {
    connection: (state) => app.connected(state),
    failed: (error) => app.needToken(error),
    state({ learners }) {
      empty.hidden = learners.length > 0;
      const busy = learners.filter((learner) => learner.status.state === "training").length;
      setText(summary, learners.length ? `${counted(learners.length, "learner")}${busy ? `, ${busy} learning now` : ""} · version ${app.access.version}` : "");
      keyed(list, learners, (learner) => learner.uid, tile, fill);
    },
  });
}

/** The view of someone who may ask or label, but not look: the learner is known by its name. */
export function labellerView(app, main, name) {
  document.title = name ? `${name} – SHARP Serve` : "SHARP Serve";
  const field = h("input", { id: "learner-name", value: name, required: true, maxlength: "63", autocomplete: "off", spellcheck: false });
  const place = h("div", { class: "single" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const open = async (event) => {
    event?.preventDefault();
    problem.hidden = true;
    try {
      const model = await get(`/v2/models/${encodeURIComponent(field.value)}`);
      const learner = { name: model.name, input_shape: model.inputs[0].shape.slice(1), label_kind: model.outputs[0].datatype === "INT64" ? "integer" : "text", classes: [] };
      if (!learner.input_shape.length) learner.input_shape = null;
      const card = tryCard(app, learner.name);
      card.update(learner);
      place.replaceChildren(card.element);
    } catch (error) {
      if (error.needsToken) { app.needToken(error); return; }
      problem.hidden = false;
      setText(problem, `${error.message}.`);
    }
  };
  main.replaceChildren(
    h("div", { class: "heading" }, h("h1", {}, "Ask a learner"), h("p", { class: "hint" }, `Your token has the role ${app.access.roles.join(" and ")}: looking at learners needs the role admin.`)),
    h("form", { class: "inline", onsubmit: open }, h("label", { for: "learner-name" }, "Its name"), field, h("button", { class: "primary" }, "Open")), problem, place);
  if (name) open();
  else field.focus();
  return () => {};
}
