// One learner: what it knows and how well, what it is learning, what is inside, and what happened.

import { learnerPath, subscribe } from "./api.js";
import { bar, rankBar, rankClass, rankName, sparkline } from "./charts.js";
import { classesCard, qualityStore } from "./classes.js";
import { bytes, card, count, counted, duration, h, keyed, percent, rate, setText, shape, timeElement } from "./dom.js";
import { operateCards } from "./operate.js";
import { pill } from "./overview.js";
import { tryCard } from "./tryit.js";

const KEPT_EVENTS = 60;
const KEPT_RATES = 60;


/** The view of one learner. */
export function learnerView(app, main, name) {
  document.title = `${name} – SHARP Serve`;
  const header = headerPart(name);
  const quality = qualityStore(name);
  const parts = [header, learningCard(), classesCard(app, name, quality), networkCard(), tryCard(app, name), memoryCard(), flowCard()];
  const [, learning, classes, network, tryIt, memory, flow] = parts;
  const operate = operateCards(app, name);
  const history = eventsCard();
  let learner = null;
  const refresh = () => {
    for (const part of [...parts, ...operate]) part.update(learner);
  };
  const narrow = h("div", { class: "narrow" }, history.element, operate[1].element);
  main.replaceChildren(header.element, h("div", { class: "columns" },
    h("div", { class: "wide" }, learning.element, classes.element, network.element, h("div", { class: "pair" }, memory.element, flow.element), operate[0].element), narrow));
  // In one column, trying comes before looking; in two, beside it.
  const oneColumn = matchMedia("(max-width: 62rem)");
  const place = () => { if (oneColumn.matches) learning.element.after(tryIt.element); else narrow.prepend(tryIt.element); };
  oneColumn.addEventListener("change", place);
  place();
  quality.onchange = () => classes.redraw();
  const unsubscribe = subscribe(learnerPath(name, "/events"), {
    connection: (state) => app.connected(state),
    failed(error) {
      if (error.needsToken) app.needToken(error);
      else main.replaceChildren(gone(`There is no learner ${name}`));
    },
    gone: () => main.replaceChildren(gone(`${name} was deleted`)),
    state(found) {
      if (learner === null) performance.mark("learner shown"); // for whoever measures how long that takes
      learner = found;
      if (learner.status.quality?.quality) quality.follow(learner.status.model_version);
      refresh();
    },
    status(changed) {
      learner = { ...learner, status: { ...learner.status, ...changed } };
      refresh();
    },
    event: (event) => history.add(event),
  });
  return () => { oneColumn.removeEventListener("change", place); unsubscribe(); };
}

const gone = (text) => h("section", { class: "empty" }, h("h1", {}, text), h("p", {}, h("a", { href: "#/" }, "All learners")));

// ---- the top ------------------------------------------------------------------------------------------------------

