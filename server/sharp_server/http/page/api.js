// Talking with the server: JSON, forms, files and events, with the token of this tab and the server's own reasons.

const KEY = "sharp-token";

/** Why a request failed, as the server says. */
export class ApiError extends Error {
  constructor(status, content) {
    super(content.error ?? `the server answered ${status}`);
    this.status = status;
    this.reason = content.reason ?? "";
    this.metadata = content.metadata ?? {};
  }

  /** Whether another token would help. */
  get needsToken() { return ["TOKEN_MISSING", "TOKEN_INVALID", "ROLE_MISSING"].includes(this.reason); }
}

export const token = {
  get() { return sessionStorage.getItem(KEY) ?? ""; },
  set(value) { if (value) sessionStorage.setItem(KEY, value); else sessionStorage.removeItem(KEY); },
};

function headers(more = {}) {
  const given = token.get();
  return given ? { Authorization: `Bearer ${given}`, ...more } : more;
}

async function failed(response) {
  let content = {};
  try { content = await response.json(); } catch { /* not ours: a proxy's page perhaps */ }
  return new ApiError(response.status, content);
}

async function send(method, path, options = {}) {
  let response;
  try {
    response = await fetch(path, { method, cache: "no-store", ...options, headers: headers(options.headers) });
  } catch {
    throw new ApiError(0, { error: "the server does not answer", reason: "UNREACHABLE" });
  }
  if (!response.ok) throw await failed(response);
  return response;
}

export const get = async (path) => (await send("GET", path)).json();
export const remove = async (path) => (await send("DELETE", path)).json();
export const postForm = async (path, form) => (await send("POST", path, { body: form })).json();
export const post = async (path, content = {}) =>
  (await send("POST", path, { body: JSON.stringify(content), headers: { "Content-Type": "application/json" } })).json();

/** A file as it is, without a form around it. */
export const postFile = async (path, file) =>
  (await send("POST", path, { body: file, headers: { "Content-Type": "application/octet-stream" } })).json();

/** A file that is saved under a name. */
export async function download(path, name) {
  const address = URL.createObjectURL(await (await send("GET", path)).blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/** The path of a learner, and of something below it. */
export const learnerPath = (name, rest = "") => `/api/learners/${encodeURIComponent(name)}${rest}`;

// ---- events -------------------------------------------------------------------------------------------------------

const SHORTEST = 500;
const LONGEST = 5000;
const SILENT = 10000;

/**
 * Server-sent events for as long as they are wanted: they come back by themselves after a break, with what was missed,
 * and pause while nobody looks. `on` has a function for each kind of event, `connection(state)` and `failed(error)`.
 */
export function subscribe(path, on) {
  let stopped = false, last = "", wait = SHORTEST, current = null, timer = 0;

  async function run() {
    if (stopped || document.hidden || current) return;
    const abort = (current = new AbortController());
    let watchdog = 0;
    const alive = () => { clearTimeout(watchdog); watchdog = setTimeout(() => abort.abort(), SILENT); };
    try {
      alive();
      const response = await fetch(path, { cache: "no-store", signal: abort.signal, headers: headers(last ? { "Last-Event-ID": last } : {}) });
      if (!response.ok) {
        const error = await failed(response);
        if (error.needsToken || error.status === 404) { stopped = true; on.failed?.(error); return; }
        throw error;
      }
      for await (const event of events(response.body, alive)) {
        wait = SHORTEST;
        on.connection?.("live");
        if (event.id) last = event.id;
        on[event.kind]?.(event.data);
        if (event.kind === "gone") { stopped = true; return; }
      }
    } catch { /* cut off: tried again below */ } finally {
      clearTimeout(watchdog);
      current = null;
      if (!stopped && !document.hidden) {
        on.connection?.("lost");
        timer = setTimeout(run, wait);
        wait = Math.min(LONGEST, wait * 1.6);
      }
    }
  }

  function look() {
    clearTimeout(timer);
    if (document.hidden) current?.abort();
    else { wait = SHORTEST; run(); }
  }

  document.addEventListener("visibilitychange", look);
  run();
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
    current?.abort();
  };
}

async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    buffer += value;
    for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
      const fields = Object.fromEntries(buffer.slice(0, end).split("\n").map((line) => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)];
      }));
      if (fields.event) yield { kind: fields.event, id: fields.id ?? "", data: JSON.parse(fields.data) };
    }
  }
}
