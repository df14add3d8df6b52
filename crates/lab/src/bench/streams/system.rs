//! The systems: how each is started, subscribed to and published to.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::case::{Case, Durability, Feed, Mode, Transport};
use crate::bench::outcome::Contender;
use crate::bench::publisher::Request;
use crate::bench::system::Programs;
use crate::bench::template::Values;
use crate::bench::tokens::{AUDIENCE, ISSUER, KeyFiles};
use crate::bench::{self, process};
use crate::websocket;

const NCHAN: &str = include_str!("../../../peers/nchan.conf");
const CENTRIFUGO: &str = include_str!("../../../peers/centrifugo.json");
const HAPROXY: &str = include_str!("../../../peers/haproxy-websocket.cfg");
const NGINX: &str = include_str!("../../../peers/nginx-websocket.conf");
/// The file of API keys, beside the flow file.
pub(super) const API_KEYS: &str = "api.keys";
/// Where Debian has the module.
const NCHAN_MODULE: &str = "/usr/lib/nginx/modules/ngx_nchan_module.so";
/// More than this nobody is told to open, where the machine sets no limit.
const FILES_MAX: u64 = 200_000;
/// A key for the time of a measurement, and `{"mercure":{"publish":["*"]}}` signed with it.
const MERCURE_KEY: &str = "lab-lab-lab-lab-lab-lab-lab-lab-";
const MERCURE_TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJtZXJjdXJlIjp7InB1Ymxpc2giOlsiKiJdfX0.SG5OdVRNpFnx62CN5pRnHigxWMTNblRCU5JixphgkgY";
/// The key of the example in RFC 6455 section 1.3.
const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Who is measured.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum System {
    Intertie,
    /// Intertie where each client needs a token of its own.
    #[serde(rename = "intertie-jwt")]
    IntertieJwt,
    /// Another build of Intertie, named in INTERTIE_BASELINE: what a change has cost.
    Baseline,
    /// A bare write loop; for WebSocket proxying, a relay that reads nothing.
    Floor,
    /// The load against the service behind it, without a system between.
    Direct,
    Nchan,
    Mercure,
    Centrifugo,
    Haproxy,
    Nginx,
}

/// All of them, in the order of their turns.
pub(crate) const ALL: [System; 10] = [
    System::Intertie,
    System::IntertieJwt,
    System::Baseline,
    System::Floor,
    System::Nchan,
    System::Mercure,
    System::Centrifugo,
    System::Haproxy,
    System::Nginx,
    System::Direct,
];

impl Contender for System {
    const INTERTIE: Self = Self::Intertie;

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            Self::Intertie => "intertie",
            Self::IntertieJwt => "intertie-jwt",
            Self::Baseline => "baseline",
            Self::Floor => "floor",
            Self::Direct => "direct",
            Self::Nchan => "nchan",
            Self::Mercure => "mercure",
            Self::Centrifugo => "centrifugo",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// Whether it is a build of Intertie.
    pub fn is_intertie(self) -> bool {
        matches!(self, Self::Intertie | Self::IntertieJwt | Self::Baseline)
    }

    /// Whether its clients need credentials.
    pub fn is_locked(self, case: &Case) -> bool {
        self == Self::IntertieJwt || (self.is_intertie() && case.is_locked())
    }

    pub fn is_peer(self) -> bool {
        !self.is_intertie() && !matches!(self, Self::Floor | Self::Direct)
    }

