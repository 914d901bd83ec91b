// One decision as a picture: what each worker holds of the prompt, and what it would cost there.

import { bar, full, make, named, place, plural, short } from "./dom.js";
import { byNearness, tierClass, tierName } from "./fleet.js";

// A candidate as both /watch and /explain have it.
export function candidate(one) {
  const tiers = one.overlap_tokens ?? { GPU: one.cached_tokens };
  const cached = Object.values(tiers).reduce((total, tokens) => total + tokens, 0);
  return { ...one, tiers: byNearness(tiers), cached };
}

// The parts of a cost: class and name. Others are shown by their own name.
const PARTS = {
  inflight: ["inflight", "in flight"],
  uncached: ["own", "own tokens"],
  prompt: ["own", "own blocks"],
  batch: ["own", "tokens computed again"],
  load_back: ["back", "to load back"],
  active: ["running", "running requests"],
  decode: ["running", "blocks of running requests"],
};
const partOf = (name) => PARTS[name] ?? ["other", name.replaceAll("_", " ")];

// The parts where they add up to the cost; else the cost as a whole, and what the rule has looked at.
function parts(one, policy) {
  const terms = Object.entries(one.terms);
  const numbers = terms.filter(([, amount]) => typeof amount === "number" && amount);
  const sum = numbers.reduce((total, [, amount]) => total + amount, 0);
  const adds = terms.length > 0 && one.cost !== null && numbers.every(([, amount]) => amount > 0) && Math.abs(sum - one.cost) < 1e-6 * Math.max(1, sum);
  const words = (adds ? numbers : terms).map(([name, amount]) => `${typeof amount === "number" ? short(amount) : (amount ?? "never")} ${partOf(name)[1]}`);
  const bars = adds ? numbers.map(([name, amount]) => [partOf(name)[0], amount, partOf(name)[1]]) : [["other", Math.max(0, one.cost), policy]];
  return { bars, text: words.join(adds ? " + " : ", ") };
}

export function picture(title, facts, list, policy) {
  const all = list.map(candidate);
  const most = Math.max(1, ...all.map((one) => one.cost));
  const prompt = Math.max(1, ...all.map((one) => one.cached + one.predicted_tokens + one.uncached_tokens));
  const lines = all.map((one) => line(one, policy, most, prompt));
  return [
    make("h3", {}, ...title),
    make("p", { class: "quiet" }, ...facts),
    make("ol", { class: "candidates" }, ...lines),
    keys(all, policy),
  ];
}

function line(one, policy, most, prompt) {
  const { bars, text } = parts(one, policy);
  const held = one.tiers.filter(([, tokens]) => tokens).map(([tier, tokens]) => `${full(tokens)} on ${tierName(tier)}`);
  if (one.predicted_tokens) held.push(`${full(one.predicted_tokens)} expected`);
  held.push(`${full(one.uncached_tokens)} to compute`);
  const pieces = [...one.tiers.map(([tier, tokens]) => [tierClass(tier), tokens]), ["predicted", one.predicted_tokens], ["missing", one.uncached_tokens]];
  const mark = one.chosen ? make("b", { class: "mark" }, "chosen") : null;
  const role = one.role && one.role !== "both" ? ` ${one.role}` : "";
  return make(
    "li",
    { class: one.eligible === false ? "out" : one.chosen ? "chosen" : "" },
    make("p", { class: "who" }, named(place(one.worker)), make("span", { class: "quiet" }, ` rank ${one.rank}${role}`), mark, make("span", { class: "cost" }, "cost ", make("b", {}, one.cost === null ? "never" : short(one.cost)))),
    make("p", { class: "what" }, bar(pieces, prompt), make("span", { class: "quiet" }, held.join(", "))),
    make("p", { class: "what" }, bar(bars, most), make("span", { class: "quiet" }, named(text || "nothing to do"))),
    one.why ? make("p", { class: "why" }, named(one.why)) : null,
  );
}

function keys(all, policy) {
  const tiers = new Map(all.flatMap((one) => one.tiers).filter(([, tokens]) => tokens));
  const entries = byNearness(Object.fromEntries(tiers)).map(([tier]) => [tierClass(tier), `on ${tierName(tier)}`]);
  entries.push(["predicted", "expected"], ["missing", "to compute"]);
  const costs = new Map(all.flatMap((one) => parts(one, policy).bars).map(([kind, , name]) => [name, kind]));
  const items = (list) => list.map(([kind, name]) => make("li", {}, make("i", { class: kind }), named(name)));
  return make("div", { class: "keys" }, make("ul", { class: "legend", "aria-label": "Colours of the prompt" }, make("li", {}, "Prompt"), ...items(entries)), make("ul", { class: "legend", "aria-label": "Colours of the cost" }, make("li", {}, "Cost"), ...items([...costs].map(([name, kind]) => [kind, name]))));
}

export const tokens = (count) => plural(count, "prompt token");
