//! SOAP, the admin port, and descriptors.

use std::io;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::{Attacker, Flood};

pub const ATTACKS: &[Attack] = &[
    attack("soap", "SOAP", "envelopes as they must not be", 4, 3, soap),
    attack(
        "admin-flood",
        "admin",
        "requests for all metrics, odd ones",
        4,
        3,
        admin,
    ),
    attack(
        "admin-connections",
        "admin",
        "400 connections, silent",
        1,
        6,
        admin_connections,
    ),
    attack(
        "unknown-paths",
        "h1",
        "paths and hosts that nobody has",
        4,
        3,
        unknown_paths,
    ),
    attack(
        "descriptors",
        "all",
        "4000 connections to all ports at once",
        4,
        8,
        descriptors,
    ),
];

fn soap(attacker: &mut Attacker) -> io::Result<()> {
    const START: &str = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'>";
    const STOCK: &str = "urn:example:stock";
    const END: &str = "</e:Envelope>";
    let items = "<item sku='a'><qty>1</qty></item>".repeat(20_000);
    let namespaces: String = (0..20_000).map(|it| format!(" xmlns:n{it}='x'")).collect();
    let body = match attacker.random.u8(..8) {
        0 => {
            format!("{START}<e:Body><CheckStock xmlns='{STOCK}'>{items}</CheckStock></e:Body>{END}")
        }
        1 => format!(
            "{START}<e:Header>{}</e:Header><e:Body/>{END}",
            "<a/>".repeat(200_000)
        ),
        2 => format!("{START}<e:Body>{}", "<a>".repeat(100_000)),
        3 => format!("<!DOCTYPE a [<!ENTITY x 'y'>]>{START}<e:Body>&x;</e:Body>{END}"),
        4 => format!("{START}<e:Body><CheckStock{namespaces}/></e:Body>{END}"),
        5 => format!("{START}<e:Body><Other/></e:Body>{END}"),
        6 => "<a/>".to_owned(),
        _ => String::new(),
    };
    let headers = "Content-Type: text/xml; charset=utf-8\r\n\
                   SOAPAction: \"urn:example:stock/CheckStock\"\r\n";
    attacker.post("/soap", headers, body.as_bytes())
}

fn admin(attacker: &mut Attacker) -> io::Result<()> {
    let request = attacker.any(&[
        "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\nabc",
        "GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ]);
    attacker
        .try_once(attacker.ports.admin, request.as_bytes())
        .map(drop)
}

fn admin_connections(attacker: &mut Attacker) -> io::Result<()> {
    let opening = attacker.any(&["", "GET /metrics HTTP/1.1\r\nX: "]);
    let flood = Flood::new(attacker.ports.admin, 400, opening.as_bytes()).slow(100);
    attacker.flood(flood.seconds(8), |_, _| b"a".to_vec())
}

fn unknown_paths(attacker: &mut Attacker) -> io::Result<()> {
    let number = attacker.random.u64(..1 << 53);
    let request = format!("M{number} /{number} HTTP/1.1\r\nHost: h{number}\r\n\r\n");
    attacker
        .try_once(attacker.ports.http, request.as_bytes())
        .map(drop)
}

fn descriptors(attacker: &mut Attacker) -> io::Result<()> {
    let ports = attacker.ports;
    let at = attacker.random.usize(..4);
    let flood = Flood::new([ports.http, ports.h2, ports.tls, ports.http][at], 1000, b"");
    attacker.flood(flood.slow(20).seconds(9), |_, _| Vec::new())
}
