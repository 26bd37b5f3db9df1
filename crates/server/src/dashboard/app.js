// The dashboard: pages rendered from the public API, and rendered again on every event.
// No value is ever inserted as markup: whatever a name holds, it stays text.

const main = document.querySelector("main");
const dialog = document.querySelector("dialog");
const live = document.querySelector(".live");

// The logged-in principal. Actions it may not take are hidden; the daemon authorises every request anyway.
let who = null;
const may = (role) => {
  const order = Object.values(ROLE);
  return order.indexOf(who?.role) >= order.indexOf(role) && (role !== ROLE.ADMIN || !(who.namespace || who.deployment));
};

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "onclick" || name === "onsubmit") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

class Refused extends Error {
  constructor(status, envelope) {
    super(envelope.message ?? `the daemon answers ${status}`);
    this.status = status;
    this.code = envelope.code ?? "unclear";
    this.hint = envelope.details?.hint;
  }
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { "x-longshore": "1", "content-type": "application/json" } });
  const text = await answer.text();
  let value = {};
  try { value = text ? JSON.parse(text) : {}; } catch { value = { message: text }; }
  if (!answer.ok) throw new Refused(answer.status, value);
  return value;
}

// Every word that the API uses for a state, a health, an intent, a status or an outcome, in one table.
const STATE = Object.freeze({
  READY: "ready", SUSPECT: "suspect", DOWN: "down", DEGRADED: "degraded",
  ACTIVE: "active", PAUSED: "paused", DRAINING: "draining",
  PENDING: "pending", PULLING: "pulling", STARTING: "starting", RUNNING: "running", FAILED: "failed", COMPLETED: "completed", LOST: "lost",
  PROGRESSING: "progressing", IN_PROGRESS: "in_progress", AWAITING_PROMOTION: "awaiting_promotion", ABORTED: "aborted",
  DONE: "done", REFUSED: "refused",
});
// The colour of each word; a word of a newer server is shown without one.
const TONE = Object.freeze(Object.fromEntries([
  ["good", [STATE.READY, STATE.ACTIVE, STATE.RUNNING, STATE.COMPLETED, STATE.DONE]],
  ["busy", [STATE.SUSPECT, STATE.DEGRADED, STATE.PROGRESSING, STATE.PENDING, STATE.PULLING, STATE.STARTING, STATE.DRAINING, STATE.PAUSED,
    STATE.IN_PROGRESS, STATE.AWAITING_PROMOTION]],
  ["bad", [STATE.DOWN, STATE.FAILED, STATE.LOST, STATE.ABORTED, STATE.REFUSED]],
].flatMap(([tone, words]) => words.map((word) => [word, tone]))));
const ROLE = Object.freeze({ VIEW: "view", DEPLOY: "deploy", ADMIN: "admin" });
const word = (text) => h("span", { class: `word ${TONE[text] ?? "quiet"}` }, text);
const link = (to, text) => h("a", { href: `/ui/${to}` }, text);
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
const when = (ms) => (ms ? new Date(ms).toLocaleTimeString() : "");
const part = encodeURIComponent;
const percent = (millionths) => `${Math.round(millionths / 10000)} %`;
const moment = (ms) => (ms ? new Date(ms).toLocaleString() : "");
const printed = (namespace, name) => (namespace && namespace !== "default" ? `${namespace}.${name}` : name);
const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// A name, a bar and a number: what is reserved, and what the machine measures as in use.
function meter(name, value, most, text) {
  return h("div", { class: "meter" }, h("span", {}, name),
    h("progress", { value: String(value), max: String(Math.max(most, 1)), "aria-label": `${name}: ${text}` }), h("span", { class: "figure" }, text));
}
function meters(node) {
  const load = node.load;
  return h("div", { class: "meters" },
    meter("memory reserved", node.memory_used_bytes, node.memory_bytes, `${(node.memory_used_bytes / 2 ** 30).toFixed(1)} of ${gib(node.memory_bytes)}`),
    load ? [meter("memory in use", load.memory_millionths, 1e6, percent(load.memory_millionths)),
      meter(`${node.cpu_millis / 1000} cores in use`, load.cpu_millionths, 1e6, percent(load.cpu_millionths))]
      : h("span", { class: "quiet" }, "use not measured yet"));
}

function table(heads, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ") }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    // On a phone each row is a card, and each cell has a label.
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", {
      class: (cell.textContent ?? cell).length > 60 ? "wide" : cell === "" ? "empty" : null, "data-label": heads[at] || null }, cell)))))));
}

