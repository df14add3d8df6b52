// A browser without a window logs in at a real OpenID provider by way of the engine. Arguments: the
// provider's kind (`oidc-provider` or `keycloak`), its address, the engine's port. Prints a line for each check.

import { request } from 'node:http';

const [kind, provider, port] = process.argv.slice(2);
const site = `http://localhost:${port}`;
const HTML = { accept: 'text/html,*/*;q=0.8', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };

/** A request as it is written here: Node's own `fetch` says `Sec-Fetch-Mode: cors` of itself. */
function fetch(url, { method = 'GET', headers = {}, body } = {}) {
  const content = body instanceof URLSearchParams ? body.toString() : body;
  const type = body instanceof URLSearchParams && { 'content-type': 'application/x-www-form-urlencoded' };
  const length = content !== undefined && { 'content-length': Buffer.byteLength(content) };
  return new Promise((done, failed) => {
    const sent = request(url, { method, headers: { ...type, ...headers, ...length } }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', failed);
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        const status = response.statusCode;
        const { 'set-cookie': cookies = [], ...fields } = response.headers;
        done({ status, ok: status < 300, fields, cookies, text, json: () => JSON.parse(text) });
      });
    });
    sent.on('error', failed);
    sent.end(content);
  });
}

/** Keeps cookies for each host, and follows redirects and forms as a person would. */
class Browser {
  jars = new Map();
  trail = [];

  jar(url) {
    const { hostname } = new URL(url);
    if (!this.jars.has(hostname)) this.jars.set(hostname, new Map());
    return this.jars.get(hostname);
  }

  async send(url, options = {}) {
    const jar = this.jar(url);
    const path = new URL(url).pathname;
    const sent = [...jar.values()].filter((it) => path.startsWith(it.path));
    const cookie = sent.map((it) => `${it.name}=${it.value}`).join('; ');
    const headers = { ...options.headers, ...(cookie && { cookie }) };
    const response = await fetch(url, { ...options, headers });
    for (const line of response.cookies) {
      const [pair, ...attributes] = line.split(';').map((it) => it.trim());
      const at = pair.indexOf('=');
      const [name, value] = [pair.slice(0, at), pair.slice(at + 1)];
      const of = (key) => attributes.find((it) => it.toLowerCase().startsWith(`${key}=`))?.slice(key.length + 1);
      const scope = of('path') ?? '/';
      const isOver = of('max-age') === '0' || (of('expires') && new Date(of('expires')) < new Date());
      if (isOver) jar.delete(name + scope);
      else jar.set(name + scope, { name, value, path: scope, line });
    }
    return response;
  }

  /** Opens a page and all that it is sent on to. */
  async open(url, options = { headers: HTML }) {
    this.trail = [];
    for (let hops = 0; hops < 20; hops += 1) {
      const response = await this.send(url, options);
      this.trail.push(`${options.method ?? 'GET'} ${url} ${response.status}`);
      const { location } = response.fields;
      if (response.status < 300 || response.status > 399 || !location) {
        return { url, status: response.status, text: response.text };
      }
      url = new URL(location, url).href;
      options = { headers: HTML };
    }
    throw new Error(`it goes round:\n${this.trail.join('\n')}`);
  }

  /** Fills in the form of a page and submits it. */
  async submit(page, fields) {
    const form = /<form[^>]*>[\s\S]*?<\/form>/.exec(page.text)?.[0];
    if (!form) throw new Error(`no form in ${page.status} ${page.url}:\n${page.text.slice(0, 800)}\n${this.trail.join('\n')}`);
    const decode = (text) => text.replaceAll('&amp;', '&').replaceAll('&#x2F;', '/');
    const of = (tag, name) => decode(new RegExp(`\\s${name}="([^"]*)"`).exec(tag)?.[1] ?? '');
    const values = new URLSearchParams();
    for (const [tag] of form.matchAll(/<input[^>]*>/g)) {
      if (of(tag, 'name') && of(tag, 'type') !== 'submit') values.set(of(tag, 'name'), of(tag, 'value'));
    }
    for (const [name, value] of Object.entries(fields)) values.set(name, value);
    const to = new URL(of(form, 'action') || page.url, page.url);
    const headers = { ...HTML, 'content-type': 'application/x-www-form-urlencoded', origin: to.origin };
    return this.open(to.href, { method: 'POST', headers, body: values.toString() });
  }

