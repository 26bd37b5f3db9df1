// The dashboard: pages drawn from the public API, and drawn again when something happens.
// Nothing is ever put into the page as markup: whatever a name holds, it stays text.

const main = document.querySelector("main");
const dialog = document.querySelector("dialog");
const live = document.querySelector(".live");

// Who is logged in. What they may not do is not offered; what they may is judged by the daemon, whatever is offered.
let who = null;
const roles = ["view", "deploy", "admin"];
const may = (role) => roles.indexOf(who?.role) >= roles.indexOf(role) && (role !== "admin" || !(who.namespace || who.deployment));

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

const tones = {
  ready: "good", active: "good", running: "good", completed: "good", done: "good",
  suspect: "busy", degraded: "busy", progressing: "busy", pending: "busy", pulling: "busy", starting: "busy",
  draining: "busy", paused: "busy", in_progress: "busy", awaiting_promotion: "busy",
  down: "bad", failed: "bad", lost: "bad", aborted: "bad", refused: "bad",
};
const word = (text) => h("span", { class: `word ${tones[text] ?? "quiet"}` }, text);
const link = (to, text) => h("a", { href: `/ui/${to}` }, text);
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
const when = (ms) => (ms ? new Date(ms).toLocaleTimeString() : "");
const part = encodeURIComponent;
const percent = (millionths) => `${Math.round(millionths / 10000)} %`;
const moment = (ms) => (ms ? new Date(ms).toLocaleString() : "");
const printed = (namespace, name) => (namespace && namespace !== "default" ? `${namespace}.${name}` : name);
const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// A name, a bar and the figure: what was given out, and what is in use by the machine's own measure.
function meter(name, value, most, text) {
  return h("div", { class: "meter" }, h("span", {}, name),
    h("progress", { value: String(value), max: String(Math.max(most, 1)), "aria-label": `${name}: ${text}` }), h("span", { class: "figure" }, text));
}
function meters(node) {
  const load = node.load;
  return h("div", { class: "meters" },
    meter("memory given out", node.memory_used_bytes, node.memory_bytes, `${(node.memory_used_bytes / 2 ** 30).toFixed(1)} of ${gib(node.memory_bytes)}`),
    load ? [meter("memory in use", load.memory_millionths, 1e6, percent(load.memory_millionths)),
      meter(`${node.cpu_millis / 1000} cores in use`, load.cpu_millionths, 1e6, percent(load.cpu_millionths))]
      : h("span", { class: "quiet" }, "use not measured yet"));
}

function table(heads, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ") }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    // On a phone each row is a card, and each cell says what it is.
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
  (sum, service) => [sum[0] + service.running, sum[1] + service.wanted], [0, 0]);

