// What the fleet does now: the figures on top, and a row for every worker.

import { $, ago, bar, full, legend, make, named, note, percent, place, plural, put, refill, short, spark } from "./dom.js";

const WINDOW = 60; // seconds that rates and shares are taken over
const FILTER_FROM = 9; // workers
const MANY = 12; // workers that have a scroll bar of their own
const rows = new Map();
const figures = new Map();
let past = [];

// Tiers by how near they are to the computation; names are the engines' own.
const NEAR = ["GPU", "CPU_PINNED", "CPU", "DISK"];
const near = (tier) => (NEAR.indexOf(tier) + NEAR.length + 1) % (NEAR.length + 1);
export const tierName = (tier) => ({ GPU: "GPU", CPU_PINNED: "host", CPU: "host", DISK: "disk", EXTERNAL: "storage" })[tier] ?? tier;
export function tierClass(tier) {
  const at = NEAR.indexOf(tier);
  return `tier${at < 0 ? 3 : Math.max(0, at - (at > 1 ? 1 : 0))}`;
}
export const byNearness = (tiers) => Object.entries(tiers).sort(([one], [other]) => near(one) - near(other));

export function show(seen) {
  remember(seen);
  showFigures(seen);
  showWorkers(seen);
}

export function forget() {
  past = [];
}

function remember(seen) {
  const counts = new Map(seen.workers.map((row) => [row.url, [row.answered, row.prompt_tokens, row.cached_tokens]]));
  const answered = sum(seen.workers, "answered");
  const before = past.at(-1);
  if (before && (seen.process !== before.process || answered < before.answered)) past = []; // not the same any more
  past.push({ time: seen.time, process: seen.process, counts, answered, running: sum(seen.workers, "inflight_requests") });
  while (past.length > 2 && seen.time - past[0].time > WINDOW) past.shift();
}

const sum = (list, name) => list.reduce((total, one) => total + one[name], 0);

// What a worker has done since an earlier look; all of it when it has begun anew since.
function done(url, from, to) {
  const now = to.counts.get(url) ?? [0, 0, 0];
  const then = from.counts.get(url) ?? [0, 0, 0];
  return now[0] < then[0] ? now : now.map((count, at) => count - then[at]);
}

function share(urls, from, to) {
  let prompt = 0;
  let cached = 0;
  for (const url of urls) {
    const [, tokens, hits] = done(url, from, to);
    prompt += tokens;
    cached += hits;
  }
  return prompt ? Math.min(1, cached / prompt) : null;
}

function showFigures(seen) {
  const [first, last] = [past[0], past.at(-1)];
  const seconds = last.time - first.time;
  const urls = [...last.counts.keys()];
  const rates = pairs((one, two) => Math.max(0, two.answered - one.answered) / Math.max(0.5, two.time - one.time));
  const shares = pairs((one, two) => share(urls, one, two)).map((value, at, all) => value ?? all[at - 1] ?? 0);
  const rate = seconds ? Math.max(0, last.answered - first.answered) / seconds : 0;
  const ready = seen.workers.filter((row) => row.state === "ready").length;
  const { totals } = seen;
  figure("Workers ready", `${ready}`, `of ${seen.workers.length}`);
  figure("Requests", short(rate), "a second", rates);
  figure("Hit share", percent(share(urls, first, last)), "of tokens", shares, 1);
  figure("Running", short(last.running), totals.waiting ? `${short(totals.waiting)} waiting` : "requests", past.map((one) => one.running));
  figure("Index", short(totals.index_blocks), "blocks");
  figure("Errors", short(totals.errors), totals.retries ? `and ${plural(totals.retries, "retry", "retries")}` : "since the start");
}

const pairs = (of) => past.slice(1).map((one, at) => of(past[at], one));

