//! A SOAP server made with spyne, and scripts that use zeep: other people's SOAP, of PyPI.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::process::{Process, free_port};
use crate::servers::python;

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name)
}

/// A real SOAP server: SOAP 1.1 at `/v11/`, SOAP 1.2 at `/v12/`, and a bare body at `/bare/`.
pub struct SoapPeer {
    port: u16,
    _process: Process,
}

impl SoapPeer {
    /// Starts it.
    pub fn start() -> Self {
        let port = free_port();
        let mut command = Command::new(python());
        command.arg(script("soap_peer.py")).arg(port.to_string());
        let mut process = Process::start(&mut command);
        process.wait_for_port(port);
        Self {
            port,
            _process: process,
        }
    }

    /// The WSDL file that it serves for `v11`, `v12` or `bare`.
    pub fn wsdl(&self, name: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "GET /{name}/?wsdl HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n",
            self.port
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(" 200 "), "{head}");
        body.to_owned()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Runs one of the scripts that use zeep to its end.
pub fn zeep(arguments: &[&str]) -> Output {
    let mut command = Command::new(python());
    command.arg(script("soap_client.py")).args(arguments);
    command.output().expect("Python can be started")
}
