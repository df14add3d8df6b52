// A realm of Keycloak with clients of every kind. Arguments: the engine's port, the file for the
// realm, a file for the private key of the client that signs.

import { writeFileSync } from 'node:fs';
import { generateKeyPairSync } from 'node:crypto';

const [engine, realmFile, keyFile] = process.argv.slice(2);
const site = `http://localhost:${engine}`;
const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
writeFileSync(keyFile, pair.privateKey.export({ type: 'pkcs8', format: 'pem' }));
const jwk = { ...pair.publicKey.export({ format: 'jwk' }), kid: 'client', alg: 'ES256', use: 'sig' };

const client = (clientId, more, attributes = {}) => ({
  clientId,
  enabled: true,
  redirectUris: [`${site}/${clientId}/callback`],
  standardFlowEnabled: true,
  directAccessGrantsEnabled: clientId === 'secret',
  attributes: {
    'post.logout.redirect.uris': `${site}/bye`,
    'backchannel.logout.url': `http://127.0.0.1:${engine}/${clientId}/backchannel`,
    'backchannel.logout.session.required': 'true',
    'pkce.code.challenge.method': 'S256',
    ...attributes,
  },
  ...more,
});
const user = (username) => ({
  username,
  enabled: true,
  email: `${username}@shop.example`,
  emailVerified: true,
  firstName: username,
  lastName: 'of the shop',
  credentials: [{ type: 'password', value: 'secret', temporary: false }],
});

writeFileSync(realmFile, JSON.stringify({
  realm: 'shop',
  enabled: true,
  sslRequired: 'none',
  accessTokenLifespan: 12,
  revokeRefreshToken: true,
  refreshTokenMaxReuse: 0,
  clients: [
    client('secret', { secret: 'hush: & co', clientAuthenticatorType: 'client-secret' }),
    client('signed', { clientAuthenticatorType: 'client-jwt' }, {
      'token.endpoint.auth.signing.alg': 'ES256',
      'use.jwks.string': 'true',
      'jwks.string': JSON.stringify({ keys: [jwk] }),
    }),
    client('public', { publicClient: true }),
  ],
  users: [user('ann'), user('bob')],
}));
