// The pages of one reset, one group, and one resource of another kind.

import { address, badge, count, foreign, h, Parts, since, spaced, svg } from "./dom.js";
import { ask, path } from "./live.js";
import { NAMES } from "./lists.js";

const PHASES = ["Planning", "AwaitingApproval", "Pausing", "Applying", "Verifying", "Replaying", "Resuming"];
const ENDS = { Succeeded: "good", Failed: "bad", RolledBack: "bad" };
const LANE = 420;

// --- a reset ---------------------------------------------------------------------------------------------------------

export class ResetPage {
  constructor(namespace, name, group, acts) {
    Object.assign(this, { namespace, name, group, acts });
    this.element = h("article", { class: "detail" });
    this.parts = new Parts(this.element);
    this.planDigest = null;
  }

  isAbout(ids) {
    return ids.has(`offsetresets/${this.namespace}/${this.name}`) || [...ids].some((id) => id.startsWith("offsetresetapprovals/"));
  }

  async refresh(signal) {
    const found = await ask(`reset/${path(this.namespace, this.name)}`, { group: this.group }, signal);
    this.found = found;
    this.everyMs = ENDS[found.phase] ? (found.isAsked ? 5000 : 0) : 2500;
    const p = this.parts;
    p.show("head", [found.line, found.phase, this.group], () => this.head(found));
    p.show("steps", [found.reached, found.phase], () => steps(found.reached, found.phase));
    p.show("facts", found.facts, facts);
    p.show("problem", found.problem, (problem) => problem && h("p", { class: "note" }, foreign(problem)));
    p.show("lanes", [found.lanes, found.lanesOmitted, found.byKafka, found.isAsked, found.phase], () => lanes(found));
    p.show("groups", [found.groups, found.groupsOmitted], () => fleet(found, this.namespace, this.name));
    p.show("approvals", found.approvals, (list) => list.length > 0 && h("section", {}, h("h2", {}, "Approvals"), h("ul", {}, list.map((each) => h("li", {}, foreign(each))))));
    await this.plan(found, signal);
    p.show("conditions", found.conditions, conditions);
    p.show("journal", [found.steps, found.stepsOmitted], () => journal(found.steps, found.stepsOmitted));
    this.acts.offer(this.buttons(found));
  }

  head(found) {
    const line = found.line;
    const group = line.groups[0];
    return h(
      "header",
      { class: "head" },
      h("p", { class: "soft crumb" }, "OffsetReset in ", foreign(this.namespace)),
      h("h1", {}, foreign(this.name), " ", badge(found.phase, line.tone)),
      h(
        "p",
        {},
        group !== undefined ? h("a", { href: address("group", line.connection, group) }, "group ", foreign(group)) : foreign(`groups ${line.about}`),
        this.group ? h("span", {}, ", shown: ", foreign(this.group)) : null,
        h("span", { class: "soft" }, " through ", foreign(line.connection)),
      ),
      line.message ? h("p", { class: line.tone === "bad" ? "bad" : "" }, foreign(line.message)) : null,
    );
  }

  async plan(found, signal) {
    if (!found.isPlanned) return;
    // With the uid: another reset of this name may be in the same phase.
    const key = JSON.stringify([found.uid, found.digest, found.phase, found.isFleet]);
    if (this.planKey === key) return;
    const plan = await ask(`plan/${path(this.namespace, this.name)}`, { group: this.group }, signal);
    this.parts.show("plan", plan, () =>
      h("details", { class: "plan", "data-key": "plan", open: !ENDS[found.phase] }, h("summary", {}, "The plan, with its evidence"), planNodes(plan.html)),
    );
    this.planKey = key;
    this.planDigest = plan.digest;
  }

  /** What can be done now. An approval is of the plan that is on the page, and of no other. */
  buttons(found) {
    const offered = [];
    if (found.digest && found.digest === this.planDigest) {
      offered.push({ label: "Approve the plan…", key: "a", primary: true, run: () => this.acts.approve(this.namespace, this.name, found) });
    }
    if (found.undoable && !this.group) {
      offered.push({ label: "Undo it…", run: () => this.acts.undo(this.namespace, this.name, found.uid) });
    }
    return offered;
  }
}