const pages = {
  async overview() {
    const [deployments, pending] = await Promise.all([ask("/v1/deployments"), ask("/v1/pending")]);
    const nodes = await ask("/v1/nodes").catch((error) => { if (error.status === 403) return null; throw error; });
    return [
      h("h1", {}, "Overview"),
      pending.length ? h("p", {}, link("pending", `${pending.length} ${pending.length === 1 ? "service waits" : "services wait"} for a node`)) : null,
      h("h2", {}, "Deployments"),
      deployments.length ? h("div", { class: "cards" }, deployments.map((it) => {
        const [runs, wanted] = running(it);
        return h("article", { class: "card" },
          h("div", { class: "row" }, h("h3", {}, link(`deployments/${part(it.namespace)}/${part(it.name)}`, printed(it.namespace, it.name))), word(it.status)),
          h("progress", { value: String(runs), max: String(Math.max(wanted, 1)), "aria-label": `${runs} of ${wanted} running` }),
          h("div", { class: "quiet" }, `${runs} of ${wanted} running, revision ${it.revision}`),
          it.reasons.length ? h("div", { class: "quiet" }, it.reasons.join(", ")) : null);
      })) : h("p", { class: "quiet" }, "nothing is deployed; try ", h("code", {}, "longshore apply -f compose.yaml")),
      nodes ? h("h2", {}, "Nodes") : null,
      nodes ? h("div", { class: "cards" }, nodes.map((it) => h("article", { class: "card" },
        h("div", { class: "row" }, h("h3", {}, link(`nodes/${part(it.name)}`, it.name)), word(it.health),
          it.intent === "active" ? null : word(it.intent)),
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
      !may("admin") ? null : h("div", { class: "row" },
        node.intent === "active"
          ? [tell("Drain", `Everything on ${name} is started elsewhere first, then stopped here.`, "drain"), tell("Pause", `${name} gets no new work.`, "pause")]
          : tell("Activate", `${name} may be used again.`, "activate")),
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
      !may("deploy") ? null : h("div", { class: "row" },
        it.revisions.length > 1 ? post("Roll back", "The manifest before this one is put in force, step by step.", "rollback") : null,
        rollout?.state === "awaiting_promotion" ? post("Promote", "The first slots do well; the others follow.", "promote") : null,
        rollout?.state === "in_progress" ? post("Pause", "No new steps are taken.", "pause") : null,
        rollout?.state === "paused" ? post("Resume", "Steps are taken again.", "resume") : null),
      rollout ? [h("h2", {}, "Rollout"), h("div", { class: "row", id: "rollout" }, word(rollout.state),
        h("span", {}, rollout.from === rollout.to ? `the replicas of revision ${rollout.to} made anew` : `from revision ${rollout.from} to ${rollout.to}`)),
        rollout.state === "completed" ? null : steps(it, all.filter(mine))] : null,
      h("h2", {}, "Services"),
      table(["Service", "Image", "Running", "Strategy", ""], it.services.map((service) => [
        service.name, service.image, `${service.running} of ${service.wanted}`, service.strategy,
        service.strategy === "global" || !may("deploy") ? "" : scaled(path, scope, service),
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
        String(it.revision), String(it.restarts), it.address ?? "", it.code ?? ""]), "it is gone"),
      rows.map(particulars),
      h("h2", {}, "Why"), Array.isArray(why.best) ? decision(why) : waiting([why.pending]),
      h("h2", {}, "History"),
      table(["When", "What", "Generation", "Attempt", "Code"], past(history), "this server has heard of nothing yet"),
    ];
  },

  async pending() {
    return [h("h1", {}, "Waiting for a node"), waiting(await ask("/v1/pending"))];
  },

  async audit() {
    const records = (await ask("/v1/audit?most=200")).reverse();
    return [h("h1", {}, "Audit"), table(["#", "When", "Who", "What", "To", "Outcome"], records.map((it) => [
      String(it.number), moment(it.at_ms), it.actor, it.action, it.subject,
      h("span", {}, word(it.outcome), it.code ? ` ${it.code}` : "")]), "nothing yet")];
  },
};

// What the code does not say: an exit code, what a health check wrote, what the engine answered.
function particulars(replica) {
  const said = Object.entries(replica.details ?? {}).filter(([name]) => name !== "address" && name !== "ports");
  return said.length ? h("pre", {}, said.map(([name, value]) => `${name.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n")) : null;
}

// Why a replica is where it is: how many nodes each rule refused, and what the best of the others were compared by.
function decision(why) {
  const keys = [...new Set(why.best.flatMap((it) => it.keys.map(([name]) => name)))];
  const value = (it, key) => { const found = it.keys.find(([name]) => name === key); return found ? String(found[1]) : ""; };
  const refused = Object.entries(why.refused);
  return [
    h("p", {}, `On ${why.node}: ${why.strategy}, ${why.candidates} of ${why.nodes} nodes fit. `,
      h("span", { class: "quiet" }, `Placed ${moment(why.placed_at_ms)}, compared in state ${why.index}.`)),
    refused.length ? h("p", {}, "Refused: ", refused.map(([code, nodes]) => `${many(nodes, "node")} by ${code}`).join(", ")) : null,
    table(["Node", ...keys.map((key) => key.replaceAll("_", " "))], why.best.map((it) => [
      h("span", {}, link(`nodes/${part(it.node)}`, it.node), it.node === why.node ? " (chosen)" : ""), ...keys.map((key) => value(it, key))]), "no node fits now"),
  ];
}

// What happened to a replica, newest first. What follows from something else happened when that did.
function past(history) {
  const words = { placed: (it) => `placed on ${it.node}`, stopping: () => "told to stop", released: () => "gone, and what it held is free",
    restarting: () => "started again", replica_opened: () => "wanted", replica_waits: () => "waits for a node", replica_closing: () => "no longer wanted",
    rebalanced: (it) => `moved to ${it.node} to even the load`, rescheduled: () => "moves after too many restarts" };
  let at = null;
  const rows = history.filter((it) => it.kind !== "replica_stepped").map((it) => {
    at = it.at_ms ?? at;
    const what = it.state ? word(it.state) : words[it.kind]?.(it) ?? it.kind.replaceAll("_", " ");
    return [moment(at), what, String(it.generation ?? ""), String(it.attempt ?? ""), it.code ?? ""];
  });
  return rows.reverse();
}

// Marks of one service at most; a larger one is better read in the table.
const MOST_MARKS = 200;

// One mark a replica: filled once the new revision runs there, half while old and new are both there.
function steps(deployment, replicas) {
  const rows = deployment.services.map((service) => {
    const slots = Map.groupBy(replicas.filter((it) => it.service === service.name), (it) => it.id);
    const marks = [...slots].map(([id, generations]) => {
      const newest = generations.reduce((one, other) => (other.generation > one.generation ? other : one));
      // A count that was set meanwhile is a revision, too, and no reason to change what is there.
      const { from, to } = deployment.rollout;
      const isOld = newest.revision !== to && !(from < newest.revision && newest.revision < to);
      const kind = isOld ? "old" : generations.length > 1 || newest.state !== "running" ? "between" : "new";
      const said = { old: "as before", between: "changing", new: "changed" }[kind];
      return h("a", { class: `step ${kind}`, href: `/ui/replicas/${part(id)}`, title: `${id}: ${said}`, "aria-label": `${id}: ${said}` });
    });
    const more = marks.length > MOST_MARKS ? `… ${marks.length - MOST_MARKS} more` : null;
    return marks.length ? h("div", { class: "row" }, h("span", { class: "quiet" }, service.name), ...marks.slice(0, MOST_MARKS), more) : null;
  });
  return [h("div", { class: "steps" }, rows), h("p", { class: "quiet legend" },
    h("span", { class: "step old" }), " as before ", h("span", { class: "step between" }), " changing ", h("span", { class: "step new" }), " changed")];
}

function waiting(rows) {
  return table(["Service", "Replicas", "Reason", "In words"], rows.map((it) => [
    `${printed(it.namespace, it.deployment)}/${it.service}`,
    String(it.count), it.reason, h("span", { class: "wide" }, it.explain)]), "everything has a node");
}

function scaled(path, scope, service) {
  return button("Scale", () => {
    const input = h("input", { type: "number", min: "0", max: "1000000", value: String(service.wanted), "aria-label": "replicas" });
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

// Where somebody is on the page, and the way back there once it is drawn anew: which of the things that are alike has the
// focus, and how far each table is scrolled.
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
    who ??= await ask("/v1/caller");
    const [pattern, page] = routes.find(([pattern]) => pattern.test(path)) ?? [/^/, async () => [h("h1", {}, "There is nothing here"), h("p", {}, link("", "To the overview"))]];
    content = await page(...(pattern.exec(path) ?? []).slice(1).map(decodeURIComponent));
  } catch (error) {
    if (error.status === 401) { who = null; stop(); content = login(); }
    else content = [h("h1", {}, "That did not work"), h("p", { class: "error", role: "alert" }, error.message, error.hint ? ` (${error.hint})` : "")];
  }
  // A later question may have been answered first.
  if (turn !== drawing) return;
  // What is the same stays: what somebody marks, types or scrolls would be gone with it.
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
  // A token for a part of the cluster may not follow everything: then looking again has to do.
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
// A browser opens few connections to one server, and a stream takes one: who is not looked at lets go of it, or a handful of
// forgotten tabs would leave none for this one.
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => { if (event.persisted) start(); });
document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else start(); });
start();
