// The server: the token, JSON requests, and what changes as server-sent events, read by fetch since an EventSource
// could not send the token. It is kept for this tab and this port only, in no cookie.

const KEY = "tidegate-token";
/** Milliseconds without a word after which the server, or the way to it, is taken for lost. It says how often it speaks. */
let mostSilence = 45000;

export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", "/#/now");
  }
  return sessionStorage.getItem(KEY) !== null;
}

function headers(more = {}) {
  return { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, ...more };
}

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function answerOf(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Refused(`The server answered with ${response.status}`, response.status);
  }
  if (!response.ok) throw new Refused(body.message || `The server answered with ${response.status}`, response.status);
  return body;
}

export async function ask(path, query = {}, signal = undefined) {
  const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const response = await fetch(`/api/${path}${given.size ? `?${given}` : ""}`, { headers: headers(), signal });
  return answerOf(response);
}

export async function change(path, body) {
  const response = await fetch(`/api/${path}`, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
  return answerOf(response);
}

export function path(...parts) {
  return parts.map(encodeURIComponent).join("/");
}

/** Calls `told(event, data)` for each event and `state(name, why)` for the connection's, for ever. */
export async function listen(told, state) {
  let pause = 500;
  const heed = (kind, data) => {
    if (kind === "about") mostSilence = 3000 * data.aliveS;
    told(kind, data);
  };
  for (;;) {
    const silent = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), mostSilence);
    };
    try {
      heard();
      const response = await fetch("/api/events", { headers: headers(), signal: silent.signal });
      if (!response.ok) await answerOf(response);
      state("live", "");
      pause = 500;
      await readEvents(response.body, heed, heard);
      state("lost", "The server has ended the connection");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        state("refused", error.message);
        return;
      }
      state("lost", error instanceof Refused ? error.message : words(silent.signal.aborted));
    } finally {
      clearTimeout(timer);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 5000);
  }
}

function words(isSilent) {
  return isSilent ? "Nothing has come from tidegate ui for a while: was it suspended, or is a tunnel to it lost?" : "tidegate ui does not answer: was it ended?";
}

async function readEvents(body, told, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const kind = /^event: (\w+)$/m.exec(event);
      const data = /^data: (.*)$/m.exec(event);
      if (kind && data) told(kind[1], JSON.parse(data[1]));
    }
    heard();
  }
}
