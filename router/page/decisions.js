// The last decisions: a list to pick from, and the one picked as a picture. The newest is shown until one is.

import { $, clock, full, make, named, note, place, plural } from "./dom.js";
import { picture, tokens } from "./picture.js";

const MOST = 50;
let kept = [];
let picked = null; // null: whichever is the newest
let held = false;
let waiting = [];

export function add(seen) {
  if (seen.whole) [kept, waiting] = [[], []];
  waiting = [...waiting, ...seen.decisions].slice(-MOST);
  if (seen.whole) $("decisions").replaceChildren();
  if (!held) takeIn();
}

function takeIn() {
  if (!waiting.length && kept.length) return;
  kept = [...kept, ...waiting].slice(-MOST);
  const list = $("decisions");
  for (const one of waiting) list.prepend(item(one));
  while (list.children.length > MOST) list.lastChild.remove();
  waiting = [];
  $("no-decisions").hidden = kept.length > 0;
  list.parentElement.hidden = !kept.length;
  $("hold").hidden = !kept.length;
  if (!picked && kept.length) draw(kept.at(-1));
  mark();
}

function item(one) {
  const button = make(
    "button",
    { type: "button", tabindex: "-1" },
    make("time", {}, clock(one.time)),
    named(place(one.worker)),
    make("span", {}, `${full(one.prompt_tokens)} tokens`),
    make("small", { class: "quiet" }, named(one.model), " ", named(one.id.slice(0, 12))),
  );
  button.decision = one;
  button.addEventListener("click", () => pick(button));
  return make("li", {}, button);
}

function pick(button) {
  picked = button.decision;
  draw(picked);
  mark(button);
}

function draw(one) {
  const chosen = (other) => other.worker === one.worker && other.rank === one.rank;
  const list = one.candidates.map((other) => ({ ...other, chosen: chosen(other) }));
  const more = one.ranks - list.length;
  const facts = [`${clock(one.time)}, ${tokens(one.prompt_tokens)}, `, named(one.model), `, policy ${one.policy}, request `, named(one.id, "id")];
  if (more > 0) facts.push(`; ${plural(more, "dearer rank")} not shown`);
  if (one.decode) facts.push("; answered by ", named(place(one.decode)));
  $("decision").replaceChildren(...picture(["To ", named(place(one.worker)), ` rank ${one.rank}`], facts, list, one.policy));
}

const buttons = () => [...$("decisions").querySelectorAll("button")];

// One of the list can be reached by Tab, the others by the arrows from there.
function mark(focused = null) {
  const all = buttons();
  const current = picked ?? all[0]?.decision;
  const here = focused ?? all.find((one) => one === document.activeElement) ?? all.find((one) => one.decision === current) ?? all[0];
  for (const one of all) {
    note(one, "aria-current", String(one.decision === current));
    note(one, "tabindex", one === here ? "0" : "-1");
  }
}

export function listen() {
  $("decisions").addEventListener("keydown", (event) => {
    const all = buttons();
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const button = all[Math.max(0, Math.min(all.length - 1, to))];
    pick(button);
    button.focus();
  });
  $("hold").addEventListener("click", () => {
    held = !held;
    if (!held) picked = null;
    note($("hold"), "aria-pressed", String(held));
    if (!held) takeIn();
  });
}
