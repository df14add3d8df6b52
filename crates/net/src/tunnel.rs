//! Connections through a proxy, by `CONNECT` (RFC 9110, section 9.3.6). The proxy is told the
//! address that has been looked up and checked, never the name: a name could lead elsewhere there.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use base64ct::{Base64, Encoding};
use tokio::net::TcpStream;

/// The most bytes of a proxy's reply.
const REPLY_MAX: usize = 16 * 1024;

/// A proxy that connections are made through.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl Proxy {
    /// One at this host, a name or an IP address, that wants user name and password, joined by a
    /// colon (RFC 7617), or nothing.
    pub fn new(host: &str, port: u16, user_pass: Option<&str>) -> Self {
        let basic = |it: &str| format!("Basic {}", Base64::encode_string(it.as_bytes()));
        Self {
            host: host.to_owned(),
            port,
            authorization: user_pass.map(basic),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proxy({}:{})", self.host, self.port)
    }
}

/// Has the proxy at the other side of a connection connect to an address. What is written from then
/// on is for that address.
///
/// # Errors
/// When the proxy does not, or does not speak HTTP.
pub(crate) async fn connect(
    stream: &TcpStream,
    proxy: &Proxy,
    address: SocketAddr,
) -> io::Result<()> {
    let authorization = match &proxy.authorization {
        Some(value) => format!("Proxy-Authorization: {value}\r\n"),
        None => String::new(),
    };
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{authorization}\r\n");
    write_all(stream, request.as_bytes()).await?;
    let head = read_head(stream).await?;
    match status(&head) {
        Some(200..=299) => Ok(()),
        Some(status) => {
            let error = format!("the egress proxy does not connect: it answers {status}");
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, error))
        }
        None => Err(invalid("the egress proxy does not answer in HTTP")),
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the head of a reply and nothing behind it: whoever is connected to waits for us, but what
/// it says first would be lost.
async fn read_head(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < REPLY_MAX {
        stream.readable().await?;
        let seen = match stream.peek(&mut part).await {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(seen) => seen,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let before = head.len();
        head.extend_from_slice(part.get(..seen).unwrap_or_default());
        let from = before.saturating_sub(3);
        let end = head
            .get(from..)
            .and_then(|it| memchr::memmem::find(it, b"\r\n\r\n"));
        if let Some(end) = end {
            head.truncate(from + end + 4);
        }
        let taken = head.len() - before;
        let read = stream.try_read(part.get_mut(..taken).unwrap_or_default())?;
        if read != taken {
            return Err(invalid("the egress proxy's reply cannot be read"));
        }
        if end.is_some() {
            return Ok(head);
        }
    }
    Err(invalid("the egress proxy's reply is too long"))
}

/// The status of a reply's head.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let rest = line
        .strip_prefix(b"HTTP/1.1 ")
        .or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let digits = rest
        .get(..3)
        .filter(|it| it.iter().all(u8::is_ascii_digit))?;
    if rest.get(3).is_some_and(|it| *it != b' ') {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn invalid(error: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// What comes of a proxy that sends these parts, with a pause between, what it is asked, and
    /// what is read behind its reply.
    fn ask(parts: &'static [&'static str]) -> (io::Result<()>, String, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            for part in parts {
                stream.write_all(part.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
            String::from_utf8(asked).unwrap()
        });
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().build().unwrap();
        let (result, behind) = runtime.block_on(async {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let proxy = Proxy::new("proxy.example", port, Some("u:p"));
            let to = "[2001:db8::1]:443".parse().unwrap();
            let result = connect(&stream, &proxy, to).await;
            let mut behind = String::new();
            let mut rest = stream.into_std().unwrap();
            rest.set_nonblocking(false).unwrap();
            let _ = rest.read_to_string(&mut behind);
            (result, behind)
        });
        (result, proxy.join().unwrap(), behind)
    }

    #[test]
    fn a_tunnel_begins_behind_the_reply() {
        let (result, asked, behind) =
            ask(&["HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello"]);
        result.unwrap();
        assert_eq!(
            asked,
            "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\
             Proxy-Authorization: Basic dTpw\r\n\r\n"
        );
        assert_eq!(behind, "hello");
        let (result, _, behind) = ask(&["HTTP/1.0 2", "00\r", "\n\r", "\nhe", "llo"]);
        result.unwrap();
        assert_eq!(behind, "hello");
    }

    #[test]
    fn a_proxy_that_does_not_connect_is_told() {
        for (reply, expected) in [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                "the egress proxy does not connect: it answers 407",
            ),
            (
                "HTTP/1.1 403\r\n\r\n",
                "the egress proxy does not connect: it answers 403",
            ),
            (
                "SSH-2.0-x\r\n\r\n",
                "the egress proxy does not answer in HTTP",
            ),
            (
                "HTTP/1.1 2000 OK\r\n\r\n",
                "the egress proxy does not answer in HTTP",
            ),
            ("HTTP/1.1 200 OK\r\n", "unexpected end of file"),
        ] {
            let parts: &'static [&'static str] = Box::leak(Box::new([reply]));
            let error = ask(parts).0.unwrap_err();
            assert_eq!(error.to_string(), expected, "{reply}");
        }
        let long: &'static str = Box::leak("x".repeat(REPLY_MAX + 1).into_boxed_str());
        let error = ask(Box::leak(Box::new([long]))).0.unwrap_err();
        assert_eq!(error.to_string(), "the egress proxy's reply is too long");
    }

    #[test]
    fn credentials_are_not_shown() {
        let proxy = Proxy::new("proxy.example", 3128, Some("u:p"));
        assert_eq!(format!("{proxy:?}"), "Proxy(proxy.example:3128)");
    }
}