function figure(label, value, unit, values, most) {
  let shown = figures.get(label);
  if (!shown) {
    shown = { value: make("strong"), unit: make("span", { class: "quiet" }), line: make("span", { class: "spark" }) };
    figures.set(label, shown);
    const text = make("p", {}, shown.value, " ", shown.unit);
    $("figures").append(make("div", { class: "figure" }, make("h3", {}, label), text, shown.line));
  }
  put(shown.value, value);
  put(shown.unit, unit);
  if (values && values.length > 1) shown.line.replaceChildren(spark(values, most));
}

export function showWorkers(seen) {
  const list = $("workers");
  const tiers = new Map();
  const most = { load: 1, blocks: 1 };
  for (const row of seen.workers) {
    row.blocks = blocks(row);
    for (const tier of Object.keys(row.blocks)) tiers.set(tier, true);
    row.predicted = row.ranks.reduce((total, rank) => total + rank.predicted_blocks, 0);
    most.load = Math.max(most.load, row.inflight_requests);
    most.blocks = Math.max(most.blocks, row.predicted + Object.values(row.blocks).reduce((one, two) => one + two, 0));
  }
  const wanted = seen.workers.filter(matches);
  const urls = new Set(wanted.map((row) => row.url));
  for (const [url, shown] of rows) if (!urls.has(url)) { shown.row.remove(); shown.more.remove(); rows.delete(url); }
  wanted.forEach((row, at) => {
    const shown = rows.get(row.url) ?? added(row);
    if (list.children[2 * at] !== shown.row) {
      list.insertBefore(shown.row, list.children[2 * at] ?? null);
      list.insertBefore(shown.more, shown.row.nextSibling);
    }
    update(shown, row, most);
  });
  const keys = byNearness(Object.fromEntries(tiers)).map(([tier]) => [tierClass(tier), tierName(tier)]);
  legend($("tiers"), [...keys, ["predicted", "predicted"]]);
  list.classList.toggle("many", wanted.length > MANY);
  $("filter-box").hidden = seen.workers.length < FILTER_FROM;
  $("no-workers").hidden = wanted.length > 0;
  put($("no-workers"), seen.workers.length ? "No worker matches the filter." : "There is no worker yet.");
}

function matches(row) {
  const text = $("filter").value.trim().toLowerCase();
  return !text || [row.url, row.model, row.state, row.engine, row.role].some((part) => part?.toLowerCase().includes(text));
}

function blocks(row) {
  const total = {};
  for (const rank of row.ranks) for (const [tier, count] of Object.entries(rank.blocks)) total[tier] = (total[tier] ?? 0) + count;
  return total;
}

function added(row) {
  const id = `more-${rows.size}-${Math.random().toString(36).slice(2)}`;
  const cell = (label, ...children) => make("span", { role: "cell", "data-label": label }, ...children);
  const shown = {
    name: make("button", { type: "button", class: "name", "aria-expanded": "false", "aria-controls": id }, named(place(row.url))),
    model: make("bdi", { class: "quiet model" }),
    state: make("b", { class: "state" }),
    why: make("span", { class: "quiet" }),
    load: make("span"),
    tokens: make("span", { class: "quiet" }),
    loadBar: bar([], 1),
    blocks: make("span"),
    blocksBar: bar([], 1),
    hits: make("span"),
    hitsBar: bar([], 1),
    view: make("b", { class: "state" }),
    age: make("span", { class: "quiet" }),
    more: make("div", { id, class: "more", hidden: true }),
  };
  shown.row = make(
    "div",
    { role: "row", class: "row" },
    cell("Worker", shown.name, shown.model),
    cell("State", shown.state, shown.why),
    cell("Load", shown.load, shown.loadBar, shown.tokens),
    cell("Blocks", shown.blocks, shown.blocksBar),
    cell("Hit share", shown.hits, shown.hitsBar),
    cell("Events", shown.view, shown.age),
  );
  shown.name.addEventListener("click", () => {
    shown.more.hidden = !shown.more.hidden;
    note(shown.name, "aria-expanded", String(!shown.more.hidden));
    if (shown.last) detail(shown, shown.last);
  });
  rows.set(row.url, shown);
  return shown;
}

