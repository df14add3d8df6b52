// Opens flow files in yaml-language-server, as an editor does: no file that is sound may have a
// problem, broken ones must have one, and completion and hover must know the keys.
//
// Usage: node check.mjs SERVER SCHEMA FILE...

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [server, schema, ...files] = process.argv.slice(2);
const child = spawn(process.execPath, [server, "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
const waiting = new Map();
const diagnostics = new Map();
const listeners = [];
let number = 0;
let buffer = Buffer.alloc(0);

child.stdout.on("data", (chunk) => {
  buffer = Buffer.concat([buffer, chunk]);
  for (;;) {
    const end = buffer.indexOf("\r\n\r\n");
    if (end < 0) return;
    const length = Number(/Content-Length: (\d+)/i.exec(buffer.subarray(0, end).toString())[1]);
    if (buffer.length < end + 4 + length) return;
    const message = JSON.parse(buffer.subarray(end + 4, end + 4 + length).toString());
    buffer = buffer.subarray(end + 4 + length);
    take(message);
  }
});

function take(message) {
  if (message.method === "textDocument/publishDiagnostics") {
    diagnostics.set(message.params.uri, message.params.diagnostics);
    listeners.splice(0).forEach((wake) => wake());
  } else if (message.method === "workspace/configuration") {
    const yaml = { schemas: { [pathToFileURL(schema).href]: ["*.yaml"] }, validate: true,
      hover: true, completion: true, schemaStore: { enable: false } };
    const answer = message.params.items.map((item) => (item.section === "yaml" ? yaml : {}));
    send({ id: message.id, result: answer });
  } else if (message.method && message.id !== undefined) {
    send({ id: message.id, result: null });
  } else if (message.id !== undefined) {
    waiting.get(message.id)?.(message.result);
    waiting.delete(message.id);
  }
}

function send(message) {
  const text = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
  child.stdin.write(`Content-Length: ${text.length}\r\n\r\n`);
  child.stdin.write(text);
}

function ask(method, params) {
  const id = ++number;
  send({ id, method, params });
  return new Promise((resolve) => waiting.set(id, resolve));
}

async function open(uri, text) {
  diagnostics.delete(uri);
  send({ method: "textDocument/didOpen",
    params: { textDocument: { uri, languageId: "yaml", version: 1, text } } });
  while (!diagnostics.has(uri)) await new Promise((wake) => listeners.push(wake));
  return diagnostics.get(uri);
}

const failures = [];
const expect = (condition, message) => condition || failures.push(message);

await ask("initialize", { processId: process.pid, rootUri: null, capabilities: {
  workspace: { configuration: true },
  textDocument: { completion: { completionItem: { snippetSupport: true } } } } });
send({ method: "initialized", params: {} });
send({ method: "workspace/didChangeConfiguration", params: { settings: {} } });

for (const file of files) {
  const found = await open(pathToFileURL(file).href, readFileSync(file, "utf8"));
  const shown = found.map((it) => `${it.range.start.line + 1}: ${it.message}`).join("; ");
  expect(found.length === 0, `${file}: ${shown}`);
}

const broken = [
  "flow: a\nfrom: { http: GET /a }\nsteps:\n  - forwrd: http://x/\n",
  "flow: a\nfrom: { http: GET /a }\nsteps:\n  - reply: { statu: 200 }\n",
  "flow: a\nfrom: { http: GET /a }\nsteps:\n  - http: http://x/\n    retry: { tims: 3 }\n",
  "engine: { listn: ':80' }\n",
];
for (const [at, text] of broken.entries()) {
  const found = await open(`file:///broken${at}.yaml`, text);
  expect(found.length > 0, `no problem is shown in:\n${text}`);
}

async function complete(name, text, wanted) {
  const lines = text.split("\n");
  const line = lines.findIndex((it) => it.includes("|"));
  const character = lines[line].indexOf("|");
  const uri = `file:///${name}.yaml`;
  await open(uri, text.replace("|", ""));
  const place = { textDocument: { uri }, position: { line, character } };
  const result = await ask("textDocument/completion", place);
  const labels = (result?.items ?? result ?? []).map((item) => item.label);
  for (const label of wanted) {
    expect(labels.includes(label), `${name}: \`${label}\` is not offered, but ${labels}`);
  }
}

const head = "flow: a\nfrom: { http: GET /a }\nsteps:\n";
await complete("verbs", `${head}  - |\n`, ["forward", "map", "choose", "reply", "http"]);
await complete("beside", `${head}  - http: http://x/\n    |\n`, ["retry", "breaker", "timeout"]);
await complete("retry", `${head}  - http: http://x/\n    retry:\n      |\n`, ["times", "delay"]);
await complete("keys", "flow: a\n|\n", ["from", "steps", "on_error", "limits"]);

async function hover(name, text, word, wanted) {
  const uri = `file:///${name}.yaml`;
  await open(uri, text);
  const lines = text.split("\n");
  const line = lines.findIndex((it) => it.includes(word));
  const position = { line, character: lines[line].indexOf(word) + 1 };
  const result = await ask("textDocument/hover", { textDocument: { uri }, position });
  const shown = JSON.stringify(result?.contents ?? "");
  expect(shown.includes(wanted), `${name}: hovering \`${word}\` shows ${shown}`);
}

await hover("hover-limits", "flow: a\nlimits:\n  time: 3s\nfrom: call\nsteps: []\n", "time",
  "longest that a message may be under way");
await hover("hover-step", `${head}  - raise: { type: x }\n`, "raise", "error of the flow");

for (const failure of failures) console.error(failure);
console.log(`${files.length} files opened, ${failures.length} failures`);
child.kill();
process.exit(failures.length === 0 ? 0 : 1);