function replicaTable(replicas) {
  return table(["Replica", "State", "Node", "Revision", "Restarts", "Why"], replicas.map((it) => [
    link(`replicas/${part(it.id)}`, it.id), word(it.state), it.node ? link(`nodes/${part(it.node)}`, it.node) : "",
    it.revision ? String(it.revision) : "", String(it.restarts), it.code ?? "",
  ]), "no replicas");
}

const running = (deployment) => deployment.services.reduce(
  (sum, service) => [sum[0] + service.running, sum[1] + service.desired - service.completed], [0, 0]);

const pages = {
  async overview() {
    const [deployments, pending] = await Promise.all([ask("/v1/deployments"), ask("/v1/pending")]);
    const nodes = await ask("/v1/nodes").catch((error) => { if (error.status === 403) return null; throw error; });
    return [
      h("h1", {}, "Overview"),
      pending.length ? h("p", {}, link("pending", `${pending.length} ${pending.length === 1 ? "service waits" : "services wait"} for a node`)) : null,
      h("h2", {}, "Deployments"),
      deployments.length ? h("div", { class: "cards" }, deployments.map((it) => {
        const [runs, desired] = running(it);
        return h("article", { class: "card" },
          h("div", { class: "row" }, h("h3", {}, link(`deployments/${part(it.namespace)}/${part(it.name)}`, printed(it.namespace, it.name))), word(it.status)),
          h("progress", { value: String(runs), max: String(Math.max(desired, 1)), "aria-label": `${runs} of ${desired} running` }),
          h("div", { class: "quiet" }, `${runs} of ${desired} running, revision ${it.revision}`),
          it.reasons.length ? h("div", { class: "quiet" }, it.reasons.join(", ")) : null);
      })) : h("p", { class: "quiet" }, "nothing is deployed; try ", h("code", {}, "longshore apply -f compose.yaml")),
      nodes ? h("h2", {}, "Nodes") : null,
      nodes ? h("div", { class: "cards" }, nodes.map((it) => h("article", { class: "card" },
        h("div", { class: "row" }, h("h3", {}, link(`nodes/${part(it.name)}`, it.name)), word(it.health),
          it.intent === STATE.ACTIVE ? null : word(it.intent)),
        meters(it), h("div", { class: "quiet" }, many(it.replicas, "replica"))))) : null,
    ];
  },

  async node(name) {
    const [node, replicas] = await Promise.all([ask(`/v1/nodes/${part(name)}`), ask("/v1/replicas")]);
    const tell = (what, text, path) => confirmed(text, what, () => ask(`/v1/nodes/${part(name)}/${path}`, { method: "POST", body: "{}" }));
    return [
      h("h1", {}, node.name),
      h("div", { class: "row" }, word(node.health), word(node.intent), h("span", { class: "quiet" }, `since ${when(node.health_since_ms)}`)),
      h("p", { class: "quiet" }, `${node.os}/${node.arch}, ${node.role}, drivers: ${node.drivers.join(", ") || "none"}`),
      h("div", { class: "card" }, meters(node)),
      Object.keys(node.labels).length ? h("p", { class: "quiet" }, Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join("  ")) : null,
      !may(ROLE.ADMIN) ? null : h("div", { class: "row" },
        node.intent === STATE.ACTIVE
          ? [tell("Drain", `Everything on ${name} is started elsewhere first, then stopped here.`, "drain"), tell("Pause", `${name} gets no new work.`, "pause")]
          : tell("Activate", `${name} takes new work again.`, "activate")),
      node.drain ? [h("h2", {}, "Drain"), word(node.drain.outcome), table(["Still here", "Why"], node.drain.left.map((it) => [it.replica, it.why]), "nothing is left here")] : null,
      h("h2", {}, "Replicas"), replicaTable(replicas.filter((it) => it.node === name)),
    ];
  },

  async deployment(namespace, name) {
    const path = `/v1/deployments/${part(name)}`, scope = `?namespace=${part(namespace)}`;
    const [it, all, waits] = await Promise.all([ask(path + scope), ask("/v1/replicas"), ask("/v1/pending")]);
    const mine = (row) => row.namespace === namespace && row.deployment === name;
    const rollout = it.rollout;
    const post = (what, text, word, body = {}) => confirmed(text, what, () => ask(`${path}/${word}${scope}`, { method: "POST", body: JSON.stringify(body) }));
    return [
      h("h1", {}, name),
      h("div", { class: "row" }, word(it.status), h("span", { class: "quiet" }, `revision ${it.revision}`), ...it.reasons.map((reason) => h("span", {}, reason))),
      !may(ROLE.DEPLOY) ? null : h("div", { class: "row" },
        it.revisions.length > 1 ? post("Roll back", "The previous revision is rolled out, step by step.", "rollback") : null,
        rollout?.state === STATE.AWAITING_PROMOTION ? post("Promote", "The canary replicas are healthy; the rest of the rollout continues.", "promote") : null,
        rollout?.state === STATE.IN_PROGRESS ? post("Pause", "The rollout stops after the current step.", "pause") : null,
        rollout?.state === STATE.PAUSED ? post("Resume", "The rollout continues.", "resume") : null),
      rollout ? [h("h2", {}, "Rollout"), h("div", { class: "row", id: "rollout" }, word(rollout.state),
        h("span", {}, rollout.from === rollout.to ? `replicas of revision ${rollout.to} are replaced` : `from revision ${rollout.from} to ${rollout.to}`)),
        rollout.state === STATE.COMPLETED ? null : steps(it, all.filter(mine))] : null,
      h("h2", {}, "Services"),
      table(["Service", "Image", "Running", "Strategy", ""], it.services.map((service) => [
        service.name, service.image, `${service.running} of ${service.desired - service.completed}${service.completed ? `, ${service.completed} completed` : ""}`, service.strategy,
        service.strategy === "global" || !may(ROLE.DEPLOY) ? "" : scaled(path, scope, service),
      ]), "no services"),
      h("h2", {}, "Replicas"), replicaTable(all.filter(mine)),
      waits.some(mine) ? [h("h2", {}, "Waiting"), waiting(waits.filter(mine))] : null,
    ];
  },

  async replica(id) {
    const [why, replicas, history] = await Promise.all([ask(`/v1/why/${part(id)}`), ask("/v1/replicas"), ask(`/v1/replicas/${part(id)}/history`)]);
    const rows = replicas.filter((it) => it.id === id);
    const [first] = rows;
    return [
      h("h1", {}, id),
      first ? h("p", {}, "of ", link(`deployments/${part(first.namespace)}/${part(first.deployment)}`, first.deployment), `, service ${first.service}`) : null,
      table(["Generation", "State", "Since", "Node", "Revision", "Restarts", "Address", "Code"], rows.map((it) => [
        String(it.generation), word(it.state), moment(it.since_ms), it.node ? link(`nodes/${part(it.node)}`, it.node) : "",
        String(it.revision), String(it.restarts), it.address ?? "", it.code ?? ""]), "the replica is gone"),
      rows.map(particulars),
      h("h2", {}, "Why"), explained(why),
      h("h2", {}, "History"),
      table(["When", "Event", "Generation", "Attempt", "Code"], past(history), "this server remembers no events"),
    ];
  },

  async pending() {
    return [h("h1", {}, "Waiting for a node"), waiting(await ask("/v1/pending"))];
  },

  async audit() {
    const records = (await ask("/v1/audit?limit=200")).reverse();
    return [h("h1", {}, "Audit"), table(["#", "When", "Actor", "Action", "Subject", "Outcome"], records.map((it) => [
      String(it.number), moment(it.at_ms), it.actor, it.action, it.subject,
      h("span", {}, word(it.outcome), it.code ? ` ${it.code}` : "")]), "nothing yet")];
  },
};

