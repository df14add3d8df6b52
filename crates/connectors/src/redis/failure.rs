//! What a failure of the driver is to a flow. The cause names the connection, never its address.

use message::{Fault, Kind, Origin, Retry};
use redis::{ErrorKind, RedisError};

/// Answers that say who asks may not, or is not known.
const REFUSED: [&str; 3] = ["NOAUTH", "WRONGPASS", "NOPERM"];
/// Answers of a server that has not done what was asked and may do it later.
const LATER: [&str; 10] = [
    "LOADING",
    "BUSY",
    "TRYAGAIN",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "MOVED",
];

/// The failure of a command that has been sent, or of the talk before the first one.
pub(super) fn of_error(connection: &str, error: &RedisError) -> Fault {
    let code = error.code().unwrap_or_default();
    let is_refused = REFUSED.contains(&code) || error.kind() == ErrorKind::AuthenticationFailed;
    let fault = if is_refused {
        connection_fault("the store refuses the engine")
    } else if LATER.contains(&code) {
        let detail = "the store cannot do this now";
        Fault::new(Kind::Unavailable, Origin::Upstream, detail).with_retry(Retry::Yes)
    } else if code == "WRONGTYPE" {
        let detail = "the store keeps something of another kind there".to_owned();
        Fault::raised("wrong-type", None, detail)
    } else if !code.is_empty() {
        let detail = "the store has refused a command".to_owned();
        Fault::raised("redis-error", None, detail).with_status(502)
    } else if error.is_timeout() {
        timeout()
    } else {
        let detail = "the connection to the store has broken";
        connection_fault(detail).with_retry(Retry::IfRepeatable)
    };
    fault.with_cause(format_args!("connection `{connection}`: {error}"))
}

/// No answer came in time.
pub(super) fn late(connection: &str) -> Fault {
    timeout().with_cause(format_args!("connection `{connection}`: no answer in time"))
}

fn timeout() -> Fault {
    let detail = "the store has not answered in time";
    Fault::new(Kind::Timeout, Origin::Upstream, detail).with_retry(Retry::IfRepeatable)
}

/// There is no connection, so nothing has been sent.
pub(super) fn unreachable(connection: &str, cause: impl std::fmt::Display) -> Fault {
    let fault = connection_fault("the store cannot be reached").with_retry(Retry::Yes);
    fault.with_cause(format_args!("connection `{connection}`: {cause}"))
}

fn connection_fault(detail: &'static str) -> Fault {
    Fault::new(Kind::Connection, Origin::Upstream, detail)
}
