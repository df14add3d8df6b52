// Subscribers of topics, for Node and for pages: what they take, and the line that `cargo xtask
// interop` reads about it. Events are `{"number": 0}` and so on, and `{"end": true}` after the last.

// The engine is away twice, so there are three connections at least.
const CONNECTIONS_MIN = 3;
const TIME_MAX_MS = 240_000;
const AGAIN_MS = 200;

// What came of one topic, whose events have the numbers from 0 to `count` - 1 in steps.
export class Taken {
  constructor(name, topic, count, step = 1) {
    this.name = name;
    this.topic = topic;
    this.wanted = Array.from({ length: Math.ceil(count / step) }, (_, at) => at * step);
    this.numbers = [];
    this.connections = 0;
    this.isEnded = false;
    this.problems = [];
  }

  take(event) {
    if (event.end) {
      this.isEnded = true;
    } else {
      this.numbers.push(event.number);
    }
  }

  line() {
    const problem = this.problem();
    return problem === undefined ? `ok ${this.name}` : `FAILED ${this.name}: ${problem}`;
  }

  problem() {
    const { numbers, wanted } = this;
    const length = Math.max(numbers.length, wanted.length);
    const at = Array.from({ length }).findIndex((_, at) => numbers[at] !== wanted[at]);
    if (at >= 0) {
      const found = `at ${at} comes ${numbers[at]} instead of ${wanted[at]}`;
      return `${numbers.length} of ${wanted.length} events; ${found}; ${this.problems.join(", ")}`;
    }
    if (this.problems.length > 0) {
      return this.problems.join(", ");
    }
    if (!this.isEnded) {
      return "the end never came";
    }
    if (this.connections < CONNECTIONS_MIN) {
      return `only ${this.connections} connections: it did not see every restart`;
    }
    return undefined;
  }
}

// Takes a stream of events until each of its topics has ended. On a stream of several topics an
// event says of which it is.
export function followEvents(EventSource, url, takens) {
  return within((done) => {
    const source = new EventSource(url);
    const isOfSeveral = takens.length > 1;
    const tell = (problem) => takens.forEach((it) => it.problems.push(problem));
    source.addEventListener("open", () => takens.forEach((it) => (it.connections += 1)));
    source.addEventListener("event", ({ data }) => {
      const value = JSON.parse(data);
      const taken = isOfSeveral ? takens.find((it) => it.topic === value.topic) : takens[0];
      taken.take(isOfSeveral ? value.data : value);
      if (takens.every((it) => it.isEnded)) {
        source.close();
        done();
      }
    });
    for (const name of ["reset", "gap", "snapshot", "patch"]) {
      source.addEventListener(name, ({ data }) => tell(`${name} ${data}`));
    }
    // An event of this name comes from the engine when it has data, otherwise from the client.
    source.addEventListener("error", ({ data }) => {
      if (data !== undefined) {
        tell(`error ${data}`);
      }
      if (source.readyState === EventSource.CLOSED) {
        tell("it does not connect again");
        done();
      }
    });
  });
}

// Takes the messages of a topic's WebSocket, and connects again with the last id.
export function followMessages(url, taken) {
  return within((done) => {
    let last = null;
    const connect = () => {
      const socket = new WebSocket(`${url}?${last === null ? "from=earliest" : `lastEventId=${last}`}`);
      socket.addEventListener("open", () => (taken.connections += 1));
      socket.addEventListener("message", ({ data }) => {
        const message = JSON.parse(data);
        last = message.id ?? last;
        if (message.type === "event") {
          taken.take(message.data);
        } else if (message.type !== "subscribed") {
          taken.problems.push(data);
        }
        if (taken.isEnded) {
          socket.close();
          done();
        }
      });
      socket.addEventListener("close", () => taken.isEnded || setTimeout(connect, AGAIN_MS));
    };
    connect();
  });
}

function within(start) {
  return new Promise((done) => {
    setTimeout(done, TIME_MAX_MS);
    start(done);
  });
}
