// Pictures of the book: `node screenshots.mjs FLAGS BOOK OUT WIDTHS PAGE...` writes one of each page
// at each width, and fails when something on a page is wider than its window.
//
// Chromium's own `--screenshot` has no window narrower than 500 pixels, so this speaks the DevTools
// protocol, over pipes: https://chromedevtools.github.io/devtools-protocol/

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const HEIGHT = 1400;
const START_MS = 30_000;

// What is cut off or makes the page scroll sideways. Tables and code may: in a box of their own.
const TOO_WIDE = `(() => {
  const scrolls = (it) => getComputedStyle(it).overflowX !== "visible";
  const isBoxed = (it) => it.tagName !== "MAIN" && (scrolls(it) || isBoxed(it.parentElement));
  const all = [...document.querySelectorAll("main *")];
  const wide = all.filter((it) => it.getBoundingClientRect().right > innerWidth + 1);
  return wide.filter((it) => !isBoxed(it.parentElement)).map((it) => it.outerHTML.slice(0, 120));
})()`;

// A Chromium without a window.
class Browser {
  constructor(flags) {
    this.profile = mkdtempSync(join(tmpdir(), "intertie-book-"));
    const more = ["--remote-debugging-pipe", `--user-data-dir=${this.profile}`];
    const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
    this.process = spawn("chromium", [...flags, ...more], { stdio });
    this.process.on("error", (error) => this.fail(error));
    this.process.on("exit", (code) => this.fail(new Error(`chromium has ended: ${code}`)));
    this.process.stdio[3].on("error", () => {});
    this.process.stdio[4].on("data", (bytes) => this.read(bytes));
    this.timer = setTimeout(() => this.fail(new Error("chromium does not answer")), START_MS);
    this.last = 0;
    this.waiting = new Map();
    this.rest = "";
  }

  // Messages end with a zero byte.
  read(bytes) {
    this.timer.refresh();
    const parts = (this.rest + bytes).split("\0");
    this.rest = parts.pop();
    for (const message of parts.map((it) => JSON.parse(it))) {
      const key = message.id ?? message.method;
      const waiting = this.waiting.get(key);
      this.waiting.delete(key);
      if (message.error) {
        waiting?.reject(new Error(message.error.message));
      } else {
        waiting?.resolve(message.result ?? message.params);
      }
    }
  }

  fail(error) {
    for (const { reject } of this.waiting.values()) {
      reject(error);
    }
    this.waiting.clear();
  }

  // The answer to a call, or the next event with this name.
  wait(key) {
    return new Promise((resolve, reject) => this.waiting.set(key, { resolve, reject }));
  }

  call(method, params = {}) {
    this.last += 1;
    const answer = this.wait(this.last);
    const message = { id: this.last, method, params, sessionId: this.session };
    this.process.stdio[3].write(`${JSON.stringify(message)}\0`);
    return answer;
  }

  async open() {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const attached = await this.call("Target.attachToTarget", { targetId, flatten: true });
    this.session = attached.sessionId;
    await this.call("Page.enable");
  }

  async value(expression) {
    const options = { expression, awaitPromise: true, returnByValue: true };
    return (await this.call("Runtime.evaluate", options)).result.value;
  }

  // Loads a page in a window of this width, and returns what is too wide for it.
  async show(url, width) {
    const metrics = { width, height: HEIGHT, deviceScaleFactor: 1, mobile: false };
    await this.call("Emulation.setDeviceMetricsOverride", metrics);
    const loaded = this.wait("Page.loadEventFired");
    const { errorText } = await this.call("Page.navigate", { url });
    if (errorText) {
      throw new Error(`${url}: ${errorText}`);
    }
    await loaded;
    await this.value("document.fonts.ready.then(() => 0)");
    return await this.value(TOO_WIDE);
  }

  async picture(file) {
    const { data } = await this.call("Page.captureScreenshot", { format: "png" });
    writeFileSync(file, Buffer.from(data, "base64"));
  }

  async close() {
    clearTimeout(this.timer);
    this.waiting.clear();
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill();
    await ended;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

const [flags, book, out, widths, ...pages] = process.argv.slice(2);
const browser = new Browser(flags.split(" "));
try {
  await browser.open();
  for (const page of pages) {
    for (const width of widths.split(",").map(Number)) {
      const tooWide = await browser.show(pathToFileURL(join(book, page)).href, width);
      const file = join(out, `${page.replace(".html", "").replaceAll("/", "-")}-${width}.png`);
      await browser.picture(file);
      console.log(file);
      for (const element of tooWide) {
        console.error(`${page} at ${width} pixels: too wide: ${element}`);
        process.exitCode = 1;
      }
    }
  }
} finally {
  await browser.close();
}
