// The statistics page: listens to the stream of events, and shows what it says. Every text comes to the page as text, never as HTML.
"use strict";

// With the origin: an address that was opened with a password in it cannot be asked for by its path alone.
const base = location.origin + document.body.dataset.base;
const words = document.body.dataset.words;
const isAdmin = document.body.dataset.admin === "yes";
const POINTS = 120;
const POINTS_MIN = 30; // A plot is at least as wide.
const TYPE = { FRONTEND: 0, BACKEND: 1, SERVER: 2, SOCKET: 3 };
const OUTCOMES = {
  DONE: ["good", "The servers were changed."],
  NONE: ["", "Nothing was changed: no server was selected."],
  PART: ["bad", "Some servers were changed, others were not."],
  ERRP: ["bad", "Nothing was changed: the action cannot be done, or a name is unknown."],
  EXCD: ["bad", "Nothing was changed: the request is too large. Select fewer servers."],
  DENY: ["bad", "Nothing was changed: this page is read-only for you."],
};
const ACTIONS = [
  ["", "Choose an action…"], ["ready", "Set state to READY"], ["drain", "Set state to DRAIN"], ["maint", "Set state to MAINT"],
  ["ehlth", "Enable health checks"], ["dhlth", "Disable health checks"],
];

const objects = new Map(); // by id: what was sent, and its place on the page
const proxies = new Map(); // by name: the card
let process = {};

const $ = (id) => document.getElementById(id);
const number = (value) => Number(value ?? 0).toLocaleString("en");

function make(tag, className, ...content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...content);
  return node;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0, left = Number(value ?? 0);
  while (left >= 1000 && at < units.length - 1) { left /= 1000; at += 1; }
  return `${left >= 100 || at === 0 ? Math.round(left) : left.toFixed(1)} ${units[at]}`;
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const time = (seconds) => new Date(seconds * 1000).toLocaleString();
const now = () => Date.now() / 1000;

// What a status is: how it is coloured, and whether it is a problem.
function mood(status, type) {
  if (/^DOWN/.test(status)) return "bad";
  if (/^(NOLB|MAINT|DRAIN|STOP)/.test(status)) return "warn";
  if (/^UP \d/.test(status) && type === TYPE.SERVER) return "warn";
  if (/^(UP|OPEN)/.test(status)) return "good";
  return "";
}

// Plots: a point a second.

const NS = "http://www.w3.org/2000/svg";

