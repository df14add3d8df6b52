//! `intertie health`: asks the admin port of a running engine, for health checks of containers that
//! have no other program in them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::cli::{Admin, print};

/// A worker that does not move is noticed after 10 s; whoever asks for health waits less.
const TIME_OUT: Duration = Duration::from_secs(2);
/// More than any page that is asked here.
const REPLY_MAX: u64 = 64 * 1024;

/// Arguments of `intertie health`.
#[derive(Debug, clap::Args)]
pub(crate) struct HealthArguments {
    /// The admin port of the engine, as `intertie run` was given it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9900")]
    admin: Admin,
    /// Ask whether it takes requests (/ready) instead of whether its workers move (/health).
    #[arg(long)]
    ready: bool,
}

/// Prints the body of `/health`. The exit code is 1 if the engine is unhealthy or does not answer.
///
/// # Errors
/// When nobody answers.
pub(crate) fn run(arguments: &HealthArguments) -> anyhow::Result<ExitCode> {
    let Admin::On(address) = arguments.admin else {
        bail!("there is nobody to ask while the admin port is off");
    };
    let page = if arguments.ready { "/ready" } else { "/health" };
    let reply =
        ask(address, page).with_context(|| format!("no answer from http://{address}{page}"))?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    print(body)?;
    let is_well = head.split(' ').nth(1) == Some("200");
    Ok(ExitCode::from(u8::from(!is_well)))
}

fn ask(address: SocketAddr, page: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIME_OUT)?;
    stream.set_read_timeout(Some(TIME_OUT))?;
    stream.set_write_timeout(Some(TIME_OUT))?;
    let head = format!("GET {page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut reply = String::new();
    stream.take(REPLY_MAX).read_to_string(&mut reply)?;
    Ok(reply)
}
