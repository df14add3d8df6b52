//! Functions that are not written in jq. Those of the jaq crates are taken as they are where each
//! operation they are made of is counted; the others are here.

mod base;
mod codes;
mod decimals;
mod formats;
mod parts;
mod regex;
pub(super) mod simple;
mod times;

pub(super) use base::has;

use jaq_core::box_iter::box_once;
use jaq_core::native::{self, Fun};
use jaq_core::{Exn, Native, RunPtr, ValXs};

use super::counted::{Counted, Error};
use super::engine::Kind;
use super::guard::{CALL, NEST, TICK};
use super::meter;

/// What a native is called with: the context with its arguments, and its input.
pub(super) type Cv<'a> = jaq_core::Cv<'a, Kind>;
pub(super) type Results<'a> = ValXs<'a, Counted>;
pub(super) type Filter = native::Filter<RunPtr<Kind>>;

/// What the jaq crates have and we do not want, or have in another way.
const REPLACED: &[&str] = &[
    "env",
    "halt",
    "now",
    "localtime",
    "strflocaltime",
    "debug_empty",
    "stderr_empty",
    "error_empty",
    "jn",
    "yn",
    "sort",
    "sort_by",
    "group_by",
    "nearbyint",
    "range",
    "decode_base64",
    "decode_uri",
    "matches",
    "split_matches",
    "split_",
];

/// What the jaq crates have under another name.
const RENAMED: &[(&str, &str)] = &[
    ("limit", "limit_"),
    ("skip", "skip_"),
    ("rint", "nearbyint"),
];

/// All natives.
pub(super) fn all() -> impl Iterator<Item = Fun<Kind>> {
    let others = jaq_core::funs().chain(jaq_std::funs());
    let renamed = jaq_core::funs().chain(jaq_std::funs());
    let renamed = renamed.filter_map(|(name, arguments, native)| {
        let (_, renamed) = RENAMED.iter().find(|(known, _)| *known == name)?;
        Some((*renamed, arguments, native))
    });
    let others = others.filter(|(name, _, _)| !REPLACED.contains(name));
    let own = [
        base::all(),
        codes::all(),
        decimals::all(),
        formats::all(),
        parts::all(),
        regex::all(),
        times::all(),
    ];
    let own = own.into_iter().flatten();
    let ticks = [
        tick::<false, 16>(TICK),
        tick::<false, 192>(CALL),
        tick::<true, 192>(NEST),
    ];
    let own = own.map(native::run::<Kind>).chain([parts::last()]);
    others.chain(renamed).chain(own).chain(ticks)
}

/// The identity that counts steps, and memory for what waits meanwhile for its turn.
fn tick<const NESTS: bool, const MEMORY: usize>(name: &'static str) -> Fun<Kind> {
    let native = Native::new(|cv: Cv<'_>| match counted(NESTS, MEMORY) {
        Ok(()) => box_once(Ok(cv.1)),
        Err(error) => box_once(Err(error)),
    });
    let native = native.with_paths(|cv| match counted(NESTS, MEMORY) {
        Ok(()) => box_once(Ok(cv.1)),
        Err(error) => box_once(Err(error)),
    });
    let native = native.with_update(|cv, update| match counted(NESTS, MEMORY) {
        Ok(()) => update(cv.1),
        Err(error) => box_once(Err(error)),
    });
    (name, Box::new([]), native)
}

fn counted<'a>(nests: bool, memory: usize) -> Result<(), Exn<'a, Counted>> {
    let result = meter::steps(1).and_then(|()| meter::memory(memory));
    let result = match nests {
        true => result.and_then(|()| meter::nest()),
        false => result,
    };
    result.map_err(|stopped| Exn::from(Error::from(stopped)))
}