function plot(className) {
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("class", `plot ${className}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(NS, "path"));
  return svg;
}

function draw(svg, points) {
  const most = Math.max(1, ...points);
  const width = Math.max(POINTS_MIN, points.length);
  const from = width - points.length;
  svg.setAttribute("viewBox", `0 0 ${width - 1} 28`);
  const path = points.map((value, at) => `${at ? "L" : "M"}${from + at} ${(26 - (24 * value) / most).toFixed(1)}`);
  svg.firstChild.setAttribute("d", path.join(""));
}

const watched = "IntersectionObserver" in window
  ? new IntersectionObserver((seen) => seen.forEach((one) => { one.target.dataset.seen = one.isIntersecting ? "1" : ""; }))
  : null;

// Cards of proxies.

function card(name) {
  let known = proxies.get(name);
  if (known) return known;
  const top = make("div", "top");
  const root = make("article", "proxy", top);
  root.dataset.proxy = name;
  known = { name, root, top, kind: make("span", "kind"), say: make("span", "say"), state: make("span", "pill"), sides: {}, rows: new Map(), sockets: new Map() };
  top.append(make("h2", "", name), known.state, known.kind, known.say);
  known.say.hidden = true;
  proxies.set(name, known);
  $("proxies").append(root);
  if (watched) watched.observe(root); else root.dataset.seen = "1";
  return known;
}

function figure(side, label) {
  const value = make("b");
  const node = make("div", "figure", value, make("small", "", label));
  side.figures[label] = { node, value };
  return node;
}

function side(card, object) {
  const role = object.type === TYPE.FRONTEND ? "frontend" : "backend";
  let known = card.sides[role];
  if (known) return known;
  known = { figures: {}, rate: plot("rate"), time: plot("time"), rateNow: make("small"), timeNow: make("small"), tls: make("p", "why") };
  const labels = ["sessions", "rate /s", "requests", "2xx", "4xx", "5xx", "in", "out", role === "frontend" ? "denied" : "errors"];
  if (role === "backend") labels.splice(2, 0, "queue");
  known.root = make("div", "side", make("span", "role", role), ...labels.map((label) => figure(known, label)),
    known.tls, make("div", "plots", make("div", "", known.rateNow, known.rate), make("div", "", known.timeNow, known.time)));
  known.tls.hidden = true;
  if (role === "frontend") {
    card.top.after(known.root);
    known.time.parentNode.remove();
  } else {
    (card.sides.frontend?.root ?? card.top).after(known.root);
  }
  card.sides[role] = known;
  return known;
}

function put(side, label, text, isAlarm) {
  const known = side.figures[label];
  set(known.value, text);
  known.node.classList.toggle("alarm", Boolean(isAlarm));
}

function showProxy(object) {
  const at = card(object.proxy);
  const v = object.values;
  const known = side(at, object);
  const isHttp = v.mode === "http";
  put(known, "sessions", v.slim ? `${number(v.scur)} / ${number(v.slim)}` : number(v.scur), v.slim && v.scur >= v.slim);
  put(known, "rate /s", number(isHttp && v.req_rate !== undefined ? v.req_rate : v.rate));
  put(known, "requests", number(v.req_tot ?? v.stot));
  for (const [label, key] of [["2xx", "hrsp_2xx"], ["4xx", "hrsp_4xx"], ["5xx", "hrsp_5xx"]]) {
    known.figures[label].node.hidden = !isHttp;
    put(known, label, number(v[key]), label === "5xx" && v[key] > 0);
  }
  put(known, "in", bytes(v.bin));
  put(known, "out", bytes(v.bout));
  if (object.type === TYPE.FRONTEND) {
    put(known, "denied", number((v.dreq ?? 0) + (v.ereq ?? 0)));
  } else {
    put(known, "queue", number(v.qcur), v.qcur > 0);
    put(known, "errors", number((v.econ ?? 0) + (v.eresp ?? 0)), (v.econ ?? 0) + (v.eresp ?? 0) > 0);
  }
  const tls = v.ssl_sess === undefined ? "" : `TLS: ${number(v.ssl_sess)} sessions, ${number(v.ssl_reused_sess)} resumed, ${number(v.ssl_failed_handshake)} failed handshakes`;
  set(known.tls, tls);
  known.tls.hidden = !tls;
  const back = at.sides.backend, front = at.sides.frontend;
  set(at.kind, `${back && front ? "listen" : back ? "backend" : "frontend"} · ${v.mode}${v.algo ? ` · ${v.algo}` : ""}${v.iid ? ` · #${v.iid}` : ""}`);
  if (object.description) { set(at.say, object.description); at.say.hidden = false; }
  if (object.type === TYPE.BACKEND || !back) {
    const text = object.type === TYPE.BACKEND && back ? `${v.status} ${v.act + v.bck} of ${at.rows.size || v.act + v.bck}` : v.status;
    set(at.state, object.type === TYPE.BACKEND && at.rows.size ? text : v.status);
    at.state.className = `pill ${mood(v.status, object.type)}`;
  }
}

// Why a server is as it is.
function why(object) {
  const v = object.values;
  const parts = [];
  if (/^MAINT \(/.test(v.status)) parts.push(v.status.slice(6));
  if (v.check_status) {
    const code = v.check_code ? ` ${v.check_code}` : "";
    const took = v.check_duration !== undefined ? ` in ${v.check_duration} ms` : "";
    parts.push(`${v.check_status}${code}${took}${v.last_chk ? `: ${v.last_chk}` : ""}`);
    if (v.check_desc && /^DOWN/.test(v.status)) parts.push(v.check_desc);
  } else if (v.tracked) {
    parts.push(`tracks ${v.tracked}`);
  }
  if (object.changedAt !== undefined) parts.push(`since ${duration(now() - object.changedAt)}`);
  if (v.chkfail) parts.push(`${number(v.chkfail)} failed checks`);
  return parts.join(" · ");
}

function table(at) {
  if (at.body) return at.body;
  at.body = make("tbody");
  const heads = ["", "Server", "State", "Rate, last 2 min", "Sessions", "Queue", "Errors", "Response", "Weight"];
  const row = make("tr", "", ...heads.map((text, place) => make("th", place > 3 ? "number" : "", text)));
  at.table = make("table", "", make("thead", "", row), at.body);
  at.root.append(at.table);
  if (isAdmin) at.root.append(actions(at));
  return at.body;
}

function actions(at) {
  const choice = make("select");
  choice.setAttribute("aria-label", "Action");
  for (const [value, text] of ACTIONS) {
    const option = make("option", "", text);
    option.value = value;
    choice.append(option);
  }
  const apply = make("button", "", "Apply");
  apply.type = "button";
  const form = make("div", "acts", make("span", "", "Selected servers:"), choice, apply);
  apply.addEventListener("click", () => act(at, choice, apply));
  return form;
}

async function act(at, choice, button) {
  const body = new URLSearchParams();
  for (const row of at.rows.values()) if (row.pick.checked) body.append("s", row.object.name);
  body.append("action", choice.value);
  body.append("b", at.name);
  if (!choice.value) return notice("", "Choose an action first.");
  button.disabled = true;
  try {
    const response = await fetch(base + words, { method: "POST", body, credentials: "same-origin" });
    const outcome = /;st=([A-Z]{4})/.exec(response.url);
    if (!response.ok) notice("bad", `Nothing was changed: the response was ${response.status}.`);
    else say(outcome ? outcome[1] : "");
    for (const row of at.rows.values()) row.pick.checked = false;
    choice.value = "";
  } catch (error) {
    notice("bad", "Nothing is known of the change: there was no response.");
  } finally {
    button.disabled = false;
  }
}

function cell(row, className, label) {
  const node = make("td", className);
  if (label) node.dataset.label = label;
  row.append(node);
  return node;
}

function showServer(object) {
  const at = card(object.proxy);
  let row = at.rows.get(object.id);
  if (!row) {
    const root = make("tr");
    row = { root, object };
    const first = cell(root, "");
    row.pick = make("input");
    row.pick.type = "checkbox";
    row.pick.setAttribute("aria-label", `Select ${object.name}`);
    row.pick.hidden = !isAdmin;
    first.append(row.pick);
    row.name = cell(root, "name");
    row.state = make("span", "pill");
    row.why = make("div", "why");
    row.overrides = make("div");
    const state = cell(root, "wide");
    state.append(row.state, row.why, row.overrides);
    row.rate = plot("rate");
    row.rateNow = make("small");
    cell(root, "draw").append(row.rate, row.rateNow);
    row.cells = ["Sessions", "Queue", "Errors", "Response", "Weight"].map((label) => cell(root, "number", label));
    table(at).append(root);
    at.rows.set(object.id, row);
  }
  row.object = object;
  const v = object.values;
  const legends = [v.sid !== undefined ? `#${v.sid}` : "", v.addr ?? "", v.cookie ? `cookie ${v.cookie}` : ""];
  const shown = legends.filter(Boolean).join(" ");
  row.name.replaceChildren(object.name, ...(v.bck ? [" ", make("span", "pill", "backup")] : []), ...(shown ? [make("small", "why", ` ${shown}`)] : []));
  set(row.state, v.status);
  row.state.className = `pill ${mood(v.status, object.type)}`;
  row.root.classList.toggle("down", /^DOWN/.test(v.status));
  set(row.why, why(object));
  row.overrides.replaceChildren(...(object.overrides ?? []).map((one) =>
    make("span", "override", `${one.field} ${one.value} (file: ${one.file}), set ${time(one.at)}, ${one.by}`)));
  const errors = (v.econ ?? 0) + (v.eresp ?? 0);
  const values = [
    v.slim ? `${number(v.scur)} / ${number(v.slim)}` : number(v.scur),
    number(v.qcur),
    number(errors) + (v.hrsp_5xx ? ` + ${number(v.hrsp_5xx)} 5xx` : "") + (v.wretr ? `, ${number(v.wretr)} retries` : ""),
    `${number(v.rtime || v.ttime)} ms`,
    v.throttle !== undefined ? `${number(v.weight)} (${v.throttle} %)` : number(v.weight),
  ];
  values.forEach((text, place) => set(row.cells[place], text));
}

// A listening socket (`option socket-stats`): a line.
function showSocket(object) {
  const at = card(object.proxy);
  let line = at.sockets.get(object.id);
  if (!line) {
    line = make("p", "why");
    at.sockets.set(object.id, line);
    at.top.after(line);
  }
  const v = object.values;
  set(line, `socket ${object.name}${v.addr ? ` ${v.addr}` : ""}: ${v.status}, ${number(v.scur)} sessions, ${number(v.stot)} in all, ${bytes(v.bin)} in, ${bytes(v.bout)} out`);
}

function show(object) {
  if (object.type === TYPE.SERVER) showServer(object);
  else if (object.type === TYPE.SOCKET) showSocket(object);
  else showProxy(object);
}

function upsert(sent) {
  const known = objects.get(sent.id);
  const points = sent.plot ?? [];
  const object = { ...sent, rates: known?.rates ?? points.map((one) => one[0]), times: known?.times ?? points.map((one) => one[1]) };
  if (sent.description === undefined) object.description = known?.description;
  if (sent.values.lastchg !== undefined) object.changedAt = now() - sent.values.lastchg;
  objects.set(sent.id, object);
  show(object);
}

function remove(id) {
  const object = objects.get(id);
  if (!object) return;
  objects.delete(id);
  const at = proxies.get(object.proxy);
  if (!at) return;
  at.rows.get(id)?.root.remove();
  at.rows.delete(id);
  at.sockets.get(id)?.remove();
  at.sockets.delete(id);
  const left = [...objects.values()].some((other) => other.proxy === object.proxy);
  if (!left) {
    at.root.remove();
    proxies.delete(object.proxy);
  }
}

// What is wrong, at the top.

function problems() {
  const list = [];
  let isBad = false;
  const add = (className, word, text) => {
    isBad ||= className === "bad";
    list.push(make("li", "", make("span", `pill ${className}`, word), ` ${text}`));
  };
  for (const object of objects.values()) {
    const v = object.values;
    if (object.type === TYPE.BACKEND && /^DOWN/.test(v.status)) add("bad", "DOWN", `backend ${object.proxy} has no server`);
  }
  const servers = [...objects.values()].filter((object) => object.type === TYPE.SERVER);
  const wrong = servers.filter((object) => mood(object.values.status, object.type) === "bad");
  for (const object of wrong.slice(0, 20)) add("warn", object.values.status, `server ${object.proxy}/${object.name}: ${why(object)}`);
  if (wrong.length > 20) add("warn", "DOWN", `${wrong.length - 20} more servers`);
  if (process.refused) add("warn", "RELOAD", `${number(process.refused)} refused reloads`);
  if (process.pending?.length) add("warn", "RESTART", `pending: ${process.pending.join(", ")}`);
  for (const one of process.lost ?? []) add("warn", "LOG", `${number(one.lines)} lines lost for ${one.target}`);
  if (process.panics) add("bad", "PANIC", `${number(process.panics)} internal errors`);
  const ended = (process.certificates ?? []).filter((one) => !one.valid);
  if (ended.length) add("warn", "CERTIFICATE", `${ended.length} not valid`);
  const queue = objects.size ? [...objects.values()].filter((object) => object.type === TYPE.BACKEND && object.values.qcur > 0) : [];
  for (const object of queue.slice(0, 5)) add("warn", "QUEUE", `${number(object.values.qcur)} requests wait in ${object.proxy}`);
  $("problems").hidden = !list.length;
  $("problems").firstElementChild.replaceChildren(...list);
  const verdict = $("verdict");
  const text = !objects.size ? "…" : isBad ? "down" : list.length ? "degraded" : "all is well";
  set(verdict, text);
  verdict.className = `pill ${!objects.size ? "" : isBad ? "bad" : list.length ? "warn" : "good"}`;
  document.title = `${text} · ${process.node ?? "Statistics"}`;
}

function facts() {
  const p = process;
  set($("node"), p.node ?? "Statistics");
  set($("description"), p.description ?? "");
  $("description").hidden = !p.description;
  const list = [];
  if (p.version) list.push(`Baton ${p.version}`);
  if (p.pid) list.push(`PID ${p.pid}`);
  if (p.started) list.push(`up ${duration(now() - p.started)}`);
  if (p.generation) list.push(`configuration ${number(p.generation)}`);
  if (p.connections !== undefined) list.push(`${number(p.connections)} of ${number(p.maxconn)} connections`);
  if (p.req_rate !== undefined) list.push(`${number(p.req_rate)} requests/s`);
  if (p.earlier) list.push(`${number(p.earlier)} connections from an earlier configuration`);
  const moved = [["arrived", "connections came from the process before this one"], ["departed", "connections went to the process that took over"],
    ["servers_arrived", "idle server connections came from the process before this one"], ["servers_departed", "idle server connections went to the process that took over"]];
  for (const [name, text] of moved) if (p.moved?.[name]) list.push(`${number(p.moved[name])} ${text}`);
  for (const [reason, count] of Object.entries(p.staying ?? {})) list.push(`${number(count)} connections do not move to the process that took over (${reason})`);
  for (const one of p.older ?? []) list.push(`PID ${one.pid} before this one still serves ${one.connections === null ? "its last" : number(one.connections)} connections`);
  if (p.leaving) list.push(`${number(p.leaving)} addresses closing`);
  $("facts").replaceChildren(...list.flatMap((text) => [make("span", "", text), " "]));
}

function changes(list) {
  $("changes").hidden = !list.length;
  $("changes").lastElementChild.replaceChildren(...list.map((one) =>
    make("li", "", ...(one.refused ? [make("span", "pill bad", "refused"), " "] : []), one.what, make("small", "", `${time(one.at)} · ${one.by}`))));
}

function certificates({ list, more }) {
  process.certificates = list;
  $("certificates").hidden = !list.length;
  const items = list.map((one) => make("li", "", make("span", `pill ${one.valid ? "warn" : "bad"}`, one.valid ? "expires" : "not valid"), ` ${one.name}`,
    make("small", "", `${time(one.until)}${one.valid ? `, in ${duration(one.until - now())}` : ""}`)));
  if (more) items.push(make("li", "", `and ${number(more)} more`));
  $("certificates").lastElementChild.replaceChildren(...items);
}

function notice(className, text) {
  const node = $("notice");
  node.className = className;
  set(node, text);
  node.hidden = !text;
}

function say(outcome) {
  const known = OUTCOMES[outcome];
  if (known) notice(...known);
}

// Which cards are shown.
function choose() {
  const part = $("search").value.trim().toLowerCase();
  const onlyProblems = $("only").checked;
  for (const at of proxies.values()) {
    const isNamed = at.name.toLowerCase().includes(part);
    let any = false;
    for (const row of at.rows.values()) {
      const isFound = isNamed || row.object.name.toLowerCase().includes(part);
      const isShown = isFound && (!onlyProblems || ["bad", "warn"].includes(mood(row.object.values.status, TYPE.SERVER)));
      row.root.hidden = !isShown;
      any ||= isShown;
    }
    at.root.hidden = onlyProblems ? !any && !at.state.classList.contains("bad") : !any && !isNamed;
  }
}

function tick() {
  for (const object of objects.values()) {
    const v = object.values;
    object.rates.push(v.req_rate ?? v.rate ?? 0);
    object.times.push(v.rtime || v.ttime || 0);
    if (object.rates.length > POINTS) { object.rates.shift(); object.times.shift(); }
    const at = proxies.get(object.proxy);
    if (!at || !at.root.dataset.seen || at.root.hidden) continue;
    if (object.type === TYPE.SERVER) {
      const row = at.rows.get(object.id);
      if (!row) continue;
      draw(row.rate, object.rates);
      set(row.rateNow, `${number(object.rates.at(-1))} /s`);
      set(row.why, why(object));
    } else if (object.type !== TYPE.SOCKET) {
      const known = at.sides[object.type === TYPE.FRONTEND ? "frontend" : "backend"];
      draw(known.rate, object.rates);
      set(known.rateNow, `rate, peak ${number(Math.max(0, ...object.rates))} /s`);
      draw(known.time, object.times);
      set(known.timeNow, `response time ${number(object.times.at(-1))} ms`);
    }
  }
  facts();
  problems();
}

let source = null;

function link(className, text) {
  $("link").className = `link ${className}`;
  set($("link"), text);
}

function connect() {
  source = new EventSource(`${base};events${words}`);
  let isFirst = true;
  let seen = new Set();
  source.onopen = () => { isFirst = true; seen = new Set(); link("live", "live"); };
  source.addEventListener("process", (event) => { process = { certificates: process.certificates, ...JSON.parse(event.data) }; facts(); problems(); });
  source.addEventListener("changes", (event) => changes(JSON.parse(event.data)));
  source.addEventListener("certificates", (event) => { certificates(JSON.parse(event.data)); problems(); });
  source.addEventListener("rows", (event) => {
    for (const sent of JSON.parse(event.data)) {
      if (isFirst) seen.add(sent.id);
      upsert(sent);
    }
    choose();
    problems();
  });
  source.addEventListener("round", () => {
    // What was there before the connection was lost, and is no more.
    if (isFirst) for (const id of [...objects.keys()]) if (!seen.has(id)) remove(id);
    isFirst = false;
  });
  source.addEventListener("gone", (event) => { JSON.parse(event.data).forEach(remove); problems(); });
  source.addEventListener("bye", () => { source.close(); link("lost", "reconnecting"); setTimeout(connect, 1500); });
  source.onerror = () => {
    link("lost", "not connected");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

$("search").addEventListener("input", choose);
$("only").addEventListener("change", choose);
say(document.body.dataset.outcome);
setInterval(tick, 1000);
connect();
