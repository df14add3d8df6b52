//! Work that may block, with its result.

use std::sync::{Arc, Mutex, PoisonError};

use component::handler::Services;
use message::{Fault, Kind, Origin};

/// Does work that may block where it holds nobody up, and gives its result.
///
/// # Errors
/// `internal` when the work has not been done: it panicked, or the process is stopping.
pub(crate) async fn done<T: Send + 'static>(
    services: &dyn Services,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    let place = Arc::new(Mutex::new(None));
    let result = Arc::clone(&place);
    let work = Box::new(move || {
        let done = work();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    });
    services.blocking(work).await;
    let done = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    done.ok_or_else(|| {
        let detail = "work in the background has not been done";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    })
}
