// Builds elements. Text is only ever set as text: what resources and records say is never taken for HTML.

/** Seconds by which clocks differ that are kept by NTP. */
const MOST_SKEW = 5;
const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A name or a message of others: its writing direction ends with it, and what hides or reorders text is shown. */
export function foreign(text) {
  return h("bdi", { class: "foreign" }, visible(String(text)));
}

/** As the server does it (tidegate.printable), for the names of groups, which come as they are. */
function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (c) => {
    const code = c.codePointAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
}

/** A whole number; one that a double does not hold comes as a text (tidegate.cli.ui.rows). */
export function count(value) {
  return value === null || value === undefined ? "–" : BigInt(value).toLocaleString("en-US");
}

export function badge(state, tone) {
  return h("span", { class: `state ${tone || "idle"}` }, spaced(state));
}

/** A phase or a reason as words: AwaitingApproval is "Awaiting approval". */
export function spaced(name) {
  return name.replace(/(?<=[a-z])(?=[A-Z])/g, " ").replace(/ [A-Z](?=[a-z])/g, (c) => c.toLowerCase());
}

/** How long ago, or by how much a clock elsewhere is ahead of this one; kept up to date by `refreshTimes`; the time itself is its title. */
export function since(text) {
  if (!text) return h("span", {}, "");
  return h("time", { datetime: text, title: text, "data-ago": "" }, ago(text));
}

export function refreshTimes() {
  for (const each of document.querySelectorAll("time[data-ago]")) {
    const now = ago(each.getAttribute("datetime"));
    if (each.textContent !== now) each.textContent = now;
  }
}

export function ago(text) {
  const seconds = Math.round((Date.now() - Date.parse(text)) / 1000);
  if (Number.isNaN(seconds)) return text;
  return seconds < -MOST_SKEW ? `in ${span(-seconds)}` : `${span(Math.max(0, seconds))} ago`;
}

function span(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Renders a part of a page again only where what it shows has changed: focus, selection and open details stay. */
export class Parts {
  constructor(element) {
    this.element = element;
    this.shown = new Map();
  }

  show(name, value, render) {
    const text = JSON.stringify(value);
    const before = this.shown.get(name);
    if (before && before.text === text) return;
    const rendered = render(value);
    const element = rendered || h("div", { hidden: true });
    if (before) {
      keepOpen(before.element, element);
      before.element.replaceWith(element);
    } else this.element.append(element);
    this.shown.set(name, { text, element });
  }
}

function keepOpen(before, after) {
  const open = new Set([...before.querySelectorAll("details[open][data-key]")].map((each) => each.dataset.key));
  for (const each of after.querySelectorAll("details[data-key]")) if (open.has(each.dataset.key)) each.open = true;
}

/** The address of a view; its parts may hold any character. */
export function address(...parts) {
  return "#/" + parts.map((part) => encodeURIComponent(String(part).toWellFormed?.() ?? part)).join("/");
}