function steps(list, phase) {
  const reached = new Map(list.map((each) => [each.phase, each]));
  const shown = PHASES.filter((each) => reached.has(each) || each === phase || (!ENDS[phase] && !["AwaitingApproval", "Replaying"].includes(each)));
  const items = [...shown, ENDS[phase] ? phase : "Succeeded"];
  const now = items.indexOf(phase);
  return h(
    "ol",
    { class: "steps", "aria-label": "Phases" },
    items.map((each, index) => {
      // What ended badly is the end, and the phase that came to it.
      const isBad = ENDS[phase] === "bad" && index >= now - 1;
      const is = isBad ? "bad" : index < now || ENDS[phase] ? "done" : index === now ? "now" : "later";
      const words = { done: "done", now: "now", later: "not yet", bad: "ended here" };
      return h(
        "li",
        { class: is, "aria-current": is === "now" ? "step" : null },
        h("span", { class: "dot", "aria-hidden": "true" }),
        h("span", { class: "name" }, spaced(each)),
        h("span", { class: "soft" }, reached.has(each) ? since(reached.get(each).at) : words[is]),
      );
    }),
  );
}

function facts(list) {
  return h("dl", { class: "facts" }, list.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, /^\d{4}-\d\d-\d\dT/.test(value) ? [foreign(value), " ", h("span", { class: "soft" }, since(value))] : foreign(value)))));
}

function lanes(found) {
  if (!found.lanes.length) return null;
  return h(
    "section",
    { class: "lanes" },
    h("h2", {}, "Partitions"),
    h(
      "p",
      { class: "soft legend" },
      h("span", {}, mark("before"), " before"),
      h("span", {}, mark("target"), " target"),
      found.byKafka ? h("span", {}, mark("now"), " committed now") : null,
      h("span", {}, h("i", { class: "key key-again" }), "read again"),
      h("span", {}, h("i", { class: "key key-skip" }), "skipped"),
      found.byKafka ? null : h("span", {}, `Where the group is now is not known, because ${silent(found)}.`),
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ["partition", "in its log", "before", "target", "now", "end"].map((each, n) => h("th", { scope: "col", class: n > 1 ? "n" : null }, each)))),
        h("tbody", {}, found.lanes.map((lane) => laneRow(lane, found.phase))),
      ),
    ),
    found.lanesOmitted ? h("p", { class: "soft" }, `and ${count(found.lanesOmitted)} more`) : null,
  );
}

function fleet(found, namespace, name) {
  const list = found.groups;
  if (!list.length) return null;
  const row = (g) =>
    h(
      "tr",
      {},
      h("td", { class: "name" }, g.refused ? foreign(g.group) : h("a", { href: address("reset", namespace, name, g.group) }, foreign(g.group))),
      h("td", { class: "n" }, g.refused ? "" : `${count(g.moved)} of ${count(g.partitions)}`),
      h("td", { class: g.refused ? "bad" : "soft" }, foreign(g.refused || g.way)),
    );
  return h(
    "section",
    {},
    h("h2", {}, "Groups"),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "group"), h("th", { scope: "col", class: "n" }, "partitions that move"), h("th", { scope: "col" }, "strategy"))), h("tbody", {}, list.map(row)))),
    found.groupsOmitted ? h("p", { class: "soft" }, `and ${count(found.groupsOmitted)} more`) : null,
  );
}

