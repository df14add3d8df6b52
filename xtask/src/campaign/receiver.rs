//! The server behind the engine: it notes what arrives, and is slow, refuses or goes away when it
//! is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use super::books::{Books, Way};
use crate::command::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// It takes everything.
    Up,
    /// It answers 503, without noting what came.
    Refuses,
    /// It closes connections without an answer, perhaps after it has noted what came.
    Drops,
    /// It answers after a while.
    Slow,
}

pub struct Receiver {
    pub port: u16,
    mode: Arc<AtomicU8>,
}

impl Receiver {
    pub fn start(books: &Arc<Books>) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let mode = Arc::new(AtomicU8::new(Mode::Up as u8));
        let (of_thread, books) = (Arc::clone(&mode), Arc::clone(books));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (mode, books) = (Arc::clone(&of_thread), Arc::clone(&books));
                thread::spawn(move || while serve(&stream, &mode, &books).is_some() {});
            }
        });
        Ok(Self { port, mode })
    }

    pub fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }
}

/// Answers one request; `None` when the connection is over.
fn serve(stream: &TcpStream, mode: &AtomicU8, books: &Books) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|it| *it > 0)?;
    let (mut length, mut id) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|it| *it > 0)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "x-id" => id = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8_lossy(&body);
    let mode = mode.load(Ordering::SeqCst);
    let status = match mode {
        it if it == Mode::Refuses as u8 => "503 Service Unavailable",
        _ => "204 No Content",
    };
    if mode == Mode::Slow as u8 {
        thread::sleep(Duration::from_millis(100));
    }
    if mode != Mode::Refuses as u8 {
        books.arrived(Way::of_receiver(&first), &id, &body);
    }
    if mode == Mode::Drops as u8 {
        return None;
    }
    let content = if status.starts_with("503") {
        "Content-Length: 0\r\n"
    } else {
        ""
    };
    let answer = format!("HTTP/1.1 {status}\r\n{content}\r\n");
    let mut stream = stream;
    stream.write_all(answer.as_bytes()).ok()
}
