// Has npm's jose judge the tokens of a list, which a test of the crate `access` has made. A line for
// each: our judgement, its judgement, the name. The second argument is the folder of its package.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [file, packages] = process.argv.slice(2);
const jose = createRequire(join(packages, 'package.json'))('jose');
const list = JSON.parse(readFileSync(file, 'utf8'));
const keys = jose.createLocalJWKSet(list.jwks);
const rules = {
  issuer: list.issuer,
  audience: list.audiences,
  clockTolerance: 30,
  currentDate: new Date(list.now * 1000),
  requiredClaims: ['exp'],
};

for (const { name, token, refused } of list.tokens) {
  let theirs = 'taken';
  try {
    await jose.jwtVerify(token, keys, rules);
  } catch {
    theirs = 'refused';
  }
  const ours = refused === null ? 'taken' : 'refused';
  console.log(`${ours} ${theirs} ${name.replace(/\s/g, ' ')}`);
}
