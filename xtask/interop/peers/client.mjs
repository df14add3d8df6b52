// The clients of Node: http, http2 and undici. Each line of the input is a request, as words
// NAME=VALUE between tabs; each line of the output what came of it, as a JSON object of texts.
//
// client.mjs AUTHORITY FOLDER (with the package undici)
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import http2 from 'node:http2'
import https from 'node:https'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const [authority, folder] = process.argv.slice(2)
const ca = readFileSync(authority)
const undici = createRequire(`${folder}/package.json`)('undici')
const block = Buffer.from(Array.from({ length: 251 * 256 }, (_, index) => index % 251))
const pause = (time) => new Promise((resolve) => setTimeout(resolve, time))

// Bytes that repeat only after 251 of them, so that a shifted copy differs.
function* pattern(size) {
  for (; size > block.length; size -= block.length) yield block
  yield block.subarray(0, size)
}

function parse(line) {
  const words = { headers: {} }
  for (const word of line.split('\t')) {
    const [, name, value] = /^([^=]*)=(.*)$/.exec(word)
    if (name === 'header') {
      const [header, text] = value.split(': ')
      words.headers[header.toLowerCase()] = text
    } else words[name] = value
  }
  if (words.body && !words.chunked && !words.trailer) words.headers['content-length'] = words.body
  if (words.expect) words.headers.expect = '100-continue'
  return words
}

function classOf(error) {
  const code = error.code ?? error.name
  if (/ECONNRESET|EPIPE/.test(code) && /hang up|closed/.test(error.message)) return 'eof'
  if (/ECONNRESET|EPIPE/.test(code)) return 'reset'
  if (/UND_ERR_SOCKET/.test(code)) return 'eof'
  if (/TIMEOUT|Timeout/.test(code)) return 'timeout'
  if (/ERR_HTTP2_(STREAM|SESSION)_ERROR/.test(code)) return 'stream reset'
  if (/GOAWAY/.test(code)) return 'goaway'
  return `other: ${code} ${error.message}`
}

function headers(found, prefix, fields) {
  for (const [name, value] of Object.entries(fields ?? {})) {
    if (!name.startsWith(':')) found[prefix + name] = [value].flat().join(' | ')
  }
}

async function read(words, stream, found) {
  const hash = createHash('sha256')
  const kept = []
  let length = 0
  if (words.slow) await pause(500)
  for await (const chunk of stream) {
    hash.update(chunk)
    length += chunk.length
    found.length = String(length)
    if (words.text) kept.push(chunk)
    if (words.slow) await pause(3)
  }
  found.length = String(length)
  found.sha256 = hash.digest('hex')
  if (words.text) found.text = Buffer.concat(kept).toString()
}

// A failure of an upload matters only when there is no reply.
function upload(words, request, fail, go) {
  const send = () => {
    if (!words.body) return request.end()
    pipeline(Readable.from(pattern(Number(words.body)), { objectMode: false }), request).catch(fail)
  }
  if (words.expect) go(send)
  else send()
}

// node:http and node:https.
const plain = {
  open: (words) => {
    const agent = { keepAlive: true, maxSockets: 16, ca }
    return words.mode === 'http-h1' ? new http.Agent(agent) : new https.Agent(agent)
  },
  close: (agent) => agent.destroy(),
  ask: (agent, words, url, found) =>
    new Promise((resolve, reject) => {
      const { request: start } = url.startsWith('https') ? https : http
      const request = start(url, { agent, method: words.method, headers: words.headers })
      if (words.trailer) {
        request.setHeader('Trailer', 'X-Checksum')
        request.addTrailers({ 'X-Checksum': 'abc' })
      }
      let reply
      const fail = (error) => reply || reject(error)
      request.on('error', fail)
      request.on('response', (got) => {
        reply = got
        found.status = String(reply.statusCode)
        found.version = String(reply.httpVersionMajor)
        headers(found, 'h.', reply.headers)
        const done = () => {
          headers(found, 'trailer.', reply.trailers)
          resolve()
        }
        read(words, reply, found).then(done, reject)
      })
      upload(words, request, fail, (send) => {
        found.continue = 'false'
        request.once('continue', () => {
          found.continue = 'true'
          send()
        })
      })
    }),
}

