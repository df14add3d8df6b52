"""A mail server for tests: keeps what Python's email module makes of each mail as JSON."""

import asyncio
import base64
import json
import os
import ssl
import sys
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, AuthResult

port, security, folder, mails = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
count = 0


def parts(message):
    for part in message.walk():
        if not part.is_multipart():
            yield {
                "type": part.get_content_type(),
                "disposition": part.get_content_disposition(),
                "name": part.get_filename(),
                "content": base64.b64encode(part.get_payload(decode=True)).decode(),
            }


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody"):
            return "550 5.1.1 no such recipient"
        if address.startswith("later"):
            return "451 4.7.1 come again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        global count
        count += 1
        message = message_from_bytes(envelope.content, policy=policy.default)
        kept = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "encrypted": session.ssl is not None or security == "Tls",
            "headers": [[name, str(value)] for name, value in message.items()],
            "parts": list(parts(message)),
            "defects": [str(it) for part in message.walk() for it in part.defects],
        }
        path = os.path.join(mails, f"{count:06}")
        with open(path + ".part", "w") as file:
            json.dump(kept, file)
        os.rename(path + ".part", path + ".json")
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    known = data.login == b"shop" and data.password == b"pass/word1"
    return AuthResult(success=known)


async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(os.path.join(folder, "server.pem"), os.path.join(folder, "server.key"))
    secured = security != "Plain"

    def session():
        return SMTP(
            Handler(),
            hostname="mail.test",
            tls_context=context if security == "StartTls" else None,
            require_starttls=security == "StartTls",
            auth_required=secured,
            auth_require_tls=security == "StartTls",
            authenticator=authenticate if secured else None,
            enable_SMTPUTF8=False,
        )

    loop = asyncio.get_running_loop()
    tls = context if security == "Tls" else None
    server = await loop.create_server(session, "127.0.0.1", port, ssl=tls)
    await server.serve_forever()


asyncio.run(main())
