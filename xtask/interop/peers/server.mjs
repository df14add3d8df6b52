// The back end in Node: http, http2 with TLS (and HTTP/1.1 by ALPN), http2 in clear text.
//
// server.mjs CLEAR-PORT TLS-PORT H2C-PORT FOLDER (server.pem, server.key, files/file)
import { createHash } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import http from 'node:http'
import http2 from 'node:http2'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const [clear, tls, h2c, folder] = process.argv.slice(2)
const file = readFileSync(`${folder}/files/file`)
const modified = statSync(`${folder}/files/file`).mtime.toUTCString()
const block = Buffer.from(Array.from({ length: 251 * 256 }, (_, index) => index % 251))

// Bytes that repeat only after 251 of them, so that a shifted copy differs.
function* pattern(size) {
  for (; size > block.length; size -= block.length) yield block
  yield block.subarray(0, size)
}

async function digest(stream) {
  const hash = createHash('sha256')
  let length = 0
  for await (const chunk of stream) {
    hash.update(chunk)
    length += chunk.length
  }
  return `${length} ${hash.digest('hex')}\n`
}

function text(response, body, headers = {}, status = 200) {
  const length = Buffer.byteLength(body)
  response.writeHead(status, { 'Content-Type': 'text/plain', 'Content-Length': length, ...headers })
  response.end(body)
}

// A cache that knows the version gets 304.
function unmodified(request, response, etag) {
  const { 'if-none-match': known, 'if-modified-since': since } = request.headers
  if (known !== etag && since !== modified) return false
  response.writeHead(304, { ETag: etag })
  response.end()
  return true
}

function ranges(request, response) {
  const known = { ETag: '"file"', 'Last-Modified': modified, 'Accept-Ranges': 'bytes' }
  if (unmodified(request, response, '"file"')) return
  const [, from, to] = /^bytes=(\d*)-(\d*)$/.exec(request.headers.range ?? '') ?? []
  let [start, end, status] = [0, file.length, 200]
  if (from || to) {
    start = from ? Number(from) : file.length - Number(to)
    end = from && to ? Math.min(Number(to) + 1, file.length) : file.length
    if (start >= file.length) {
      return text(response, '', { 'Content-Range': `bytes */${file.length}` }, 416)
    }
    status = 206
    known['Content-Range'] = `bytes ${start}-${end - 1}/${file.length}`
  }
  const type = { 'Content-Type': 'application/octet-stream', 'Content-Length': end - start }
  response.writeHead(status, { ...type, ...known })
  response.end(request.method === 'HEAD' ? undefined : file.subarray(start, end))
}

function inspect(request, response) {
  const host = request.headers[':authority'] ?? request.headers.host
  const lines = [`method: ${request.method}`, `path: ${request.url}`, `host: ${host}`]
  for (const [name, value] of Object.entries(request.headers)) {
    if (!/^:|^host$/.test(name)) lines.push(`${name}: ${value}`)
  }
  text(response, lines.sort().join('\n') + '\n')
}

async function trailers(request, response) {
  response.writeHead(200, { 'Content-Type': 'text/plain', Trailer: 'X-Checksum' })
  response.write('data\n')
  response.addTrailers({ 'X-Checksum': 'abc' })
  response.end()
}

async function uploadTrailers(request, response) {
  const body = await digest(request)
  text(response, `${body.trim()} ${request.trailers['x-checksum'] ?? 'none'}\n`)
}

function scheme(request) {
  return request.socket.encrypted ? 'https' : 'http'
}

const routes = {
  '/hello': (request, response) => {
    if (!unmodified(request, response, '"v1"')) text(response, 'hello\n', { ETag: '"v1"' })
  },
  '/nothing': (_, response) => response.writeHead(204).end(),
  '/file': ranges,
  '/text': (_, response) => text(response, 'compress me '.repeat(400)),
  '/chunked': (_, response) => {
    response.writeHead(200, { 'Content-Type': 'application/octet-stream' })
    return pipeline(Readable.from(pattern(300000)), response)
  },
  '/echo': (request, response) => {
    response.writeHead(200, { 'Content-Type': 'application/octet-stream' })
    return pipeline(request, response)
  },
  // Replies only when it has the request, as servers expect that cannot do both at once.
  '/whole': async (request, response) => {
    const body = await request.toArray()
    response.writeHead(200, { 'Content-Type': 'application/octet-stream' })
    return pipeline(Readable.from(body, { objectMode: false }), response)
  },
  '/sink': async (request, response) => text(response, await digest(request)),
  '/inspect': inspect,
  '/cookies': async (request, response) => {
    const cookie = Readable.from([Buffer.from(request.headers.cookie ?? '')])
    const cookies = ['a=1; Path=/', 'b=2; Expires=Wed, 21 Oct 2037 07:28:00 GMT', 'c=3; HttpOnly']
    text(response, await digest(cookie), { 'Set-Cookie': cookies })
  },
  '/redirect': (request, response) => {
    const host = request.headers[':authority'] ?? request.headers.host
    text(response, 'there\n', { Location: `${scheme(request)}://${host}/hello` }, 302)
  },
  '/trailers': trailers,
  '/trailers-up': uploadTrailers,
  // Replies from the head; the connection goes on.
  '/refuse/401': (_, response) => text(response, 'no\n', { 'WWW-Authenticate': 'Basic realm="x"' }, 401),
  '/refuse/413': (_, response) => text(response, 'no\n', {}, 413),
}

async function handle(request, response) {
  const path = request.url.split('?')[0]
  try {
    if (path.startsWith('/bytes/')) {
      const size = Number(path.slice('/bytes/'.length))
      response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': size })
      await pipeline(Readable.from(pattern(size), { objectMode: false }), response)
    } else if (routes[path]) {
      await routes[path](request, response)
    } else {
      text(response, 'not here\n', {}, 404)
    }
  } catch (error) {
    console.log(`${request.method} ${path}: ${error.code ?? error}`)
    response.destroy?.()
  }
}

const keys = {
  cert: readFileSync(`${folder}/server.pem`),
  key: readFileSync(`${folder}/server.key`),
  allowHTTP1: true,
}
http.createServer(handle).listen(clear, '127.0.0.1')
http2.createServer(handle).listen(h2c, '127.0.0.1')
http2.createSecureServer(keys, handle).listen(tls, '127.0.0.1')