// node:http2, by ALPN or with prior knowledge.
const binary = {
  open: (words) => {
    const session = http2.connect(new URL(words.url).origin, { ca })
    session.on('error', () => {})
    return session
  },
  close: (session) => session.destroy(),
  ask: (session, words, url, found) =>
    new Promise((resolve, reject) => {
      const { pathname, search } = new URL(url)
      const pseudo = { ':method': words.method, ':path': pathname + search }
      const ends = { endStream: !words.body, waitForTrailers: Boolean(words.trailer) }
      const request = session.request({ ...pseudo, ...words.headers }, ends)
      if (words.trailer) {
        request.on('wantTrailers', () => request.sendTrailers({ 'x-checksum': 'abc' }))
      }
      let replied = false
      const fail = (error) => replied || reject(error)
      request.on('error', fail)
      request.on('close', () => replied || reject({ code: 'ERR_HTTP2_STREAM_ERROR' }))
      request.on('trailers', (fields) => headers(found, 'trailer.', fields))
      request.on('response', (fields) => {
        replied = true
        found.status = String(fields[':status'])
        found.version = '2'
        headers(found, 'h.', fields)
        read(words, request, found).then(resolve, reject)
      })
      if (!words.body) return
      upload(words, request, fail, (send) => {
        found.continue = 'false'
        request.once('continue', () => {
          found.continue = 'true'
          send()
        })
      })
    }),
}

const modern = {
  open: (words) => {
    const allowH2 = words.mode === 'undici-h2'
    return new undici.Agent({ connections: allowH2 ? 1 : 16, allowH2, connect: { ca }, pipelining: allowH2 ? 100 : 1 })
  },
  close: (agent) => agent.destroy(),
  ask: async (agent, words, url, found) => {
    if (words.expect || words.trailer) return void (found.unsupported = 'true')
    const body = words.body && Readable.from(pattern(Number(words.body)), { objectMode: false })
    const { method } = words
    const reply = await undici.request(url, { dispatcher: agent, method, headers: words.headers, body })
    found.status = String(reply.statusCode)
    headers(found, 'h.', reply.headers)
    await read(words, reply.body, found)
    headers(found, 'trailer.', reply.trailers)
  },
}

async function ask(client, session, words, url) {
  const found = {}
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject({ code: 'Timeout' }), words.limit * 1000)
  })
  try {
    await Promise.race([client.ask(session, words, url, found), late])
  } catch (error) {
    found.error = classOf(error)
  }
  clearTimeout(timer)
  return found
}

// Asks in parallel on one client, and counts the outcomes.
async function many(client, session, words) {
  const counts = {}
  const one = async () => {
    const { status = '', sha256 = '', error = '' } = await ask(client, session, words, words.url)
    const outcome = `${status} ${sha256} ${error}`.trim()
    counts[outcome] = (counts[outcome] ?? 0) + 1
  }
  await Promise.all(Array.from({ length: Number(words.repeat) }, one))
  const lines = Object.entries(counts).map(([outcome, count]) => `${count} x ${outcome}`)
  return { outcomes: lines.sort().join('; ') }
}

async function run(words) {
  const client = { http: plain, http2: binary, undici: modern }[words.mode.split('-')[0]]
  const session = client.open(words)
  try {
    if (words.repeat) return await many(client, session, words)
    const found = await ask(client, session, words, words.url)
    if (words.then) {
      const next = { method: 'GET', headers: {}, limit: words.limit, mode: words.mode }
      headers(found, 'then.', await ask(client, session, next, words.then))
    }
    return found
  } finally {
    client.close(session)
  }
}

// What a stream has to say after its request is over is nobody's concern.
process.on('uncaughtException', (error) => console.error(error))
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(parse(line))))
}
process.exit()
