// Elements and numbers. Text reaches the page as text only: whatever a worker calls itself, it stays a name.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Writes only what is new, so that a page at rest costs nothing.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function note(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// A name that is not the router's own: kept apart from the text around it, whichever way it is written.
export const named = (text, kind = "") => make("bdi", { class: kind, title: text }, text);

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const short = (number) => (Math.abs(number) < 1000 ? rounded(number) : compact.format(number));
export const full = (number) => whole.format(number);
export const percent = (share) => (share === null ? "–" : `${(share * 100).toFixed(share > 0.9995 || share === 0 ? 0 : 1)}%`);
export const plural = (count, one, many = `${one}s`) => `${full(count)} ${count === 1 ? one : many}`;
const rounded = (number) => (Number.isInteger(number) ? String(number) : number.toFixed(number < 10 ? 1 : 0));

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export function ago(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

// host:port, and the path if there is one: all that tells workers of a fleet apart.
export const place = (url) => url.replace(/^https?:\/\//, "").replace(/\/$/, "");

// A bar of pieces: [class, amount] of a whole. Its text stands beside it, so it is not read out.
export function bar(pieces, all, kind = "bar") {
  const element = make("span", { class: kind, "aria-hidden": "true" });
  refill(element, pieces, all);
  return element;
}

export function refill(element, pieces, all) {
  const wanted = pieces.filter(([, amount]) => amount > 0);
  while (element.children.length > wanted.length) element.lastChild.remove();
  wanted.forEach(([kind, amount], at) => {
    const piece = element.children[at] ?? element.appendChild(document.createElement("i"));
    if (piece.className !== kind) piece.className = kind;
    const width = `${((100 * amount) / Math.max(all, 1e-9)).toFixed(2)}%`;
    if (piece.style.width !== width) piece.style.width = width;
  });
}

export function legend(list, entries) {
  const text = JSON.stringify(entries);
  if (list.dataset.of === text) return;
  list.dataset.of = text;
  list.replaceChildren(...entries.map(([kind, name]) => make("li", {}, make("i", { class: kind }), named(name))));
}

const SVG = "http://www.w3.org/2000/svg";

export function spark(values, most = Math.max(...values, 1e-9)) {
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(23 - (22 * value) / most).toFixed(1)}`);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const area = document.createElementNS(SVG, "polygon");
  area.setAttribute("points", `0,24 ${points.join(" ")} 100,24`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(area, line);
  return svg;
}
