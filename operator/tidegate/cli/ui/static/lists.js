// The lists: what waits and runs now, groups, resets, pauses, policies, connections, backups and mirrors.

import { address, badge, count, foreign, h, since, spaced } from "./dom.js";

export const VIEWS = [
  { name: "now", title: "Now", key: "1" },
  { name: "groups", title: "Groups", key: "2" },
  { name: "resets", title: "Resets", key: "3" },
  { name: "pauses", title: "Pauses", key: "4" },
  { name: "policies", title: "Policies", key: "5" },
  { name: "connections", title: "Connections", key: "6" },
  { name: "more", title: "Backups and mirrors", key: "7" },
];

const KINDS = {
  resets: ["offsetresets"],
  pauses: ["consumergrouppauses"],
  policies: ["offsetresetpolicies"],
  connections: ["kafkaconnections"],
  more: ["offsetbackups", "offsetmirrors"],
};

export const NAMES = {
  offsetresets: "OffsetReset",
  consumergrouppauses: "ConsumerGroupPause",
  offsetresetpolicies: "OffsetResetPolicy",
  kafkaconnections: "KafkaConnection",
  offsetbackups: "OffsetBackup",
  offsetmirrors: "OffsetMirror",
};

const MOST_ROWS = 2000;
const RANK = { wait: 0, bad: 1, busy: 2, good: 3, idle: 4 };

export function linkOf(line) {
  if (line.kind === "offsetresets") return address("reset", line.namespace, line.name);
  return address("object", line.kind, line.namespace, line.name);
}

/** Groups that resources name, and those that Kafka lists, by connection and id. */
export function groupRows(lines, listed) {
  const found = new Map();
  const row = (connection, group) => {
    const id = JSON.stringify([connection, group]);
    let known = found.get(id);
    if (!known) {
      known = { id: `group/${id}`, connection, group, state: "", type: "", about: [], tone: "idle", since: null };
      found.set(id, known);
    }
    return known;
  };
  for (const each of listed.groups) {
    const known = row(listed.connection, each.group);
    known.state = each.state;
    known.type = each.type;
  }
  for (const line of lines.values()) {
    for (const group of line.groups) {
      const known = row(line.connection, group);
      if (line.kind === "offsetresets" && line.ended) {
        known.about.push({ rank: 5, text: `last reset ${words(line.state)}`, tone: "idle", line });
        continue;
      }
      known.about.push({ rank: RANK[line.tone], text: `${shortKind(line.kind)} ${words(line.state)}`, tone: line.tone, line });
    }
  }
  for (const known of found.values()) {
    known.about.sort((a, b) => a.rank - b.rank || (a.line.name < b.line.name ? -1 : 1));
    known.tone = known.about[0]?.tone ?? "idle";
    known.since = known.about[0]?.line.since ?? null;
  }
  return [...found.values()].sort((a, b) => RANK[a.tone] - RANK[b.tone] || (a.group < b.group ? -1 : 1));
}

const words = (state) => spaced(state).toLowerCase();

function shortKind(kind) {
  return { offsetresets: "reset", consumergrouppauses: "pause", offsetresetpolicies: "policy" }[kind] ?? kind;
}

const finished = (line) => line.finishedAt ?? line.since ?? "";

function ordered(view, lines) {
  const all = [...lines.values()];
  if (view === "now") {
    const now = all.filter((l) => (l.kind === "offsetresets" && !l.ended) || l.kind === "consumergrouppauses");
    const bad = all.filter((l) => l.tone === "bad" && !l.ended && !now.includes(l));
    return [...now, ...bad].sort((a, b) => RANK[a.tone] - RANK[b.tone] || (finished(a) < finished(b) ? 1 : -1));
  }
  const of = all.filter((line) => KINDS[view].includes(line.kind));
  if (view === "resets") {
    return of.sort((a, b) => Number(a.ended) - Number(b.ended) || (finished(a) < finished(b) ? 1 : -1));
  }
  return of.sort((a, b) => RANK[a.tone] - RANK[b.tone] || (a.id < b.id ? -1 : 1));
}

