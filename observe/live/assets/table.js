// The table of policies.

import { Chart, clockTime, columns, el, kinds, minutes, number, spark, text } from "./charts.js";

const bounds = { "-1": "no bound", "-2": "limit again" };

function bound(b) {
  return bounds[b] ?? number(b);
}

function over(row) {
  return (row.k || row.o ? number(row.o) : "–") + " / " + bound(row.b);
}

// Policy is one policy with its rows.
class Policy {
  constructor(about, row, history, table) {
    this.table = table;
    this.history = history;
    this.row = row;
    this.refused = history ? mean(history[1], 30) : 0;
    this.allowed = history ? mean(history[0], 30) : 0;
    this.build(about.i);
    this.describe(about);
    this.update();
  }

  build(id) {
    const cell = (label, ...more) => el("td", { role: "cell", ...(label ? { class: "num", "data-label": label } : {}) }, ...more);
    this.name = el("button", { type: "button", class: "name", "aria-expanded": "false", "aria-controls": "detail-" + id });
    this.tags = el("span");
    this.sub = el("span", { class: "sub" });
    this.limit = cell("");
    this.canvas = el("canvas", { class: "spark", role: "img" });
    this.rates = columns.slice(0, 3).map((label) => cell(label));
    this.left = cell("Left, median");
    this.over = cell("Over / bound");
    const first = el("td", { role: "rowheader" }, this.name, this.tags, this.sub);
    this.tr = el("tr", { class: "policy", role: "row" }, first, this.limit, el("td", { role: "cell" }, this.canvas), ...this.rates, this.left, this.over);
    this.detail = el("tr", { class: "detail", role: "row", id: "detail-" + id, hidden: "" });
    this.name.addEventListener("click", (e) => {
      e.stopPropagation();
      this.toggle();
    });
    this.tr.addEventListener("click", () => {
      if (!String(getSelection())) this.toggle();
    });
    this.table.seen.observe(this.canvas);
    this.canvas.policy = this;
  }

  describe(about) {
    this.about = about;
    text(this.name, about.name);
    text(this.sub, [about.stage, about.limiter].filter(Boolean).join(" · "));
    const tags = [];
    if (about.shadow) tags.push(el("span", { class: "tag" }, "tried out"));
    if (about.undecided) tags.push(el("span", { class: "tag bad" }, about.closed ? "cannot decide: refuses" : "cannot decide: passes"));
    this.tags.replaceChildren(...tags);
    const limit = [];
    if (about.effective) limit.push(el("del", { title: "as configured" }, about.limit), " ", el("b", {}, about.effective));
    else limit.push(about.limit || (about.flight_of ? about.flight_of + " in flight" : "–"));
    if (about.planned) limit.push(" ", el("span", { class: "soft" }, "and plans"));
    const why = [...(about.why || []), ...(about.adaptive ? ["adaptive: " + about.adaptive] : [])];
    if (why.length) limit.push(el("span", { class: "sub" }, why.join("; ")));
    this.limit.replaceChildren(...limit);
    this.haystack = [about.name, about.stage, about.limiter, about.limit].join(" ").toLowerCase();
    if (this.chart) this.facts();
  }

  // push takes the rates of a second.
  push(length) {
    const r = this.row.r;
    if (!this.history && kinds.some((_, k) => r[k])) this.history = kinds.map(() => new Array(length - 1).fill(0));
    if (this.history) this.history.forEach((h, k) => h.push(r[k]));
    this.refused += (r[1] - this.refused) / 15;
    this.allowed += (r[0] - this.allowed) / 15;
  }

  update() {
    const row = this.row;
    const [allowed, refused, degraded, undecided, would] = row.r.map(number);
    text(this.rates[0], undecided === "0" ? allowed : `${allowed} + ${undecided} undecided`);
    this.rates[0].classList.toggle("wrap", undecided !== "0");
    text(this.rates[1], this.about.shadow ? `would: ${would}` : refused);
    text(this.rates[2], degraded);
    this.rates[1].classList.toggle("hot", row.r[1] > 0);
    text(this.left, row.l?.length ? row.m + " %" : "–");
    text(this.over, over(row));
    this.over.classList.toggle("hot", row.b >= 0 && row.o > row.b);
    if (this.chart) this.facts();
  }

  draw() {
    const { times } = this.table.model;
    if (this.visible) spark(this.canvas, times, this.history, times[times.length - 1]);
    if (this.chart) this.chart.show(times, this.history || kinds.map(() => new Array(times.length).fill(0)));
  }

