// What a learner knows: its classes, how well it knows each, and how that went over versions.

import { get, learnerPath } from "./api.js";
import { accuracyChart, bar, sparkline } from "./charts.js";
import { card, count, counted, h, keyed, percent, setText } from "./dom.js";
import { forget } from "./operate.js";

/** From so many classes on, they can be searched and sorted, and scroll within their card. */
const MANY = 13;

const share = (quality) => (quality ? quality.right / quality.examples : null);
const sameLabel = (a, b) => a === b;

/** How good the versions are, asked for once per version. */
export function qualityStore(name) {
  let version = -1;
  const store = {
    versions: [], onchange: () => {},
    async follow(current) {
      if (current === version) return;
      version = current;
      try {
        const found = await get(learnerPath(name, "/quality?page_size=60"));
        store.versions = found.qualities.reverse().map((entry) => ({
          model_version: entry.model_version, accuracy: share(entry),
          byClass: new Map(entry.classes.map((one) => [one.label, share(one)])),
        }));
        store.onchange();
      } catch (error) {
        if (error.status !== 404) version = -1; // a break: asked again with the next state
      }
    },
  };
  return store;
}

const byName = (a, b) => String(a.label).localeCompare(String(b.label), "en", { numeric: true });
const unknownLast = (value) => (value === null ? 2 : value);
const ORDERS = {
  met: ["As they were met", null],
  name: ["By name", byName],
  worst: ["Worst first", (a, b) => unknownLast(share(a.quality)) - unknownLast(share(b.quality)) || byName(a, b)],
  fewest: ["Fewest examples first", (a, b) => a.examples - b.examples || byName(a, b)],
};

/** The card. */
export function classesCard(app, name, quality) {
  const chart = h("div", { class: "chart-place" }), rows = h("tbody", {}), note = h("p", { class: "hint" });
  const caption = h("p", { class: "legend", hidden: true });
  const fallen = h("p", { class: "warning", hidden: true });
  const empty = h("p", { class: "lead" }, "It knows no class yet.");
  const search = h("input", { type: "search", id: "class-search", placeholder: "Find a class", autocomplete: "off", spellcheck: false, oninput: () => drawRows() });
  const order = h("select", { id: "class-order", onchange: () => drawRows() }, Object.entries(ORDERS).map(([key, [text]]) => h("option", { value: key }, text)));
  const found = h("span", { class: "hint", role: "status" });
  const tools = h("div", { class: "finding", hidden: true },
    h("label", { class: "unseen", for: "class-search" }, "Find a class"), search, h("label", { class: "unseen", for: "class-order" }, "Order of the classes"), order, found);
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of classes" },
    h("table", { class: "classes" }, h("thead", {}, h("tr", {},
      h("th", { scope: "col" }, "Class"), h("th", { scope: "col", class: "number" }, "Examples"), h("th", { scope: "col" }, "Held-out accuracy"),
      h("th", { scope: "col" }, "Over versions"), h("th", { scope: "col", class: "number" }, "Memories"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "What to do")))), rows));
  let chosen = null, known = [];

  const drawChart = () => {
    chart.hidden = caption.hidden = quality.versions.length < 2;
    if (chart.hidden) return;
    chart.replaceChildren(accuracyChart(quality.versions, chosen, Math.max(280, Math.min(760, chart.clientWidth || 640))));
    caption.replaceChildren(h("span", { class: "key all" }, "all classes"), chosen === null ? " Choose a class to see it beside them." : h("span", { class: "key chosen" }, String(chosen)));
  };
  const choose = (label) => { chosen = sameLabel(chosen, label) ? null : label; drawChart(); drawRows(); };

  const shown = () => {
    const words = search.value.trim().toLowerCase(), compare = ORDERS[order.value][1];
    const matching = tools.hidden || !words ? known : known.filter((entry) => String(entry.label).toLowerCase().includes(words));
    setText(found, words ? `${count(matching.length)} of ${count(known.length)}` : "");
    return compare && !tools.hidden ? [...matching].sort(compare) : matching;
  };

  const drawRows = () => keyed(rows, shown(), (entry) => JSON.stringify(entry.label), makeRow, fillRow);

  const makeRow = (entry) => h("tr", {},
    h("th", { scope: "row" }, h("button", { type: "button", class: "class-name", onclick: () => choose(entry.label) }, String(entry.label))),
    h("td", { class: "number" }), h("td", {}), h("td", {}), h("td", { class: "number" }),
    h("td", { class: "number" }, h("button", { type: "button", class: "quiet small", "aria-label": `Forget ${entry.label} …`, onclick: (event) => forget(app, name, entry.label, event.currentTarget) }, "Forget …")));

  function fillRow(row, entry) {
    const trend = quality.versions.map((version) => version.byClass.get(entry.label)).filter((value) => value !== undefined);
    const now = share(entry.quality), before = share(entry.quality_before);
    const seen = JSON.stringify([entry, trend, sameLabel(chosen, entry.label)]);
    if (row.dataset.seen === seen) return;
    row.dataset.seen = seen;
    const [label, examples, accuracy, history, memories] = row.children;
    label.firstElementChild.setAttribute("aria-pressed", String(sameLabel(chosen, entry.label)));
    setText(examples, entry.examples ? count(entry.examples) : "–");
    accuracy.replaceChildren(...(now === null ? [h("span", { class: "hint" }, "too few to say")] : [
      h("span", { class: "accuracy" }, bar(now, { before, kind: before !== null && now < before - 0.02 ? "warm" : "", label: `${percent(now)} of ${entry.quality.examples}${before === null ? "" : `, before ${percent(before)}`}` }),
        h("span", { class: "amount" }, percent(now)))]));
    history.replaceChildren(trend.length > 1 ? sparkline(trend, { low: Math.min(0.5, ...trend), high: 1, label: `${entry.label} over ${trend.length} versions, from ${percent(trend[0])} to ${percent(trend.at(-1))}` }) : h("span", { class: "hint" }, "–"));
    setText(memories, count(entry.ltm_entries + entry.stm_entries));
  }

  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) < 1) return;
    width = entry.contentRect.width;
    drawChart();
  }).observe(chart);

  return {
    element: card("What it knows", fallen, chart, caption, tools, table, empty, note),
    redraw() { drawChart(); drawRows(); },
    update(learner) {
      known = learner.classes;
      if (chosen !== null && !known.some((entry) => sameLabel(entry.label, chosen))) { chosen = null; drawChart(); }
      empty.hidden = known.length > 0;
      table.hidden = known.length === 0;
      tools.hidden = known.length < MANY;
      table.classList.toggle("many", known.length >= MANY);
      const report = learner.status.quality, worse = report?.fallen ?? [];
      fallen.hidden = worse.length === 0;
      setText(fallen, worse.length ? `Worse than in the version before: ${worse.map((fall) => `${fall.now.label} (${percent(share(fall.before))} → ${percent(share(fall.now))})`).join(", ")}.` : "");
      const held = report?.quality?.examples;
      setText(note, held ? `Accuracy is measured on ${counted(held, "example")} that each version answers as if it had never learned them.` : "");
      drawRows();
      if (!chart.firstChild) drawChart();
    },
  };
}
