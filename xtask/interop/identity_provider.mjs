// npm's oidc-provider with clients of every kind. Arguments: the folder with the packages, its own
// port, the engine's port, a file for the private key of the client that signs. `POST /rotate`
// has it sign with a new key.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { writeFileSync } from 'node:fs';
import { generateKeyPairSync } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const [packages, port, engine, keyFile] = process.argv.slice(2);
const require = createRequire(`${packages}/node_modules/`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const issuer = `http://127.0.0.1:${port}`;
const site = `http://localhost:${engine}`;
const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
writeFileSync(keyFile, pair.privateKey.export({ type: 'pkcs8', format: 'pem' }));

let keys = [];
function newKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const kid = `key-${keys.length + 1}`;
  keys = [{ ...privateKey.export({ format: 'jwk' }), kid, use: 'sig', alg: 'RS256' }, ...keys];
}

const client = (client_id, more) => ({
  client_id,
  redirect_uris: [`${site}/${client_id}/callback`],
  post_logout_redirect_uris: [`${site}/bye`],
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  backchannel_logout_uri: `http://127.0.0.1:${engine}/${client_id}/backchannel`,
  backchannel_logout_session_required: true,
  ...more,
});

const configuration = () => ({
  jwks: { keys },
  clients: [
    client('secret', { client_secret: 'hush: & co', token_endpoint_auth_method: 'client_secret_basic' }),
    client('signed', {
      token_endpoint_auth_method: 'private_key_jwt',
      token_endpoint_auth_signing_alg: 'ES256',
      jwks: { keys: [{ ...pair.publicKey.export({ format: 'jwk' }), kid: 'client', alg: 'ES256' }] },
    }),
    client('public', { token_endpoint_auth_method: 'none' }),
  ],
  claims: { openid: ['sub', 'sid'], profile: ['name'] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: `Name of ${id}` }) }),
  features: {
    devInteractions: { enabled: true },
    introspection: { enabled: true },
    backchannelLogout: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  scopes: ['openid', 'offline_access', 'profile'],
  ttl: { AccessToken: 12, IdToken: 600, Session: 3600, Grant: 3600, RefreshToken: 3600, Interaction: 600 },
  rotateRefreshToken: true,
  issueRefreshToken: async () => true,
  cookies: { keys: ['a secret of this test'] },
  // Its own would ask no address of this machine.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  pkce: { required: () => true },
});

let provider;
function begin() {
  newKey();
  provider = new Provider(issuer, configuration());
  for (const event of ['server_error', 'backchannel.error', 'grant.error', 'authorization.error']) {
    provider.on(event, (...words) => console.log(event, ...words.filter((it) => it instanceof Error)));
  }
  provider.on('backchannel.success', () => console.log('backchannel.success'));
}
begin();

createServer((request, response) => {
  if (request.method === 'POST' && request.url === '/rotate') {
    begin();
    response.end('rotated\n');
    return;
  }
  provider.callback()(request, response);
}).listen(Number(port), '127.0.0.1', () => console.log('listens'));
