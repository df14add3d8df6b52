//! A server that does nothing: it reads a request, drops it, and gives a fixed reply. What its
//! clients wait for is the machine. It is the back end, too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::command::Failure;

pub const HELLO: &str = "hello";
/// What is said of tokens (RFC 7662, section 2.2).
const INACTIVE: &str = "{\"active\":false}";
const BIG: usize = 4 << 20;
/// A thread for each connection needs little.
const STACK: usize = 128 * 1024;
/// The longest line of a head that is read.
const LINE_MAX: u64 = 64 * 1024;

/// Serves a port for ever, in a process of its own.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let wrong = || Failure::new("this server is started by `cargo xtask campaign hostile`");
    let port = arguments.first().and_then(|it| it.parse::<u16>().ok());
    let listener = TcpListener::bind(("127.0.0.1", port.ok_or_else(wrong)?))?;
    for stream in listener.incoming().flatten() {
        // Without a thread for it the connection is closed.
        let thread = thread::Builder::new().stack_size(STACK);
        let _ = thread.spawn(move || serve(&stream));
    }
    Ok(())
}

/// Answers requests until the connection is over.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let first = line(&mut reader)?;
        if !first.contains(" HTTP/1.") {
            // Another protocol, or none.
            std::io::copy(&mut reader, &mut std::io::sink()).ok()?;
            return None;
        }
        let mut length = 0;
        loop {
            let line = line(&mut reader)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink()).ok()?;
        let mut stream = stream;
        match first.contains("/big") {
            true => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                let part = [b'b'; 16 * 1024];
                for _ in 0..BIG / part.len() {
                    stream.write_all(&part).ok()?;
                }
            }
            false => {
                let body = match first.contains("/introspect") {
                    true => INACTIVE,
                    false => HELLO,
                };
                let length = body.len();
                let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                stream.write_all(reply.as_bytes()).ok()?;
            }
        }
    }
}

fn line(reader: &mut BufReader<&TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    let read = reader.take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).into_owned())
}
