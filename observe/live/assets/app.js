// The stream of events, and everything but the table of policies.

import { Chart, clockTime, columns, el, kinds, minutes, number, onScheme, text } from "./charts.js";
import { Table, pad } from "./table.js";

const $ = (id) => document.getElementById(id);
const words = {
  ok: "All in order", away: "Store away", refused: "Configuration refused", fixed: "Fixed limits in force", wait: "Connecting", stale: "Partly old",
  mute: "Told nothing",
};
const model = { times: [], totals: kinds.map(() => []), latency: [[], []] };
const table = new Table(model);
const all = new Chart($("chart-all"), kinds, true, "Decisions a second of all policies");
let store; // a chart, once there is a store
let last = ""; // id of the last event
let said = "";
let source; // of events
let heard = 0; // when the last event came
let opened = 0; // when it was tried last
let again = 2000;
let tries = 0; // since something was heard
const silence = 8000; // no stream is silent for this long

function say(s) {
  if (s === said) return;
  said = s;
  $("spoken").textContent = s;
}

function state(s) {
  model.state = s;
  const before = $("state").dataset.word;
  $("state").dataset.word = s.word;
  text($("state-text"), words[s.word] || s.word);
  $("notes").hidden = !s.notes.length;
  $("notes").replaceChildren(...s.notes.map((n) => el("li", {}, n)));
  if (before !== s.word) say(`${words[s.word] || s.word}. ${s.notes[0] || ""}`);
}

function tiles(total, latency) {
  kinds.forEach((k, i) => text($("now-" + k), number(total[i])));
  if (total[3] > 0) $("tile-undecided").hidden = false; // there was an outage
  const busy = $("figure-store").hidden === false;
  text($("now-store"), busy && latency[1] ? number(latency[1]) : "–");
  text($("now-store-unit"), busy ? "ms" : "all in memory");
  text($("now-policies"), String(table.policies.size));
  const hot = [...table.policies.values()].filter((p) => p.row.r[1] + p.row.r[2] > 0).length;
  text($("now-limited"), hot ? `${hot} at their limit` : "");
}

function stores(rows) {
  const shared = rows.some((r) => r.kind === "store");
  $("panel-stores").hidden = !rows.length;
  if ($("figure-store").hidden && shared) {
    $("figure-store").hidden = false;
    store = new Chart($("chart-store"), ["p50", "p99"], false, "Latency of the store in ms");
  }
  $("stores").replaceChildren(...rows.map((r) => {
    const memory = r.kind === "memory";
    const is = memory ? `${r.keys.toLocaleString("en")} ${r.keys === 1 ? "key" : "keys"}` + (r.shared ? `, ${r.shared.toLocaleString("en")} takes on shared cells` : "")
      : [r.breaker ? "breaker " + r.breaker : "", r.failed ? "failing: " + r.cause : ""].filter(Boolean).join(", ") || "answers";
    const bad = !memory && (r.failed > 0 || (r.breaker && r.breaker !== "closed"));
    const cells = memory ? [] : [number(r.calls), number(r.failed), number(r.p50), number(r.p99)];
    const wide = memory ? { colspan: "5" } : bad ? { class: "hot" } : {};
    return el("tr", {}, el("td", {}, r.name || (memory ? "memory" : "store")), el("td", wide, is), ...cells.map((c) => el("td", { class: "num" }, c)));
  }));
}

function texts(box, list, items) {
  $(box).hidden = !items?.length;
  $(list).replaceChildren(...(items || []).map((c) => el("li", {}, c)));
}

