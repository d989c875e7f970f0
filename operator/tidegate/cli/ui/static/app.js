// Which view is shown, the keyboard, and what is asked before anything is changed.

import { count, foreign, h, refreshTimes } from "./dom.js";
import { GroupPage, ObjectPage, ResetPage } from "./detail.js";
import { ask, change, listen, Refused, takeToken } from "./live.js";
import { List, VIEWS } from "./lists.js";

const $ = (id) => document.getElementById(id);
const state = { lines: new Map(), listed: { groups: [], connection: null }, trouble: {}, ready: false };
const main = $("main");
const list = new List(state);
let page = null;
let turn = null;
let isStale = false;
let timer = 0;
let lastList = "now";
let offered = [];

// --- views -----------------------------------------------------------------------------------------------------------

function route() {
  const parts = location.hash.replace(/^#\//, "").split("/").map(decoded);
  giveUp();
  offer([]);
  const made = {
    reset: () => new ResetPage(parts[1], parts[2], parts[3], { offer, approve, undo }),
    group: () => new GroupPage(parts[1], parts[2], state),
    object: () => new ObjectPage(parts[1], parts[2], parts[3]),
  }[parts[0]];
  if (made) {
    page = made();
    document.title = `${parts.at(-1)} – Tidegate`;
    main.replaceChildren(h("div", { class: "back" }, h("a", { href: `#/${lastList}` }, `← ${VIEWS.find((v) => v.name === lastList).title}`), actions), page.element);
    page.element.append(h("p", { class: "empty loading" }, "Loading…"));
    window.scrollTo(0, 0);
    refresh();
  } else {
    page = null;
    lastList = VIEWS.some((each) => each.name === parts[0]) ? parts[0] : "now";
    document.title = `${VIEWS.find((v) => v.name === lastList).title} – Tidegate`;
    main.replaceChildren(list.element);
    list.open(lastList);
  }
  for (const link of $("nav").querySelectorAll("a")) {
    if (link.dataset.view === lastList) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** One look at a time, which is not broken off by news: where something changes all the time, none would ever end. A page
 * that shows something of Kafka looks again after a while, unless nobody sees it. */
async function refresh() {
  const shown = page;
  if (!shown) return;
  clearTimeout(timer);
  if (turn) {
    isStale = true;
    return;
  }
  turn = new AbortController();
  const { signal } = turn;
  let again = 5000;
  try {
    await shown.refresh(signal);
    shown.element.querySelector(":scope > .loading")?.remove();
    shown.element.querySelector(":scope > .failed")?.remove();
    again = shown.everyMs ?? 0;
  } catch (error) {
    if (signal.aborted) return;
    shown.element.querySelector(":scope > .loading")?.remove();
    shown.element.querySelector(":scope > .failed")?.remove();
    const isGone = error instanceof Refused && error.status === 404;
    if (isGone) offer([]);
    const last = isGone && shown.element.children.length ? " What follows is what was seen last." : "";
    const words = error instanceof Refused ? error.message : "tidegate ui does not answer";
    shown.element.prepend(h("p", { class: "note failed", role: "alert" }, foreign(words), ".", last));
  }
  if (signal.aborted) return;
  turn = null;
  if (isStale) refreshSoon();
  else if (again) timer = setTimeout(() => document.hidden || refresh(), again);
  isStale = false;
}

/** Nobody waits any more for what was asked. */
function giveUp() {
  clearTimeout(timer);
  turn?.abort();
  turn = null;
  isStale = false;
}

let soon = 0;
function refreshSoon() {
  clearTimeout(soon);
  soon = setTimeout(refresh, 150);
}

function counts() {
  const lines = [...state.lines.values()];
  const waits = lines.filter((line) => line.tone === "wait").length;
  const link = $("nav").querySelector('[data-view="now"] .count');
  link.textContent = waits ? String(waits) : "";
  link.title = waits ? `${waits} wait for a person` : "";
}

// --- what the server tells -------------------------------------------------------------------------------------------

function told(kind, data) {
  if (kind === "about") {
    $("where").replaceChildren(foreign(data.where), " at ", foreign(data.server));
    $("you").replaceChildren("you are ", foreign(data.you));
    state.about = data;
    return;
  }
  if (kind === "lines") state.lines = new Map(data.lines.map((line) => [line.id, line]));
  else {
    for (const line of data.lines) state.lines.set(line.id, line);
    for (const id of data.gone) state.lines.delete(id);
  }
  state.ready = data.ready;
  state.trouble = data.trouble;
  showTrouble();
  counts();
  if (page) {
    const ids = new Set([...data.lines.map((line) => line.id), ...data.gone]);
    if (kind === "lines" || page.isAbout(ids)) refreshSoon();
  } else list.show();
  if (data.ready && !performance.getEntriesByName("first-lines").length) performance.mark("first-lines");
}

function showTrouble() {
  const found = Object.entries(state.trouble);
  const text = JSON.stringify(found);
  if ($("trouble").dataset.shown === text) return;
  $("trouble").dataset.shown = text;
  $("trouble").replaceChildren(
    ...(found.length
      ? [h("details", { class: "note" }, h("summary", {}, `Not everything can be seen: ${found.map(([plural]) => plural).join(", ")}`), h("ul", {}, found.map(([, why]) => h("li", {}, foreign(why)))))]
      : []),
  );
}

function connection(name, why) {
  const words = { live: "live", lost: "not connected", refused: "no access", connecting: "connecting" };
  $("live").dataset.state = name;
  $("live").textContent = words[name];
  $("live").title = why;
  state.lost = name === "lost" ? why : "";
  if (!page && !state.ready) list.show();
  if (name === "lost" && turn) {
    // It may wait for an answer that never comes.
    giveUp();
    refreshSoon();
  }
  if (name === "refused") noToken(why);
}

function noToken(why) {
  main.replaceChildren(h("p", { class: "empty" }, foreign(why), ". It is printed by ", h("code", {}, "kubectl tidegate ui"), "; open it from there."));
}

async function listGroups() {
  try {
    state.listed = await ask("groups");
    state.kafkaTrouble = "";
  } catch (error) {
    state.kafkaTrouble = error instanceof Refused ? error.message : "tidegate ui does not answer";
  }
  if (!page && list.view === "groups") list.show();
  if (state.listed.connection !== null || state.kafkaTrouble) setTimeout(listGroups, 15000);
}

// --- changes ---------------------------------------------------------------------------------------------------------

const actions = h("div", { class: "actions" });

function offer(buttons) {
  const text = buttons.map((each) => each.label).join();
  const before = offered.map((each) => each.label).join();
  offered = buttons;
  if (text === before && actions.children.length === buttons.length) return;
  actions.replaceChildren(...buttons.map((each, n) => h("button", { type: "button", class: each.primary ? "button primary" : "button", onclick: () => offered[n]?.run() }, each.label)));
}

function question(title, body, yes, run) {
  const dialog = $("ask");
  $("ask-title").textContent = title;
  $("ask-body").replaceChildren(...body);
  $("ask-error").textContent = "";
  const button = $("ask-yes");
  button.textContent = yes;
  button.disabled = false;
  button.onclick = async () => {
    button.disabled = true; // it may take seconds, until the operator has said what comes of it
    try {
      const message = await run();
      dialog.close();
      toast(message);
      refreshSoon();
    } catch (error) {
      $("ask-error").textContent = error instanceof Refused ? error.message : "tidegate ui does not answer, so it is not known whether that was done. Check before you try again.";
      button.disabled = false;
    }
  };
  $("ask-no").onclick = () => dialog.close();
  dialog.showModal();
}

function approve(namespace, name, found) {
  const { digest, effect } = found;
  question(
    "Approve this plan?",
    [
      h("p", {}, h("b", {}, foreign(`${namespace}/${name}`)), " is then carried out exactly as planned on this page:"),
      h("p", {}, `${count(effect.moved)} of ${count(effect.partitions)} partitions move. By their offsets, ${count(effect.again)} records are read again and ${count(effect.skipped)} are skipped.`),
      h("p", { class: "soft" }, "This creates an OffsetResetApproval in your name, for plan ", h("code", {}, digest.slice(0, 16), "…")),
    ],
    "Approve",
    async () => {
      const done = await change("approve", { namespace, name, plan: digest });
      if (done.holds === false) throw new Refused(`The approval was created, but has no effect. ${done.message}`);
      return done.message;
    },
  );
}

function undo(namespace, name, uid) {
  const box = h("input", { type: "checkbox", id: "ask-manual", checked: true });
  question(
    "Undo this reset?",
    [
      h("p", {}, "A new OffsetReset commits the offsets from just before ", h("b", {}, foreign(`${namespace}/${name}`)), " again."),
      h("label", { for: "ask-manual", class: "check" }, box, " Let its plan wait for an approval, so that I see it first"),
    ],
    "Undo",
    async () => {
      const done = await change("undo", { namespace, name, uid, approval: box.checked ? "Manual" : "Automatic" });
      location.hash = `#/reset/${encodeURIComponent(namespace)}/${encodeURIComponent(done.name)}`;
      return `OffsetReset ${done.name} created. ${done.message}`;
    },
  );
}

let toastTimer = 0;
function toast(message) {
  $("toast").replaceChildren(foreign(message));
  $("toast").classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => $("toast").classList.remove("shown"), 8000);
}

// --- keyboard --------------------------------------------------------------------------------------------------------

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (typing) {
      if (event.target.value) (event.target.value = ""), list.show();
      else event.target.blur();
    } else if (page) location.hash = `#/${lastList}`;
    return;
  }
  if (typing && !["ArrowDown", "ArrowUp", "Enter"].includes(event.key)) return;
  const view = VIEWS.find((each) => each.key === event.key);
  const act = offered.find((each) => each.key === event.key);
  if (view) location.hash = `#/${view.name}`;
  else if (event.key === "?") $("help").showModal();
  else if (act) act.run();
  else if (page) return;
  else if (event.key === "j" || event.key === "ArrowDown") list.move(1);
  else if (event.key === "k" || event.key === "ArrowUp") list.move(-1);
  else if (event.key === "Enter" && (typing || event.target === list.box || event.target === document.body || event.target === main)) list.enter();
  else if (event.key === "/") list.filter.focus();
  else return;
  event.preventDefault();
}

// --- begin -----------------------------------------------------------------------------------------------------------

$("nav").append(
  ...VIEWS.map((each) => h("a", { href: `#/${each.name}`, "data-view": each.name, title: `${each.title} (${each.key})` }, each.title, h("span", { class: "count" }))),
);
$("help-open").addEventListener("click", () => $("help").showModal());
document.addEventListener("keydown", pressed);
document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());
setInterval(refreshTimes, 10000);

if (takeToken()) {
  window.addEventListener("hashchange", () => (/^#token=/.test(location.hash) ? (takeToken(), location.reload()) : location.hash === "#main" ? main.focus() : route()));
  route();
  listen(told, connection);
  listGroups();
} else {
  connection("refused", "The token is missing: open the whole address");
}