    /// Why a system has no part in a case, or nothing.
    pub fn refuses(self, case: &Case) -> Option<&'static str> {
        let is_proxy = matches!(self, Self::Direct | Self::Haproxy | Self::Nginx);
        match (self, case.feed) {
            (Self::IntertieJwt, _) if case.is_locked() => Some("all is locked here"),
            _ if self.is_intertie() => None,
            _ if case.is_locked() => Some("it is not set up with credentials"),
            (Self::Floor, Feed::Nothing) => Some("it keeps nothing that could be measured"),
            (Self::Floor, _) if case.stalled > 0 => Some("it bounds nothing"),
            (Self::Floor, _) => None,
            (_, Feed::Echo) if is_proxy => None,
            (_, Feed::Echo) => Some("it is no proxy for WebSocket"),
            _ if is_proxy => Some("it has no topics"),
            (_, Feed::Poll) => Some("it polls nothing and makes no patches"),
            (Self::Mercure, _) if case.transport == Transport::WebSocket => {
                Some("it has no WebSocket")
            }
            (Self::Nchan | Self::Centrifugo, _) if case.durability == Durability::Disk => {
                Some("it keeps nothing on the disk")
            }
            _ => None,
        }
    }

    /// Where its program is.
    pub fn find(self, programs: &Programs) -> Option<PathBuf> {
        match self {
            Self::Intertie | Self::IntertieJwt => Some(programs.intertie.clone()),
            Self::Baseline => programs.find(bench::scenario::System::Baseline),
            Self::Floor | Self::Direct => Some(programs.own.clone()),
            Self::Nchan if !nchan_module().is_file() => None,
            Self::Nchan | Self::Nginx => process::program("NGINX", &[], "nginx"),
            Self::Mercure => process::program("MERCURE", &[], "mercure"),
            Self::Centrifugo => process::program("CENTRIFUGO", &[], "centrifugo"),
            Self::Haproxy => process::program("HAPROXY", &[], "haproxy"),
        }
    }

    /// What to do when it is not there.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Nchan => {
                "install nginx-light and libnginx-mod-nchan, or say with NGINX and NCHAN_MODULE \
                 where they are"
            }
            Self::Nginx => "install nginx, or say with NGINX where it is",
            Self::Haproxy => "install haproxy, or say with HAPROXY where it is",
            Self::Mercure => {
                "build it (crates/lab/peers/mercure), and say with MERCURE where it is"
            }
            Self::Centrifugo => {
                "build it (crates/lab/peers/centrifugo), and say with CENTRIFUGO where it is"
            }
            Self::Baseline => bench::scenario::System::Baseline.advice(),
            Self::Intertie | Self::IntertieJwt | Self::Floor | Self::Direct => {
                "it is part of this program"
            }
        }
    }

    /// What it says of its version.
    pub fn version(self, programs: &Programs) -> String {
        let argument = match self {
            Self::Floor | Self::Direct => return "part of the lab".to_owned(),
            Self::Nchan | Self::Nginx | Self::Haproxy => "-v",
            Self::Centrifugo => "version",
            Self::Intertie | Self::IntertieJwt | Self::Baseline | Self::Mercure => "--version",
        };
        let output = self.find(programs);
        let output = output.and_then(|it| Command::new(it).arg(argument).output().ok());
        let Some(output) = output else {
            return "unknown".to_owned();
        };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| !line.trim().is_empty());
        line.unwrap_or("unknown").trim().to_owned()
    }
}

fn nchan_module() -> PathBuf {
    let named = std::env::var_os("NCHAN_MODULE");
    named.map_or_else(|| PathBuf::from(NCHAN_MODULE), PathBuf::from)
}

/// A system that is ready to be started.
#[derive(Debug)]
pub(super) struct Setup {
    pub command: Command,
    /// What it is configured with.
    pub config: String,
}

/// What a system is set up for.
pub(super) struct Place<'a> {
    pub case: &'a Case,
    pub listen: SocketAddr,
    /// The source of documents, or the service behind a proxy.
    pub backend: SocketAddr,
    /// A folder of the system's own.
    pub folder: &'a Path,
    /// How many files it may open.
    pub files: u64,
    /// The public key of the issuer, where clients need tokens.
    pub keys: Option<&'a KeyFiles>,
    /// Whether some clients have API keys instead, of [`API_KEYS`] in the folder.
    pub has_api_keys: bool,
}

