//! HTTP/1.1 (RFC 9112) for both sides: heads read in one pass, with everything refused that another
//! implementation could read differently; bodies framed piece by piece where they lie.

mod body;
mod exchange;
mod grammar;
mod head;
mod request;
mod response;
mod target;
mod transfer;

pub use body::{BodyDecoder, BodyError, Framing, Piece};
pub use exchange::{ClientExchange, NoHead, Released};
pub use head::{ConnectionOptions, HeadError, HeadLimits, Version};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use target::{host_matches, is_host, is_path, is_target};
pub use transfer::{BodyReader, BodyWriter, End, REPLAY_MAX, ReadError, TransferError};
