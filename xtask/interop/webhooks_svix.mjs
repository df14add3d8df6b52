// Has npm's svix verify what webhooks have brought: a file that webhooks_client.py has written. The
// second argument is the folder of its package.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [file, packages] = process.argv.slice(2);
const { Webhook } = createRequire(join(packages, 'package.json'))('svix');
const list = JSON.parse(readFileSync(file, 'utf8'));

let refused = 0;
for (const { secret, headers, body } of list) {
  const webhook = new Webhook(secret);
  webhook.verify(body, headers);
  try {
    webhook.verify(`${body} `, headers);
  } catch {
    refused += 1;
  }
}
if (list.length === 0 || refused !== list.length) {
  throw new Error(`${refused} of ${list.length} changed bodies were refused`);
}
console.log(`${list.length} signatures`);
