//! XML Schema as far as messages of services need it: what elements may hold, and the two ways
//! between JSON and elements that it describes.

pub mod attributes;
pub mod builtin;
pub mod check;
pub mod compile;
pub mod components;
pub mod content;
pub mod decode;
pub mod encode;
pub mod facets;
pub mod lexical;
pub mod map_error;
pub mod model;
pub mod simple;
#[cfg(test)]
pub(crate) mod tests;
