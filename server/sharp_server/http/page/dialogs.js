// Questions before what can't be undone, the token, and short messages.

import { h } from "./dom.js";

function opened(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue); }));
}

const boxesOf = (options) => Object.entries(options).map(([name, option]) => [name, h("input", { type: "checkbox", name, checked: option.checked ?? false }), option.text]);
const checksOf = (boxes) => boxes.map(([, box, label]) => h("label", { class: "check" }, box, h("span", {}, label)));
const chosenOf = (boxes) => Object.fromEntries(boxes.map(([name, box]) => [name, box.checked]));
const cancel = () => h("button", { value: "", class: "quiet", formnovalidate: true }, "Cancel");

/**
 * Ask first. `action` names what will happen, `options` are choices on the way: {name: {text, checked}}.
 * Gives null if it was called off, or else which options were chosen.
 */
export async function confirm({ title, text, action, options = {}, danger = true }) {
  const boxes = boxesOf(options);
  const dialog = h("dialog", { class: "question", "aria-labelledby": "question-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "question-title" }, title),
      [text].flat().map((line) => h("p", {}, line)),
      checksOf(boxes),
      h("div", { class: "actions" },
        h("button", { value: "", class: "quiet", autofocus: true }, "Cancel"),
        h("button", { value: "yes", class: danger ? "danger" : "primary" }, action))));
  return (await opened(dialog)) === "yes" ? chosenOf(boxes) : null;
}

/** Ask for a token. Gives null if there is none. */
export async function askForToken(why) {
  const field = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, autofocus: true, id: "token" });
  const dialog = h("dialog", { class: "question", "aria-labelledby": "token-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "token-title" }, "A token, please"),
      h("p", { role: why ? "alert" : null, class: why ? "problem" : null }, why || "This server answers to those who have a token. Its operator gives them out."),
      h("label", { class: "field", for: "token" }, "Token"), field,
      h("p", { class: "hint" }, "It is kept in this tab only, until you close it."),
      h("div", { class: "actions" },
        cancel(),
        h("button", { value: "yes", class: "primary" }, "Enter"))));
  return (await opened(dialog)) === "yes" ? field.value.trim() : null;
}

/** Ask for one value. Gives null if it was called off. */
export async function askFor({ title, text, label, action, value = "", list = [] }) {
  const field = h("input", { name: "value", value, autofocus: true, id: "asked", maxlength: "1000", autocomplete: "off", list: list.length ? "asked-list" : null });
  const dialog = h("dialog", { class: "question", "aria-labelledby": "asked-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "asked-title" }, title),
      text ? h("p", {}, text) : null,
      h("label", { class: "field", for: "asked" }, label), field,
      list.length ? h("datalist", { id: "asked-list" }, list.map((entry) => h("option", { value: String(entry) }))) : null,
      h("div", { class: "actions" },
        h("button", { value: "", class: "quiet", formnovalidate: true, type: "button", onclick: () => dialog.close("") }, "Cancel"),
        h("button", { value: "yes", class: "primary" }, action))));
  return (await opened(dialog)) === "yes" ? field.value : null;
}

/**
 * Ask for a file, and for a name where `label` names one; `options` are choices as for `confirm`.
 * Gives null if it was called off, or else {file, name, options}.
 */
export async function askForFile({ title, text, accept, action, label = null, options = {} }) {
  const file = h("input", { type: "file", name: "file", id: "asked-file", accept, required: true, autofocus: true });
  const name = label ? h("input", { name: "name", id: "asked-name", required: true, maxlength: "63", autocomplete: "off", spellcheck: false }) : null;
  const boxes = boxesOf(options);
  const dialog = h("dialog", { class: "question", "aria-labelledby": "file-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "file-title" }, title), h("p", {}, text),
      h("div", {}, h("label", { class: "field", for: "asked-file" }, "File"), file),
      name ? h("div", {}, h("label", { class: "field", for: "asked-name" }, label), name) : null,
      checksOf(boxes),
      h("div", { class: "actions" }, cancel(), h("button", { value: "yes", class: "primary" }, action))));
  return (await opened(dialog)) === "yes" ? { file: file.files[0], name: name?.value.trim() ?? "", options: chosenOf(boxes) } : null;
}

/** A short message that goes by itself. */
export function toast(text, kind = "good") {
  const element = h("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 9000 : 5000);
}

/** Do something, and say so if it fails; the button waits meanwhile. */
export async function attempt(button, work) {
  if (button) button.disabled = true;
  try {
    return await work();
  } catch (error) {
    toast(error.message.charAt(0).toUpperCase() + error.message.slice(1) + ".", "bad");
    return undefined;
  } finally {
    if (button) button.disabled = false;
  }
}