function headerPart(name) {
  const state = h("span", {}), about = h("p", { class: "hint" });
  const figures = h("dl", { class: "figures" });
  const element = h("div", { class: "heading" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Learners")),
    h("div", { class: "row" }, h("h1", {}, name), state), about, figures);
  const numbers = {};
  for (const [key, text] of [["classes", "classes"], ["accuracy", "held-out accuracy"], ["version", "version"], ["episodes", "episodes learned"], ["beyond", "examples beyond it"]]) {
    numbers[key] = h("dd", {}, "–");
    figures.append(h("div", { class: "figure" }, numbers[key], h("dt", {}, text)));
  }
  return {
    element,
    update(learner) {
      const status = learner.status, report = status.quality;
      if (state.dataset.seen !== JSON.stringify([status.state, status.backlog.episodes_parked])) {
        state.dataset.seen = JSON.stringify([status.state, status.backlog.episodes_parked]);
        state.replaceChildren(pill(status));
      }
      setText(about, `${shape(learner.input_shape)}, ${learner.label_kind ?? "any"} labels · ${learner.architecture || "no architecture yet"}`);
      setText(numbers.classes, count(learner.classes.length));
      showAccuracy(numbers.accuracy, report);
      setText(numbers.version, status.model_version || "–");
      setText(numbers.episodes, count(status.episodes_learned));
      setText(numbers.beyond, count(status.examples_beyond_version ?? 0));
    },
  };
}

/** The share of held-out examples that are right, and how that changed with the version. */
function showAccuracy(element, report) {
  const now = report?.quality ? report.quality.right / report.quality.examples : null;
  const change = now !== null && report.before ? 100 * (now - report.before.right / report.before.examples) : 0;
  const seen = JSON.stringify([now, change]);
  if (element.dataset.seen === seen) return;
  element.dataset.seen = seen;
  const rounded = Math.abs(change).toFixed(1), rises = change > 0;
  element.replaceChildren(now === null ? "–" : percent(now, 1),
    ...(rounded === "0.0" ? [] : [h("small", { class: rises ? "delta up" : "delta down", title: `Version ${report.before.model_version}: ${percent(report.before.right / report.before.examples, 1)}` },
      h("span", { class: "unseen" }, rises ? " better by " : " worse by "), h("span", { "aria-hidden": "true" }, rises ? "▲ " : "▼ "), rounded)]));
}

// ---- an episode being learned ---------------------------------------------------------------------------------------

function learningCard() {
  const title = h("p", { class: "lead" }), phases = h("div", { class: "phases", role: "img" }), details = h("dl", { class: "facts" });
  const element = card("Learning now", title, phases, details);
  let losses = [], episode = null;
  return {
    element,
    update({ status }) {
      const progress = status.progress, waiting = status.backlog.episodes_waiting;
      element.classList.toggle("busy", status.training_episode !== null);
      if (episode !== status.training_episode) { losses = []; episode = status.training_episode; }
      if (episode === null) {
        phases.hidden = details.hidden = true;
        setText(title, waiting ? `${counted(waiting, "episode")} waiting for the trainer.` : status.model_version
          ? "Nothing to learn: everything that came is known." : "Nothing was learned yet: send the first examples.");
        return;
      }
      phases.hidden = details.hidden = false;
      const whole = progress?.phases ?? 0;
      setText(title, `Episode ${episode}${whole ? `, phase ${Math.max(1, progress.phase)} of ${whole}` : ", being taken in"}`);
      phases.setAttribute("aria-label", `${percent(progress?.fraction ?? 0)} of the episode is learned`);
      keyed(phases, Array.from({ length: Math.max(1, whole) }, (_, i) => i + 1), (i) => i,
        () => h("span", { class: "phase" }, h("span", { class: "part" })),
        (box, i) => {
          const now = progress && i === progress.phase ? (progress.epochs ? Math.max(0, progress.epoch - 1) / progress.epochs : 0) : 0;
          const done = !progress ? 0 : !whole ? progress.fraction : i < progress.phase ? 1 : now;
          box.classList.toggle("now", Boolean(progress) && i === progress.phase);
          box.firstElementChild.style.setProperty("inline-size", `${100 * done}%`);
        });
      if (progress?.loss !== null && progress?.loss !== undefined && losses.at(-1) !== progress.loss) losses = [...losses, progress.loss].slice(-80);
      details.replaceChildren(
        fact("Done", percent(progress?.fraction ?? 0)),
        fact("Loss", losses.length ? [losses.at(-1).toFixed(3), " ", sparkline(losses, { low: Math.min(...losses), label: `The loss so far, now ${losses.at(-1).toFixed(3)}` })] : "–"),
        fact("Speed", progress?.examples_per_second ? rate(progress.examples_per_second) : "–"),
        fact("Left", progress?.seconds_left != null ? duration(progress.seconds_left) : "–"),
        fact("Behind it", counted(Math.max(0, waiting - 1), "episode")));
    },
  };
}

const fact = (name, value, kind = null) => h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value));

// ---- the network --------------------------------------------------------------------------------------------------

function networkCard() {
  const rows = h("div", { class: "layers" }), legend = h("p", { class: "legend" }), note = h("p", { class: "hint" });
  const element = card("Units by rank", rows, legend, note);
  return {
    element,
    update({ status }) {
      element.hidden = status.layers.length === 0;
      const ranks = [...new Set(status.layers.flatMap((layer) => layer.ranks.map((entry) => Math.min(entry.rank, 7))))].sort((a, b) => (b || -1) - (a || -1));
      const seen = JSON.stringify(status.layers);
      if (rows.dataset.seen === seen) return;
      rows.dataset.seen = seen;
      rows.replaceChildren(...status.layers.map((layer) => h("div", { class: "layer" },
        h("span", { class: "layer-name" }, layer.name), rankBar(layer),
        h("span", { class: "amount" }, layer.pretrained ? "pretrained" : `${count(layer.idle)} of ${count(layer.units)} idle`))));
      legend.replaceChildren(...ranks.map((rank) => h("span", { class: `key ${rankClass(rank)}` }, rankName(rank))));
      const idle = status.layers.filter((layer) => !layer.pretrained).map((layer) => layer.idle / layer.units);
      setText(note, idle.length && Math.min(...idle) === 0 ? "A layer has no idle unit left: the network itself takes in nothing new, the learned metric does." : "Older units are frozen: what is new builds on them and never changes them.");
    },
  };
}

