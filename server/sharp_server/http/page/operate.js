// What an operator may do: snapshots, undo, forget, parked episodes, delete. Each asks first where nothing brings it back.

import { download, get, learnerPath, post, postFile, remove } from "./api.js";
import { askFor, askForFile, attempt, confirm, toast } from "./dialogs.js";
import { bytes, count, counted, h, keyed, setText, timeElement } from "./dom.js";

const ORIGINS = { automatic: "by itself", requested: "on request", imported: "imported" };

/** Make a learner forget a class, after a question. */
export async function forget(app, name, label, button) {
  const choice = await confirm({
    title: `Forget ${label}?`,
    text: [`Everything ${name} remembers of ${label} is deleted: its memories, its examples that wait, and every answer that would name it.`, "This can't be undone."],
    action: `Forget ${label}`,
    options: { snapshots: { text: "Delete older snapshots that hold it, too", checked: true } },
  });
  if (!choice) return;
  const done = await attempt(button, () => post(learnerPath(name, "/forget"), { label, older_snapshots: choice.snapshots ? "delete" : "keep" }));
  if (done) toast(`${label} is forgotten: ${counted(done.ltm_entries + done.stm_entries, "memory", "memories")} deleted${done.snapshots_holding.length ? `, ${counted(done.snapshots_holding.length, "snapshot")} still hold it` : ""}.`);
}

const SNAPSHOT_FILE = { accept: ".safetensors", action: "Import" };
const importPath = (name, restore) => learnerPath(name, `/snapshots/import?restore=${restore}`);

/** Make a learner from the file of a snapshot. */
export async function importLearner(button) {
  const asked = await askForFile({ ...SNAPSHOT_FILE, title: "Import a learner", text: "A new learner is made from the file of a snapshot, and knows what it holds at once.", label: "Its name" });
  if (!asked) return;
  const done = await attempt(button, () => postFile(importPath(asked.name, false), asked.file));
  if (!done) return;
  toast(done.created ? `${asked.name} knows ${counted(done.snapshot.classes.length, "class", "classes")}.` : `${asked.name} was there already: the file is among its snapshots.`);
  location.hash = `#/learners/${encodeURIComponent(asked.name)}`;
}

/** The cards: snapshots, and episodes that could not be learned. */
export function operateCards(app, name) {
  return [snapshotsCard(name), attentionCard(name)];
}

function snapshotsCard(name) {
  const rows = h("tbody", {}), none = h("p", { class: "lead" }, "No snapshot yet: there is one after each episode.");
  const table = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Table of snapshots" }, h("table", { class: "snapshots" }, h("thead", {}, h("tr", {},
    h("th", { scope: "col" }, "Version"), h("th", { scope: "col" }, "Made"), h("th", { scope: "col", class: "number" }, "Classes"), h("th", { scope: "col", class: "number" }, "Size"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "What to do")))), rows));
  const make = h("button", { type: "button", class: "primary" }, "Make a snapshot");
  const take = h("button", { type: "button", class: "quiet" }, "Import …");
  const undo = h("button", { type: "button", class: "quiet" }, "Undo …");
  let version = -1, serving = 0;

  const load = async () => {
    const found = await get(learnerPath(name, "/snapshots?page_size=100"));
    none.hidden = found.snapshots.length > 0;
    table.hidden = !none.hidden;
    keyed(rows, found.snapshots, (snapshot) => snapshot.id, (snapshot) => h("tr", {},
      h("th", { scope: "row" }, `v${snapshot.model_version}`, snapshot.note ? h("span", { class: "note" }, snapshot.note) : null, snapshot.damaged ? h("span", { class: "problem" }, " damaged") : null),
      h("td", {}, timeElement(snapshot.create_time), h("span", { class: "note" }, ORIGINS[snapshot.origin])),
      h("td", { class: "number" }, count(snapshot.classes.length)), h("td", { class: "number" }, bytes(snapshot.size_bytes)),
      h("td", { class: "buttons" },
        h("button", { type: "button", class: "quiet small", "aria-label": `Restore version ${snapshot.model_version} …`, disabled: snapshot.damaged, onclick: (event) => restore(snapshot, event.currentTarget) }, "Restore …"),
        h("button", { type: "button", class: "quiet small", "aria-label": `Download version ${snapshot.model_version}`, onclick: (event) => attempt(event.currentTarget, () => download(learnerPath(name, `/snapshots/${snapshot.id}/file`), `${name}-${snapshot.id}.safetensors`)) }, "Download"),
        h("button", { type: "button", class: "quiet small", "aria-label": `Delete the snapshot of version ${snapshot.model_version} …`, onclick: (event) => drop(snapshot, event.currentTarget) }, "Delete …"))));
  };

  async function restore(snapshot, button) {
    const choice = await confirm({
      title: `Go back to version ${snapshot.model_version}?`,
      text: [`${name} becomes what it was then, under a new version number. What it learned since is unknown to it, and those examples are gone.`],
      action: "Restore", options: { forgotten: { text: "Bring back classes that were forgotten since" } },
    });
    if (!choice) return;
    const done = await attempt(button, () => post(learnerPath(name, `/snapshots/${snapshot.id}/restore`), { with_forgotten: choice.forgotten }));
    if (done) toast(`Restored as version ${done.model_version}, ${counted(done.episodes_undone, "episode")} undone.`);
  }

  async function drop(snapshot, button) {
    if (!(await confirm({ title: `Delete the snapshot of version ${snapshot.model_version}?`, text: "Nobody can go back to it then.", action: "Delete" }))) return;
    const done = await attempt(button, () => remove(learnerPath(name, `/snapshots/${snapshot.id}`)));
    if (done) { toast(`${bytes(done.size_bytes)} are free again.`); await load(); }
  }

  make.addEventListener("click", async () => {
    const note = await askFor({ title: "Make a snapshot", text: `Version ${serving} is kept until you delete it.`, label: "A note, if you like", action: "Make it" });
    if (note === null) return;
    const made = await attempt(make, () => post(learnerPath(name, "/snapshots"), { note }));
    if (made) { toast(`Version ${made.model_version} is kept.`); await load(); }
  });

  take.addEventListener("click", async () => {
    const asked = await askForFile({ ...SNAPSHOT_FILE, title: `Import a snapshot into ${name}`, text: "The file of a snapshot, made here or elsewhere, is kept beside the others.",
      options: { restore: { text: `Restore it at once: ${name} becomes what is in the file, and what it learned since is unknown to it` } } });
    if (!asked) return;
    const done = await attempt(take, () => postFile(importPath(name, asked.options.restore), asked.file));
    if (done) { toast(done.model_version ? `The file is restored as version ${done.model_version}.` : "The file is among the snapshots."); await load(); }
  });

  undo.addEventListener("click", async () => {
    const preview = await attempt(undo, () => post(learnerPath(name, "/undo"), { model_version: serving, preview: true }));
    if (!preview) return;
    const lost = preview.episodes_undone ? ` ${counted(preview.episodes_undone, "episode")} will be unknown to it, and those examples are gone.` : "";
    if (!(await confirm({ title: `Undo version ${serving}?`, text: `${name} goes back to version ${preview.restored_model_version}, under a new number.${lost}`, action: "Undo" }))) return;
    const done = await attempt(undo, () => post(learnerPath(name, "/undo"), { model_version: serving }));
    if (done) toast(`Version ${done.restored_model_version} serves again, as version ${done.model_version}.`);
  });

  return {
    element: h("section", { class: "card", "aria-label": "Snapshots" }, h("div", { class: "row" }, h("h2", {}, "Snapshots"), h("span", { class: "actions" }, undo, take, make)), none, table),
    update({ status }) {
      serving = status.model_version;
      make.disabled = !serving;
      undo.hidden = status.quality === undefined; // a server that knows no step back
      undo.disabled = serving < 2;
      if (version !== serving) { version = serving; load().catch(() => { version = -1; }); }
    },
  };
}

