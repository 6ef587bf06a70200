// Small charts in SVG. Each says in words what it shows, for those who can't see it.

import { h, s, percent, counted } from "./dom.js";

const pointsOf = (values, width, height, low, high) => values.map((value, i) => {
  const x = values.length === 1 ? width / 2 : (i * width) / (values.length - 1);
  return [x, height - ((value - low) / (high - low || 1)) * height];
});

const lineOf = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

/** A line without axes, of values since a while ago. */
export function sparkline(values, { label, low = 0, high = Math.max(...values, 1e-9), width = 96, height = 22, last = true } = {}) {
  const points = pointsOf(values, width - 6, height - 6, low, high).map(([x, y]) => [(values.length === 1 ? width - 6 : x) + 3, y + 3]);
  const [endX, endY] = points.at(-1) ?? [0, 0];
  return s("svg", { class: "sparkline", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    values.length > 1 ? s("polyline", { points: lineOf(points) }) : null,
    last && values.length ? s("circle", { cx: endX, cy: endY, r: 2.4 }) : null);
}

/** A share as a bar. */
export function bar(share, { label, kind = "", before = null } = {}) {
  const part = h("span", { class: "part" });
  part.style.setProperty("inline-size", `${Math.max(0, Math.min(1, share)) * 100}%`);
  const mark = before === null ? null : h("span", { class: "mark" });
  mark?.style.setProperty("inset-inline-start", `${before * 100}%`);
  return h("span", { class: `bar ${kind}`, role: "img", "aria-label": label }, part, mark);
}

/** Accuracy over versions: all classes together, and the one that was chosen; as wide as its place, in pixels. */
export function accuracyChart(versions, chosen, width) {
  const height = 180, left = 50, right = 14, top = 12, bottom = 26;
  const inner = [width - left - right, height - top - bottom];
  const values = versions.map((entry) => entry.accuracy);
  const ofClass = chosen === null ? [] : versions.map((entry) => entry.byClass.get(chosen) ?? null);
  const lowest = Math.min(...values, ...ofClass.filter((value) => value !== null), 1);
  const low = Math.max(0, Math.floor(lowest * 5 - 0.5) / 5);
  const x = (i) => left + (versions.length === 1 ? inner[0] / 2 : (i * inner[0]) / (versions.length - 1));
  const y = (value) => top + (1 - (value - low) / (1 - low || 1)) * inner[1];
  const steps = low < 0.5 ? 0.2 : 0.1;
  const lines = [];
  for (let value = 1; value >= low - 1e-9; value -= steps) lines.push(value);
  const every = Math.ceil(versions.length / (width / 64));
  const series = (found, kind, name) => {
    const points = found.map((value, i) => (value === null ? null : [x(i), y(value), value, i]));
    const runs = points.reduce((all, point) => { if (point) all.at(-1).push(point); else all.push([]); return all; }, [[]]);
    return [
      runs.filter((run) => run.length > 1).map((run) => s("polyline", { class: kind, points: lineOf(run) })),
      points.filter(Boolean).map(([cx, cy, value, i]) => s("circle", { class: kind, cx, cy, r: 4 }, s("title", {}, `${name}, version ${versions[i].model_version}: ${percent(value, 1)}`))),
    ];
  };
  const newest = versions.at(-1);
  const words = `Accuracy over ${counted(versions.length, "version")}: now ${percent(newest.accuracy, 1)}` + (chosen !== null && newest.byClass.has(chosen) ? `, class ${chosen} ${percent(newest.byClass.get(chosen), 1)}` : "");
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
    lines.map((value) => [
      s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, percent(value)),
    ]),
    versions.map((entry, i) => (i % every && i !== versions.length - 1 ? null : s("text", { x: x(i), y: height - 6, "text-anchor": "middle" }, `v${entry.model_version}`))),
    series(values, "all", "All classes"),
    chosen === null ? null : series(ofClass, "chosen", String(chosen)));
}

const OLDEST = 7;
export const rankClass = (rank) => `rank-${Math.min(rank, OLDEST)}`;
export const rankName = (rank) => (rank === 0 ? "idle" : rank === 1 ? "in training" : rank === 2 ? "newest episode" : counted(rank - 2, "episode") + " older");

/** The units of a layer by rank, idle ones last. */
export function rankBar(layer) {
  const order = [...layer.ranks].sort((a, b) => (b.rank || -1) - (a.rank || -1));
  const ranks = order.length ? order : [{ rank: OLDEST, units: layer.frozen }, { rank: 0, units: layer.units - layer.frozen }];
  const words = ranks.filter((entry) => entry.units).map((entry) => `${entry.units} ${rankName(entry.rank)}`).join(", ");
  let place = 0;
  return s("svg", { class: "ranks", viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img", "aria-label": `${layer.name}: ${words}` },
    ranks.map((entry) => {
      const width = (1000 * entry.units) / layer.units;
      const part = s("rect", { class: rankClass(entry.rank), x: place, y: 0, width, height: 20 }, s("title", {}, `${counted(entry.units, "unit")}: ${rankName(entry.rank)}`));
      place += width;
      return part;
    }));
}
