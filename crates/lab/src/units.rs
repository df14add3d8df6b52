//! Durations and streams as arguments write them: `30ms`, `1.5s`, `10x10`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Reads `250us`, `30ms`, `3s` or `2m`; the number may have a fraction.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(format!("`{text}` has no unit: us, ms, s or m")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no duration such as 30ms"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| format!("`{text}`: {error}"))
}

/// Prints a duration so that [`duration`] reads it again.
pub fn show(duration: Duration) -> String {
    let microseconds = duration.as_micros();
    if microseconds.is_multiple_of(1_000_000) && microseconds > 0 {
        format!("{}s", microseconds / 1_000_000)
    } else if microseconds.is_multiple_of(1000) {
        format!("{}ms", microseconds / 1000)
    } else {
        format!("{microseconds}us")
    }
}

/// How users are spread: connections, and requests at once on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Streams {
    /// How many connections.
    pub connections: usize,
    /// Requests at once on each connection.
    pub each: usize,
}

impl Streams {
    /// One request at a time on each connection.
    pub fn single(connections: usize) -> Self {
        Self {
            connections,
            each: 1,
        }
    }

    /// All requests at once.
    pub fn users(self) -> usize {
        self.connections * self.each
    }
}

impl std::str::FromStr for Streams {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('x')
            .and_then(|(connections, each)| Some((connections.parse().ok()?, each.parse().ok()?)));
        match numbers {
            Some((connections, each)) if connections > 0 && each > 0 => {
                Ok(Self { connections, each })
            }
            _ => Err(format!(
                "`{text}` is not connections x streams such as 10x10"
            )),
        }
    }
}

impl std::fmt::Display for Streams {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}x{}", self.connections, self.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        for (text, microseconds) in [("250us", 250), ("30ms", 30_000), ("3s", 3_000_000)] {
            let read = duration(text).unwrap();
            assert_eq!(read, Duration::from_micros(microseconds));
            assert_eq!(show(read), text);
        }
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(show(Duration::ZERO), "0ms");
        for text in ["", "3", "s", "-1s", "3h", "1e400s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn streams_are_read_and_shown() {
        let streams: Streams = "10x30".parse().unwrap();
        assert_eq!(
            (streams.users(), streams.to_string()),
            (300, "10x30".into())
        );
        for text in ["10", "x", "0x1", "1x0", "ax1"] {
            assert!(text.parse::<Streams>().is_err(), "{text}");
        }
    }
}