// Details of a code: an exit code, the output of a health check, the engine's answer.
function particulars(replica) {
  const said = Object.entries(replica.details ?? {}).filter(([name]) => name !== "address" && name !== "ports");
  return said.length ? h("pre", {}, said.map(([name, value]) => `${name.replaceAll("_", " ")}: ${typeof value === "string" ? value : name === "last_lines" ? value.map((line) => `\n  ${line}`).join("") : JSON.stringify(value)}`).join("\n")) : null;
}

// Why a replica is where it is, whatever its state: placed, waiting for a node, or neither.
function explained(why) {
  if (Array.isArray(why.best)) return decision(why);
  return why.pending ? waiting([why.pending]) : h("p", {}, why.explain ?? "");
}

// Why a replica is on its node: how many nodes each filter refused, and the ranking of the best candidates.
function decision(why) {
  const keys = [...new Set(why.best.flatMap((it) => it.keys.map(([name]) => name)))];
  const value = (it, key) => { const found = it.keys.find(([name]) => name === key); return found ? String(found[1]) : ""; };
  const refused = Object.entries(why.refused);
  return [
    h("p", {}, `On ${why.node}: ${why.strategy}, ${why.candidates} of ${why.nodes} nodes fit. `,
      h("span", { class: "quiet" }, `Placed ${moment(why.placed_at_ms)}, compared at log index ${why.index}.`)),
    refused.length ? h("p", {}, "Refused: ", refused.map(([code, nodes]) => `${many(nodes, "node")} by ${code}`).join(", ")) : null,
    table(["Node", ...keys.map((key) => key.replaceAll("_", " "))], why.best.map((it) => [
      h("span", {}, link(`nodes/${part(it.node)}`, it.node), it.node === why.node ? " (chosen)" : ""), ...keys.map((key) => value(it, key))]), "no node fits now"),
  ];
}