function configuration(d) {
  const facts = [
    ["Source", d.source || "set by the program"], ["Version", d.hash], ["In force since", d.loaded ? new Date(d.loaded * 1000).toLocaleString("sv-SE") : ""],
    ["Reloads", d.applied || d.refused ? `${d.applied} applied, ${d.refused} refused` : ""],
  ].filter(([, v]) => v);
  $("document").replaceChildren(...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", k === "Version" ? { class: "mono" } : {}, v)]));
  $("document-error").hidden = !d.error;
  text($("document-error"), d.error ? "Refused: " + d.error : "");
  texts("changes-box", "changes", d.changes);
  texts("warnings-box", "warnings", d.warnings);
}

function top(rows) {
  $("panel-top").hidden = false;
  $("top-empty").hidden = rows.length > 0;
  $("top").replaceChildren(...rows.map((r) => el("tr", {}, el("td", { class: "mono" }, r.key), el("td", {}, r.policy),
    el("td", {}, r.reason.replace("_", " ")), el("td", { class: "num" }, number(r.count)))));
}

function charts() {
  all.show(model.times, model.totals);
  store?.show(model.times, model.latency);
}

// tabulate writes the charts in text, for those that are unfolded.
function tabulate() {
  if ($("data-all").parentElement.open) minutes($("data-all"), columns, model.times, model.totals);
  if ($("data-store").parentElement.open) minutes($("data-store"), ["p50, most", "p99, most"], model.times, model.latency, true);
}

function full(f) {
  document.title = f.title + " · limits";
  text($("title"), f.title);
  model.times = f.times;
  model.totals = kinds.map((_, k) => pad(f.totals[k], f.times.length));
  model.latency = f.latency;
  stores(f.stores);
  table.replace(f.policies);
  configuration(f.document);
  if (f.top) top(f.top);
  state(f.state);
  const end = f.times.length - 1;
  tiles(model.totals.map((s) => s[end]), model.latency.map((s) => s[end]));
  charts();
  tabulate();
}

const span = 15 * 60;

function tick(t) {
  const end = model.times.length - 1;
  if (end >= 0 && t.now <= model.times[end]) { // the clock was set back
    const back = model.times[end] + 1 - t.now;
    model.times = model.times.map((x) => x - back);
  }
  model.times.push(t.now);
  model.totals.forEach((s, k) => s.push(t.total[k]));
  model.latency.forEach((s, k) => s.push(t.latency[k]));
  if (t.stores) stores(t.stores);
  table.change(t);
  const old = model.times.findIndex((x) => x > t.now - span);
  if (old > 60) { // now and then, as each is a copy
    for (const s of [model.times, ...model.totals, ...model.latency]) s.splice(0, old);
    table.drop(old);
  }
  if (t.document) configuration(t.document);
  if (t.top) top(t.top);
  if (t.state) state(t.state);
  tiles(t.total, t.latency);
  charts();
  if (model.times.length % 5 === 0) {
    table.spell();
    tabulate();
  }
}

function connected(e) {
  last = e.lastEventId;
  heard = performance.now();
  again = 2000;
  tries = 0;
  if ($("link").dataset.word === "lost") {
    say("Connected again.");
    if (model.state) state(model.state);
  }
  $("link").dataset.word = "live";
  document.body.classList.remove("stale");
}

function lost() {
  if ($("link").dataset.word === "lost") return;
  $("link").dataset.word = "lost";
  text($("link"), "Connection lost, trying again");
  document.body.classList.add("stale");
  $("state").dataset.word = "wait"; // how it is by now nobody knows
  text($("state-text"), "Not known");
  say("Connection lost. What is shown is old.");
}

function open() {
  clearTimeout(open.later);
  source?.close();
  opened = performance.now();
  source = new EventSource("events" + (last ? "?last=" + encodeURIComponent(last) : ""));
  source.addEventListener("open", () => opened = performance.now());
  source.addEventListener("full", (e) => {
    connected(e);
    const f = JSON.parse(e.data);
    full(f);
    text($("link"), "live, " + clockTime(f.now));
  });
  source.addEventListener("tick", (e) => {
    connected(e);
    const t = JSON.parse(e.data);
    tick(t);
    text($("link"), "live, " + clockTime(t.now));
  });
  source.addEventListener("error", () => {
    lost();
    if (source.readyState !== EventSource.CLOSED) return; // the browser comes again by itself
    clearTimeout(open.later);
    open.later = setTimeout(open, again); // it does not after an answer such as 503
    again = Math.min(again * 1.5, 15000);
  });
}

// A page that nobody sees needs no stream: browsers have few connections for a host.
let hidden;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      source?.close();
      source = undefined;
    }, 20000);
  } else if (!source) open();
});
// A connection whose other end is gone may be silent without an error, for good: another one is opened, until one answers.
setInterval(() => {
  if (!source) return;
  const now = performance.now();
  if (heard && now - heard > 5000) lost();
  // Browsers take idle connections first, of which they keep six. So a few tries are quick: those may be gone as well.
  const answers = source.readyState === EventSource.OPEN;
  const wait = answers || !tries ? silence : Math.min(3000 * 1.5 ** Math.max(0, tries - 6), 30000);
  if (now - Math.max(heard, opened) > wait) {
    tries++;
    open();
  }
}, 1000);

onScheme(() => {
  all.make();
  store?.make();
  charts();
  table.redraw();
});
for (const id of ["data-all", "data-store"]) $(id).parentElement.addEventListener("toggle", tabulate);
open();
