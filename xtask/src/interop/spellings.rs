//! A locked `/admin` beside an open `/*`, in front of nginx, Tomcat and Express, each with its
//! defaults: whatever spelling of the locked path a stranger sends, none of them must show what is
//! behind it. Without the engine each of them shows it for some spellings.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bench::Bench;
use super::process::{Process, free_port};
use super::report::{Outcome, Report};
use super::tools;
use crate::command::{Failure, program};
use crate::servers;

/// What lies behind the lock.
const SECRET: &str = "SECRET";
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const STOP_MAX: Duration = Duration::from_secs(40);

/// The back ends: names, and how each is started in a folder of its own.
type Start = fn(&Bench, &Path, u16) -> Result<Command, Failure>;
const BACKENDS: [(&str, Start); 3] = [("nginx", nginx), ("tomcat", tomcat), ("express", express)];

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("spellings", Ok("not asked: it has no locks".to_owned()));
    }
    let spellings = match spellings(&bench.root) {
        Ok(spellings) => spellings,
        Err(failure) => return report.add("spellings", Err(failure)),
    };
    for (name, start) in BACKENDS {
        let outcome = before(bench, name, start, &spellings);
        report.add(
            &format!("spellings of a locked path before {name}"),
            outcome,
        );
    }
}

fn before(bench: &Bench, name: &str, start: Start, spellings: &[String]) -> Outcome {
    let folder = bench.folder.join("spellings").join(name);
    fs::create_dir_all(&folder)?;
    let (port, back) = (free_port()?, free_port()?);
    let mut backend = Process::start(&folder, name, start(bench, &folder, back)?)?;
    backend.listens(back)?;
    let keys = folder.join("keys");
    let key = program(&bench.program)
        .args(["keys", "add", "--id", "friend", "--file"])
        .args([&keys])
        .output()?;
    let key = key
        .split_ascii_whitespace()
        .find(|it| it.starts_with("itk_"));
    let key = key.ok_or_else(|| Failure::new("`intertie keys add` shows no key"))?;
    fs::write(folder.join("flows.yaml"), flows(port, back))?;
    let mut command = Command::new(&bench.program);
    command
        .args(["run", "flows.yaml", "--admin", "off"])
        .current_dir(&folder);
    let mut engine = Process::start(&folder, "engine", command)?;
    engine.listens(port)?;

    // Who may come in does, so that what follows says something.
    for (path, key, expected) in [
        ("/admin/users", Some(key), SECRET),
        ("/admin/users", None, " 401 "),
        ("/open", None, "open"),
    ] {
        let answer = ask(port, path, key)?;
        if !answer.contains(expected) {
            return Err(Failure::new(format!("{path}: not `{expected}`:\n{answer}")));
        }
    }
    let (mut shown, mut leaks) = (0, Vec::new());
    for path in spellings {
        shown += u32::from(ask(back, path, None)?.contains(SECRET));
        if ask(port, path, None)?.contains(SECRET) {
            leaks.push(path.escape_debug().to_string());
        }
    }
    engine.stop("TERM", STOP_MAX)?;
    if !leaks.is_empty() {
        return Err(Failure::new(format!(
            "shown to strangers: {}",
            leaks.join(" ")
        )));
    }
    if shown == 0 {
        return Err(Failure::new(
            "the back end forgives nothing: this shows nothing",
        ));
    }
    let count = spellings.len();
    Ok(format!(
        "none of {count}; the back end itself forgives {shown}"
    ))
}

/// Those of the list that is the router's test, each also with more of the path behind it, and
/// what can be done with the letters of the name.
fn spellings(root: &Path) -> Result<Vec<String>, Failure> {
    let list = fs::read_to_string(root.join("crates/testkit/data/path_spellings.txt"))?;
    let mut spellings = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, path)) = line.split_once(' ') else {
            continue;
        };
        let path = path
            .replace("\\0", "\0")
            .replace("\\t", "\t")
            .replace("\\\\", "\\");
        spellings.push(format!("{path}/users"));
        spellings.push(path);
    }
    let name = "admin";
    for at in 0..name.len() {
        let (before, rest) = name.split_at(at);
        let (letter, behind) = rest.split_at(1);
        let code = letter.bytes().next().unwrap_or_default();
        for spelt in [
            letter.to_ascii_uppercase(),
            format!("%{code:02x}"),
            format!("%{code:02X}"),
            format!("%25{code:02x}"),
            format!("%{:02X}", code.to_ascii_uppercase()),
        ] {
            for end in ["", "/", "/users", "/users/", "?x=y", "/users?x=/open"] {
                spellings.push(format!("/{before}{spelt}{behind}{end}"));
            }
        }
    }
    for end in [
        " ", "%20", "+", ".", "..", "...", "~", "*", "&", ",", ":80", "@x", "#", "?",
    ] {
        spellings.push(format!("/admin{end}"));
        spellings.push(format!("/admin{end}/users"));
    }
    for path in [
        "http://127.0.0.1/admin/users",
        "http://127.0.0.1//admin/users",
        "//127.0.0.1/admin",
    ] {
        spellings.push(path.to_owned());
    }
    Ok(spellings)
}