// The history of a replica, newest first. An event without a time happened at the time of the one before.
function past(history) {
  const words = { placed: (it) => `placed on ${it.node}`, stopping: () => "stopping", released: () => "gone, its resources are free",
    restarting: () => "restarted", replica_opened: () => "created", replica_waits: () => "waits for a node", replica_closing: () => "to be removed",
    rebalanced: (it) => `moved to ${it.node} to even the load`, rescheduled: () => "moves after too many restarts" };
  let at = null;
  const rows = history.filter((it) => it.kind !== "replica_stepped").map((it) => {
    at = it.at_ms ?? at;
    const what = it.state ? word(it.state) : words[it.kind]?.(it) ?? it.kind.replaceAll("_", " ");
    return [moment(at), what, String(it.generation ?? ""), String(it.attempt ?? ""), it.code ?? ""];
  });
  return rows.reverse();
}

// Most marks per service; a larger one is easier to read in the table.
const MAX_MARKS = 200;

// One mark per replica: filled once the new revision runs, half-filled while old and new exist.
function steps(deployment, replicas) {
  const rows = deployment.services.map((service) => {
    const slots = Map.groupBy(replicas.filter((it) => it.service === service.name), (it) => it.id);
    const marks = [...slots].map(([id, generations]) => {
      const newest = generations.reduce((one, other) => (other.generation > one.generation ? other : one));
      // Scaling during the rollout makes a revision, too, and replaces no replica.
      const { from, to } = deployment.rollout;
      const isOld = newest.revision !== to && !(from < newest.revision && newest.revision < to);
      const kind = isOld ? "old" : generations.length > 1 || newest.state !== STATE.RUNNING ? "between" : "new";
      const said = { old: "old revision", between: "in progress", new: "new revision" }[kind];
      return h("a", { class: `step ${kind}`, href: `/ui/replicas/${part(id)}`, title: `${id}: ${said}`, "aria-label": `${id}: ${said}` });
    });
    const more = marks.length > MAX_MARKS ? `… ${marks.length - MAX_MARKS} more` : null;
    return marks.length ? h("div", { class: "row" }, h("span", { class: "quiet" }, service.name), ...marks.slice(0, MAX_MARKS), more) : null;
  });
  return [h("div", { class: "steps" }, rows), h("p", { class: "quiet legend" },
    h("span", { class: "step old" }), " old revision ", h("span", { class: "step between" }), " in progress ", h("span", { class: "step new" }), " new revision")];
}

function waiting(rows) {
  return table(["Service", "Replicas", "Reason", "Explanation"], rows.map((it) => [
    `${printed(it.namespace, it.deployment)}/${it.service}`,
    String(it.count), it.reason, h("span", { class: "wide" }, it.explain)]), "everything has a node");
}

function scaled(path, scope, service) {
  return button("Scale", () => {
    const input = h("input", { type: "number", min: "0", max: "1000000", value: String(service.desired), "aria-label": "replicas" });
    show(`Scale ${service.name}`, h("label", {}, "Replicas ", input), "Scale", () =>
      ask(`${path}/services/${part(service.name)}/scale${scope}`, { method: "POST", body: JSON.stringify({ replicas: Number(input.value) }) }));
  });
}

const button = (text, onclick, kind = "") => h("button", { type: "button", class: kind, onclick, "data-key": text }, text);
const confirmed = (text, what, action) => button(what, () => show(what, h("p", {}, text), what, action));

function show(title, body, yes, action) {
  const problem = h("p", { role: "alert" });
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    try { await action(); dialog.close(); draw(); } catch (error) { problem.textContent = error.message; }
  } }, h("h2", { id: "dialog-title" }, title), body, problem,
    h("div", { class: "row" }, h("button", { class: "main" }, yes), button("Cancel", () => dialog.close())));
  dialog.replaceChildren(form);
  dialog.showModal();
}