export class List {
  constructor(state) {
    this.state = state;
    this.rows = new Map();
    this.selected = null;
    this.order = [];
    this.box = h("div", { class: "list", role: "listbox", tabindex: "0", id: "list" });
    this.head = h("div", { class: "list-head" });
    this.filter = h("input", {
      type: "search",
      id: "filter",
      placeholder: "Filter by name, group, state …   /",
      "aria-label": "Filter the list",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.filter.addEventListener("input", () => this.show());
    this.summary = h("span", { class: "soft", role: "status" });
    this.more = h("p", { class: "soft more" });
    this.element = h(
      "section",
      { class: "lists" },
      h("div", { class: "tools" }, this.filter, this.summary),
      this.head,
      this.box,
      this.more,
    );
    this.box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row && !event.target.closest("a")) location.hash = row.dataset.href;
    });
  }

  open(view) {
    if (this.view !== view) {
      this.view = view;
      this.filter.value = "";
      this.selected = null;
      this.rows.clear();
      this.box.replaceChildren();
      this.box.setAttribute("aria-label", VIEWS.find((each) => each.name === view).title);
    }
    this.show();
  }

  /** Renders what is new or has changed, and moves the rest. */
  show() {
    if (!this.view) return;
    const groups = this.view === "groups";
    const all = groups ? groupRows(this.state.lines, this.state.listed) : ordered(this.view, this.state.lines);
    const wanted = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const matching = wanted.length ? all.filter((each) => wanted.every((word) => textOf(each).includes(word))) : all;
    const shown = matching.slice(0, MOST_ROWS);
    this.order = shown.map((each) => each.id);
    const keep = new Set(this.order);
    for (const [id, row] of this.rows) if (!keep.has(id)) (row.element.remove(), this.rows.delete(id));
    let at = this.box.firstElementChild;
    shown.forEach((each, index) => {
      const text = JSON.stringify(each, (key, value) => (key === "line" ? undefined : value));
      let row = this.rows.get(each.id);
      if (!row || row.text !== text) {
        const element = groups ? groupRow(each) : lineRow(each, this.view);
        if (row) {
          if (at === row.element) at = element;
          row.element.replaceWith(element);
        }
        row = { text, element };
        this.rows.set(each.id, row);
      }
      row.element.setAttribute("aria-posinset", index + 1);
      row.element.setAttribute("aria-setsize", shown.length);
      row.element.setAttribute("aria-selected", each.id === this.selected);
      if (row.element === at) at = at.nextElementSibling;
      else this.box.insertBefore(row.element, at);
    });
    this.summary.textContent = wanted.length ? `${count(matching.length)} of ${count(all.length)}` : all.length ? `${count(all.length)} in all` : "";
    this.more.textContent =
      matching.length > shown.length ? `and ${count(matching.length - shown.length)} more: narrow the filter` : "";
    this.empty(all.length, matching.length);
    const why = groups ? this.unlisted() : "";
    this.head.replaceChildren(...(why ? [h("p", { class: "note" }, foreign(why))] : []));
  }

  /** Why there may be more groups than these. */
  unlisted() {
    const { kafkaTrouble, listed } = this.state;
    if (kafkaTrouble) return `The cluster's groups can't be listed now: ${kafkaTrouble}`;
    if (listed.groupsOmitted) return `${count(listed.groupsOmitted)} more groups of the cluster are not listed: the first ${count(listed.groups.length)} by name are, and those that a resource names.`;
    return listed.why ? `Only groups that a resource names are listed. ${listed.why}` : "";
  }

  empty(all, matching) {
    const none = this.box.querySelector(".none");
    none?.remove();
    if (matching) return;
    const why = !this.state.ready
      ? this.state.lost || "Asking the API server…"
      : all
        ? "Nothing matches the filter."
        : { now: "Nothing waits, runs or is paused." }[this.view] ?? "There are none that you may see here.";
    this.box.append(h("p", { class: "empty none" }, why));
  }

  move(step) {
    if (!this.order.length) return;
    const at = this.order.indexOf(this.selected);
    const next = at < 0 ? (step > 0 ? 0 : this.order.length - 1) : Math.min(Math.max(at + step, 0), this.order.length - 1);
    this.rows.get(this.selected)?.element.setAttribute("aria-selected", "false");
    this.selected = this.order[next];
    const element = this.rows.get(this.selected).element;
    element.id ||= `row-${next}-${Math.random().toString(36).slice(2)}`;
    element.setAttribute("aria-selected", "true");
    this.box.setAttribute("aria-activedescendant", element.id);
    element.scrollIntoView({ block: "nearest" });
  }

  enter() {
    const row = this.rows.get(this.selected);
    if (row) location.hash = row.element.dataset.href;
  }
}

function textOf(row) {
  if (row.group !== undefined) {
    const about = row.about.map((each) => `${each.text} ${each.line.name}`).join(" ");
    return `${row.group} ${row.connection} ${row.state} ${row.type} ${about}`.toLowerCase();
  }
  return `${NAMES[row.kind]} ${row.namespace}/${row.name} ${row.about} ${row.state} ${row.message} ${row.connection}`.toLowerCase();
}

function row(href, tone, ...cells) {
  return h("div", { class: `row tone-${tone}`, role: "option", "aria-selected": "false", "data-href": href }, cells);
}

function lineRow(line, view) {
  const href = linkOf(line);
  const mixed = view === "now" || view === "more";
  return row(
    href,
    line.tone,
    h(
      "div",
      { class: "who" },
      h("a", { href, tabindex: "-1" }, foreign(line.name)),
      h("span", { class: "soft" }, mixed ? `${NAMES[line.kind]} in ` : "", foreign(line.namespace)),
    ),
    h("div", { class: "about" }, foreign(line.about || line.connection)),
    h("div", { class: "how" }, badge(line.state, line.tone), line.moved ? h("span", { class: "soft" }, movesText(line)) : null),
    h("div", { class: "message soft" }, foreign(line.message)),
    h("div", { class: "when soft" }, since(line.finishedAt ?? line.since)),
  );
}

function movesText(line) {
  const parts = [`${count(line.moved)} of ${count(line.partitions)} move`];
  if (line.replayed) parts.push(`${count(line.replayed)} again`);
  if (line.skipped) parts.push(`${count(line.skipped)} skipped`);
  return parts.join(", ");
}

function groupRow(group) {
  const href = address("group", group.connection, group.group);
  const [first, ...others] = group.about;
  return row(
    href,
    group.tone,
    h(
      "div",
      { class: "who" },
      h("a", { href, tabindex: "-1" }, foreign(group.group)),
      h("span", { class: "soft" }, foreign(group.connection)),
    ),
    h("div", { class: "about" }, group.state ? `${group.state}${group.type ? `, ${group.type}` : ""}` : h("span", { class: "soft" }, "–")),
    h("div", { class: "how" }, first ? badge(first.text, first.tone) : null, others.length ? h("span", { class: "soft" }, `and ${others.length} more`) : null),
    h("div", { class: "message soft" }, first ? foreign(first.line.message) : null),
    h("div", { class: "when soft" }, since(group.since)),
  );
}