// ---- memories, what is waiting, throughput ----------------------------------------------------------------------------

function memoryCard() {
  const facts = h("dl", { class: "facts column" });
  return {
    element: card("Memories", facts),
    update({ status }) {
      const found = status.memories;
      facts.replaceChildren(...(found ? [
        fact("Short-term", [`${counted(found.stm_entries, "example")}, ${bytes(found.stm_bytes)}`, found.stm_bytes_limit ? bar(found.stm_bytes / found.stm_bytes_limit, { label: `${percent(found.stm_bytes / found.stm_bytes_limit)} of the room that there is` }) : null]),
        fact("Long-term", `${counted(found.ltm_entries, "entry", "entries")}, ${bytes(found.ltm_bytes)}`),
        status.damaged_snapshots ? fact("Damaged", h("span", { class: "problem" }, counted(status.damaged_snapshots, "snapshot"))) : null,
      ].filter(Boolean) : [fact("Short-term", "empty"), fact("Long-term", "empty")]));
    },
  };
}

function flowCard() {
  const facts = h("dl", { class: "facts column" });
  const rates = { ingested: [], trained: [], predicted: [] };
  const names = { ingested: "Taken in", trained: "Trained on", predicted: "Predicted" };
  let last = "";
  return {
    element: card("Waiting and throughput", facts),
    update({ status }) {
      if (status.time === last) return;
      last = status.time;
      const backlog = status.backlog;
      for (const key of Object.keys(rates)) {
        rates[key].push(status.throughput[`examples_${key}_per_second`]);
        if (rates[key].length > KEPT_RATES) rates[key].shift();
      }
      facts.replaceChildren(
        fact("To learn", [counted(backlog.examples, "example"), backlog.lag_seconds > 1 ? `, for ${duration(backlog.lag_seconds)}` : "", backlog.bytes ? bar(backlog.bytes / backlog.bytes_limit, { label: `${bytes(backlog.bytes)} of ${bytes(backlog.bytes_limit)}` }) : null]),
        fact("Streams", `${count(backlog.streams)} open`),
        ...Object.keys(rates).map((key) => fact(names[key], h("span", { class: "with-line" }, sparkline(rates[key], { label: `${names[key]}: ${rate(rates[key].at(-1))} now`, high: Math.max(...rates[key], 1) }), rate(rates[key].at(-1))), "rate")));
    },
  };
}

// ---- events -------------------------------------------------------------------------------------------------------

const names = (labels) => (labels?.length ? `: ${labels.slice(0, 6).join(", ")}${labels.length > 6 ? " …" : ""}` : "");
const REASONS = { OPERATOR: "by an operator", FORGOTTEN: "its last class was forgotten", LEARNER_DELETED: "with its learner" };
const SENTENCES = {
  closed: (event) => `Episode ${event.episode} is complete, ${counted(event.examples, "example")}`,
  started: (event) => `Episode ${event.episode} is being learned`,
  learned: (event) => `Episode ${event.episode} is learned as version ${event.model_version}${names(event.new_classes?.length ? event.new_classes : event.classes)}`,
  parked: (event) => `Episode ${event.episode} is parked: ${event.detail || event.reason}`,
  discarded: (event) => `Episode ${event.episode} was discarded ${REASONS[event.reason] ?? ""}`,
};

function eventsCard() {
  const list = h("ol", { class: "events" }), none = h("p", { class: "lead" }, "Nothing happened since the server started.");
  const element = card("What happened", none, h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "List of events" }, list));
  const seen = new Set();
  return {
    element,
    add(event) {
      const key = `${event.id} ${event.time}`;
      if (seen.has(key)) return;
      seen.add(key);
      none.hidden = true;
      list.prepend(h("li", { class: event.kind }, h("span", {}, SENTENCES[event.kind]?.(event) ?? event.kind), " ", timeElement(event.time)));
      while (list.children.length > KEPT_EVENTS) list.lastElementChild.remove();
    },
  };
}