function mark(kind) {
  const shape = { before: svg("circle", { class: "at", cx: 7, cy: 7, r: 4.5 }), now: svg("circle", { class: "now-at", cx: 7, cy: 7, r: 4.5 }), target: svg("path", { class: "to", d: "M2 3h10l-5 9z" }) };
  return svg("svg", { class: "mark-key", viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, shape[kind]);
}

function laneRow(lane, phase) {
  // Before that, what is committed has nothing to do with the target yet.
  const applied = ["Verifying", "Replaying", "Resuming", "Succeeded"].includes(phase);
  const stands = !applied || lane.now === null ? null : lane.now === lane.target ? "at the target" : BigInt(lane.now) > BigInt(lane.target) ? "went on" : "";
  return h(
    "tr",
    { class: lane.moves ? null : "stays" },
    h("td", { class: "name" }, foreign(`${lane.topic}-${lane.partition}`)),
    h("td", {}, laneDrawing(lane)),
    h("td", { class: "n" }, lane.before === null ? "none" : count(lane.before)),
    h("td", { class: "n" }, h("b", {}, count(lane.target)), lane.clamped ? h("small", { class: "skip" }, `clamped to ${lane.clamped.toLowerCase()}`) : null),
    h("td", { class: "n" }, count(lane.now), stands ? h("small", { class: "soft" }, stands) : null),
    h("td", { class: "n soft" }, count(lane.latest)),
  );
}

function laneDrawing(lane) {
  const known = [lane.earliest, lane.latest, lane.target, lane.before, lane.now].filter((each) => each !== null).map(Number);
  const least = Math.min(...known);
  const most = Math.max(...known);
  const x = (offset) => 8 + (LANE - 16) * (most > least ? (Number(offset) - least) / (most - least) : 0.5);
  const text = `${lane.topic}-${lane.partition}: before ${count(lane.before)}, target ${count(lane.target)}, now ${lane.now === null ? "not known" : count(lane.now)}, log from ${count(lane.earliest)} to ${count(lane.latest)}`;
  const start = x(lane.earliest);
  const shapes = [svg("rect", { class: "track", x: start, y: 13, width: Math.max(x(lane.latest) - start, 1), height: 6, rx: 3 })];
  if (lane.before !== null && lane.moves) {
    const [left, right] = [x(lane.before), x(lane.target)].sort((a, b) => a - b);
    shapes.push(svg("rect", { class: BigInt(lane.target) < BigInt(lane.before) ? "bar-again" : "bar-skip", x: left, y: 13, width: Math.max(right - left, 2), height: 6 }));
  }
  if (lane.before !== null) shapes.push(svg("circle", { class: "at", cx: x(lane.before), cy: 16, r: 4.5 }));
  if (lane.now !== null) shapes.push(svg("circle", { class: "now-at", cx: x(lane.now), cy: 16, r: 3.5 }));
  const to = x(lane.target);
  shapes.push(svg("path", { class: "to", d: `M${to - 5} 1h10l-5 9z` }));
  return svg("svg", { class: "lane", viewBox: `0 0 ${LANE} 24`, role: "img", "aria-label": text }, svg("title", {}, text), shapes);
}

function journal(list, omitted) {
  if (!list.length) return null;
  return h(
    "details",
    { "data-key": "journal" },
    h("summary", {}, `Journal, ${list.length} ${list.length === 1 ? "line" : "lines"}`, omitted ? `; ${count(omitted)} earlier not shown` : ""),
    h("div", { class: "scroll" }, h("table", { class: "stacks" }, h("tbody", {}, list.map((each) => h("tr", {}, h("td", { class: "nowrap soft" }, each.at), h("td", { class: "nowrap" }, spaced(each.phase), each.round ? ` (round ${each.round})` : ""), h("td", {}, foreign(each.message))))))),
  );
}

function conditions(list) {
  if (!list.length) return null;
  return h(
    "details",
    { "data-key": "conditions" },
    h("summary", {}, "Conditions"),
    h(
      "div",
      { class: "scroll" },
      h("table", { class: "stacks" }, h("thead", {}, h("tr", {}, ["type", "status", "reason", "message", "since"].map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, list.map((c) => h("tr", {}, h("td", {}, foreign(c.type)), h("td", {}, foreign(c.status)), h("td", {}, foreign(c.reason)), h("td", {}, foreign(c.message)), h("td", { class: "nowrap soft" }, since(c.lastTransitionTime)))))),
    ),
  );
}

// The server has escaped each text in the plan. What could load or run anything is left out here all the same.
const ALLOWED = new Set("A B BDI BR CODE DETAILS DIV H1 H2 H3 HEADER I LI MAIN P PRE SECTION SMALL SPAN SUMMARY TABLE TBODY TD TH THEAD TR UL SVG G RECT CIRCLE PATH LINE TEXT TITLE DESC".split(" "));
const policy = globalThis.trustedTypes?.createPolicy("tidegate", { createHTML: (html) => html }) ?? { createHTML: (html) => html };

function planNodes(html) {
  const parsed = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  for (const element of [...parsed.body.querySelectorAll("*")]) {
    if (!ALLOWED.has(element.tagName.toUpperCase())) element.remove();
    for (const { name } of [...element.attributes]) if (/^(on|href$|src$|style$|xlink)/i.test(name)) element.removeAttribute(name);
  }
  parsed.body.querySelector("header")?.remove();
  return h("div", { class: "plan-body" }, ...parsed.body.childNodes);
}

// --- a group ---------------------------------------------------------------------------------------------------------

export class GroupPage {
  constructor(connection, group, state) {
    Object.assign(this, { connection, group, state });
    this.element = h("article", { class: "detail" });
    this.parts = new Parts(this.element);
  }

  isAbout() {
    return true;
  }

  async refresh(signal) {
    const found = await ask("group", { connection: this.connection, group: this.group }, signal);
    this.everyMs = found.isAsked ? 3000 : 0;
    const p = this.parts;
    p.show("head", [found.state, found.type, found.assignor, found.lag, found.byKafka], () => this.head(found));
    const [short, ...others] = found.sections;
    p.show("short", short ?? null, (section) => section && h("section", {}, h("ul", { class: "short" }, section.sentences.map((each) => h("li", {}, foreign(each))))));
    p.show("partitions", [found.partitions, found.partitionsOmitted, found.byKafka, found.isAsked, found.isGroupSeen, found.areOffsetsSeen], () => partitions(found));
    p.show("resources", this.resources(), links);
    p.show("sections", others, (list) => h("section", {}, h("h2", {}, "In plain sentences"), list.map(sectionOf)));
  }

  head(found) {
    return h(
      "header",
      { class: "head" },
      h("p", { class: "soft crumb" }, "Group, through KafkaConnection ", foreign(this.connection)),
      h("h1", {}, foreign(this.group), " ", found.state ? badge(found.state, found.state === "stable" || found.state === "Stable" ? "good" : "idle") : null),
      h(
        "dl",
        { class: "facts" },
        [["Type", found.type], ["Assignor", found.assignor], ["Lag", found.lag === null ? null : count(found.lag)]].filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, foreign(value)))),
      ),
    );
  }

  resources() {
    return [...this.state.lines.values()].filter((line) => line.connection === this.connection && line.groups.includes(this.group));
  }
}

