//! A server of TDS 7.4 that answers with what a test has written, token by token (MS-TDS). It shows
//! what no engine at hand sends as SQL Server does.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::certificates::Issued;

/// The kinds of packets (section 2.2.3.1.1).
const PRELOGIN: u8 = 0x12;
const LOGIN: u8 = 0x10;
const ATTENTION: u8 = 0x06;
const REPLY: u8 = 0x04;
const PACKET: usize = 4096;

/// What a client asked for.
#[derive(Clone, Debug)]
pub struct TdsRequest {
    /// The kind of packet: 1 is a batch, 3 a call, 6 an attention.
    pub kind: u8,
    /// What of it can be printed: the texts, as far as they are English.
    pub text: String,
}

/// What a script answers.
pub enum TdsReply {
    /// These tokens.
    Tokens(Vec<u8>),
    /// These tokens as often as the client reads them.
    Endless(Vec<u8>),
    /// These tokens, and then the connection is cut.
    Cut(Vec<u8>),
    /// Nothing, until the client sends an attention.
    Silence,
}

/// The server.
pub struct ScriptedTds {
    port: u16,
    requests: Arc<Mutex<Vec<TdsRequest>>>,
}

type Script = Arc<dyn Fn(&TdsRequest) -> TdsReply + Send + Sync>;

impl ScriptedTds {
    /// Starts it in clear text. Everybody is let in; whatever is asked then, the script answers.
    pub fn start(script: impl Fn(&TdsRequest) -> TdsReply + Send + Sync + 'static) -> Self {
        Self::start_as(None, Arc::new(script))
    }

    /// The same with TLS 1.2, whose handshake travels in packets (section 3.2.5.1), as that of SQL
    /// Server does in this version of the protocol.
    pub fn start_with_tls(
        issued: &Issued,
        script: impl Fn(&TdsRequest) -> TdsReply + Send + Sync + 'static,
    ) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(issued.cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS12]);
        let config = config.with_no_client_auth().with_single_cert(chain, key);
        Self::start_as(Some(Arc::new(config.unwrap())), Arc::new(script))
    }

    fn start_as(tls: Option<Arc<ServerConfig>>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<TdsRequest>>> = Arc::default();
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (tls, script, kept) = (tls.clone(), Arc::clone(&script), Arc::clone(&kept));
                // A client that goes away ends its thread.
                thread::spawn(move || drop(welcome(stream, tls, &script, &kept)));
            }
        });
        Self { port, requests }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What was asked after the login, in its order.
    pub fn requests(&self) -> Vec<TdsRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn welcome(
    mut stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    script: &Script,
    requests: &Mutex<Vec<TdsRequest>>,
) -> io::Result<()> {
    receive(&mut stream)?;
    send(&mut stream, &prelogin(tls.is_some()), true)?;
    let Some(tls) = tls else {
        return serve(stream, script, requests);
    };
    let mut connection = ServerConnection::new(tls).map_err(io::Error::other)?;
    let mut wrapped = Wrapped {
        stream: &mut stream,
        left: 0,
        written: Vec::new(),
    };
    while connection.is_handshaking() {
        connection.complete_io(&mut wrapped)?;
    }
    serve(StreamOwned::new(connection, stream), script, requests)
}

/// A connection on which the handshake of TLS travels in packets.
struct Wrapped<'a> {
    stream: &'a mut TcpStream,
    /// What is left of the packet that is being read.
    left: usize,
    written: Vec<u8>,
}

impl Read for Wrapped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head)?;
            self.left = usize::from(u16::from_be_bytes([head[2], head[3]])).saturating_sub(8);
        }
        let most = buffer.len().min(self.left);
        let count = self.stream.read(&mut buffer[..most])?;
        self.left -= count;
        Ok(count)
    }
}

impl Write for Wrapped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = std::mem::take(&mut self.written);
        for part in written.chunks(PACKET - 8) {
            self.stream.write_all(&packet(PRELOGIN, true, part))?;
        }
        Ok(())
    }
}