function attentionCard(name) {
  const list = h("ul", { class: "parked" }), title = h("h2", {}, "Parked episodes"), none = h("p", { class: "lead" }, "None: every episode could be learned.");
  const removeButton = h("button", { type: "button", class: "quiet danger-text" }, "Delete this learner …");
  let seen = -1;

  const load = async () => {
    const found = await get(learnerPath(name, "/parked?page_size=100"));
    none.hidden = found.episodes.length > 0;
    keyed(list, found.episodes, (episode) => `${episode.episode} ${episode.park_time}`, (episode) => h("li", {},
      h("b", {}, `Episode ${episode.episode}`), ` · ${counted(episode.examples, "example")} of ${episode.classes.slice(0, 6).join(", ")} · `, timeElement(episode.park_time),
      h("p", { class: "problem" }, episode.detail || episode.reason),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "quiet small", onclick: async (event) => { if (await attempt(event.currentTarget, () => post(learnerPath(name, `/parked/${episode.episode}/retry`)))) toast(`Episode ${episode.episode} is tried again.`); } }, "Try again"),
        h("button", { type: "button", class: "quiet small", onclick: (event) => discard(episode, event.currentTarget) }, "Discard …"))));
  };

  async function discard(episode, button) {
    if (!(await confirm({ title: `Discard episode ${episode.episode}?`, text: `Its ${counted(episode.examples, "example")} are deleted and never learned.`, action: "Discard" }))) return;
    if (await attempt(button, () => post(learnerPath(name, `/parked/${episode.episode}/discard`)))) toast(`Episode ${episode.episode} is gone.`);
  }

  removeButton.addEventListener("click", async () => {
    if (!(await confirm({ title: `Delete ${name}?`, text: ["The learner, all it knows, and all its snapshots are deleted.", "This can't be undone."], action: `Delete ${name}` }))) return;
    if (await attempt(removeButton, () => remove(learnerPath(name)))) { toast(`${name} is gone.`); location.hash = "#/"; }
  });

  return {
    element: h("section", { class: "card", "aria-label": "Parked episodes" }, title, none, list, h("div", { class: "actions end" }, removeButton)),
    update({ status }) {
      const parked = status.backlog.episodes_parked;
      setText(title, parked ? `Parked episodes (${parked})` : "Parked episodes");
      if (parked !== seen) { seen = parked; load().catch(() => { seen = -1; }); }
    },
  };
}