/** Why nothing of Kafka is shown. */
function silent(found) {
  return found.isAsked ? "Kafka did not say" : "Kafka is not asked";
}

function partitions(found, ofPause = false) {
  if (!found.partitions.length) return found.isGroupSeen && found.areOffsetsSeen ? h("p", { class: "empty" }, "The group has no partitions and no committed offsets.") : null;
  const most = Math.max(1, ...found.partitions.map((each) => Number(each.lag ?? 0)));
  const nobody = found.byKafka && !found.isGroupSeen ? "not known" : "nobody";
  return h(
    "section",
    {},
    h("h2", {}, "Partitions"),
    found.byKafka ? null : h("p", { class: "soft" }, ofPause ? "As the status of this pause says." : `As the statuses of pauses say. What else the group reads is not known, because ${silent(found)}.`),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, [["partition"], ["committed", "n"], ["end", "n"], ["lag", "n"], ["", "bar"], ["owner"], ["holds"]].map(([each, kind]) => h("th", { scope: "col", class: kind ?? null }, each)))),
        h("tbody", {}, found.partitions.map((each) => partitionRow(each, most, nobody))),
      ),
    ),
    found.partitionsOmitted ? h("p", { class: "soft" }, `and ${count(found.partitionsOmitted)} more`) : null,
  );
}

/** Committed where the log does not reach (yet): its topic was made anew, or its end was lost. */
function isBeyond(p) {
  return p.committed !== null && p.logEnd !== null && BigInt(p.committed) > BigInt(p.logEnd);
}

