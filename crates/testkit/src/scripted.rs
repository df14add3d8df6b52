//! A back end that does exactly what a script says: slow, broken, rude.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// One thing that the back end does on a connection.
#[derive(Clone, Debug)]
pub enum Action {
    /// Reads until these bytes have come.
    ReadUntil(&'static [u8]),
    /// Writes bytes.
    Send(Vec<u8>),
    /// Waits.
    Pause(Duration),
    /// Does nothing more until the other side closes.
    Stall,
    /// Closes, which is also what the end of the script does.
    Close,
    /// Says that nothing more is written, and goes on.
    HalfClose,
}

/// A back end with a script for each connection in the order they come; the last one repeats.
pub struct ScriptedBackend {
    port: u16,
    accepted: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<u8>>>,
}

impl ScriptedBackend {
    /// Starts it on a free port.
    pub fn start(scripts: Vec<Vec<Action>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let backend = Self {
            port,
            accepted: Arc::default(),
            closed: Arc::default(),
            received: Arc::default(),
        };
        let (accepted, closed, received) = (
            backend.accepted.clone(),
            backend.closed.clone(),
            backend.received.clone(),
        );
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let script = scripts.get(number).or(scripts.last()).unwrap().clone();
                let (closed, received) = (closed.clone(), received.clone());
                thread::spawn(move || {
                    play(stream, &script, &received);
                    closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        backend
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// How many connections have ended.
    pub fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    /// All bytes it has read.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
}

fn play(mut stream: TcpStream, script: &[Action], received: &Mutex<Vec<u8>>) {
    let mut waiting = Vec::new();
    for action in script {
        match action {
            Action::ReadUntil(end) => loop {
                let found = waiting.windows(end.len()).position(|window| window == *end);
                if let Some(at) = found {
                    waiting.drain(..at + end.len());
                    break;
                }
                if !read(&mut stream, &mut waiting, received) {
                    return;
                }
            },
            Action::Send(bytes) => {
                if stream.write_all(bytes).is_err() {
                    return;
                }
            }
            Action::Pause(time) => thread::sleep(*time),
            Action::Stall => while read(&mut stream, &mut waiting, received) {},
            Action::Close => return,
            Action::HalfClose => drop(stream.shutdown(Shutdown::Write)),
        }
    }
}

fn read(stream: &mut TcpStream, waiting: &mut Vec<u8>, received: &Mutex<Vec<u8>>) -> bool {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(count @ 1..) => {
            waiting.extend_from_slice(&bytes[..count]);
            received.lock().unwrap().extend_from_slice(&bytes[..count]);
            true
        }
        _ => false,
    }
}