function update(shown, row, most) {
  shown.last = row;
  const tiers = byNearness(row.blocks);
  const held = tiers.reduce((total, [, count]) => total + count, 0);
  const hit = share([row.url], past[0], past.at(-1)) ?? (row.prompt_tokens ? Math.min(1, row.cached_tokens / row.prompt_tokens) : null);
  put(shown.model, [row.model ?? "not known yet", row.engine, row.role === "both" ? null : row.role].filter(Boolean).join(" · "));
  put(shown.state, row.breaker.state === "open" && row.state === "ready" ? "taken out" : row.state);
  note(shown.state, "data-state", row.breaker.state === "open" ? "failed" : row.state);
  put(shown.why, row.why || (row.breaker.state === "open" ? row.breaker.cause : ""));
  put(shown.load, plural(row.inflight_requests, "request"));
  put(shown.tokens, row.inflight_tokens ? `${short(row.inflight_tokens)} tokens to prefill` : "");
  refill(shown.loadBar, [["load", row.inflight_requests]], most.load);
  put(shown.blocks, held ? tiers.filter(([, count]) => count).map(([tier, count]) => `${short(count)} ${tierName(tier)}`).join(", ") : "none");
  refill(shown.blocksBar, [...tiers.map(([tier, count]) => [tierClass(tier), count]), ["predicted", row.predicted]], most.blocks);
  put(shown.hits, percent(hit));
  refill(shown.hitsBar, [["hit", hit ?? 0]], 1);
  showView(shown, row);
  if (!shown.more.hidden) detail(shown, row);
}

const WORST = ["degraded", "connecting", "replaying", "silent", "live"];

function showView(shown, row) {
  const worst = WORST.find((state) => row.ranks.some((rank) => rank.view === state)) ?? "none";
  const few = row.ranks.filter((rank) => rank.view === worst).length;
  put(shown.view, few < row.ranks.length ? `${worst}, ${few} of ${row.ranks.length}` : worst);
  note(shown.view, "data-state", worst);
  const ages = row.ranks.map((rank) => rank.event_age_seconds).filter((age) => age !== null);
  const gaps = sum(row.ranks, "gaps");
  put(shown.age, [ages.length ? ago(Math.min(...ages)) : "no event yet", gaps ? plural(gaps, "gap") : ""].filter(Boolean).join(", "));
}

function detail(shown, row) {
  const { breaker } = row;
  const failures = Object.entries(breaker.failures).map(([kind, count]) => `${kind} ${count}`).join(", ");
  const facts = [
    ["URL", row.url],
    ["Token ids", [row.tokens ?? "not known yet", row.tokens_why].filter(Boolean).join(": ")],
    ["Breaker", [breaker.state, breaker.cause, failures].filter(Boolean).join(", ")],
    ["Answered", `${full(row.answered)} requests, ${full(row.prompt_tokens)} prompt tokens, ${full(row.cached_tokens)} of them cached`],
  ];
  const text = JSON.stringify([facts, row.ranks.map((rank) => [rank.view, rank.why, rank.blocks, rank.gaps, rank.replays, rank.resets])]);
  if (shown.more.dataset.of === text) return;
  shown.more.dataset.of = text;
  const list = make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, named(value))]));
  const heads = ["Rank", "View", "Blocks", "Batches", "Gaps", "Replays", "Resets"];
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))));
  table.append(make("tbody", {}, ...row.ranks.map(rankLine)));
  shown.more.replaceChildren(list, make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Ranks of ${place(row.url)}` }, table));
}

function rankLine(rank) {
  const tiers = byNearness(rank.blocks).map(([tier, count]) => `${full(count)} ${tierName(tier)}`);
  const resets = Object.entries(rank.resets).map(([cause, count]) => `${cause.replaceAll("_", " ")} ${count}`);
  const cells = [rank.rank, [rank.view, rank.why].filter(Boolean).join(": "), tiers.join(", "), rank.batches, rank.gaps, rank.replays, resets.join(", ")];
  return make("tr", {}, ...cells.map((value) => make("td", {}, named(String(value)))));
}