function partitionRow(p, most, nobody) {
  return h(
    "tr",
    {},
    h("td", { class: "name" }, foreign(`${p.topic}-${p.partition}`)),
    h("td", { class: "n" }, count(p.committed)),
    h("td", { class: "n" }, count(p.logEnd)),
    h("td", { class: p.lag ? "n" : "n soft" }, count(p.lag), isBeyond(p) ? h("small", { class: "bad" }, "beyond the end") : null),
    h("td", { class: "bar" }, p.lag ? svg("svg", { viewBox: "0 0 100 8", width: 100, height: 8, "aria-hidden": "true" }, svg("rect", { class: "bar-again", x: 0, y: 0, rx: 2, width: Math.max(2, (100 * Number(p.lag)) / most), height: 8 })) : null),
    h("td", { class: "owner" }, p.owner ? foreign(p.owner) : h("span", { class: "soft" }, nobody)),
    h("td", { class: "holds" }, (p.holds ?? []).map((hold) => h("div", {}, badge("held", "wait"), " ", foreign(hold.holder), hold.reason ? h("span", { class: "soft" }, ": ", foreign(hold.reason)) : null))),
  );
}

function links(list) {
  if (!list.length) return null;
  return h(
    "section",
    {},
    h("h2", {}, "Resources"),
    h("ul", { class: "links" }, list.map((line) => h("li", {}, h("a", { href: line.kind === "offsetresets" ? address("reset", line.namespace, line.name) : address("object", line.kind, line.namespace, line.name) }, `${NAMES[line.kind]} `, foreign(`${line.namespace}/${line.name}`)), " ", badge(line.state, line.tone), " ", h("span", { class: "soft" }, since(line.finishedAt ?? line.since))))),
  );
}

function sectionOf(section) {
  return h("details", { "data-key": section.title, open: section.title === "Not seen" }, h("summary", {}, section.title), h("ul", {}, section.sentences.map((each) => h("li", { class: each.startsWith("  ") ? "sub" : null }, foreign(each.trim())))));
}

// --- any other resource ----------------------------------------------------------------------------------------------

export class ObjectPage {
  constructor(kind, namespace, name) {
    Object.assign(this, { kind, namespace, name });
    this.element = h("article", { class: "detail" });
    this.parts = new Parts(this.element);
  }

  isAbout(ids) {
    return ids.has(`${this.kind}/${this.namespace}/${this.name}`);
  }

  async refresh(signal) {
    const found = await ask(`object/${path(this.kind, this.namespace, this.name)}`, {}, signal);
    const p = this.parts;
    p.show("head", found.line, (line) =>
      h(
        "header",
        { class: "head" },
        h("p", { class: "soft crumb" }, `${NAMES[this.kind]} in `, foreign(this.namespace)),
        h("h1", {}, foreign(this.name), " ", badge(line.state, line.tone)),
        line.groups.length ? h("p", {}, h("a", { href: address("group", line.connection, line.groups[0]) }, "group ", foreign(line.groups[0])), h("span", { class: "soft" }, " through ", foreign(line.connection))) : line.about ? h("p", { class: "soft" }, foreign(line.about)) : null,
        line.message ? h("p", { class: line.tone === "bad" ? "bad" : null }, foreign(line.message)) : null,
      ),
    );
    p.show("sentences", found.sentences, (list) => list.length > 0 && h("ul", { class: "short" }, list.map((each) => h("li", { class: each.startsWith("  ") ? "sub" : null }, foreign(each.trim())))));
    p.show("partitions", [found.partitions, found.partitionsOmitted], () => (found.partitions.length ? partitions({ ...found, byKafka: false }, true) : null));
    p.show("history", found.history, (list) => list.length > 0 && h("section", {}, h("h2", {}, "Resets that this policy has asked for"), h("table", {}, h("tbody", {}, list.map((each) => h("tr", {}, h("td", {}, foreign(each.id)), h("td", {}, badge(each.phase, ENDS[each.phase])), h("td", { class: "soft" }, since(each.finishedAt))))))));
    p.show("conditions", found.conditions, (list) => {
      const shown = conditions(list);
      if (shown) shown.open = true;
      return shown;
    });
  }
}