/// Writes the configuration of a system, and says how to start it.
///
/// # Errors
/// When the program is not there or files cannot be written.
pub(super) fn set_up(
    system: System,
    place: &Place<'_>,
    programs: &Programs,
) -> anyhow::Result<Setup> {
    fs::create_dir_all(place.folder)?;
    let program = system.find(programs);
    let program =
        program.with_context(|| format!("{} was not found: {}", system.name(), system.advice()))?;
    let mut command = Command::new(program);
    let listen = place.listen.to_string();
    let write = |name: &str, config: &str| -> anyhow::Result<PathBuf> {
        let file = place.folder.join(name);
        fs::write(&file, config)?;
        Ok(file)
    };
    let config = match system {
        System::Intertie | System::IntertieJwt | System::Baseline => {
            let config = intertie(place);
            command.arg("run").arg(write("streams.yaml", &config)?);
            add_intertie(&mut command, place)?;
            config
        }
        System::Floor if place.case.feed == Feed::Echo => {
            let to = place.backend.to_string();
            command.args(["relay", "--listen", &listen, "--to", &to]);
            String::new()
        }
        System::Floor | System::Direct => {
            command.args(["write-loop", "--listen", &listen]);
            String::new()
        }
        System::Nchan | System::Nginx => {
            let template = if system == System::Nchan {
                NCHAN
            } else {
                NGINX
            };
            let config = values(place).fill(template)?;
            command.arg("-p").arg(place.folder);
            command.arg("-c").arg(write("nginx.conf", &config)?);
            config
        }
        System::Haproxy => {
            let config = values(place).fill(HAPROXY)?;
            command
                .arg("-db")
                .arg("-f")
                .arg(write("haproxy.cfg", &config)?);
            config
        }
        System::Centrifugo => {
            let config = values(place).fill(CENTRIFUGO)?;
            command.arg("--config").arg(write("config.json", &config)?);
            config
        }
        System::Mercure => {
            command.args(["-listen", &listen, "-key", MERCURE_KEY]);
            if place.case.durability == Durability::Disk {
                command.arg("-bolt").arg(place.folder.join("mercure.db"));
            }
            String::new()
        }
    };
    Ok(Setup { command, config })
}

/// What Intertie is told beside its flow file, and the keys that this file names.
fn add_intertie(command: &mut Command, place: &Place<'_>) -> anyhow::Result<()> {
    let admin = process::free_address()?.to_string();
    command.args(["--workers", "1", "--admin", &admin]);
    command.arg("--data").arg(place.folder.join("data"));
    match place.keys {
        Some(keys) => keys.copy_jwks(place.folder),
        None => Ok(()),
    }
}

fn values(place: &Place<'_>) -> Values {
    let files = place.files.min(FILES_MAX);
    let mut values = Values::default();
    values
        .text("listen", place.listen)
        .text("host", place.listen.ip())
        .text("port", place.listen.port())
        .text("backend", place.backend)
        .text("module", nchan_module().display())
        .text("files", files)
        // HAProxy wants files for both sides of all connections that it may have.
        .text("connections", files.saturating_sub(200) / 2)
        .text("folder", place.folder.display());
    values
}

/// The flow or the topics of a case.
fn intertie(place: &Place<'_>) -> String {
    let Place {
        case,
        listen,
        backend,
        ..
    } = place;
    let mut text = ways(place);
    let door = match (place.keys, place.has_api_keys) {
        (None, _) => None,
        (Some(_), false) => Some("callers"),
        (Some(_), true) => Some("{ any: [callers, keys] }"),
    };
    if case.feed == Feed::Echo {
        let auth = door.map_or_else(String::new, |door| format!("auth: {door}\n"));
        // invariant: writing to a String does not fail.
        let _ = write!(
            text,
            "flow: reverse\n{auth}from:\n  http: any {listen}/*\nsteps:\n  \
             - forward: http://{backend}/\n"
        );
        return text;
    }
    let auth = door.map_or_else(String::new, |door| format!(", auth: {door}"));
    for topic in 1..=case.topics {
        let payload = match case.mode {
            Mode::Event => "event",
            Mode::Patch | Mode::Snapshot => "snapshot",
        };
        let publish = match case.feed {
            Feed::Poll => format!(
                "{{ poll: {{ url: \"http://{backend}/documents/{topic}\", every: {}ms }} }}",
                case.period_ms
            ),
            _ => format!("{{ http: \"POST {listen}/topics/t{topic}\"{auth} }}"),
        };
        let separator = if topic > 1 { "---\n" } else { "" };
        // invariant: writing to a String does not fail.
        let _ = write!(
            text,
            "{separator}topic: t{topic}\npayload: {payload}\ndurability: {}\n\
             publish: {publish}\n\
             subscribe: {{ listen: \"{listen}\", via: [sse, websocket]{auth} }}\n\
             keep: {{ events: 1000 }}\n",
            case.durability.name()
        );
    }
    text
}