  // spell tells the chart of the row in words. It is no live region: whoever comes by hears it.
  spell() {
    const most = kinds.map((_, k) => this.history ? Math.max(0, ...this.history[k].slice(-60)) : 0);
    const words = `Last minute: at most ${number(most[0])} allowed, ${number(most[1])} refused, ${number(most[2])} degraded and ${number(most[3])} undecided a second`;
    if (this.canvas.getAttribute("aria-label") !== words) this.canvas.setAttribute("aria-label", words);
    if (this.data?.parentElement.open) this.tabulate();
  }

  tabulate() {
    const { times } = this.table.model;
    minutes(this.data, columns, times, this.history || kinds.map(() => new Array(times.length).fill(0)));
  }

  toggle() {
    const open = this.detail.hidden;
    this.detail.hidden = !open;
    this.name.setAttribute("aria-expanded", String(open));
    if (!open) return this.fold();
    const box = el("div", { class: "chart" });
    this.data = el("table", { class: "plain" });
    this.summary = el("summary", {}, "As a table");
    const list = el("details", { class: "data" }, this.summary, this.data);
    list.addEventListener("toggle", () => list.open && this.tabulate());
    this.dl = el("dl", { class: "facts" });
    this.shares = el("div", { class: "left", role: "group", "aria-label": "What decisions left of the quota" });
    const figure = el("figure", {}, el("figcaption", {}, "Decisions a second, 15 minutes"), box, list);
    this.detail.replaceChildren(el("td", { colspan: "8", role: "cell" }, el("div", { class: "more" }, figure, el("div", {}, this.dl, this.shares))));
    this.chart = new Chart(box, kinds, true, this.about.name);
    this.facts();
    this.draw();
  }

  fold() {
    this.chart?.close();
    this.chart = this.data = undefined;
    this.detail.replaceChildren();
  }

  facts() {
    const a = this.about, r = this.row;
    const [allowed, refused, degraded, shadow, undecided] = r.s.map((n) => n.toLocaleString("en"));
    const facts = [
      ["Since it began", `${allowed} allowed, ${refused} refused, ${degraded} degraded` + (r.s[3] ? `, ${shadow} would be refused` : "") + (r.s[4] ? `, ${undecided} undecided` : "")],
      ["Limit", a.limit ? a.limit + (a.effective ? `, in force: ${a.effective}` : "") + (a.planned ? "; some callers have a plan of their own" : "") : "none"],
      ["Why", [...(a.why || []), ...(a.adaptive ? ["adaptive: " + a.adaptive] : [])].join("; ")],
      ["In flight", a.flight_of || r.f ? r.f + (a.flight_of ? `, at most ${a.flight_of} for each key` : "") : ""],
      ["Decided in", (a.via || []).map((v) => v.replace("_", " ")).join(", ")],
      ["Refused for", (a.reasons || []).map((v) => v.replace("_", " ")).join(", ")],
      ["Without a store", !r.s[4] && (a.via || []).every((v) => v === "memory") ? "" : a.closed ? "requests are refused" : "requests pass"],
      ["Leases", a.leases || ""],
      ["Over / bound", `${over(r)} units, ` + (r.k ? `${r.k} ${r.k === 1 ? "key" : "keys"} measured since ${clockTime(a.since)}`
        : "no key measured now: none has passed, or none was under one limit for long enough")],
      ["Bound", a.promise],
    ].filter(([, v]) => v);
    const now = facts.map((f) => f.join("\n")).join("\n\n");
    if (now !== this.dl.now) {
      this.dl.now = now;
      this.dl.replaceChildren(...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
    }
    const left = r.l?.length ? r.l : [];
    const key = left.join();
    if (key === this.shares.now) return;
    this.shares.now = key;
    const lines = left.flatMap((p, k) => {
      const label = k === 0 ? "nothing left" : `up to ${k}0 %`;
      return [el("span", {}, label), el("meter", { min: "0", max: "100", value: String(p), "aria-label": label }), el("span", { class: "soft" }, p + " %")];
    });
    this.shares.replaceChildren(...(lines.length ? [el("b", {}, "Left of the quota"), el("span"), el("span", { class: "soft" }, "decisions")] : []), ...lines);
  }

  close() {
    this.fold();
    this.table.seen.unobserve(this.canvas);
    this.tr.remove();
    this.detail.remove();
  }
}

function mean(values, n) {
  const last = values.slice(-n);
  return last.length ? last.reduce((a, b) => a + b, 0) / last.length : 0;
}

const orders = {
  refused: (a, b) => b.refused - a.refused || b.allowed - a.allowed,
  allowed: (a, b) => b.allowed - a.allowed,
  left: (a, b) => (a.row.l?.length ? a.row.m : 101) - (b.row.l?.length ? b.row.m : 101),
  over: (a, b) => b.row.o - a.row.o,
  name: (a, b) => a.about.name.localeCompare(b.about.name),
  order: () => 0,
};

// Table is all policies.
export class Table {
  constructor(model) {
    this.model = model;
    this.policies = new Map();
    this.body = document.getElementById("rows");
    this.filter = document.getElementById("filter");
    this.by = document.getElementById("sort");
    this.empty = document.getElementById("empty");
    this.seen = new IntersectionObserver((entries) => {
      for (const e of entries) {
        e.target.policy.visible = e.isIntersecting;
        if (e.isIntersecting) e.target.policy.draw();
      }
    }, { rootMargin: "100px" });
    this.filter.addEventListener("input", () => this.sort(true));
    this.by.addEventListener("change", () => this.sort(true));
    document.addEventListener("keydown", (e) => {
      const typing = e.target.matches("input, select, textarea");
      if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
        e.preventDefault();
        this.filter.focus();
      } else if (e.key === "Escape" && e.target === this.filter) {
        this.filter.value = "";
        this.sort(true);
      }
    });
  }