  /** Opens a page behind the door of a way, and logs in where that is asked for. */
  async logIn(way, who = 'ann') {
    let page = await this.open(`${site}/${way}/page?a=1&b=%2F`);
    for (let forms = 0; forms < 4 && !page.url.startsWith(site); forms += 1) {
      const fields = kind === 'keycloak' ? { username: who, password: 'secret' } : { login: who, password: 'x' };
      page = await this.submit(page, fields);
    }
    return page;
  }

  async api(way, options = {}) {
    return this.send(`${site}/${way}/page`, options);
  }
}

const checks = [];
const check = (name, run) => checks.push([name, run]);
function equal(found, wanted, what) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`${what}: ${JSON.stringify(found)} in place of ${JSON.stringify(wanted)}`);
  }
}
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
async function until(what, seconds, holds) {
  for (let tries = 0; tries < seconds * 10; tries += 1) {
    if (await holds()) return;
    await sleep(0.1);
  }
  throw new Error(`${what}: not within ${seconds} s`);
}

async function loggedIn(way, who) {
  const browser = new Browser();
  const page = await browser.logIn(way, who);
  const shown = `${page.status} ${page.url}\n${page.text.slice(0, 500)}\n${browser.trail.join('\n')}`;
  if (page.status !== 200 || !page.url.startsWith(site)) throw new Error(shown);
  return { browser, page, auth: JSON.parse(page.text) };
}

let admin;
async function keycloak(method, path, body) {
  if (!admin) {
    const form = new URLSearchParams({ grant_type: 'password', client_id: 'admin-cli', username: 'admin', password: 'admin' });
    const answer = await fetch(`${new URL(provider).origin}/realms/master/protocol/openid-connect/token`, { method: 'POST', body: form });
    admin = (await answer.json()).access_token;
  }
  const headers = { authorization: `Bearer ${admin}`, 'content-type': 'application/json' };
  const url = `${new URL(provider).origin}/admin/realms/shop${path}`;
  const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  return answer.text && answer.json();
}

for (const way of ['secret', 'signed', 'public']) {
  check(`login of the client ${way}`, async () => {
    const { page, auth, browser } = await loggedIn(way);
    equal(page.url, `${site}/${way}/page?a=1&b=%2F`, 'the page');
    equal([auth.auth.way, auth.auth.scopes.includes('openid')], [way, true], 'the caller');
    equal(typeof auth.auth.claims.sid, 'string', 'the session at the provider');
    equal(auth.cookie, null, 'the cookie behind the door');
    equal((await browser.api(way)).status, 200, 'the session');
  });
}

check('who has no session', async () => {
  const browser = new Browser();
  equal((await browser.api('secret')).status, 401, 'a script');
  equal((await browser.send(`${site}/secret/page`, { method: 'POST', headers: HTML })).status, 401, 'a form');
});

check('another site', async () => {
  const { browser } = await loggedIn('secret');
  const post = (origin) => browser.api('secret', { method: 'POST', headers: { origin } });
  equal((await post('https://evil.example')).status, 403, 'a foreign origin');
  equal((await post(site)).status, 200, 'its own origin');
});

check('an answer from another browser', async () => {
  const { browser } = await loggedIn('secret');
  await browser.open(`${site}/secret/logout`);
  const victim = new Browser();
  // The attacker's browser goes as far as the redirect back, which the victim then opens.
  const attacker = new Browser();
  let back;
  const send = attacker.send.bind(attacker);
  attacker.send = async (url, options) => {
    if (url.startsWith(`${site}/secret/callback`)) {
      back = url;
      return { status: 200, fields: {}, cookies: [], text: 'stopped' };
    }
    return send(url, options);
  };
  await attacker.logIn('secret');
  equal((await victim.open(back)).status, 400, 'the answer');
  equal((await victim.api('secret')).status, 401, 'no session');
});

check('newer claims by a refresh token', async () => {
  const { browser } = await loggedIn('secret');
  const token = async () => (await (await browser.api('secret')).json()).auth.claims.iat;
  const first = await token();
  await sleep(kind === 'keycloak' ? 14 : 13);
  equal((await browser.api('secret')).status, 200, 'after the access token has expired');
  const second = await token();
  if (second <= first) throw new Error(`the claims are of ${first} and of ${second}`);
  await sleep(kind === 'keycloak' ? 14 : 13);
  if ((await token()) <= second) throw new Error('the second refresh token was not used');
});