/// How clients are known. Tokens are refused in the second in which they expire.
fn ways(place: &Place<'_>) -> String {
    if place.keys.is_none() {
        return String::new();
    }
    let keys = match place.has_api_keys {
        true => format!("    keys: {{ api_key: {{ keys: {API_KEYS} }} }}\n"),
        false => String::new(),
    };
    format!(
        "engine:\n  auth:\n    callers: {{ jwt: {{ issuer: \"{ISSUER}\", audience: {AUDIENCE}, \
         jwks: jwks.json, clock_skew: 0s }} }}\n{keys}---\n"
    )
}

/// A request with a field more, behind the request line.
pub(super) fn with_field(request: &[u8], field: &str) -> Vec<u8> {
    let line = memchr::memchr(b'\n', request).map_or(0, |at| at + 1);
    let (line, rest) = request.split_at(line);
    [line, field.as_bytes(), b"\r\n", rest].concat()
}

/// The field that carries a token.
pub(super) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// The same requests with a token, if there is one.
pub(super) fn with_token(request: Request, token: Option<&String>) -> Request {
    let Some(field) = token.map(|token| bearer(token)) else {
        return request;
    };
    Box::new(move |body, out| {
        let mut open = Vec::new();
        request(body, &mut open);
        out.extend_from_slice(&with_field(&open, &field));
    })
}

/// What a subscriber of a topic, counted from 1, sends first.
pub(super) fn subscription(
    system: System,
    case: &Case,
    address: SocketAddr,
    topic: usize,
) -> Vec<u8> {
    let is_websocket = case.transport == Transport::WebSocket;
    let kind = if is_websocket { "ws" } else { "sse" };
    let path = match system {
        _ if system.is_intertie() && is_websocket => format!("/topics/t{topic}/ws"),
        System::Intertie | System::IntertieJwt | System::Baseline => {
            format!("/topics/t{topic}/sse?mode={}", case.mode.name())
        }
        System::Nchan => format!("/subscribe?id=t{topic}"),
        System::Mercure => format!("/.well-known/mercure?topic=t{topic}"),
        System::Centrifugo if is_websocket => "/connection/uni_websocket".to_owned(),
        System::Centrifugo => {
            format!(
                "/connection/uni_{kind}?cf_connect=%7B%22subs%22%3A%7B%22t{topic}%22%3A%7B%7D%7D%7D"
            )
        }
        System::Floor => format!("/t{topic}"),
        _ => "/".to_owned(),
    };
    let fields = match is_websocket {
        true => format!(
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {WEBSOCKET_KEY}\r\n"
        ),
        false => "Accept: text/event-stream\r\n".to_owned(),
    };
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n").into_bytes()
}

/// What a subscriber by WebSocket says when it is connected.
pub(super) fn greeting(system: System, topic: usize) -> Vec<u8> {
    let text = match system {
        System::Centrifugo => format!("{{\"subs\":{{\"t{topic}\":{{}}}}}}"),
        _ if system.is_intertie() => "{\"type\":\"subscribe\"}".to_owned(),
        _ => return Vec::new(),
    };
    let mut frame = Vec::new();
    websocket::write_masked(websocket::TEXT, text.as_bytes(), [1, 2, 3, 4], &mut frame);
    frame
}