  // replace shows a whole again. What was open stays open, and what had the focus has it.
  replace(list) {
    const before = new Map([...this.policies.values()].map((p) => [p.about.name, {
      open: !!p.chart, list: !!p.data?.parentElement.open, name: p.name === document.activeElement, summary: !!p.chart && p.summary === document.activeElement,
    }]));
    for (const p of this.policies.values()) p.close();
    this.policies.clear();
    const length = this.model.times.length;
    for (const x of list) {
      const history = x.history && kinds.map((_, k) => pad(x.history[k], length));
      const p = new Policy(x.about, x.row, history, this);
      this.policies.set(x.about.i, p);
    }
    this.sort(true);
    for (const p of this.policies.values()) {
      const was = before.get(p.about.name);
      if (was?.open) p.toggle();
      if (was?.list) p.data.parentElement.open = true;
      if (was?.name) p.name.focus({ preventScroll: true });
      if (was?.summary) p.summary.focus({ preventScroll: true });
    }
    this.spell();
  }

  // change takes a tick.
  change(tick) {
    for (const id of tick.gone || []) {
      this.policies.get(id)?.close();
      this.policies.delete(id);
    }
    const about = new Map((tick.about || []).map((a) => [a.i, a]));
    let more = (tick.gone || []).length > 0;
    const rows = new Map((tick.rows || []).map((r) => [r.i, r]));
    for (const [id, a] of about) {
      const p = this.policies.get(id);
      if (p) p.describe(a);
      else if (rows.has(id)) {
        this.policies.set(id, new Policy(a, rows.get(id), undefined, this));
        more = true;
      }
    }
    for (const [id, p] of this.policies) {
      const row = rows.get(id);
      if (row) p.row = row;
      p.push(this.model.times.length);
      if (row) p.update();
      p.draw();
    }
    this.sort(more);
  }

  // drop forgets the first points.
  drop(n) {
    for (const p of this.policies.values()) p.history?.forEach((h) => h.splice(0, n));
  }

  spell() {
    for (const p of this.policies.values()) p.spell();
  }

  // sort orders and filters. By itself it waits while somebody is at a row, which must not move away under him.
  sort(now) {
    if (!now && (this.model.times.length % 5 || this.body.matches(":hover") || this.body.contains(document.activeElement))) return;
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const order = orders[this.by.value];
    const all = [...this.policies.values()].sort((a, b) => order(a, b) || a.about.order - b.about.order);
    let shown = 0;
    let at = this.body.firstElementChild;
    for (const p of all) {
      const fits = words.every((w) => p.haystack.includes(w));
      p.tr.hidden = !fits;
      p.detail.hidden = !fits || !p.chart;
      if (fits) shown++;
      for (const row of [p.tr, p.detail]) { // moved only where it is not there: moving takes the focus
        if (row === at) at = at.nextElementSibling;
        else this.body.insertBefore(row, at);
      }
    }
    this.empty.hidden = shown > 0;
    text(this.empty, this.policies.size ? "No policy has all of these words." : "No policies yet.");
  }

  redraw() {
    for (const p of this.policies.values()) {
      p.chart?.make();
      p.draw();
    }
  }
}

// pad puts zeros where the history of a policy is shorter than that of all.
export function pad(values, length) {
  if (!values) return new Array(length).fill(0);
  return values.length >= length ? values.slice(-length) : [...new Array(length - values.length).fill(0), ...values];
}
