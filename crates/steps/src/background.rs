//! Work that may block, with its result.

use component::handler::Services;
use message::{Fault, Kind, Origin};

use crate::under_way;

/// Does work that may block where it holds nobody up, and gives its result.
///
/// # Errors
/// `internal` when the work has not been done: it panicked, or the process is stopping.
pub(crate) async fn done<T: Send + 'static>(
    services: &dyn Services,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    let done = under_way::blocking(services, work).await;
    done.ok_or_else(|| {
        let detail = "work in the background has not been done";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    })
}
