//! The load: wrk, what it sends, and what it says.

use std::path::Path;

use crate::command::{Failure, program};

/// Runs wrk with one thread on a core, and returns what it says.
pub(super) fn run(
    core: &str,
    connections: usize,
    seconds: u64,
    script: &Path,
    url: &str,
) -> Result<String, Failure> {
    let (connections, time) = (connections.to_string(), format!("{seconds}s"));
    program("taskset")
        .args([
            "-c",
            core,
            "wrk",
            "-t1",
            "-c",
            &connections,
            "-d",
            &time,
            "-s",
        ])
        .args([script.as_os_str(), url.as_ref()])
        .output()
}

/// What wrk says.
#[derive(Debug)]
pub(super) struct Load {
    pub requests: f64,
    pub requests_per_second: f64,
    pub errors: String,
}

pub(super) fn parse(output: &str) -> Result<Load, Failure> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let count = output.lines().find_map(|line| {
        line.split_once(" requests in ")
            .and_then(|(count, _)| number(count))
    });
    let rate = output
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:").and_then(number));
    let is_error = |line: &&str| line.contains("Non-2xx") || line.contains("Socket errors");
    let errors: Vec<&str> = output.lines().filter(is_error).map(str::trim).collect();
    let (Some(count), Some(rate)) = (count.filter(|count| *count > 0.0), rate) else {
        return Err(Failure::new(format!("wrk said: {output}")));
    };
    Ok(Load {
        requests: count,
        requests_per_second: rate,
        errors: errors.concat(),
    })
}

/// A body of exactly this many bytes: `{\"size\":\"50B\",\"payload\":[...]}` with strings of ten
/// characters, as the published measurements use.
pub(super) fn lua(bytes: usize) -> String {
    let characters: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
    let mut body = format!("{{\"size\":\"{bytes}B\",\"payload\":[");
    let mut at = 0;
    loop {
        // Two quotes, and what closes the list and the object.
        let left = bytes.saturating_sub(body.len() + 2);
        let length = match left {
            0..=2 => break,
            3..=12 => left - 2,
            // A rest that is too short for a string of its own is taken along.
            13..=15 => left - 2 - 4,
            _ => 10,
        };
        let text = characters.iter().cycle().skip(at).take(length);
        at += length;
        body.push_str(&format!("\"{}\"", text.collect::<String>()));
        if bytes - body.len() > 2 {
            body.push(',');
        }
    }
    body.push_str("]}");
    format!(
        "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\n\
         wrk.body = '{body}'\nassert(#wrk.body == {bytes}, #wrk.body)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: usize) -> String {
        let script = lua(bytes);
        let body = script.split("wrk.body = '").nth(1).unwrap();
        body.split('\'').next().unwrap().to_owned()
    }

    #[test]
    fn bodies_have_their_size_and_are_json() {
        for bytes in [50, 51, 64, 100, 500, 1024, 10_240] {
            let body = body(bytes);
            assert_eq!(body.len(), bytes, "{body}");
            assert!(body.ends_with("\"]}") && !body.contains(",,"), "{body}");
        }
        assert_eq!(
            body(50),
            r#"{"size":"50B","payload":["0123456789","ABCDEFGH"]}"#
        );
        for (bytes, strings) in [(50, 2), (1024, 77), (10_240, 786)] {
            assert_eq!(body(bytes).matches(',').count(), strings, "{bytes}");
        }
    }

    #[test]
    fn what_wrk_says_is_read() {
        let output = "  20000 requests in 2.00s, 3MB read\n  Non-2xx or 3xx responses: 7\n\
                      Requests/sec:  10000.50\n";
        let load = parse(output).unwrap();
        assert_eq!(
            (load.requests, load.requests_per_second),
            (20_000.0, 10_000.5)
        );
        assert_eq!(load.errors, "Non-2xx or 3xx responses: 7");
        assert!(parse("0 requests in 2.00s\nRequests/sec: 0\n").is_err());
        assert!(parse("unable to connect").is_err());
    }
}