fn flows(port: u16, back: u16) -> String {
    format!(
        "engine:
  listen: \"127.0.0.1:{port}\"
  auth:
    keys: {{ api_key: {{ header: X-Api-Key, keys: ./keys }} }}
---
flow: locked
from: {{ http: any /admin/* }}
auth: keys
steps: [ {{ forward: \"http://127.0.0.1:{back}/admin\" }} ]
---
flow: open
from: {{ http: any /* }}
steps: [ {{ forward: \"http://127.0.0.1:{back}\" }} ]
"
    )
}

/// Sends a request on a connection of its own, its target as it is. What comes until the end, which
/// is nothing where the server only closes.
fn ask(port: u16, target: &str, key: Option<&str>) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let key = key.map_or(String::new(), |key| format!("X-Api-Key: {key}\r\n"));
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{key}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    match read {
        // Some close with bytes unread, which resets the connection.
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Files below a folder: what is secret, and what is not.
fn files(folder: &Path) -> Result<(), Failure> {
    let admin = folder.join("admin");
    fs::create_dir_all(&admin)?;
    for file in ["index.html", "users"] {
        fs::write(admin.join(file), SECRET)?;
    }
    fs::create_dir_all(folder.join("x"))?;
    Ok(fs::write(folder.join("open"), "open")?)
}

fn nginx(_: &Bench, folder: &Path, port: u16) -> Result<Command, Failure> {
    files(&folder.join("html"))?;
    let configuration = format!(
        "daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {{ listen 127.0.0.1:{port}; root html; }}
}}
"
    );
    fs::write(folder.join("nginx.conf"), configuration)?;
    let mut command = Command::new(found("nginx")?);
    command.arg("-p").arg(folder).args(["-c", "nginx.conf"]);
    Ok(command)
}

fn tomcat(_: &Bench, folder: &Path, port: u16) -> Result<Command, Failure> {
    let application = folder.join("webapps/ROOT");
    files(&application)?;
    for name in ["conf", "logs", "temp", "work"] {
        fs::create_dir_all(folder.join(name))?;
    }
    fs::create_dir_all(application.join("WEB-INF"))?;
    let files = "<web-app><servlet><servlet-name>files</servlet-name><servlet-class>\
        org.apache.catalina.servlets.DefaultServlet</servlet-class></servlet><servlet-mapping>\
        <servlet-name>files</servlet-name><url-pattern>/</url-pattern></servlet-mapping>\
        <welcome-file-list><welcome-file>index.html</welcome-file></welcome-file-list></web-app>";
    fs::write(application.join("WEB-INF/web.xml"), files)?;
    let server = format!(
        "<Server port=\"-1\"><Service name=\"Catalina\"><Connector address=\"127.0.0.1\" \
         port=\"{port}\"/><Engine name=\"Catalina\" defaultHost=\"localhost\"><Host \
         name=\"localhost\" appBase=\"webapps\"/></Engine></Service></Server>"
    );
    fs::write(folder.join("conf/server.xml"), server)?;
    let mut command = Command::new(found("catalina.sh")?);
    command.arg("run").env("CATALINA_BASE", folder);
    Ok(command)
}

fn express(bench: &Bench, _: &Path, port: u16) -> Result<Command, Failure> {
    let mut command = Command::new("node");
    command
        .arg(bench.script("spellings_express.mjs"))
        .arg(tools::node(&bench.root)?)
        .arg(port.to_string());
    Ok(command)
}

fn found(name: &str) -> Result<PathBuf, Failure> {
    servers::find(name).ok_or_else(|| Failure::new(format!("{name} is not there")))
}