function login() {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", size: "40", required: true, "aria-label": "token" });
  const problem = h("p", { role: "alert" });
  return [h("h1", {}, "Log in"),
    h("form", { onsubmit: async (event) => {
      event.preventDefault();
      try { await ask("/ui/login", { method: "POST", body: JSON.stringify({ token: input.value }) }); start(); }
      catch (error) { problem.textContent = error.message; }
    } }, h("p", {}, "Paste a token of ", h("code", {}, "longshore token create"), ", or open the link that ", h("code", {}, "longshore dashboard"), " prints."),
      h("div", { class: "row" }, input, h("button", { class: "main" }, "Log in")), problem)];
}

const routes = [
  [/^$/, pages.overview], [/^nodes\/([^/]+)$/, pages.node], [/^deployments\/([^/]+)\/([^/]+)$/, pages.deployment],
  [/^replicas\/([^/]+)$/, pages.replica], [/^pending$/, pages.pending], [/^audit$/, pages.audit],
];

// Remembers the focus and the scroll position of each table, and returns a function that restores them after a render.
function kept() {
  const held = document.activeElement;
  const like = !main.contains(held) || held === main ? null
    : held.dataset.key ? `[data-key="${CSS.escape(held.dataset.key)}"]`
    : held.matches("a[href]") ? `${held.matches(".step") ? ".step" : "a:not(.step)"}[href="${CSS.escape(held.getAttribute("href"))}"]`
    : held.matches(".scroll") ? ".scroll" : null;
  const at = like ? [...main.querySelectorAll(like)].indexOf(held) : -1;
  const lefts = [...main.querySelectorAll(".scroll")].map((it) => it.scrollLeft);
  return () => {
    [...main.querySelectorAll(".scroll")].forEach((it, number) => { it.scrollLeft = lefts[number] ?? 0; });
    if (like) ([...main.querySelectorAll(like)][at] ?? main).focus({ preventScroll: true });
  };
}

async function logout() {
  await ask("/ui/logout", { method: "POST", body: "{}" }).catch(() => {});
  who = null;
  draw();
}

let drawing = 0;
async function draw() {
  const path = location.pathname.replace(/^\/ui\/?/, "").replace(/\/$/, "");
  const turn = ++drawing;
  let content;
  try {
    who ??= await ask("/v1/whoami");
    const [pattern, page] = routes.find(([pattern]) => pattern.test(path)) ?? [/^/, async () => [h("h1", {}, "Page not found"), h("p", {}, link("", "To the overview"))]];
    content = await page(...(pattern.exec(path) ?? []).slice(1).map(decodeURIComponent));
  } catch (error) {
    if (error.status === 401) { who = null; stop(); content = login(); }
    else content = [h("h1", {}, "The request failed"), h("p", { class: "error", role: "alert" }, error.message, error.hint ? ` (${error.hint})` : "")];
  }
  // A later render may have finished first.
  if (turn !== drawing) return;
  // Unchanged content stays: replacing it would lose selection, input and scroll position.
  const fresh = h("main", {}, ...content.flat(3));
  if (fresh.innerHTML !== main.innerHTML) {
    const restore = kept();
    main.replaceChildren(...fresh.childNodes);
    restore();
  }
  document.querySelector(".who").replaceChildren(...(who ? [who.name, button("Log out", logout)] : []));
  document.querySelector("nav").replaceChildren(...[["", "Overview"], ["pending", "Pending"], ["audit", "Audit"]].map(([to, text]) =>
    h("a", { href: `/ui/${to}`, "aria-current": path === to ? "page" : null }, text)));
  document.title = `${main.querySelector("h1")?.textContent ?? ""} · Longshore`;
}

let events = null, soon = null, poll = null;
function later() {
  if (soon) return;
  soon = setTimeout(() => { soon = null; draw(); }, 150);
}
function stop() {
  events?.close(); events = null;
  clearInterval(poll); poll = null;
  live.textContent = "";
}
function start() {
  stop();
  draw();
  events = new EventSource("/v1/events");
  events.onopen = () => { live.textContent = "live"; };
  events.addEventListener("change", later);
  events.addEventListener("resync", later);
  // A scoped token may not read the event stream: then the page polls.
  events.onerror = () => {
    live.textContent = "reconnecting";
    if (events?.readyState === EventSource.CLOSED) { live.textContent = "every 2 s"; events = null; poll ??= setInterval(draw, 2000); }
  };
}

document.addEventListener("click", (event) => {
  const to = event.target.closest?.("a[href^='/ui']");
  if (!to || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", to.getAttribute("href"));
  draw().then(() => main.focus({ preventScroll: true }));
});
addEventListener("popstate", draw);
// A browser opens few connections per server, and the event stream takes one: a hidden tab closes it, or a handful of
// forgotten tabs would leave none for this one.
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => { if (event.persisted) start(); });
document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else start(); });
start();
