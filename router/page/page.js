// The page's connection to its router: follows /watch while it is to be seen, and asks /explain.

import * as decisions from "./decisions.js";
import { $, make, named, note, place, put } from "./dom.js";
import * as fleet from "./fleet.js";
import { picture, tokens } from "./picture.js";
import * as resets from "./resets.js";

const KEY = "kv-router-key";
const QUIET_SECONDS = 6;
let key = sessionStorage.getItem(KEY) ?? "";
let stop = null;
let turn = 0; // of following: a later one ends those before it
let last = null;

const credentials = () => (key ? { authorization: `Bearer ${key}` } : {});
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function status(state, text) {
  note($("status"), "data-state", state);
  put($("status"), text);
  note(document.body, "data-live", String(state === "live"));
}

async function follow() {
  turn += 1;
  const mine = turn;
  for (let failures = 0; mine === turn && !document.hidden; failures += 1) {
    stop = new AbortController();
    try {
      await listen(stop, () => { failures = 0; });
    } catch (error) {
      if (error.final) return;
      if (error.text) status("lost", error.text);
    }
    if (document.hidden || mine !== turn) return;
    const seconds = Math.min(10, 1 + failures);
    if ($("status").dataset.state === "live") status("lost", "connection lost, trying again");
    await pause(seconds);
  }
}

async function listen(control, heard) {
  const answer = await fetch("watch", { headers: credentials(), cache: "no-store", signal: control.signal });
  if (answer.status === 401) {
    askForKey();
    throw Object.assign(new Error(), { final: true });
  }
  if (!answer.ok) throw Object.assign(new Error(), { text: (await answer.json()).error.message });
  $("door").hidden = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const timer = setTimeout(() => control.abort(), QUIET_SECONDS * 1000);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events.filter((one) => one.startsWith("data: "))) {
      heard();
      show(JSON.parse(event.slice(6)));
    }
  }
}

function show(seen) {
  last = seen;
  status("live", "live");
  put($("version"), seen.version);
  put($("policy"), `policy ${seen.policy}${seen.process && `, process ${seen.process}`}`);
  showModels(seen);
  fleet.show(seen);
  resets.show(seen.time, resets.add(seen.resets, seen.whole, seen.time));
  decisions.add(seen);
}

function showModels(seen) {
  const models = [...new Set(seen.workers.map((row) => row.model).filter(Boolean))].sort();
  const select = $("model");
  const shown = JSON.stringify(models);
  if (select.dataset.of === shown) return;
  const before = select.value;
  select.dataset.of = shown;
  select.replaceChildren(...models.map((model) => make("option", { value: model }, model)));
  if (models.includes(before)) select.value = before;
}

function askForKey() {
  const wrong = key !== "";
  key = "";
  sessionStorage.removeItem(KEY);
  $("door").hidden = false;
  status("closed", wrong ? "that key is not valid" : "a key is needed");
  $("key").focus();
}

async function explain() {
  const text = $("prompt").value;
  let body = { model: $("model").value, prompt: text };
  if (text.trimStart().startsWith("{")) {
    try {
      body = { model: $("model").value, ...JSON.parse(text) };
    } catch (error) {
      fail(`Not JSON: ${error.message}`);
      return;
    }
  }
  try {
    const headers = { "content-type": "application/json", ...credentials() };
    const answer = await fetch("explain", { method: "POST", headers, body: JSON.stringify(body) });
    const said = await answer.json();
    if (answer.ok) draw(said);
    else fail(said.error.message);
  } catch {
    fail("The router does not answer.");
  }
}

const fail = (text) => $("answer").replaceChildren(make("p", { class: "why", role: "alert" }, named(text)));

function draw(said) {
  const { chosen } = said;
  const is = (one, other) => other !== null && one.worker === other.worker && one.rank === other.rank;
  const list = said.candidates.map((one) => ({ ...one, chosen: is(one, chosen) || is(one, said.decode) }));
  list.sort((one, other) => other.chosen - one.chosen || other.eligible - one.eligible || one.cost - other.cost);
  const title = chosen ? ["Would go to ", named(place(chosen.worker)), ` rank ${chosen.rank}`] : ["No worker can take it now"];
  const exact = said.exact ? "counted exactly" : `estimated: ${said.why}`;
  const facts = [`${tokens(said.prompt_tokens)}, `, named(exact), `, policy ${said.policy}`, said.block_size ? `, ${said.block_size} a block` : ""];
  $("answer").replaceChildren(...picture(title, facts, list, said.policy));
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem(KEY, key);
  $("key").value = "";
  follow();
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  explain();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit();
});
$("filter").addEventListener("input", () => last && fleet.showWorkers(last));
$("span").addEventListener("change", () => last && resets.show(last.time, false));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stop?.abort();
    fleet.forget();
  } else if ($("door").hidden) {
    follow();
  }
});
decisions.listen();
follow();
