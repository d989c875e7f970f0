// Runs 1..n ordinary consumers of kafkajs. Argument, commands on standard input and lines on standard output are those of
// the Python worker (clients/worker.py), where they are described.

"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const SHUTDOWN_MS = 20000;
const LOOK_MS = 50;

const job = JSON.parse(process.argv[2]);
const members = new Map();

const now = () => Date.now() / 1000;

// Not through process.stdout: what a full pipe does not take it would keep, and a kill would lose it, though the
// records may be committed by then.
function say(name, event, fields = {}) {
  const line = Buffer.from(`${JSON.stringify({ t: now(), m: name, e: event, ...fields })}\n`);
  for (let at = 0; at < line.length; ) at += fs.writeSync(1, line, at);
}

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function crc32(...parts) {
  let crc = 0xffffffff;
  for (const part of parts) for (const byte of part ?? []) crc = TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

class Member {
  constructor(spec) {
    const config = spec.config;
    this.name = spec.name;
    this.byHand = job.commit === "sync" || job.commit === "worker";
    this.dueMs = 1000 * (job.commit === "worker" ? job.hold_s : job.commit_every_s);
    this.batches = [];
    this.owned = [];
    const kafka = new Kafka({
      brokers: String(config["bootstrap.servers"]).split(","),
      logLevel: logLevel.NOTHING,
      ...("client.id" in config ? { clientId: config["client.id"] } : {}),
    });
    this.consumer = kafka.consumer({
      groupId: config["group.id"],
      readUncommitted: config["isolation.level"] === "read_uncommitted",
      ...("session.timeout.ms" in config ? { sessionTimeout: config["session.timeout.ms"] } : {}),
      ...("heartbeat.interval.ms" in config ? { heartbeatInterval: config["heartbeat.interval.ms"] } : {}),
    });
    this.fromBeginning = config["auto.offset.reset"] === "earliest";
    this.interval = config["auto.commit.interval.ms"];
    this.stopped = this.run(1000 * spec.delay_s);
  }

  async run(delayMs) {
    try {
      await new Promise((over) => setTimeout(over, delayMs));
      const { events } = this.consumer;
      this.consumer.on(events.GROUP_JOIN, ({ payload }) => this.assigned(payload.memberAssignment));
      this.consumer.on(events.REBALANCING, () => this.gone("revoke"));
      this.consumer.on(events.COMMIT_OFFSETS, ({ payload }) => this.committed(payload.topics));
      this.consumer.on(events.CRASH, ({ payload }) => {
        this.gone("lost");
        say(this.name, "error", { error: String(payload.error) });
      });
      await this.consumer.connect();
      await this.consumer.subscribe({ topics: job.topics, fromBeginning: this.fromBeginning });
      say(this.name, "ready");
      await this.consumer.run({
        autoCommit: job.commit === "auto",
        ...(this.interval === undefined ? {} : { autoCommitInterval: this.interval }),
        eachMessage: async (given) => this.received(given),
      });
      if (this.byHand) this.committing = setInterval(() => this.commitDue(), LOOK_MS);
    } catch (error) {
      say(this.name, "died", { error: String(error) });
    }
  }

  assigned(assignment) {
    this.owned = Object.entries(assignment).flatMap(([topic, numbers]) => numbers.map((number) => [topic, number]));
    say(this.name, "assign", { p: this.owned });
  }

  gone(event) {
    if (this.owned.length > 0) say(this.name, event, { p: this.owned });
    this.owned = [];
  }

  received({ topic, partition, message }) {
    const offset = Number(message.offset);
    say(this.name, "record", { r: [[now(), partition, offset, topic, crc32(message.key, message.value)]] });
    if (!this.byHand) return;
    const last = this.batches.at(-1);
    if (last === undefined || Date.now() - last.since >= 1000 * job.commit_every_s) {
      this.batches.push({ since: Date.now(), offsets: new Map() });
    }
    this.batches.at(-1).offsets.set(`${topic} ${partition}`, { topic, partition, offset: String(offset + 1) });
  }

  async commitDue() {
    const due = new Map();
    while (this.batches.length > 0 && Date.now() - this.batches[0].since >= this.dueMs) {
      for (const [place, offset] of this.batches.shift().offsets) due.set(place, offset);
    }
    if (due.size === 0) return;
    try {
      await this.consumer.commitOffsets([...due.values()]); // told by its event
    } catch (refused) {
      const error = refused.type ?? refused.name;
      const rows = [...due.values()].map(({ topic, partition, offset }) => [topic, partition, Number(offset), error]);
      say(this.name, "commit", { o: rows, error });
    }
  }

  committed(topics) {
    const rows = topics.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, offset }) => [topic, Number(partition), Number(offset), null]),
    );
    if (rows.length > 0) say(this.name, "commit", { o: rows, error: null });
  }

  async stop() {
    await this.stopped;
    clearInterval(this.committing);
    await this.consumer.disconnect();
    say(this.name, "closed");
  }
}

function stop(name) {
  const found = members.get(name);
  members.delete(name);
  return found?.stop();
}

for (const spec of job.members) members.set(spec.name, new Member(spec));

readline
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const [command, ...rest] = line.trim().split(" ");
    const given = rest.join(" ");
    if (command === "start") {
      const spec = JSON.parse(given);
      members.set(spec.name, new Member(spec));
    } else if (command === "stop") {
      for (const name of given === "" ? [...members.keys()] : [given]) stop(name);
    } else {
      throw new Error(`unknown command ${line}`);
    }
  })
  .on("close", async () => {
    setTimeout(() => process.exit(1), SHUTDOWN_MS).unref();
    await Promise.all([...members.keys()].map(stop));
    process.exit(0);
  });