fn serve(
    mut stream: impl Read + Write,
    script: &Script,
    requests: &Mutex<Vec<TdsRequest>>,
) -> io::Result<()> {
    loop {
        let (kind, payload) = receive(&mut stream)?;
        let reply = match kind {
            LOGIN => TdsReply::Tokens([login_ack(), done(0xfd, 0, 0)].concat()),
            _ => {
                let text = text_of(&payload);
                let request = TdsRequest { kind, text };
                requests.lock().unwrap().push(request.clone());
                match kind {
                    // The bit of attention (section 2.2.7.6).
                    ATTENTION => TdsReply::Tokens(done(0xfd, 0x20, 0)),
                    _ => script(&request),
                }
            }
        };
        match reply {
            TdsReply::Tokens(tokens) => send(&mut stream, &tokens, true)?,
            TdsReply::Silence => {}
            TdsReply::Cut(tokens) => return send(&mut stream, &tokens, false),
            TdsReply::Endless(tokens) => loop {
                send(&mut stream, &tokens, false)?;
            },
        }
    }
}

fn receive(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let mut part = vec![0; length.saturating_sub(8)];
        stream.read_exact(&mut part)?;
        payload.extend(part);
        if head[1] & 1 == 1 {
            return Ok((head[0], payload));
        }
    }
}

fn send(stream: &mut impl Write, tokens: &[u8], is_all: bool) -> io::Result<()> {
    let mut parts = tokens.chunks(PACKET - 8).peekable();
    while let Some(part) = parts.next() {
        let is_last = is_all && parts.peek().is_none();
        stream.write_all(&packet(REPLY, is_last, part))?;
    }
    stream.flush()
}

fn packet(kind: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() + 8) as u16;
    let mut packet = vec![kind, u8::from(is_last)];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 1, 0]);
    packet.extend(payload);
    packet
}

/// What can be printed of a request: English text, whose UTF-16 has zeros between its letters.
fn text_of(payload: &[u8]) -> String {
    let bytes = payload.iter().copied();
    let shown = bytes.filter(|byte| (0x20..0x7f).contains(byte) || *byte == b'\n');
    shown.map(char::from).collect()
}

/// Version 16.0, and whether everything is encrypted (section 2.2.6.5).
fn prelogin(is_encrypted: bool) -> Vec<u8> {
    let mut message = vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff];
    message.extend([16, 0, 0x03, 0xe8, 0, 0]);
    message.push(if is_encrypted { 1 } else { 2 });
    message
}

fn login_ack() -> Vec<u8> {
    let mut body = vec![1, 0x74, 0, 0, 4];
    body.extend(short("Microsoft SQL Server"));
    body.extend([16, 0, 0x03, 0xe8]);
    token(0xad, body)
}

fn token(kind: u8, body: Vec<u8>) -> Vec<u8> {
    let length = (body.len() as u16).to_le_bytes();
    [vec![kind], length.to_vec(), body].concat()
}

/// A text in UTF-16 with its length in one byte before it.
fn short(text: &str) -> Vec<u8> {
    let units = utf16(text);
    [vec![(units.len() / 2) as u8], units].concat()
}

/// A text in UTF-16, little end first.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// The end of a statement (`0xff`), of a procedure (`0xfe`) or of a batch (`0xfd`): with status
/// bits, of which `0x10` says that the count is one and `0x01` that more follows.
pub fn done(kind: u8, status: u16, count: u64) -> Vec<u8> {
    let mut token = vec![kind];
    token.extend(status.to_le_bytes());
    token.extend(0_u16.to_le_bytes());
    token.extend(count.to_le_bytes());
    token
}

/// An error (section 2.2.7.10).
pub fn error(number: i32, class: u8, message: &str) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    body.extend([1, class]);
    let message = utf16(message);
    body.extend(((message.len() / 2) as u16).to_le_bytes());
    body.extend(message);
    body.extend(short("server"));
    body.extend(short(""));
    body.extend(1_i32.to_le_bytes());
    token(0xaa, body)
}

/// The columns of a result set: names, and their types as they stand on the wire.
pub fn columns(columns: &[(&str, &[u8])]) -> Vec<u8> {
    let mut token = vec![0x81];
    token.extend((columns.len() as u16).to_le_bytes());
    for (name, kind) in columns {
        token.extend([0, 0, 0, 0, 9, 0]);
        token.extend(*kind);
        token.extend(short(name));
    }
    token
}

/// A row with its values as they stand on the wire.
pub fn row(values: &[&[u8]]) -> Vec<u8> {
    [vec![0xd1], values.concat()].concat()
}
