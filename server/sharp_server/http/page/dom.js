// Making and updating elements, and writing numbers for people. No markup is ever made from text.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && typeof value !== "string" && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

const present = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

/** Put other children in the place of those that are there. */
export const replace = (element, ...children) => element.replaceChildren(...present(children));

/** An element of HTML. */
export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

/** An element of SVG. */
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** A part of the page with a title. */
export const card = (title, ...content) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...content);

/** Change a text only where it differs: a screen reader does not read it again. */
export function setText(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}

/** Bring a list of elements in line with items: kept ones stay as they are, with their focus. */
export function keyed(container, items, key, create, update) {
  const old = new Map([...container.children].map((child) => [child.dataset.key, child]));
  let place = container.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let element = old.get(name);
    old.delete(name);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    update?.(element, item);
    if (element === place) place = place.nextElementSibling;
    else container.insertBefore(element, place);
  }
  for (const element of old.values()) element.remove();
}

// ---- numbers for people -------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value < 100000 ? whole.format(Math.round(value)) : compact.format(value));

/** "1 class", "2 classes". */
export const counted = (value, one, many = one + "s") => `${count(value)} ${value === 1 ? one : many}`;

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function rate(value) {
  return `${value >= 100 ? count(value) : value >= 10 ? value.toFixed(0) : value.toFixed(1)}/s`;
}

export function duration(seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** How long ago, in words. */
export function ago(time, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(time).getTime()) / 1000);
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

export const moment = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** A moment that says how long ago it is, and exactly when on hover. */
export const timeElement = (time) => h("time", { datetime: time, title: moment(time) }, ago(time));

/** Let every moment on the page grow older. */
export function refreshTimes(root = document) {
  for (const element of root.querySelectorAll("time[datetime]")) setText(element, ago(element.getAttribute("datetime")));
}

export const shape = (sizes) => (!sizes ? "inputs not settled yet" : sizes.length === 1 ? `vectors of ${sizes[0]}` : `images ${sizes[2]}×${sizes[1]}${sizes[0] === 1 ? "" : `, ${sizes[0]} channels`}`);
