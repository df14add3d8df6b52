//! Requests that come back to the engine that has sent them: `CDN-Loop` (RFC 8586). An address does
//! not tell, where a load balancer or a proxy lies between.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use message::{Fault, HeadersView, Kind, Origin};

/// The header field.
pub const FIELD: &str = "CDN-Loop";

/// A request that so many have sent on goes in a circle, be it by way of engines that are called
/// something else after each restart.
pub const HOPS_MAX: usize = 16;

/// What a process calls itself when no file says so: the same for as long as it runs.
pub(super) fn process_id() -> Arc<str> {
    static ID: OnceLock<Arc<str>> = OnceLock::new();
    let make = || {
        let random = RandomState::new().build_hasher().finish();
        format!("intertie-{random:016x}").into()
    };
    Arc::clone(ID.get_or_init(make))
}

/// The names in all lines of the field, in order, without their parameters.
fn hops(headers: HeadersView<'_>) -> impl Iterator<Item = &[u8]> {
    let is_it = |name: &[u8]| name.eq_ignore_ascii_case(FIELD.as_bytes());
    let lines = headers.iter().filter(move |(_, name, _)| is_it(name));
    let members = lines.flat_map(|(_, _, value)| value.split(|byte| *byte == b','));
    let names = members.map(|member| member.split(|byte| *byte == b';').next());
    let names = names.map(|name| name.unwrap_or_default().trim_ascii());
    names.filter(|name| !name.is_empty())
}

/// Refuses a request that this engine has sent itself, or that too many have sent on.
///
/// # Errors
/// When it is one: 508 (RFC 5842, section 7.2).
pub fn check(id: &str, headers: HeadersView<'_>) -> Result<(), Fault> {
    let mut count = 0;
    for hop in hops(headers) {
        count += 1;
        if count > HOPS_MAX || hop.eq_ignore_ascii_case(id.as_bytes()) {
            let detail = "the request has come back to where it was sent from";
            let fault = Fault::new(Kind::Forbidden, Origin::Client, detail);
            return Err(fault.with_status(508));
        }
    }
    Ok(())
}

/// The lines of a request as one, for a request that is sent because of it.
pub fn passed_on(headers: HeadersView<'_>) -> Option<Vec<u8>> {
    let is_it = |name: &[u8]| name.eq_ignore_ascii_case(FIELD.as_bytes());
    let mut lines = headers.iter().filter(|(_, name, _)| is_it(name));
    let (_, _, first) = lines.next()?;
    let mut all = first.to_vec();
    for (_, _, value) in lines {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value);
    }
    Some(all)
}
