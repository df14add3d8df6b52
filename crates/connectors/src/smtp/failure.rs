//! What a failure of the driver is to a flow. The cause names the connection, never its address.

use std::fmt::Display;

use lettre::transport::smtp::Error;
use message::{Fault, Kind, Origin, Retry};

fn connection_fault(detail: &'static str, retry: Retry) -> Fault {
    Fault::new(Kind::Connection, Origin::Upstream, detail).with_retry(retry)
}

/// There is no connection, so nothing has been sent.
pub(super) fn unreachable(connection: &str, cause: impl Display) -> Fault {
    let fault = connection_fault("the mail server cannot be reached", Retry::Yes);
    fault.with_cause(format_args!("connection `{connection}`: {cause}"))
}

/// The server does not let the engine in (RFC 4954, section 6).
pub(super) fn refused(connection: &str, error: &Error) -> Fault {
    let fault = match error.is_permanent() || error.is_client() {
        true => connection_fault("the mail server refuses the engine", Retry::No),
        false => connection_fault("the mail server cannot be reached", Retry::Yes),
    };
    fault.with_cause(format_args!("connection `{connection}`: {error}"))
}

/// The mail has not been taken in time; whether it will be is not known.
pub(super) fn late(connection: &str) -> Fault {
    let detail = "the mail server has not answered in time";
    let fault = Fault::new(Kind::Timeout, Origin::Upstream, detail);
    let fault = fault.with_retry(Retry::IfRepeatable);
    fault.with_cause(format_args!("connection `{connection}`: no answer in time"))
}

/// The mail was not taken (RFC 5321, section 4.2.1: 4yz is for now, 5yz for good).
pub(super) fn of_send(connection: &str, error: &Error) -> Fault {
    let fault = if error.is_permanent() {
        let detail = "the mail server does not take the mail";
        Fault::new(Kind::Nack, Origin::Upstream, detail)
    } else if error.is_transient() {
        let detail = "the mail server does not take the mail now";
        Fault::new(Kind::Unavailable, Origin::Upstream, detail).with_retry(Retry::Yes)
    } else if error.is_client() {
        Fault::invalid("the mail server cannot take such a mail")
    } else {
        let detail = "the connection to the mail server has broken";
        connection_fault(detail, Retry::IfRepeatable)
    };
    fault.with_cause(format_args!("connection `{connection}`: {error}"))
}