/// How an event is published to a topic, counted from 1.
pub(super) fn publication(system: System, address: SocketAddr, topic: usize) -> Request {
    let path = match system {
        _ if system.is_intertie() => format!("/topics/t{topic}"),
        System::Nchan => format!("/publish?id=t{topic}"),
        System::Mercure => "/.well-known/mercure".to_owned(),
        System::Centrifugo => "/api/publish".to_owned(),
        System::Floor => format!("/t{topic}"),
        _ => "/".to_owned(),
    };
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n");
    let (head, before, behind) = match system {
        System::Mercure => (
            format!(
                "{head}Authorization: Bearer {MERCURE_TOKEN}\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n"
            ),
            format!("topic=t{topic}&data="),
            "",
        ),
        System::Centrifugo => (
            format!("{head}Content-Type: application/json\r\n"),
            format!("{{\"channel\":\"t{topic}\",\"data\":"),
            "}",
        ),
        _ => (
            format!("{head}Content-Type: application/json\r\n"),
            String::new(),
            "",
        ),
    };
    let is_form = system == System::Mercure;
    Box::new(move |body, out| {
        let encoded = if is_form {
            percent_encoded(body)
        } else {
            body.to_vec()
        };
        let length = before.len() + encoded.len() + behind.len();
        // invariant: writing to a Vec does not fail.
        let _ = write!(out, "{head}Content-Length: {length}\r\n\r\n{before}");
        out.extend_from_slice(&encoded);
        out.extend_from_slice(behind.as_bytes());
    })
}