check('logout', async () => {
  const { browser } = await loggedIn('secret');
  let page = await browser.open(`${site}/secret/logout`);
  if (!page.url.startsWith(site)) page = await browser.submit(page, { logout: 'yes' });
  equal([page.url.split('?')[0], page.status], [`${site}/bye`, 200], 'the page after it');
  equal((await browser.api('secret')).status, 401, 'no session');
  const again = await browser.open(`${site}/secret/page`);
  if (again.url.startsWith(site)) throw new Error('the provider has not ended its session');
});

check('back-channel logout', async () => {
  const { browser } = await loggedIn('secret', 'bob');
  equal((await browser.api('secret')).status, 200, 'the session');
  // The same person at the same provider, in the session of another client.
  const page = await browser.logIn('public', 'bob');
  equal(page.status, 200, 'single sign-on');
  if (kind === 'keycloak') {
    const [user] = await keycloak('GET', '/users?username=bob');
    await keycloak('POST', `/users/${user.id}/logout`);
  } else {
    let out = await browser.open(`${site}/public/logout`);
    if (!out.url.startsWith(site)) out = await browser.submit(out, { logout: 'yes' });
    equal(out.status, 200, 'logout of the other client');
  }
  // Sooner than its claims would be renewed, which would fail too.
  await until('the session has ended', 4, async () => (await browser.api('secret')).status === 401);
});

check('rotation of keys', async () => {
  const before = await (await fetch(`${provider}/${kind === 'keycloak' ? 'protocol/openid-connect/certs' : 'jwks'}`)).json();
  if (kind === 'keycloak') {
    const name = `rotated-${Date.now()}`;
    const config = { priority: ['500'], enabled: ['true'], active: ['true'], keySize: ['2048'], algorithm: ['RS256'] };
    const realm = await keycloak('GET', '');
    const type = 'org.keycloak.keys.KeyProvider';
    await keycloak('POST', '/components', { name, providerId: 'rsa-generated', providerType: type, parentId: realm.id, config });
  } else {
    await fetch(`${provider}/rotate`, { method: 'POST' });
  }
  const after = await (await fetch(`${provider}/${kind === 'keycloak' ? 'protocol/openid-connect/certs' : 'jwks'}`)).json();
  equal(after.keys.length, before.keys.length + 1, 'the keys');
  await loggedIn('secret');
});

check('introspection', async () => {
  const headers = { authorization: `Basic ${btoa('secret:hush%3A%20%26%20co')}` };
  const at = kind === 'keycloak' ? `${provider}/protocol/openid-connect` : provider;
  let token;
  let revoke;
  if (kind === 'keycloak') {
    const body = new URLSearchParams({ grant_type: 'password', username: 'ann', password: 'secret', scope: 'openid' });
    token = (await (await fetch(`${at}/token`, { method: 'POST', headers, body })).json()).access_token;
    revoke = `${at}/revoke`;
  } else {
    token = await codeFlow(headers);
    revoke = `${at}/token/revocation`;
  }
  const ask = (it) => fetch(`${site}/opaque`, { headers: { authorization: `Bearer ${it}` } });
  const first = await ask(token);
  equal([first.status, (await first.json()).way], [200, 'opaque'], 'a token');
  equal((await ask('no-token')).status, 401, 'no token');
  if (kind !== 'keycloak') return;
  await fetch(revoke, { method: 'POST', headers, body: new URLSearchParams({ token }) });
  await until('the revoked token is refused', 10, async () => (await ask(token)).status === 401);
});

/** An access token of oidc-provider, had as a client of its own would. */
async function codeFlow(headers) {
  const { createHash, randomBytes } = await import('node:crypto');
  const verifier = randomBytes(32).toString('base64url');
  const redirect_uri = `${site}/secret/callback`;
  const query = new URLSearchParams({
    response_type: 'code', client_id: 'secret', redirect_uri, scope: 'openid', state: 's',
    code_challenge_method: 'S256', code_challenge: createHash('sha256').update(verifier).digest('base64url'),
  });
  const browser = new Browser();
  let page = await browser.open(`${provider}/auth?${query}`);
  for (let forms = 0; forms < 4 && !page.url.startsWith(site); forms += 1) {
    page = await browser.submit(page, { login: 'ann', password: 'x' });
  }
  const code = new URL(page.url).searchParams.get('code');
  const body = new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri, code_verifier: verifier });
  const answer = await (await fetch(`${provider}/token`, { method: 'POST', headers, body })).json();
  if (!answer.access_token) throw new Error(JSON.stringify(answer));
  return answer.access_token;
}

for (const [name, run] of checks) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error.stack ?? error).replaceAll('\n', ' | ')}`);
  }
}
