// When views were emptied: a line of time with a lane for each worker, and the same in words.

import { $, clock, make, named, note, place, plural, put } from "./dom.js";

const MOST = 512;
const LANES = 8;
const LINES = 60;
const WORDS = {
  all_blocks_cleared: ["cleared by the engine", "cleared"],
  weights_changed: ["new weights", "cleared"],
  paused: ["paused, may have cleared", "cleared"],
  restart: ["the engine has restarted", "lost"],
  reconfigured: ["another worker at this address", "lost"],
  silent: ["no events, though it computes", "doubt"],
  contradicted: ["its answers say otherwise", "doubt"],
  rebuild: ["built anew from a replay", "doubt"],
  hash_conflict: ["two blocks with one hash", "doubt"],
  fault: ["a batch could not be applied", "doubt"],
};
let kept = [];
let fitted = false;

const words = (cause) => WORDS[cause]?.[0] ?? cause.replaceAll("_", " ");
const kind = (cause) => WORDS[cause]?.[1] ?? "cleared";

export function add(resets, whole, now) {
  if (!whole && !resets.length) return false;
  if (whole && !fitted) fit(resets, now);
  kept = (whole ? resets : [...kept, ...resets]).slice(-MOST);
  return true;
}

// Begins with the shortest span that holds all there have been.
function fit(resets, now) {
  fitted = true;
  const spans = [...$("span").options].map((option) => option.value);
  $("span").value = spans.find((span) => !resets.length || now - resets[0].time < Number(span)) ?? spans.at(-1);
}

export function show(now, news) {
  const seconds = Number($("span").value);
  const within = kept.filter((one) => now - one.time <= seconds);
  drawLine(within, now, seconds);
  if (news) writeLog();
}

function drawLine(within, now, seconds) {
  const workers = [...new Set(within.map((one) => one.worker).reverse())].slice(0, LANES).sort();
  const lanes = workers.map((worker) => {
    const marks = new Map();
    for (const one of within) {
      if (one.worker === worker) marks.set(`${(100 - (100 * (now - one.time)) / seconds).toFixed(1)} ${kind(one.cause)}`, one);
    }
    const track = make("span", { class: "track" });
    for (const [spot, one] of marks) {
      const [left, look] = spot.split(" ");
      const mark = make("i", { class: look, title: `${clock(one.time)} ${words(one.cause)}` });
      mark.style.left = `${left}%`;
      track.append(mark);
    }
    return make("span", { class: "lane" }, named(place(worker)), track);
  });
  const span = seconds >= 7200 ? `${seconds / 3600} h` : `${seconds / 60} min`;
  const axis = make("span", { class: "lane axis" }, make("bdi"), make("span", { class: "track" }, make("span", {}, `${span} ago`), make("span", {}, "now")));
  $("line").replaceChildren(...(lanes.length ? [...lanes, axis] : []));
  const hidden = new Set(within.map((one) => one.worker)).size - workers.length;
  const most = hidden > 0 ? `, ${hidden} more not drawn` : "";
  note($("line"), "aria-label", within.length ? `${plural(within.length, "reset")} of ${plural(workers.length, "worker")} in ${span}${most}` : `No resets in ${span}`);
}

// Ranks of one worker that were emptied together are one line.
function writeLog() {
  const lines = new Map();
  for (const one of kept) {
    const key = [one.worker, one.cause, Math.round(one.time)].join(" ");
    const line = lines.get(key) ?? { ...one, ranks: new Set() };
    line.ranks.add(one.rank);
    lines.set(key, line);
  }
  const last = [...lines.values()].slice(-LINES).reverse();
  $("resets").replaceChildren(
    ...last.map((one) => {
      const ranks = one.ranks.size > 1 ? plural(one.ranks.size, "rank") : `rank ${one.rank}`;
      return make("li", {}, make("time", {}, clock(one.time)), make("i", { class: `dot ${kind(one.cause)}` }), make("span", {}, named(place(one.worker)), make("span", { class: "quiet" }, ` ${ranks}, `), named(words(one.cause))));
    }),
  );
  $("resets").hidden = !last.length;
  $("no-resets").hidden = last.length > 0;
  put($("no-resets"), "None yet.");
}
