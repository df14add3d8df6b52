"""A SOAP server for tests, made with spyne: SOAP 1.1 at /v11, SOAP 1.2 at /v12, and bare at /bare.

Usage: soap_peer.py PORT. It checks UsernameToken digests itself, and hangs when told to.
"""

import base64
import datetime
import decimal
import hashlib
import sys
import time
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from lxml import etree
from spyne import (Application, ComplexModel, DateTime, Decimal, Fault, Integer, Iterable,
                   ServiceBase, Unicode, rpc)
from spyne.model.complex import XmlAttribute
from spyne.protocol.soap import Soap11, Soap12
from spyne.server.wsgi import WsgiApplication
from spyne.util.wsgi_wrapper import WsgiMounter

NS = "urn:peer"
WSSE = "{http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd}"
WSU = "{http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd}"


class Item(ComplexModel):
    __namespace__ = NS
    qty = Integer(min_occurs=1)
    note = Unicode(nillable=True)
    sku = XmlAttribute(Unicode(min_occurs=1))


class Line(ComplexModel):
    __namespace__ = NS
    sku = XmlAttribute(Unicode)
    price = Decimal(min_occurs=1)
    ready = DateTime(min_occurs=1, nillable=True)


class Shortage(ComplexModel):
    __namespace__ = NS
    sku = Unicode
    available = Integer


class OutOfStock(Fault):
    __namespace__ = NS
    __type_name__ = "OutOfStock"

    def __init__(self, sku):
        super().__init__("Client.OutOfStock", "nothing left", detail={"OutOfStock": {"sku": sku}})


class Stock(ServiceBase):
    @rpc(Item.customize(max_occurs="unbounded", min_occurs=1), _returns=Iterable(Line),
         _throws=OutOfStock)
    def CheckStock(ctx, item):
        lines = []
        for it in item:
            if it.sku == "gone":
                raise OutOfStock(it.sku)
            if it.sku == "slow":
                time.sleep(30)
            ready = None if it.note is None else datetime.datetime(2026, 1, 31, 12, 0, 0)
            price = decimal.Decimal("9.90") * it.qty
            lines.append(Line(sku=it.sku, price=price, ready=ready))
        return lines

    @rpc(Unicode, _returns=Unicode)
    def Who(ctx, greeting):
        return "%s %s" % (greeting, checked(ctx))


class Bare(ServiceBase):
    @rpc(Item, _returns=Decimal, _body_style="bare")
    def Price(ctx, item):
        return decimal.Decimal("1.10") * item.qty


def checked(ctx):
    """The name of a sound UsernameToken."""
    header = ctx.in_document.find("{*}Header")
    token = None if header is None else header.find(WSSE + "Security/" + WSSE + "UsernameToken")
    if token is None:
        raise Fault("Client.FailedAuthentication", "no token")
    name = token.findtext(WSSE + "Username")
    password = token.find(WSSE + "Password")
    wanted = "p&ss"
    if password.get("Type").endswith("#PasswordDigest"):
        nonce = base64.b64decode(token.findtext(WSSE + "Nonce"))
        created = token.findtext(WSU + "Created")
        datetime.datetime.strptime(created, "%Y-%m-%dT%H:%M:%S.%fZ")
        digest = hashlib.sha1(nonce + created.encode() + wanted.encode()).digest()
        wanted = base64.b64encode(digest).decode()
    if password.text != wanted:
        raise Fault("Client.FailedAuthentication", "wrong password")
    return "%s %s" % (name, password.get("Type").rsplit("#")[1])


def app(services, protocol):
    made = Application(services, NS, name="Peer", in_protocol=protocol(validator="lxml"),
                       out_protocol=protocol())
    return WsgiApplication(made)


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def main():
    port = int(sys.argv[1])
    mounted = WsgiMounter({})
    mounted.mounts = {"v11": app([Stock], Soap11), "v12": app([Stock], Soap12),
                      "bare": app([Bare], Soap11)}
    server = make_server("127.0.0.1", port, mounted, server_class=Server, handler_class=Quiet)
    server.serve_forever()


main()
