//! The engine's folder: flows, a certificate, a service description, and a reply that is large.

use std::fs;
use std::path::Path;

use super::attacker::Ports;
use super::credentials;
use crate::command::{Failure, program};

pub const HOSTILE: &str = include_str!("../../../campaign/hostile.yaml");
pub const DOORS: &str = include_str!("../../../campaign/doors.yaml");
const BIG: usize = 512 * 1024;

/// Writes everything that the engine reads.
pub fn write(root: &Path, (flows, folder): (&str, &Path), ports: Ports) -> Result<(), Failure> {
    let port = |of: u16| of.to_string();
    let text = flows
        .replace("@SECRET@", credentials::SECRET)
        .replace("@HTTP@", &port(ports.http))
        .replace("@H2@", &port(ports.h2))
        .replace("@TLS@", &port(ports.tls))
        .replace("@BACK_END@", &port(ports.back_end));
    // A file of flows has at most 1 MiB: each reply has a file of its own.
    for (number, document) in (0..).zip(text.split("---\n")) {
        let document = document.replace("@BIG@", &"b".repeat(BIG));
        fs::write(folder.join(format!("{number:03}.yaml")), document)?;
    }
    fs::write(folder.join("partners.keys"), credentials::KEYS)?;
    fs::write(folder.join("people.users"), credentials::USERS)?;
    let wsdl = root.join("examples/soap-to-rest/wsdl/stock.wsdl");
    fs::copy(wsdl, folder.join("stock.wsdl"))?;
    let [key, cert] = ["key.pem", "cert.pem"].map(|name| folder.join(name).display().to_string());
    program("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-nodes", "-days", "30", "-subj", "/CN=localhost"])
        .args(["-keyout", &key, "-out", &cert])
        .output()
        .map(drop)
}
