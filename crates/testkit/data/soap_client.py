"""A SOAP client for tests, made with zeep: loads a WSDL file over HTTP and calls what it has.

Usage: soap_client.py URL. Prints one line of JSON for each call.
"""

import datetime
import decimal
import json
import sys

import zeep
from zeep.helpers import serialize_object


def plain(value):
    if isinstance(value, (datetime.date, datetime.datetime, decimal.Decimal)):
        return str(value)
    raise TypeError(type(value))


def show(name, call):
    try:
        result = serialize_object(call(), dict)
    except zeep.exceptions.Fault as fault:
        detail = fault.detail
        children = [] if detail is None else [
            [child.tag, [[inner.tag, inner.text] for inner in child]] for child in detail]
        result = {"code": fault.code, "message": fault.message, "detail": children}
    print(json.dumps([name, result], default=plain))


def main():
    client = zeep.Client(sys.argv[1])
    for port in ["Erp11", "Erp12"]:
        service = client.bind("ErpService", port)
        items = [{"sku": "a", "qty": 2, "unit": "box"}, {"sku": "b", "qty": 1}]
        day = datetime.date(2026, 1, 31)
        show(port, lambda: service.CheckStock(item=items, asOf=day, note="x<y"))
        show(port + " fault", lambda: service.CheckStock(item=[{"sku": "gone", "qty": 1}]))
        show(port + " other", lambda: service.CheckStock(item=[{"sku": "odd", "qty": 1}]))
        show(port + " wrong", lambda: service.CheckStock(item=[{"sku": "a", "qty": 0}]))
        show(port + " bad", lambda: service.CheckStock(item=[{"sku": "bad", "qty": 1}]))
    service = client.bind("ErpService", "Erp11")
    show("header", lambda: service.CheckStock(item=[{"sku": "h", "qty": 1}],
                                              _soapheaders={"trace": "t-1"}))
    show("bare", lambda: service.Ping(7))
    show("rpc", lambda: service.Add(a=2, b=3))
    show("one-way", lambda: service.Notify("hello"))


main()
