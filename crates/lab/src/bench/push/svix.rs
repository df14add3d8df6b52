//! The open-source server of Svix, which sends webhooks: its settings, and how an application with
//! the endpoints of a case is made by its REST interface.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::case::Case;
use super::flow;
use crate::bench::ask::Connection;
use crate::bench::glu::parts::output;
use crate::bench::publisher::Request;

/// The file of its settings, which it looks for in its working directory.
pub(super) const SETTINGS: &str = "config.toml";
/// How long it may take, once it listens, until database, queue and cache work.
const READY_MAX: Duration = Duration::from_secs(30);
/// What stands before the token in the output of `svix-server jwt generate`.
const TOKEN: &str = "Token (Bearer): ";
/// The application of all endpoints, by the identifier that the lab gives it.
const APP: &str = "lab";

/// The command of the server, or of one of its tools, with the settings in a folder.
///
/// # Errors
/// When there is no working directory, to which a relative path of the program would belong.
pub(super) fn command(program: &Path, folder: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::path::absolute(program)?);
    // Its own setting knows no level above `info`, with a line and spans for each delivery.
    command.current_dir(folder).env("RUST_LOG", "warn");
    Ok(command)
}

/// What the program says of its version.
pub(super) fn version(program: Option<PathBuf>) -> String {
    let printed = program.and_then(|it| output(Command::new(it).arg("--version")).ok());
    printed.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Its settings, chosen in its favour. Variables `SVIX_...` of the environment override
/// them. Without `main_secret` it keeps secrets unencrypted, and so need not decrypt them.
pub(super) fn settings(listen: SocketAddr, database: &str) -> String {
    format!(
        "listen_address = \"{listen}\"\n\
         jwt_secret = \"push-lab-push-lab-push-lab-push-lab-\"\n\
         environment = \"prod\"\n\
         db_dsn = \"{database}\"\n\
         # Its documentation recommends more than the default of 20.\n\
         db_pool_max_size = 100\n\
         queue_type = \"memory\"\n\
         cache_type = \"memory\"\n\
         # Headers of Standard Webhooks in place of svix-id and so on.\n\
         whitelabel_headers = true\n\
         whitelist_subnets = [\"127.0.0.0/8\"]\n"
    )
}

/// A token for its REST interface.
///
/// # Errors
/// When it makes none.
pub(super) fn token(program: &Path, folder: &Path) -> anyhow::Result<String> {
    let printed = output(command(program, folder)?.args(["jwt", "generate"]))?;
    let token = token_in(&printed);
    token.with_context(|| format!("svix-server printed no token: {printed}"))
}

fn token_in(printed: &str) -> Option<String> {
    let token = printed.lines().find_map(|line| line.strip_prefix(TOKEN))?;
    Some(token.trim().to_owned())
}

/// Waits until the server, which listens already, says that it is healthy.
///
/// # Errors
/// When it does not within thirty seconds.
pub(super) fn wait_ready(address: SocketAddr) -> anyhow::Result<()> {
    let begun = Instant::now();
    let healthy = || {
        Connection::open(address, None)?
            .get("/api/v1/health")?
            .body_of(200)
    };
    while let Err(error) = healthy() {
        if begun.elapsed() > READY_MAX {
            return Err(error.context("svix-server is not healthy"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// An application, whose messages go to all of its endpoints.
pub(super) struct App {
    address: SocketAddr,
    /// Header lines of requests.
    fields: String,
}

impl App {
    /// Creates an application with the endpoints of a case, whose URLs point at a sink.
    ///
    /// # Errors
    /// When the server refuses something.
    pub fn make(
        address: SocketAddr,
        token: &str,
        case: &Case,
        sink: SocketAddr,
    ) -> anyhow::Result<Self> {
        let fields = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let mut connection = Connection::open(address, None)?;
        let mut make = |path: &str, body: serde_json::Value| {
            let answer = connection.post(path, &fields, &body.to_string())?;
            answer
                .body_of(201)
                .with_context(|| format!("svix-server, {path}"))
        };
        make("/api/v1/app", json!({ "name": APP, "uid": APP }))?;
        for endpoint in 0..case.endpoints {
            let secret = flow::secret(case.kind, &flow::segment(endpoint));
            let url = flow::url(case, sink, endpoint);
            let path = format!("/api/v1/app/{APP}/endpoint");
            make(&path, json!({ "url": url, "secret": secret }))?;
        }
        Ok(Self { address, fields })
    }

    /// How an event is published: as the payload of a message, which the server sends byte by byte
    /// as it is. The answer to the publisher need not repeat it.
    pub fn request(&self) -> Request {
        let head = format!(
            "POST /api/v1/app/{APP}/msg?with_content=false HTTP/1.1\r\nHost: {}\r\n{}\
             Content-Length: ",
            self.address, self.fields
        );
        let (start, end) = (br#"{"eventType":"lab.event","payload":"#, b"}");
        Box::new(move |body, out| {
            let length = start.len() + body.len() + end.len();
            for part in [
                head.as_bytes(),
                length.to_string().as_bytes(),
                b"\r\n\r\n",
                start,
                body,
                end,
            ] {
                out.extend_from_slice(part);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::push::sink::Count;
    use crate::stub;

    #[test]
    fn tokens_are_found_in_what_is_printed() {
        let printed = "2024-12-06 WARN something\nToken (Bearer): eyJ.a.b\n";
        assert_eq!(token_in(printed).as_deref(), Some("eyJ.a.b"));
        assert_eq!(token_in("error\n"), None);
    }

    #[test]
    fn settings_name_address_and_database() {
        let listen = "127.0.0.1:1".parse().unwrap();
        let text = settings(listen, "postgres://lab@127.0.0.1:2/lab");
        for line in [
            "listen_address = \"127.0.0.1:1\"",
            "db_dsn = \"postgres://lab@127.0.0.1:2/lab\"",
            "whitelabel_headers = true",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }

    #[test]
    fn an_application_has_all_endpoints_and_its_messages_carry_the_event_as_it_is() {
        let address = stub::spawn("webhook-sink", &["--status", "201"]).unwrap();
        let case = Case {
            endpoints: 3,
            ..Case::default()
        };
        let sink = "127.0.0.1:2".parse().unwrap();
        let app = App::make(address, "eyJ", &case, sink).unwrap();
        let mut asked = Connection::open(address, None).unwrap();
        let count = asked.get("/count").unwrap().body_of(200).unwrap();
        let count: Count = serde_json::from_slice(&count).unwrap();
        assert_eq!(count.posts, 4);
        let mut out = Vec::new();
        app.request()(br#"{"n":1, "at":2}"#, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nAuthorization: Bearer eyJ\r\n"), "{head}");
        assert!(
            head.ends_with(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        assert!(body.ends_with(r#""payload":{"n":1, "at":2}}"#), "{body}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }

    #[test]
    fn a_refusal_is_reported_with_its_path() {
        let address = stub::spawn("webhook-sink", &["--status", "401"]).unwrap();
        let made = App::make(address, "eyJ", &Case::default(), address);
        let error = format!("{:#}", made.err().unwrap());
        assert!(
            error.starts_with("svix-server, /api/v1/app: 401"),
            "{error}"
        );
    }
}
