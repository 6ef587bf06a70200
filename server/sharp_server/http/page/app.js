// The page: which view is shown, whether the server is there, and who is asking.

import { get, token } from "./api.js";
import { askForToken } from "./dialogs.js";
import { h, refreshTimes, setText } from "./dom.js";
import { learnerView } from "./learner.js";
import { labellerView, overviewView } from "./overview.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const signOut = document.getElementById("sign-out");

const app = {
  /** What the server said about whoever asks. */
  access: { version: "", token_needed: false, roles: [] },
  /** Whether the one who asks may do something. */
  may(role) { return this.access.roles.includes(role); },
  /** Show whether events come. */
  connected(state) {
    connection.dataset.state = state;
    setText(connection, { live: "Live", lost: "Reconnecting …", "": "" }[state]);
  },
  /** The token does not do: ask for another one and begin again. */
  async needToken(error) {
    const why = error.reason === "TOKEN_MISSING" ? "" : error.reason === "ROLE_MISSING"
      ? `That token does not have the role ${error.metadata.role ?? ""}.` : "The server does not know that token.";
    const given = await askForToken(why);
    if (given === null) { this.locked(); return; }
    token.set(given);
    await start();
  },
  /** Nobody is let in. */
  locked() {
    leave();
    main.replaceChildren(h("section", { class: "empty" },
      h("h1", {}, "Locked"),
      h("p", {}, "This server answers to those who have a token."),
      h("button", { class: "primary", type: "button", onclick: () => this.needToken({ reason: "TOKEN_MISSING" }) }, "Enter a token")));
  },
};

let leave = () => {};

function show() {
  leave();
  leave = () => {};
  app.connected("");
  const [, kind, name] = location.hash.match(/^#\/(learners)\/(.+)$/) ?? [];
  if (!app.may("admin")) leave = labellerView(app, main, name ? decodeURIComponent(name) : "");
  else if (kind) leave = learnerView(app, main, decodeURIComponent(name));
  else leave = overviewView(app, main);
  scrollTo(0, 0);
}

async function start() {
  try {
    app.access = await get("/api/access");
  } catch {
    app.connected("lost");
    setTimeout(start, 1000);
    return;
  }
  signOut.hidden = !token.get();
  if (app.access.token_needed && app.access.roles.length === 0) {
    await app.needToken({ reason: token.get() ? "TOKEN_INVALID" : "TOKEN_MISSING" });
    return;
  }
  show();
}

addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
signOut.addEventListener("click", () => { token.set(""); leave(); start(); });
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("sharp-theme", root.dataset.theme); } catch { /* not kept, then */ }
});
setInterval(refreshTimes, 5000);
start();
