//! How a sink answers: as its arguments say, or as the URL of an endpoint says for itself.

use std::time::Duration;

use crate::units;

/// How posts are answered.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Conduct {
    /// The status of every answer.
    #[arg(long, value_parser = clap::value_parser!(u16).range(200..=599))]
    status: Option<u16>,
    /// How long every answer waits.
    #[arg(long, value_parser = units::duration, default_value = "0ms")]
    pub delay: Duration,
    /// Never answer.
    #[arg(long)]
    hang: bool,
    /// Be up for so long, then down for as long, and so on. While it is down connections are closed
    /// unanswered; with --status that is the answer then, and 204 while it is up.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    flap: Option<Duration>,
    /// Close the connection behind each answer, so that each post needs a new one.
    #[arg(long)]
    pub close: bool,
    /// Answer verifications of WebSub hubs with 404.
    #[arg(long)]
    pub deny: bool,
}

/// What is done with one post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Answer(u16),
    /// The connection is closed.
    Close,
    /// Nothing ever comes.
    Hang,
}

impl Act {
    /// The status, 0 without an answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Answer(status) => status,
            Self::Close | Self::Hang => 0,
        }
    }
}

/// What an endpoint is answered with that nothing is said of.
const USUAL: u16 = 204;

impl Conduct {
    /// The same with what a query says: `?status=500&delay=2s`, `?hang`, `?flap=2s`,
    /// `?close`, `?deny`.
    pub fn within(&self, text: &[u8]) -> Self {
        let mut conduct = *self;
        // Most endpoints have none.
        if text.is_empty() {
            return conduct;
        }
        for (name, value) in query(text) {
            match name.as_str() {
                "status" => {
                    let status = value.parse().ok();
                    conduct.status = status.filter(|it| (200..=599).contains(it));
                }
                "delay" => conduct.delay = units::duration(&value).unwrap_or(self.delay),
                "hang" => conduct.hang = true,
                "flap" => conduct.flap = units::duration(&value).ok(),
                "close" => conduct.close = true,
                "deny" => conduct.deny = true,
                _ => {}
            }
        }
        conduct
    }

    /// What is done with a post that comes so long after the start.
    pub fn act(&self, elapsed: Duration) -> Act {
        let period = self.flap.map(|it| it.as_nanos()).filter(|it| *it > 0);
        let Some(period) = period else {
            return match self.hang {
                true => Act::Hang,
                false => Act::Answer(self.status.unwrap_or(USUAL)),
            };
        };
        let is_down = (elapsed.as_nanos() / period) % 2 == 1;
        match (is_down, self.hang, self.status) {
            (false, ..) => Act::Answer(USUAL),
            (true, true, _) => Act::Hang,
            (true, false, Some(status)) => Act::Answer(status),
            (true, false, None) => Act::Close,
        }
    }
}

/// The parameters of a query, decoded.
pub(super) fn query(text: &[u8]) -> impl Iterator<Item = (String, String)> {
    let pairs = text.split(|byte| *byte == b'&');
    pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let mut part = || decoded(parts.next().unwrap_or_default());
        (part(), part())
    })
}

fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                at += 3;
            }
            None => {
                bytes.push(if *byte == b'+' { b' ' } else { *byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
