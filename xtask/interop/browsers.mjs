// Subscribers of a locked topic in a page: what they take, and the line that `cargo xtask interop`
// reads about it. Events are `{"number": 0}` and so on, and `{"end": true}` after the last.

const TIME_MAX_MS = 240_000;
const AGAIN_MS = 200;
// Long enough to be used, and so short that it expires several times.
const TOKEN_SECONDS = 6;
const SECRET = "a secret of the issuer that has more than 32 bytes";

// A token for a few seconds, as an identity provider gives a page new ones.
export async function token() {
  const text = (value) => base64url(new TextEncoder().encode(JSON.stringify(value)));
  const exp = Math.floor(Date.now() / 1000) + TOKEN_SECONDS;
  const claims = { iss: "https://id.example", aud: "shop", sub: "ann", exp };
  const signed = `${text({ alg: "HS256", typ: "JWT" })}.${text(claims)}`;
  const bytes = new TextEncoder();
  const how = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes.encode(SECRET), how, false, ["sign"]);
  const signature = await crypto.subtle.sign("HMAC", key, bytes.encode(signed));
  return `${signed}.${base64url(new Uint8Array(signature))}`;
}

function base64url(bytes) {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export class Subscriber {
  constructor(name, count, base) {
    this.name = name;
    this.wanted = count;
    this.base = base;
    this.numbers = [];
    this.counts = { tickets: 0, connections: 0, expired: 0 };
    this.isEnded = false;
    this.problems = [];
  }

  count(what, value) {
    this.counts[what] += 1;
    return value;
  }

  // Whether that was the last one.
  take(event) {
    if (event.end) {
      this.isEnded = true;
    } else {
      this.numbers.push(event.number);
    }
    return this.isEnded;
  }

  async ticket() {
    const headers = { Authorization: `Bearer ${await token()}` };
    const reply = await fetch(`${this.base}/ticket`, { method: "POST", headers });
    if (!reply.ok) {
      throw new Error(`ticket: ${reply.status}`);
    }
    return this.count("tickets", (await reply.json()).ticket);
  }

  within(start) {
    return new Promise((done) => {
      setTimeout(done, TIME_MAX_MS);
      start(done);
    });
  }

  line() {
    const problem = this.problem();
    const counts = JSON.stringify(this.counts);
    return problem === undefined ? `ok ${this.name} ${counts}` : `FAILED ${this.name}: ${problem} ${counts}`;
  }

  problem() {
    const length = Math.max(this.numbers.length, this.wanted);
    const at = Array.from({ length }).findIndex((_, at) => this.numbers[at] !== at);
    if (at >= 0) {
      return `${this.numbers.length} of ${this.wanted}; at ${at} comes ${this.numbers[at]}; ${this.problems}`;
    }
    if (this.problems.length > 0) {
      return this.problems.join(", ");
    }
    if (!this.isEnded) {
      return "the end never came";
    }
    const { tickets, connections, expired } = this.counts;
    if (tickets < 2) {
      return "no credential was renewed";
    }
    // Those of the script without cookies are not counted: each needs a ticket.
    if (connections > 0 && (connections <= tickets || expired === 0)) {
      return "it never came again with its cookie, or nothing expired";
    }
    return undefined;
  }
}

// The browser connects again by itself, with the cookie; when the credential has expired, or the
// cookie with it while nobody answered, the page gets another ticket.
export function followEvents(subscriber) {
  return subscriber.within((done) => {
    let last = null;
    const connect = async () => {
      let ticket;
      try {
        ticket = await subscriber.ticket();
      } catch {
        setTimeout(connect, AGAIN_MS);
        return;
      }
      const from = last === null ? "from=earliest" : `lastEventId=${last}`;
      const source = new EventSource(`${subscriber.base}/sse?${from}&ticket=${ticket}`);
      source.addEventListener("open", () => subscriber.count("connections"));
      source.addEventListener("event", (event) => {
        last = event.lastEventId;
        if (subscriber.take(JSON.parse(event.data))) {
          source.close();
          done();
        }
      });
      source.addEventListener("expired", () => {
        subscriber.count("expired");
        source.close();
        connect();
      });
      for (const name of ["reset", "gap", "snapshot", "patch"]) {
        source.addEventListener(name, ({ data }) => subscriber.problems.push(`${name} ${data}`));
      }
      source.addEventListener("error", ({ data }) => {
        if (data !== undefined) {
          subscriber.problems.push(`error ${data}`);
        }
        if (source.readyState === EventSource.CLOSED && !subscriber.isEnded) {
          connect();
        }
      });
    };
    connect();
  });
}

// A page opens WebSockets again itself: with the cookie, and when that is refused with a ticket.
export function followMessages(subscriber) {
  return subscriber.within((done) => {
    let last = null;
    const connect = async (needsTicket) => {
      const query = new URLSearchParams(last === null ? { from: "earliest" } : { lastEventId: last });
      if (needsTicket) {
        try {
          query.set("ticket", await subscriber.ticket());
        } catch {
          setTimeout(connect, AGAIN_MS, true);
          return;
        }
      }
      const url = `ws://${location.host}${subscriber.base}/ws?${query}`;
      const socket = new WebSocket(url);
      let hasOpened = false;
      let hasExpired = false;
      socket.addEventListener("open", () => {
        hasOpened = true;
        subscriber.count("connections");
      });
      socket.addEventListener("message", ({ data }) => {
        const message = JSON.parse(data);
        last = message.id ?? last;
        if (message.type === "event") {
          if (subscriber.take(message.data)) {
            socket.close();
            done();
          }
        } else if (message.type === "expired") {
          hasExpired = true;
          subscriber.count("expired");
        } else if (message.type !== "subscribed") {
          subscriber.problems.push(data);
        }
      });
      socket.addEventListener("close", () => {
        if (!subscriber.isEnded) {
          setTimeout(connect, AGAIN_MS, hasExpired || !hasOpened);
        }
      });
    };
    connect(true);
  });
}