fn percent_encoded(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 64);
    for byte in body {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(*byte),
            // invariant: writing to a Vec does not fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(case: &'a Case, folder: &'a Path) -> Place<'a> {
        Place {
            case,
            listen: "127.0.0.1:1".parse().unwrap(),
            backend: "127.0.0.1:2".parse().unwrap(),
            folder,
            files: 1000,
            keys: None,
            has_api_keys: false,
        }
    }

    #[test]
    fn intertie_gets_topics_or_a_flow() {
        let mut case = Case {
            feed: Feed::Poll,
            mode: Mode::Patch,
            durability: Durability::Disk,
            topics: 2,
            period_ms: 500.0,
            ..Case::default()
        };
        let text = intertie(&place(&case, Path::new("x")));
        assert_eq!(text.matches("topic: t").count(), 2);
        for part in [
            "topic: t2\npayload: snapshot\ndurability: disk\n",
            "poll: { url: \"http://127.0.0.1:2/documents/2\", every: 500ms }",
            "subscribe: { listen: \"127.0.0.1:1\", via: [sse, websocket] }",
        ] {
            assert!(text.contains(part), "{text}");
        }
        case.feed = Feed::Post;
        case.mode = Mode::Event;
        let text = intertie(&place(&case, Path::new("x")));
        assert!(
            text.contains("publish: { http: \"POST 127.0.0.1:1/topics/t1\" }"),
            "{text}"
        );
        case.feed = Feed::Echo;
        let text = intertie(&place(&case, Path::new("x")));
        assert!(text.contains("forward: http://127.0.0.1:2/"), "{text}");
    }

    #[test]
    fn locked_topics_and_flows_name_ways_that_there_are() {
        let mut case = Case {
            topics: 1,
            ..Case::default()
        };
        let keys = KeyFiles::in_folder(Path::new("keys"));
        let text = intertie(&Place {
            keys: Some(&keys),
            ..place(&case, Path::new("x"))
        });
        for part in [
            "jwks: jwks.json",
            "via: [sse, websocket], auth: callers }",
            "POST 127.0.0.1:1/topics/t1\", auth: callers }",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let text = intertie(&Place {
            keys: Some(&keys),
            has_api_keys: true,
            ..place(&case, Path::new("x"))
        });
        assert!(
            text.contains("keys: { api_key: { keys: api.keys } }\n---\n"),
            "{text}"
        );
        assert!(text.contains("auth: { any: [callers, keys] }"), "{text}");
        case.feed = Feed::Echo;
        let text = intertie(&Place {
            keys: Some(&keys),
            ..place(&case, Path::new("x"))
        });
        assert!(text.contains("flow: reverse\nauth: callers\n"), "{text}");
    }

    #[test]
    fn tokens_stand_behind_the_request_line() {
        let request = with_field(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &bearer("abc"));
        let wanted = b"GET / HTTP/1.1\r\nAuthorization: Bearer abc\r\nHost: x\r\n\r\n";
        assert_eq!(request, wanted);
    }

    #[test]
    fn the_baseline_is_asked_what_intertie_is_asked() {
        let address = "127.0.0.1:9".parse().unwrap();
        for transport in [Transport::Sse, Transport::WebSocket] {
            let case = Case {
                transport,
                ..Case::default()
            };
            let asked = |system: System| {
                let mut out = subscription(system, &case, address, 3);
                out.extend(greeting(system, 3));
                publication(system, address, 3)(b"{}", &mut out);
                out
            };
            assert_eq!(asked(System::Baseline), asked(System::Intertie));
        }
        assert!(!System::Baseline.is_peer());
    }

    #[test]
    fn templates_can_be_filled() {
        let case = Case::default();
        for template in [NCHAN, CENTRIFUGO, HAPROXY, NGINX] {
            let text = values(&place(&case, Path::new("folder")))
                .fill(template)
                .unwrap();
            assert!(text.contains("127.0.0.1") && !text.contains("${"), "{text}");
        }
    }

    #[test]
    fn bodies_are_wrapped_as_each_system_wants() {
        let address = "127.0.0.1:9".parse().unwrap();
        let of = |system: System| {
            let mut out = Vec::new();
            publication(system, address, 3)(b"{\"n\":1}", &mut out);
            String::from_utf8(out).unwrap()
        };
        assert!(of(System::Intertie).starts_with("POST /topics/t3 HTTP/1.1\r\n"));
        assert!(of(System::Intertie).ends_with("Content-Length: 7\r\n\r\n{\"n\":1}"));
        let text = of(System::Mercure);
        assert!(
            text.ends_with("\r\n\r\ntopic=t3&data=%7B%22n%22%3A1%7D"),
            "{text}"
        );
        assert!(text.contains("Content-Length: 31\r\n"), "{text}");
        let text = of(System::Centrifugo);
        assert!(
            text.ends_with("{\"channel\":\"t3\",\"data\":{\"n\":1}}"),
            "{text}"
        );
    }

    #[test]
    fn who_cannot_take_part_says_why() {
        let mut case = Case {
            durability: Durability::Disk,
            ..Case::default()
        };
        let able = |case: &Case| -> Vec<&str> {
            let able = ALL.iter().filter(|system| system.refuses(case).is_none());
            able.map(|system| system.name()).collect()
        };
        assert_eq!(
            able(&case),
            ["intertie", "intertie-jwt", "baseline", "floor", "mercure"]
        );
        case.durability = Durability::Memory;
        assert_eq!(
            able(&case),
            [
                "intertie",
                "intertie-jwt",
                "baseline",
                "floor",
                "nchan",
                "mercure",
                "centrifugo"
            ]
        );
        case.feed = Feed::Poll;
        assert_eq!(
            able(&case),
            ["intertie", "intertie-jwt", "baseline", "floor"]
        );
        case.feed = Feed::Echo;
        assert_eq!(
            able(&case),
            [
                "intertie",
                "intertie-jwt",
                "baseline",
                "floor",
                "haproxy",
                "nginx",
                "direct"
            ]
        );
        (case.feed, case.transport) = (Feed::Nothing, Transport::WebSocket);
        assert_eq!(
            able(&case),
            [
                "intertie",
                "intertie-jwt",
                "baseline",
                "nchan",
                "centrifugo"
            ]
        );
        "turnover".clone_into(&mut case.scenario);
        assert_eq!(able(&case), ["intertie", "baseline"]);
    }
}
